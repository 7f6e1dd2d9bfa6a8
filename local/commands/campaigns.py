"""Commands about campaigns: learning from owners who keep their rows, each of whom sends one report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.home import Home
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import PRIVATE, write_new
from local.campaign import campaigns, shared_campaigns
from local.campaign.defining import CampaignRequest, learner_for
from local.commands import campaign_states
from serving.cli.backends.user import require_access, this_user
from serving.cli.requests import key_values
from serving.cli.terminal import Json, align_columns, note, show

_TURN = "{turn} of {turns}: {turn_reports} reports, at least {turn_least} are needed"
FAR = ("has not spoken", "has opened its shares", "has answered")
Name = Annotated[str, typer.Argument(help="The campaign's name.")]
Evaluate = Annotated[str | None, typer.Option(help="Of institutions: measure this model, in place of learning one.")]
Part = Annotated[
    str, typer.Option(help="Of --evaluate: holdout, rows that institutions keep aside, or all, which learners read.")
]
Profile = Annotated[bool, typer.Option(help="Of institutions: count how rows are spread, in place of learning.")]


def register_population(
    name: Annotated[str, typer.Argument(help="The population's name.")],
    schema: Annotated[Path, typer.Option(help="The public schema of what owners hold.")],
    owners: Annotated[int, typer.Option(help="How many owners there are.")],
    epsilon: Annotated[str, typer.Option(help="The most that all campaigns together may cost one owner.")],
    delta: Annotated[str, typer.Option(help="Above 0: owners send shares to two aggregators, and not reports.")] = "0",
    family: Annotated[str | None, typer.Option(help="The family's name; the population's when left out.")] = None,
    unit: Annotated[
        str,
        typer.Option(
            help="The unit of privacy: owner; or, of institutions that bound what one contributes, record, or the "
            "column that names the person."
        ),
    ] = "owner",
    contributions: Annotated[int, typer.Option(help="Of persons: how many rows of one count at an institution.")] = 1,
    json: Json = False,
) -> None:
    """Register a population: owners who keep their rows, and what all campaigns together may cost one of them.

    \b
    dpserve campaign population people --schema people.yaml --owners 20000 --epsilon 5
    """
    home = Home.open()
    require_access(home, "steward")
    dataset = campaigns.found_population(home, name, schema, owners, epsilon, family, delta, unit, contributions)
    body = {"population": name, "owners": owners, "epsilon": epsilon, "delta": delta, "family": dataset.family,
            "entry": dataset.seq}  # fmt: skip
    with_delta = "" if delta == "0" else f" and delta {delta}"
    who = f"{owners} owners, epsilon {epsilon}{with_delta} each"
    if unit != "owner":
        who = f"{owners} institutions, epsilon {epsilon}{with_delta} for each {dataset.registration.unit.name}"
    show(json, body, f"population {name}: {who}, entry {dataset.seq}")


def open_campaign(
    name: Name,
    population: Annotated[str, typer.Option(help="Which owners are asked.")],
    epsilon: Annotated[str, typer.Option(help="What a report costs its owner, a decimal.")],
    owners: Annotated[int, typer.Option(help="How many owners may answer.")],
    invitations: Annotated[Path, typer.Option(help="A new file: one invitation a line, one line for each owner.")],
    public_rows: Annotated[
        Path | None, typer.Option(help="Rows without labels that are public, .csv or .parquet; not of shares.")
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(
            help="local-linear, or local-lr for owners of 20 rows or more; in turns local-ncc, local-stump and, with "
            "--rounds, local-lr; shared-additive, the only one of shares; auto, ebm or forest, of institutions."
        ),
    ] = None,
    delta: Annotated[str, typer.Option(help="Of shares: what one costs its owner beside epsilon.")] = "0",
    aggregator: Annotated[
        list[Path] | None, typer.Option(help="Of shares: the public file of an aggregator. To be given twice.")
    ] = None,
    groups: Annotated[
        int | None, typer.Option(help="Of shares: at most so many groups a feature; by the rule.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Of turns: how many base learners at most; by the rule.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Of institutions: a parameter of the learner, name=value.")
    ] = None,
    evaluate: Evaluate = None,
    part: Part = "holdout",
    profile: Profile = False,
    patience: Annotated[
        int | None, typer.Option(help="Of institutions: seconds that a round waits for one of them; 60 when left out.")
    ] = None,
    least: Annotated[int | None, typer.Option(help="Below so many nothing is learnt; all when left out.")] = None,
    model: Annotated[str | None, typer.Option(help="Name of the model; the campaign's when left out.")] = None,
    although_noise: Annotated[
        bool, typer.Option("--although-noise", help="Open it though its forecast is no better than guessing.")
    ] = False,
    json: Json = False,
) -> None:
    """Open a campaign: forecast what it is worth, price it, enter it in the log, and write the invitations.

    \b
    dpserve campaign open survey --population people --epsilon 1 --owners 20000 --public-rows public.csv \\
        --invitations invitations.txt
    """
    if invitations.exists():
        raise InputError(f"invitations={invitations}: is there already, and is not overwritten")
    home = Home.open()
    require_access(home, "train", dataset=population)
    what = learner_for(home.ledger.dataset(population), learner, evaluate, profile)
    request = CampaignRequest(
        name, population, what, epsilon, owners, public_rows, least, evaluate or model, delta,
        tuple(aggregator or ()), groups, rounds, tuple(key_values("--set", set_ or []).items()), patience,
        although_noise, part,
    )  # fmt: skip
    _tell_opened(home, campaigns.open_campaign(home, request, this_user()), invitations, json)


def _tell_opened(home: Home, body: dict[str, Any], invitations: Path, json: bool) -> None:
    """Write the invitations, and tell each aggregator's token."""
    name = body["campaign"]
    write_new(invitations, "".join(f"{each}\n" for each in campaigns.invitations(home, name)).encode(), PRIVATE)
    tokens = [shared_campaigns.token_for(home, name, at) for at in range(len(body["aggregators"]))]
    _tell({**body, **({"tokens": tokens} if tokens else {})}, json)
    for public, token in zip(body["aggregators"], tokens, strict=True):
        note(f"For aggregator {public['name']} alone: {token}")
    note(f"Each line of {invitations} is for one owner alone: who has it can report in that owner's place.")


def end_turn(name: Name, json: Json = False) -> None:
    """End the turn that is being asked, though not all its owners have answered: learn, publish, ask the next ones.

    \b
    dpserve campaign next survey
    """
    _tell(campaign_states.change(name, "next", None), json)


def give_up(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why, in one line; it is kept in the ledger.")],
    json: Json = False,
) -> None:
    """Give a campaign up: no report counts any more, there is no model, and the budget stays charged.

    \b
    dpserve campaign give-up survey --reason "an aggregator is gone for good"
    """
    _tell(campaign_states.change(name, "give-up", reason), json)


def close(name: Name, json: Json = False) -> None:
    """Close a campaign: no report counts any more; learn, certify, put the model among the served ones.

    \b
    dpserve campaign close survey
    """
    _tell(campaign_states.change(name, "close", None), json)


def show_campaign(
    name: Annotated[str | None, typer.Argument(help="The campaign's name; all of them when left out.")] = None,
    json: Json = False,
) -> None:
    """Show how far a campaign is: reports that came against those that are wanted.

    \b
    dpserve campaign show survey
    """
    if name is not None:
        return _tell(campaign_states.get(name), json)
    bodies = campaign_states.list_all()
    rows = [("CAMPAIGN", "STATE", "LEARNER", "EPSILON", "REPORTS", "OF AT LEAST", "MODEL")]
    keys = ("campaign", "state", "learner", "epsilon", "reports", "least", "model")
    rows += [tuple(str(body[key]) for key in keys) for body in bodies]  # type: ignore[misc]
    show(json, {"campaigns": bodies}, align_columns(rows))
    return None


def _tell(body: dict[str, Any], json: bool) -> None:
    with_delta = "" if body["delta"] == "0" else f" and delta {body['delta']}"
    forecast = body["forecast"] or {"says": "none: an older version opened it", "although_noise": False}
    who = "owners" if body["unit"] == "owner" else "institutions"
    lines = [
        ("campaign", f"{body['campaign']}: {body['state']}"),
        ("asks", f"{body['owners']} {who} of {body['population']}, by {body['learner']}"),
        ("costs", f"epsilon {body['epsilon']}{with_delta} for each {body['unit']}, once"),
        ("forecast", forecast["says"] + (", and opened although it is" if forecast["although_noise"] else "")),
        ("reports", f"{body['reports']}, at least {body['least']} are needed"),
        *([("turn", _TURN.format(**body))] if body["turns"] else []),
        *(
            ("aggregator", f"{aggregator['name']}: {FAR[aggregator['opened'] + aggregator['answered']]}")
            for aggregator in body["aggregators"]
        ),
        ("model", body["model"]),
        (
            "entries",
            f"reserved {body['job']}, opened {body['opened']}, closed {body['closed']}, issued {body['issued']}",
        ),
        ("definition", body["definition"]),
    ]
    show(json, body, align_columns(lines))

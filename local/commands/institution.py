"""Commands of an institution, whose rows stay in a home of its own: say what may be asked, answer campaigns round by
round, see what was asked and what it cost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.home import Home
from local.institution.answering import Answering, answer_noted, status_of
from local.institution.founding import NewInstitution, found_institution
from local.institution.settings import INVITATIONS, read_settings
from serving.cli.backends.server.pins import key_names
from serving.cli.backends.user import require_access, this_user
from serving.cli.server import open_or_make
from serving.cli.terminal import Json, align_columns, note, show, show_progress

HERE = Path("institution.toml")
Settings = Annotated[Path, typer.Option("--settings", help="Your institution.toml: whom you trust, dataset, policy.")]
Wait = Annotated[float, typer.Option(help="Seconds to wait for the answer of one round.")]


def init(
    url: Annotated[str, typer.Option(help="Where campaigns are: https://...")],
    trust: Annotated[Path, typer.Option(help="The pinned keys of who asks: the platform's trust.json.")],
    dataset: Annotated[str, typer.Option(help="Your dataset, registered here already or later.")],
    largest_epsilon: Annotated[str, typer.Option(help="The most that one campaign may cost.")],
    largest_delta: Annotated[str, typer.Option(help="The most delta that one campaign may cost.")],
    aggregator: Annotated[list[str], typer.Option(help="Fingerprint of one that you trust; once for each.")],
    learner: Annotated[list[str], typer.Option(help="What may ask: ebm, forest, evaluation, profile; once for each.")],
    least_institutions: Annotated[int, typer.Option(help="Answer no sum of fewer institutions.", min=1)],
    least_worth: Annotated[str, typer.Option(help="Answer none whose forecast is worth less: 0.5 is guessing.")],
    ca: Annotated[Path | None, typer.Option(help="The certificates that may speak for the service.")] = None,
    witnesses: Annotated[Path | None, typer.Option(help="Whose cosignatures the log must show (tlog-policy).")] = None,
    settings: Settings = HERE,
    json: Json = False,
) -> None:
    """Write your institution.toml, pin the keys of who asks, and make a home where there is none.

    \b
    dpserve institution init --url https://campaigns.example --trust trust.json --dataset clinic --largest-epsilon 2 --largest-delta 0.000001 --aggregator FINGERPRINT --learner ebm --learner forest --least-institutions 2 --least-worth 0.6
    """  # noqa: E501
    new = NewInstitution(
        url, trust, dataset, largest_epsilon, largest_delta, tuple(aggregator), tuple(learner), least_institutions,
        least_worth, ca, witnesses,
    )  # fmt: skip
    keys = key_names(found_institution(settings, new))
    home = open_or_make()
    body = {"settings": str(settings), "home": str(home.path), "keys": keys}
    show(json, body, align_columns([("settings", settings), ("home", home.path), *(("believed", key) for key in keys)]))
    note(
        "Compare these fingerprints with those that the platform reads out from `dpserve key list`, by another way "
        f"than the file came. Register {dataset}, put each invitation into {settings.parent / INVITATIONS}/CAMPAIGN, "
        "and start: dpserve institution start"
    )


def start(
    settings: Settings = HERE,
    wait: Wait = 600.0,
    once: Annotated[bool, typer.Option(help="Answer the invitations that are there to their end, and stop.")] = False,
) -> None:
    """Answer every campaign that you are invited to and your policy allows, until you are stopped; begun ones go on.

    \b
    dpserve institution start --settings institution.toml
    """
    own, home = read_settings(settings), Home.open()
    require_access(home, "train", dataset=own.dataset)
    answering = Answering(home, settings, this_user(), wait, note)
    if not once:
        answering.run()
    answering.look()
    answering.finish()


def show_status(settings: Settings = HERE, json: Json = False) -> None:
    """Show what campaigns have asked and cost, what was refused and why, and what is left. Asks nobody.

    \b
    dpserve institution status --settings institution.toml
    """
    own, home = read_settings(settings), Home.open()
    require_access(home, "train", dataset=own.dataset)
    body = status_of(home, own)
    show(json, body, _status_text(body))


def _status_text(body: dict[str, Any]) -> str:
    rows: list[tuple[Any, ...]] = [("CAMPAIGN", "STATE", "ROUND", "EPSILON", "DELTA", "JOB", "WHY")]
    for each in body["campaigns"]:
        cost = each["charged"] or {"epsilon": "0", "delta": "0", "job": ""}
        where = "" if each["rounds"] is None else f"{each['rounds']} of {each['of']}"
        rows.append(
            (each["campaign"], each["state"], where, cost["epsilon"], cost["delta"], cost["job"], each["why"] or "")
        )
    policy, budget = body["policy"], body["budget"]
    return "\n".join([
        f"dataset {body['dataset']}: total epsilon {budget['total']['epsilon']}, delta {budget['total']['delta']}. "
        f"{budget['left']['words']}",
        f"policy: a campaign costs at most epsilon {policy['largest_epsilon']} and delta {policy['largest_delta']}, by "
        f"{', '.join(policy['learners'])}, over at least {policy['least_institutions']} institutions, "
        f"forecast at {policy['least_worth'] or 'anything'} or more, at {body['url']}",
        align_columns(rows) if body["campaigns"] else "no campaign has asked yet",
    ])  # fmt: skip


def answer(
    campaign: Annotated[str, typer.Argument(help="The campaign's name.")],
    invitation: Annotated[str, typer.Option(help="Yours, dpi_...", envvar="DPSERVE_INVITATION")],
    settings: Settings = HERE,
    wait: Wait = 600.0,
    json: Json = False,
) -> None:
    """Answer a campaign: check it, charge your dataset once, send shares of sums until the last round. Started again,
    it goes on, charged once.

    \b
    dpserve institution answer survey --invitation dpi_0_0123abcd --settings institution.toml
    """
    own, home = read_settings(settings), Home.open()
    require_access(home, "train", dataset=own.dataset)
    with show_progress(f"campaign {campaign}") as progress:
        body = answer_noted(home, own, campaign, invitation, this_user(), wait, progress)
    show(
        json, body,
        f"answered {campaign} as institution {body['institution']}: {body['rounds']} rounds; dataset {body['dataset']} "
        f"was charged epsilon {body['epsilon']} and delta {body['delta']}, once, as job {body['job']}",
    )  # fmt: skip

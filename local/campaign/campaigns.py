"""A campaign from its opening to the model: reserve, start, define, ask, close, learn, certify.

`<home>/campaigns/<name>/` has the signed definition, the job's number, and the reports. What is true of a campaign
stands in the ledger: opened and closed entries, and the state of its job.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accountant.access import key_life
from accountant.errors import JobFailed, NameTaken, NotInvited, UnknownName, WrongState
from accountant.home import Home
from accountant.ledger import campaigns
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import OWNER, Registration, State, Unit, Why
from accountant.log import stored_proofs
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.budget import Budget, Relation, check_name
from dpserve_verify.system.files import PRIVATE, replace_file
from local.campaign.campaign_kinds import CampaignKind, kind_of
from local.campaign.defining import CampaignRequest, define, request_for
from local.campaign.questions import question_from_payload
from local.reports.question import Question
from local.reports.report_store import ReportStore
from training.datasets.made_up import profiles_behind
from training.finish.lease import Lease, this_process
from training.finish.release import lock_job
from training.kinds.registry import steps_of
from training.rows.schema.schema import parse_schema

ENVELOPE, JOB, REPORTS = "campaign.dsse.json", "job.json", "reports.db"
PREFIX = "dpi"
TOO_FEW, NOTHING_LEARNT = "too-few", "nothing-learnt"


def found_population(
    home: Home,
    name: str,
    schema_file: Path,
    owners: int,
    epsilon: str,
    family: str | None,
    delta: str = "0",
    unit: str = "owner",
    contributions: int = 1,
) -> Dataset:
    """Register people who keep their rows, with the most that all campaigns together may cost one of them. They send
    reports where `delta` is 0, and shares for two aggregators where it is above 0. Where `unit` is "record", or the
    column of a person, they are institutions that bound what one unit contributes, and the schema's `records` guess at
    all rows.

    InputError, NameTaken, SchemaError as for datasets. The schema is public; of owners its `records` have no meaning.
    """
    raw = schema_file.read_bytes()
    schema, budget = parse_schema(raw), Budget.of(epsilon, delta)
    if len(schema.targets) > 1:
        raise InputError(f"schema={schema_file.name}: {len(schema.targets)} targets; owners are asked about one")
    if schema.weight is not None:
        raise InputError("weight: rows of owners and institutions have none; leave it out of the schema")
    if owners < 1:
        raise InputError(f"owners={owners}: must be at least 1")
    commitment = home.keys.commitment([b"population", check_name("dataset", name).encode(), raw])
    folder = home.datasets / commitment
    folder.mkdir(mode=0o700, exist_ok=True)
    replace_file(folder / "schema.yaml", raw, PRIVATE, alone=True)
    relation = Relation.ADD_REMOVE if budget.delta else Relation.REPLACE_ONE
    of = Unit(unit) if unit in ("owner", "record") else Unit("person", unit, contributions)
    institutions = None if of.remote else owners
    records = owners if institutions is None else schema.records
    budget.check_delta(records)
    about = Registration(
        name, relation, budget, of, records, schema.digest, commitment, family_name=family, refined=schema.refined,
        institutions=institutions,
    )  # fmt: skip
    return home.ledger.register(about)


def open_campaign(home: Home, asked: CampaignRequest, by: str) -> dict[str, Any]:
    """Price, reserve, start, sign, and enter in the log; from here on owners may answer. What `state` says of it.

    BudgetRefused where the owners' budget does not hold it; InputError where schema, public rows and learner do not go
    together. A crash on the way burns the price at the most: nobody was asked yet.
    """
    check_name("campaign", asked.name)
    dataset = home.ledger.dataset(asked.population)
    if not dataset.registration.remote:
        raise InputError(f"population={asked.population}: is a dataset; owners are asked in a population of their own")
    definition = define(home, dataset, asked)
    home.keys.signer("issuer")  # KeyInvalid where this process has none, before anything is charged
    folder = home.path / "campaigns" / asked.name
    with lock_job(home, f"campaign-{asked.name}"):
        if folder.exists():
            raise NameTaken(f"campaign={asked.name}: there is one of this name", campaign=asked.name)
        behind = () if asked.public_rows is None else profiles_behind(home, asked.public_rows)
        request = replace(request_for(definition), made_from=behind, registered=dataset.seq)
        owner = this_process()
        unit = getattr(definition, "standard", definition.epsilon)  # of a learner's plan, as it was rehearsed
        job = home.ledger.reserve(request, unit, definition.plan, by=by, owner=owner, lease=Lease.SECONDS)
        home.ledger.start(job.seq, owner, Lease.SECONDS)
        folder.mkdir(mode=0o700, parents=True)
        key_life.keep_up(home)
        replace_file(folder / ENVELOPE, dsse.sign(definition.payload, home.keys.signer("issuer")), PRIVATE, alone=True)
        replace_file(folder / JOB, json.dumps({"job": job.seq}).encode(), PRIVATE, alone=True)
        ReportStore(folder / REPORTS).create()
        kind_of(home, folder, job.seq, definition, ReportStore(folder / REPORTS)).create()
        campaigns.open_campaign(home.ledger, job.seq, definition.digest)
    return state(home, asked.name)


@dataclass(frozen=True)
class Campaign:
    """One that was opened: its job, its signed definition, and how it goes on."""

    job: int
    envelope: bytes
    kind: CampaignKind[Any]

    @property
    def definition(self) -> Question:
        """Return what owners are asked."""
        asked: Question = self.kind.definition
        return asked

    @property
    def reports(self) -> ReportStore:
        """Return what owners have answered."""
        return self.kind.reports


def folder_of(home: Home, name: str) -> Path:
    """Return the folder of one campaign."""
    return home.path / "campaigns" / check_name("campaign", name)


def load(home: Home, name: str) -> Campaign:
    """Open a campaign. UnknownName where there is none of this name, or its opening was cut before anybody was
    asked.
    """
    folder = folder_of(home, name)
    try:
        envelope, job = (folder / ENVELOPE).read_bytes(), int(json.loads((folder / JOB).read_bytes())["job"])
    except OSError:
        raise UnknownName(f"campaign={name}: no such campaign", campaign=name) from None
    asked = question_from_payload(dsse.parse(envelope).payload)
    return Campaign(job, envelope, kind_of(home, folder, job, asked, ReportStore(folder / REPORTS)))


def names(home: Home) -> list[str]:
    """Return every campaign's name, in order."""
    folder = home.path / "campaigns"
    return sorted(path.parent.name for path in folder.glob(f"*/{JOB}")) if folder.exists() else []


def state(home: Home, name: str) -> dict[str, Any]:
    """Return how far it is: all of it public, for who answers and when is not protected."""
    campaign = load(home, name)
    opened = campaigns.entry_of(home.ledger, campaign.job, campaigns.OPENED)
    closed = campaigns.entry_of(home.ledger, campaign.job, campaigns.CLOSED)
    job, definition = home.ledger.job(campaign.job), campaign.definition
    public_state = "unopened" if opened is None else "open" if closed is None else job.public_state
    return {
        "campaign": name,
        "state": public_state if job.state is not State.BURNED else "burned",
        "population": definition.population,
        "unit": getattr(definition, "unit", OWNER).name,
        "learner": definition.learner,
        "epsilon": decimal_string(definition.epsilon),
        "model": definition.model,
        "owners": definition.owners,
        "least": definition.least,
        "reports": campaign.reports.count(),
        "definition": definition.digest,
        "public_rows": getattr(definition, "public_rows", "") or None,
        "forecast": None if definition.forecast is None else definition.forecast.shown(),
        **campaign.kind.turn_to_json(),
        "delta": decimal_string(definition.delta),
        "aggregators": campaign.kind.aggregators_to_json(),
        "job": campaign.job,
        "opened": opened,
        "closed": closed,
        "issued": job.issued,
    }


def offer(home: Home, name: str, seen: int = 0, witnessed: bool = False) -> dict[str, Any]:
    """Return what an owner fetches: the envelope over the definition, the proof that it is in the log, and how far it
    is. A turn whose end was cut by a crash ends here first.

    All proofs are of one checkpoint: the newest, or, `witnessed`, the newest that witnesses cosigned. `consistency` is
    the proof between it and the first `seen` entries of the log; None where there are fewer, or `seen` is 0.
    """
    load(home, name).kind.end_cut_turn()
    public, campaign = state(home, name), load(home, name)
    if public["opened"] is None:
        raise UnknownName(f"campaign={name}: was never opened", campaign=name)
    before, published = campaign.kind.published()
    answered = campaigns.answers_of(home.ledger, campaign.job)
    leaves = [public["opened"], *answered, *([] if published is None else [published])]
    proofs, growth = stored_proofs.newest_proof(home.ledger.log.database, home.path, leaves, seen, witnessed)
    return {
        **public,
        **before,
        "envelope": campaign.envelope.decode("ascii"),
        "proof": proofs[0],
        "ensemble_proof": None if published is None else proofs[-1],
        "answer_proofs": proofs[1 : 1 + len(answered)],
        "consistency": None if growth is None else growth.to_json(),
    }


def invitation(home: Home, name: str, owner: int) -> str:
    """Return what lets one owner report, once: `dpi_<number>_<mac>`. To be given to that owner alone."""
    mac = home.keys.commitment([b"invitation", name.encode(), str(owner).encode()])
    return f"{PREFIX}_{owner}_{mac[:40]}"


def invitations(home: Home, name: str) -> list[str]:
    """Return the invitation of every owner of the campaign, by number."""
    return [invitation(home, name, owner) for owner in range(load(home, name).definition.owners)]


def invited_owner(home: Home, name: str, invited: str) -> tuple[Campaign, int]:
    """Return the open campaign, and whose invitation it is. NotInvited for a stranger; WrongState before it is
    opened.
    """
    campaign = load(home, name)
    _, _, rest = invited.partition("_")
    number = rest.partition("_")[0]
    owner = int(number) if number.isdecimal() and len(number) <= 8 else -1
    genuine = 0 <= owner < campaign.definition.owners
    if not hmac.compare_digest(invitation(home, name, max(owner, 0)).encode(), invited.encode()) or not genuine:
        raise NotInvited(f"campaign={name}: this invitation is not one of its own", campaign=name)
    if campaigns.entry_of(home.ledger, campaign.job, campaigns.OPENED) is None:
        raise WrongState(f"campaign={name}: is not open", campaign=name)
    return campaign, owner


def receive(home: Home, name: str, invited: str, value: int) -> dict[str, Any]:
    """Take an owner's report in. The same again changes nothing and is answered alike. Where owners answer in turns,
    the last one of a turn ends it.

    NotInvited for a stranger, IdempotencyConflict for another report of the same owner, WrongState where it is not
    open or the owner's turn is over or has not come, InputError where `value` is no index of the campaign's vectors.
    """
    campaign, owner = invited_owner(home, name, invited)
    campaign.kind.add_report(owner, value)
    return {"campaign": name, "owner": owner, "report": value}


def end_turn(home: Home, name: str) -> dict[str, Any]:
    """End the turn whose owners are being asked, though not all of them have answered; what `state` says.

    WrongState where too few have, where there are no turns, or none is left.
    """
    with lock_job(home, f"campaign-{name}"):
        load(home, name).kind.end_turn()
    return state(home, name)


def give_up(home: Home, name: str, by: str, reason: str) -> dict[str, Any]:
    """End a campaign that comes to nothing: no report counts any more, there is no model, and the budget stays charged,
    for owners may have answered. WrongState where its job is over; InputError where `reason` is not one line.
    """
    campaign, why = load(home, name), Why(by, reason)
    with lock_job(home, f"campaign-{name}"):
        job = home.ledger.job(campaign.job)
        if job.state is not State.STARTED:
            raise WrongState(f"campaign={name}: is {job.public_state}, and cannot be given up", campaign=name)
        campaign.reports.close()
        _enter_close(home, campaign)
        home.ledger.burn(job.seq, f"given up by {why.by}: {why.reason}")
    return state(home, name)


def change(home: Home, name: str, act: str, by: str, reason: str | None = None) -> dict[str, Any]:
    """Do `next`, `close` or `give-up`, the last for a reason; return what `state` says then. Raises as they do."""
    if act == "give-up":
        return give_up(home, name, by, reason or "")
    return (end_turn if act == "next" else close)(home, name)


def _enter_close(home: Home, campaign: Campaign) -> None:
    kinds = (campaigns.OPENED, campaigns.CLOSED)
    opened, closed = (campaigns.entry_of(home.ledger, campaign.job, kind) for kind in kinds)
    if opened is not None and closed is None:
        count = campaign.reports.count()
        campaigns.close_campaign(home.ledger, campaign.job, campaign.definition.digest, count)


def close(home: Home, name: str) -> dict[str, Any]:
    """Take no more reports, learn from those that came, certify. Resumable from wherever an earlier try was cut. Shares
    are learnt from once both aggregators have answered: until then it is closed, and does no more. Of turns the one
    that is being asked ends, if enough have answered; those that never came are left out.

    JobFailed where fewer reported than were declared, or nothing was learnt from what they reported: there is no model,
    and the budget stays charged.
    """
    campaign = load(home, name)
    kind, least = campaign.kind, campaign.definition.least
    with lock_job(home, f"campaign-{name}"):
        kind.end_last_turn()
        campaign.reports.close()
        _enter_close(home, campaign)
        job, count = home.ledger.job(campaign.job), campaign.reports.count()
        steps = steps_of(home, job.seq)
        if job.state is State.STARTED:
            if kind.is_waiting(count):
                return state(home, name)
            count = kind.count_learnt(count)
            if count < least:
                home.ledger.burn(job.seq, TOO_FEW)
                raise JobFailed(
                    f"campaign={name}: {count} reports, fewer than the {least} declared; there is no model, and what "
                    "was charged stays charged",
                    job=job.seq,
                )
            model = kind.learn()
            if model is None:
                home.ledger.burn(job.seq, NOTHING_LEARNT)
                raise JobFailed(
                    f"campaign={name}: no turn has found a vote that is right more often than not beyond the noise; "
                    "there is no model, and what was charged stays charged: ask more owners, or at more epsilon",
                    job=job.seq,
                )
            home.ledger.commit(job.seq, steps.keep(model))
        steps.finish()
    return state(home, name)

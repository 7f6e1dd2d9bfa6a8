"""A campaign from its opening to the model: reserve, start, define, ask, close, learn, certify.

`<home>/campaigns/<name>/` has the signed definition, the job's number, and the reports. What is true of a campaign
stands in the ledger: opened and closed entries, and the state of its job.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accountant.budget import Budget, Relation, check_name
from accountant.canonical import decimal_string, decode
from accountant.errors import InputError, JobFailed, NameTaken, NotInvited, UnknownName, WrongState
from accountant.files import PRIVATE, replace_file
from accountant.home import Home
from accountant.keys import dsse
from accountant.ledger import campaigns, key_life
from accountant.ledger.families import Dataset
from accountant.ledger.records import OWNER, Registration, Request, State
from models.features import encode_columns
from training.lease import Lease, this_process
from training.local.definition import Definition
from training.local.groups import Groups
from training.local.learning import CANDIDATES, coordinates_for, favoured_for, learn
from training.local.question import Question
from training.local.questions import LEARNERS, question_from_payload
from training.local.report_store import ReportStore
from training.local.shared import (
    AGGREGATORS,
    SHARED_LEARNERS,
    Aggregator,
    SharedDefinition,
    aggregator_from_json,
    multiplier_for,
)
from training.local.shared_learning import groups_for, learn_shared
from training.local.sums import HELD, SUM, total_of
from training.release import alone, finish, keep
from training.rows.datasets import schema_of
from training.rows.row_files import column_types, read_columns
from training.rows.schema import Schema, parse_schema

ENVELOPE, JOB, REPORTS = "campaign.dsse.json", "job.json", "reports.db"
PREFIX = "dpi"
TOO_FEW = "too-few"


@dataclass(frozen=True)
class Asked:
    """A campaign in the words of who opens it. `owners`: who may answer; `least`: below so many nothing is learnt.

    Of shares: `delta`, the public files of the two `aggregators`, and how many `groups` a feature has at most (None: by
    the public rule). Of reports: `public_rows`.
    """

    name: str
    population: str
    learner: str
    epsilon: str
    owners: int
    public_rows: Path | None = None
    least: int | None = None
    model: str | None = None
    delta: str = "0"
    aggregators: tuple[Path, ...] = ()
    groups: int | None = None


def found_population(
    home: Home, name: str, schema_file: Path, owners: int, epsilon: str, family: str | None, delta: str = "0"
) -> Dataset:
    """People who keep their rows, and the most that all campaigns together may cost one of them: reports, where `delta`
    is 0, and shares for two aggregators, where it is above.

    InputError, NameTaken, SchemaError as for datasets. The schema is public, its `records` are of no meaning here.
    """
    raw = schema_file.read_bytes()
    schema, budget = parse_schema(raw), Budget.of(epsilon, delta)
    if len(schema.targets) > 1:
        raise InputError(f"schema={schema_file.name}: {len(schema.targets)} targets; owners are asked about one")
    if owners < 1:
        raise InputError(f"owners={owners}: must be at least 1")
    commitment = home.keys.commitment([b"population", check_name("dataset", name).encode(), raw])
    folder = home.datasets / commitment
    folder.mkdir(mode=0o700, exist_ok=True)
    replace_file(folder / "schema.yaml", raw, PRIVATE, alone=True)
    relation = Relation.ADD_REMOVE if budget.delta else Relation.REPLACE_ONE
    budget.check_delta(owners)
    about = Registration(name, relation, budget, OWNER, owners, schema.digest, commitment, family_name=family)
    return home.ledger.register(about)


def open_campaign(home: Home, asked: Asked, by: str) -> dict[str, Any]:
    """Price, reserve, start, sign, and enter in the log; from here on owners may answer. What `state` says of it.

    BudgetRefused where the owners' budget does not hold it; InputError where schema, public rows and learner do not go
    together. A crash on the way burns the price at the most: nobody was asked yet.
    """
    check_name("campaign", asked.name)
    dataset = home.ledger.dataset(asked.population)
    if not dataset.registration.unit.remote:
        raise InputError(f"population={asked.population}: is a dataset; owners are asked in a population of their own")
    definition = define(home, dataset, asked)
    folder = home.path / "campaigns" / asked.name
    with alone(home, f"campaign-{asked.name}"):
        if folder.exists():
            raise NameTaken(f"campaign={asked.name}: there is one of this name", campaign=asked.name)
        budget = Budget(definition.epsilon, definition.delta)
        request = Request(asked.population, asked.learner, budget, definition.parameters, definition.model)
        owner = this_process()
        job = home.ledger.reserve(request, definition.epsilon, definition.plan, by=by, owner=owner, lease=Lease.SECONDS)
        home.ledger.start(job.seq, owner, Lease.SECONDS)
        folder.mkdir(mode=0o700, parents=True)
        key_life.keep_up(home)
        replace_file(folder / ENVELOPE, dsse.sign(definition.payload, home.keys.signer("issuer")), PRIVATE, alone=True)
        replace_file(folder / JOB, json.dumps({"job": job.seq}).encode(), PRIVATE, alone=True)
        ReportStore(folder / REPORTS).create()
        campaigns.open_campaign(home.ledger, job.seq, definition.digest)
    return state(home, asked.name)


def define(home: Home, dataset: Dataset, asked: Asked) -> Question:
    """What all owners will be asked. Spends nothing. InputError where learner, population and what was given do not go
    together.
    """
    if asked.learner not in LEARNERS:
        raise InputError(f"learner={asked.learner!r:.60}: owners are asked by one of {', '.join(LEARNERS)}")
    shared, schema = asked.learner in SHARED_LEARNERS, schema_of(home, dataset)
    if shared != bool(dataset.delta):
        kind = "reports, for its delta is 0" if shared else "shares, for its delta is above 0"
        raise InputError(f"population={asked.population}: is asked for {kind}; {asked.learner} is not")
    if not 1 <= asked.owners <= dataset.registration.records:
        raise InputError(f"owners={asked.owners}: the population has {dataset.registration.records}")
    if shared:
        return _define_shares(dataset, schema, asked)
    if schema.classes is None or len(schema.classes) != 2:
        raise InputError(f"target={schema.target}: {asked.learner} tells two classes apart")
    if asked.public_rows is None or asked.aggregators:
        raise InputError(f"public_rows: {asked.learner} needs rows without labels, and no aggregators")
    epsilon = Budget.of(asked.epsilon, "0").epsilon
    codes, digest = public_codes(schema, asked.public_rows)
    coordinates = coordinates_for(schema.features, codes, asked.owners, float(epsilon))
    seed = home.keys.commitment(
        [b"campaign", asked.name.encode(), digest.encode(), str(home.ledger.log.size()).encode()]
    )
    return Definition(
        asked.name, asked.population, asked.model or asked.name, asked.learner, epsilon, asked.owners,
        asked.least or asked.owners, schema.target, tuple(map(str, schema.classes)), schema.features, coordinates,
        digest, seed, CANDIDATES, favoured_for(coordinates, float(epsilon)),
    )  # fmt: skip


def _define_shares(dataset: Dataset, schema: Schema, asked: Asked) -> SharedDefinition:
    budget = Budget.of(asked.epsilon, asked.delta)
    if asked.public_rows is not None:
        raise InputError("public_rows: shares need none; the schema alone is public")
    if budget.delta > dataset.delta:
        raise InputError(f"delta={budget.delta}: population {asked.population} has {dataset.delta} in all")
    groups = asked.groups or groups_for(asked.owners, float(budget.epsilon))
    return SharedDefinition(
        asked.name, asked.population, asked.model or asked.name, asked.learner, budget.epsilon, asked.owners,
        asked.least or asked.owners, schema.target, tuple(map(str, schema.classes or ())), schema.features,
        budget.delta, groups, multiplier_for(Groups(schema.features, groups), budget), schema.target_range,
        tuple(map(read_aggregator, asked.aggregators)),
    )  # fmt: skip


def read_aggregator(path: Path) -> Aggregator:
    """From the public file of one, as `dpserve aggregator init` writes it. InputError where it is none."""
    try:
        return aggregator_from_json(decode(path.read_bytes()))
    except OSError:
        raise InputError(f"aggregator={path.name}: cannot be read") from None


def public_codes(schema: Schema, path: Path) -> tuple[list[Any], str]:
    """Codes (features, n) of unlabelled public rows, and the file's sha256. InputError where it has the target."""
    if schema.target in column_types(path):
        raise InputError(f"public_rows={path.name}: has the target {schema.target!r}; public rows are without labels")
    parts = [encode_columns(schema.features, columns) for columns in read_columns(path, schema.features)]
    codes = [np.concatenate(each) for each in zip(*parts, strict=True)]
    if not codes or len(codes[0]) < 2:
        raise InputError(f"public_rows={path.name}: must have at least two rows")
    return codes, hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Campaign:
    """One that was opened: its job, its signed definition, its reports."""

    job: int
    envelope: bytes
    definition: Question
    reports: ReportStore


def load(home: Home, name: str) -> Campaign:
    """UnknownName where there is none of this name, or its opening was cut before anybody was asked."""
    folder = home.path / "campaigns" / check_name("campaign", name)
    try:
        envelope, job = (folder / ENVELOPE).read_bytes(), int(json.loads((folder / JOB).read_bytes())["job"])
    except OSError:
        raise UnknownName(f"campaign={name}: no such campaign", campaign=name) from None
    return Campaign(job, envelope, question_from_payload(dsse.parse(envelope).payload), ReportStore(folder / REPORTS))


def names(home: Home) -> list[str]:
    """Every campaign's name, in order."""
    folder = home.path / "campaigns"
    return sorted(each.parent.name for each in folder.glob(f"*/{JOB}")) if folder.exists() else []


def state(home: Home, name: str) -> dict[str, Any]:
    """How far it is: all of it public, for who answers and when is not protected."""
    campaign = load(home, name)
    opened = campaigns.entry_of(home.ledger, campaign.job, campaigns.OPENED)
    closed = campaigns.entry_of(home.ledger, campaign.job, campaigns.CLOSED)
    job, definition = home.ledger.job(campaign.job), campaign.definition
    said = "unopened" if opened is None else "open" if closed is None else job.public_state
    return {
        "campaign": name,
        "state": said if job.state is not State.BURNED else "burned",
        "population": definition.population,
        "learner": definition.learner,
        "epsilon": decimal_string(definition.epsilon),
        "model": definition.model,
        "owners": definition.owners,
        "least": definition.least,
        "reports": campaign.reports.count(),
        "definition": definition.digest,
        "public_rows": definition.public_rows if isinstance(definition, Definition) else None,
        "delta": decimal_string(definition.delta),
        "aggregators": _aggregators(campaign),
        "job": campaign.job,
        "opened": opened,
        "closed": closed,
        "issued": job.issued,
    }


def _aggregators(campaign: Campaign) -> list[dict[str, Any]]:
    """The two, and how far each is; none where reports are asked for."""
    if not isinstance(campaign.definition, SharedDefinition):
        return []
    held, answered = (campaign.reports.said(what) for what in (HELD, SUM))
    return [
        {"name": each.name, "fingerprint": each.fingerprint, "opened": at in held, "answered": at in answered}
        for at, each in enumerate(campaign.definition.aggregators)
    ]


def offer(home: Home, name: str) -> dict[str, Any]:
    """What an owner fetches: the envelope over the definition, the proof that it is in the log, and how far it is."""
    known = state(home, name)
    if known["opened"] is None:
        raise UnknownName(f"campaign={name}: was never opened", campaign=name)
    proof = home.ledger.log.proof(known["opened"])
    return {**known, "envelope": load(home, name).envelope.decode("ascii"), "proof": proof}


def invitation(home: Home, name: str, owner: int) -> str:
    """What lets one owner report, once: `dpi_<number>_<mac>`. To be given to that owner alone."""
    mac = home.keys.commitment([b"invitation", name.encode(), str(owner).encode()])
    return f"{PREFIX}_{owner}_{mac[:40]}"


def invitations(home: Home, name: str) -> list[str]:
    """Of every owner of the campaign, by number."""
    return [invitation(home, name, owner) for owner in range(load(home, name).definition.owners)]


def invited_owner(home: Home, name: str, invited: str) -> tuple[Campaign, int]:
    """The open campaign, and whose invitation it is. NotInvited for a stranger; WrongState before it is opened."""
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
    """Take an owner's report in. The same again changes nothing and is answered alike.

    NotInvited for a stranger, IdempotencyConflict for another report of the same owner, WrongState where it is not
    open, InputError where `value` is no index of the campaign's vectors.
    """
    campaign, owner = invited_owner(home, name, invited)
    if not isinstance(campaign.definition, Definition):
        raise InputError(f"campaign={name}: asks for shares, at .../shares")
    if not 0 <= value < campaign.definition.candidates:
        raise InputError(f"report={value}: must be from 0 to {campaign.definition.candidates - 1}")
    campaign.reports.add(owner, value)
    return {"campaign": name, "owner": owner, "report": value}


def close(home: Home, name: str) -> dict[str, Any]:
    """Take no more reports, learn from those that came, certify. Resumable from wherever an earlier try was cut. Shares
    are learnt from once both aggregators have answered: until then it is closed, and does no more.

    JobFailed where fewer reported than were declared: there is no model, and the budget stays charged.
    """
    campaign = load(home, name)
    with alone(home, f"campaign-{name}"):
        campaign.reports.close()
        count, definition = campaign.reports.count(), campaign.definition
        job = home.ledger.job(campaign.job)
        if campaigns.entry_of(home.ledger, job.seq, campaigns.CLOSED) is None:
            campaigns.close_campaign(home.ledger, job.seq, definition.digest, count)
        if job.state is State.STARTED:
            if isinstance(definition, SharedDefinition):
                if count >= definition.least and len(campaign.reports.said(SUM)) < AGGREGATORS:
                    return state(home, name)
                if count >= definition.least:
                    total, count = total_of(definition, campaign.reports.said(SUM))
            if count < definition.least:
                home.ledger.burn(job.seq, TOO_FEW)
                raise JobFailed(
                    f"campaign={name}: {count} reports, fewer than the {definition.least} declared; there is no "
                    "model, and what was charged stays charged",
                    job=job.seq,
                )
            if isinstance(definition, SharedDefinition):
                model = learn_shared(definition, total, count)
            else:
                assert isinstance(definition, Definition)
                model = learn(definition, *campaign.reports.all())
            home.ledger.commit(job.seq, keep(home, job.seq, model))
        finish(home, job.seq)
    return state(home, name)

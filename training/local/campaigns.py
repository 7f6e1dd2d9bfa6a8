"""A campaign from its opening to the model: reserve, start, define, ask, close, learn, certify.

`<home>/campaigns/<name>/` has the signed definition, the job's number, and the reports. What is true of a campaign
stands in the ledger: opened and closed entries, and the state of its job.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from accountant.budget import Budget, Relation, check_name
from accountant.canonical import decimal_string
from accountant.errors import InputError, JobFailed, NameTaken, NotInvited, UnknownName, WrongState
from accountant.files import PRIVATE, replace_file
from accountant.home import Home
from accountant.keys import dsse
from accountant.ledger import campaigns, key_life
from accountant.ledger.families import Dataset
from accountant.ledger.records import OWNER, Registration, Request, State
from models.features import encode_columns
from training.lease import Lease, this_process
from training.local.definition import LEARNERS, Definition, definition_from_payload
from training.local.learning import CANDIDATES, coordinates_for, favoured_for, learn
from training.local.report_store import ReportStore
from training.release import alone, finish, keep
from training.rows.datasets import schema_of
from training.rows.row_files import column_types, read_columns
from training.rows.schema import Schema, parse_schema

ENVELOPE, JOB, REPORTS = "campaign.dsse.json", "job.json", "reports.db"
PREFIX = "dpi"
TOO_FEW = "too-few"


@dataclass(frozen=True)
class Asked:
    """A campaign in the words of who opens it. `owners`: who may answer; `least`: below so many nothing is learnt."""

    name: str
    population: str
    learner: str
    epsilon: str
    owners: int
    public_rows: Path
    least: int | None = None
    model: str | None = None


def found_population(
    home: Home, name: str, schema_file: Path, owners: int, epsilon: str, family: str | None
) -> Dataset:
    """People who keep their rows, and the most epsilon that all campaigns together may cost one of them.

    InputError, NameTaken, SchemaError as for datasets. The schema is public, its `records` are of no meaning here.
    """
    raw = schema_file.read_bytes()
    schema, budget = parse_schema(raw), Budget.of(epsilon, "0")
    if len(schema.targets) > 1:
        raise InputError(f"schema={schema_file.name}: {len(schema.targets)} targets; owners are asked about one")
    if owners < 1:
        raise InputError(f"owners={owners}: must be at least 1")
    commitment = home.keys.commitment([b"population", check_name("dataset", name).encode(), raw])
    folder = home.datasets / commitment
    folder.mkdir(mode=0o700, exist_ok=True)
    replace_file(folder / "schema.yaml", raw, PRIVATE, alone=True)
    about = Registration(
        name, Relation.REPLACE_ONE, budget, OWNER, owners, schema.digest, commitment, family_name=family
    )
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
        budget = Budget(definition.epsilon, Decimal(0))
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


def define(home: Home, dataset: Dataset, asked: Asked) -> Definition:
    """The definition: coordinates from the public rows, the seed from the accountant's own key. Spends nothing."""
    if asked.learner not in LEARNERS:
        raise InputError(f"learner={asked.learner!r:.60}: owners are asked by one of {', '.join(LEARNERS)}")
    schema, epsilon = schema_of(home, dataset), Budget.of(asked.epsilon, "0").epsilon
    if schema.classes is None or len(schema.classes) != 2:
        raise InputError(f"target={schema.target}: {asked.learner} tells two classes apart")
    if not 1 <= asked.owners <= dataset.registration.records:
        raise InputError(f"owners={asked.owners}: the population has {dataset.registration.records}")
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
    definition: Definition
    reports: ReportStore


def load(home: Home, name: str) -> Campaign:
    """UnknownName where there is none of this name, or its opening was cut before anybody was asked."""
    folder = home.path / "campaigns" / check_name("campaign", name)
    try:
        envelope, job = (folder / ENVELOPE).read_bytes(), int(json.loads((folder / JOB).read_bytes())["job"])
    except OSError:
        raise UnknownName(f"campaign={name}: no such campaign", campaign=name) from None
    return Campaign(job, envelope, definition_from_payload(dsse.parse(envelope).payload), ReportStore(folder / REPORTS))


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
        "public_rows": definition.public_rows,
        "job": campaign.job,
        "opened": opened,
        "closed": closed,
        "issued": job.issued,
    }


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


def receive(home: Home, name: str, invited: str, value: int) -> dict[str, Any]:
    """Take an owner's report in. The same again changes nothing and is answered alike.

    NotInvited for a stranger, IdempotencyConflict for another report of the same owner, WrongState where it is not
    open, InputError where `value` is no index of the campaign's vectors.
    """
    campaign = load(home, name)
    _, _, rest = invited.partition("_")
    number = rest.partition("_")[0]
    owner = int(number) if number.isdecimal() and len(number) <= 8 else -1
    genuine = 0 <= owner < campaign.definition.owners
    if not hmac.compare_digest(invitation(home, name, max(owner, 0)).encode(), invited.encode()) or not genuine:
        raise NotInvited(f"campaign={name}: this invitation is not one of its own", campaign=name)
    if not 0 <= value < campaign.definition.candidates:
        raise InputError(f"report={value}: must be from 0 to {campaign.definition.candidates - 1}")
    if campaigns.entry_of(home.ledger, campaign.job, campaigns.OPENED) is None:
        raise WrongState(f"campaign={name}: is not open", campaign=name)
    campaign.reports.add(owner, value)
    return {"campaign": name, "owner": owner, "report": value}


def close(home: Home, name: str) -> dict[str, Any]:
    """Take no more reports, learn from those that came, certify. Resumable from wherever an earlier try was cut.

    JobFailed where fewer reported than were declared: there is no model, and the budget stays charged.
    """
    campaign = load(home, name)
    with alone(home, f"campaign-{name}"):
        campaign.reports.close()
        owners, reports = campaign.reports.all()
        job, definition = home.ledger.job(campaign.job), campaign.definition
        if campaigns.entry_of(home.ledger, job.seq, campaigns.CLOSED) is None:
            campaigns.close_campaign(home.ledger, job.seq, definition.digest, len(reports))
        if job.state is State.STARTED:
            if len(reports) < definition.least:
                home.ledger.burn(job.seq, TOO_FEW)
                raise JobFailed(
                    f"campaign={name}: {len(reports)} reports, fewer than the {definition.least} declared; there is no "
                    "model, and what was charged stays charged",
                    job=job.seq,
                )
            home.ledger.commit(job.seq, keep(home, job.seq, learn(definition, owners, reports)))
        finish(home, job.seq)
    return state(home, name)

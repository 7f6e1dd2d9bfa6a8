"""What a certificate says: built from the dataset, the request and the releases that were made, and signed.

Order without a circle: the reservation is in the log before any row is read; the statement names it; the `issued`
entry holds the statement's digest; the proof sidecar shows that entry in the log.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distributions, version
from typing import Any

from accountant.keys.private_keys import KeyStore
from accountant.ledger.families.families import Dataset, Family
from accountant.ledger.families.left import epsilon_left
from accountant.ledger.families.records import HOLDOUT, Registration, Request, Unit
from accountant.privacy.claims import Claim, claim
from dpserve_verify.certificates import sentences
from dpserve_verify.certificates.predicate import PREDICATE_TYPE, STATEMENT_LIMIT, STATEMENT_TYPE
from dpserve_verify.certificates.sentences import ADVERSARY, CONVERSIONS, PERSON, TOGETHER, TRUST, Growth, Trust
from dpserve_verify.certificates.vouched import MECHANISM
from dpserve_verify.formats import canonical
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.budget import from_nano
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.filter import price_to_json
from dpserve_verify.privacy.renyi import compose_pure, compose_rdp

LISTED = 1 << 16  # most characters of names and domains; beyond, the schema's digest speaks for them


@dataclass(frozen=True)
class Subject:
    """What a certificate speaks of: a model file's name and digest, the digest of the released numbers it was exported
    from, and what was public about its making. `domains`: what the schema says of each input, in its order;
    `range`: of a number, in place of classes, its public ends as texts; `format`: how the dataset's tables are written,
    as a text, "" as usual, None where it cannot be said."""

    model: str
    sha256: str
    ensemble: str
    learner: str
    inputs: tuple[str, ...]
    classes: tuple[str | int, ...] | None
    domains: Sequence[Mapping[str, Any]] = ()
    range: tuple[str, str] | None = None
    format: str | None = ""


def statement(
    subject: Subject, dataset: Dataset, request: Request, spent: Plan, origin: str, reservation: int, leaf: str
) -> bytes:
    """Encode the statement as canonical bytes. `spent`: the releases that were popped, equal to the reserved plan."""
    drawn = {release.mechanism for release, _ in spent.runs}
    predicate = {
        "claim": claim_to_json(claim(spent, request.budget.delta), spent, dataset),
        "mechanisms": spent.to_json(),
        "dataset": _dataset(dataset) | ({} if subject.format == "" else {"format": subject.format}),
        "public": _public(subject, request),
        "randomness": {"source": "operating system"} | ({} if MECHANISM in drawn else {"seeded": False}),
        "implementation": dict(implementation()),
        "ledger": {"origin": origin, "reservation": reservation, "leaf": leaf},
    }
    body: dict[str, Any] = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": subject.model, "digest": {"sha256": subject.sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": sentences.fill(predicate),
    }
    return canonical.encode(body, STATEMENT_LIMIT)


def sign(payload: bytes, keys: KeyStore) -> bytes:
    """Sign a statement with the issuer's key. Return the DSSE envelope."""
    return dsse.sign(payload, keys.signer("issuer"))


def order_text(order: float) -> str:
    """Return a Renyi order as certificates and the ledger spell it."""
    return decimal_string(Decimal(repr(order)))


def claim_to_json(claim: Claim, spent: Plan, dataset: Dataset) -> dict[str, Any]:
    """Return the promise about these releases, as statements have it."""
    orders = sorted({float(order) for order in dataset.orders} | ({claim.order} if claim.order else set()))
    pure = compose_pure(spent.events)
    unit, shared = dataset.registration.unit, dataset.registration.shared
    grown, over = dataset.window is not None, dataset.person is not None
    kept: Trust = "institutions" if dataset.registration.institutions else "local" if unit.remote else "central"
    trust: Trust = "two-aggregators" if shared else kept
    name = f"{unit.name} in a block" if grown and not over else unit.name
    bounds = bounding(unit, shared)
    if dataset.registration.institutions:
        bounds += ", at each institution, by itself"
    if grown and unit.column is not None:
        bounds += ", of all blocks that are read, block by block" if over else ", in each block"
    return {
        "variant": "pure" if claim.delta == 0 else "approximate",
        "epsilon": decimal_string(claim.epsilon),
        "delta": decimal_string(claim.delta),
        "bound": claim.bound,
        "pure": None if pure is None else decimal_string(from_nano(pure)),
        "rdp": [
            {"order": order_text(order), "epsilon": decimal_string(from_nano(compose_rdp(spent.events, order)))}
            for order in orders
        ],
        "conversion": CONVERSIONS[claim.bound],
        "order": None if claim.order is None else order_text(claim.order),
        "relation": dataset.registration.relation.value,
        "unit": {"name": name, "contributions": unit.contributions, "bounding": bounds},
        "trustModel": TRUST[trust],
        "adversary": ADVERSARY[trust],
        "release": "model",
    }


def bounding(unit: Unit, shared: bool = False) -> str:
    """Return how the records of one unit are bounded."""
    if shared:
        return "an owner contributes once: the mean over its records of a statistic whose length the schema bounds"
    if unit.remote:
        return "none needed: an owner answers once, with one report drawn from all of its records"
    if unit.column is None:
        return "none needed: a unit is a record"
    records = "record" if unit.contributions == 1 else f"{unit.contributions} records"
    return f"the first {records} of each value of {unit.column}, in file order"


def _dataset(dataset: Dataset) -> dict[str, Any]:
    registration = dataset.registration
    first = dataset.own[0] if dataset.window is None else dataset.most_used
    public_count = {} if registration.public_records is None else {"records": registration.public_records}
    several = [_account(family) for family in dataset.families] if len(dataset.identities) > 1 else None
    return {
        "name": registration.name,
        "uuid": dataset.uuid,
        "version": dataset.version,
        **_account(first),
        **({} if several is None else {"families": several}),
        "commitment": registration.commitment,
        "schema": registration.schema,
        **public_count,
        **weight_to_json(registration),
        **({} if dataset.window is None else {"blocks": blocks_to_json(dataset)}),
        **({} if dataset.person is None else {"person": person_to_json(dataset.person)}),
        "growth": {"state": _growth_of(dataset)},
        **queries_of(dataset),
        **made_from_to_json(dataset),
    }


def _growth_of(dataset: Dataset) -> Growth:
    """Say what bounds one unit over all blocks, of rows that name people; `sentences.fill` knows of all others."""
    if dataset.person is not None:
        return "person-total"
    return "person-total-by-default" if dataset.last is None else "each-block"


def made_from_to_json(dataset: Dataset) -> dict[str, Any]:
    """Return the releases that a job on the dataset was made from; nothing where there are none."""
    return {"madeFrom": [source.to_json() for source in dataset.made_from]} if dataset.made_from else {}


def counted_rows(dataset: Dataset, part: str) -> dict[str, Any]:
    """Say whose rows a statement of counts is about; the promise of their growth is filled in by `sentences.fill`."""
    registration = dataset.registration
    return {
        "dataset": registration.name,
        "uuid": dataset.uuid,
        "version": dataset.version,
        "families": [*dataset.identities],
        "part": part,
        "commitment": registration.commitment,
        "growth": {"state": _growth_of(dataset)},
        **weight_to_json(registration),
        **queries_of(dataset),
        **made_from_to_json(dataset),
    }


def weight_to_json(registration: Registration) -> dict[str, Any]:
    """State by what column records weigh, and the most that one may; nothing where all weigh alike."""
    return {} if registration.weight is None else {"weight": registration.weight.to_certificate()}


def part_to_json(dataset: Dataset, part: str) -> dict[str, Any]:
    """Say which rows of a dataset were counted, as public numbers do: how many there are, where that is public; the
    share of the units that the part is of, how many rows of one unit at most, and which blocks: nothing of these where
    they are all rows of a dataset that has not grown.
    """
    held, unit = dataset.holdout, dataset.registration.unit
    times = 1 if dataset.person is not None else max(1, len(dataset.blocks))
    rows = 1 if unit.column is None else unit.contributions * times
    share = None if held is None else held if part == HOLDOUT else 1 - held
    return {
        "records": dataset.registration.public_records,
        **({} if share is None else {"share": decimal_string(share), "unitRows": rows}),
        **({} if dataset.window is None else {"window": [*dataset.window]}),
    }


def queries_of(dataset: Dataset) -> dict[str, Any]:
    """State by which queries the rows were read; nothing where they are of files or whole tables."""
    every = [block.query for block in dataset.blocks] or [dataset.registration.query]
    counts = Counter(query for query in every if query is not None)
    found = [{**query.to_certificate(), "blocks": number} for query, number in counts.items()]
    return {"queries": list_if_short(found)} if found else {}


def person_to_json(person: Family) -> dict[str, Any]:
    """Return the total for one person over all blocks, where it stood, and what it promises."""
    stood = _account(person)
    return {**{name: stood[name] for name in ("budget", "largest", "after")}, "promise": PERSON}


def blocks_to_json(dataset: Dataset) -> dict[str, Any]:
    """Return which blocks of a growing dataset were read, and the promise to a person who is in several."""
    first, last = dataset.window or (1, 1)
    return {
        "first": first,
        "last": last,
        "of": dataset.last or 1,
        "tightest": dataset.most_used.block or 1,
        "commitments": hashlib.sha256("\n".join(dataset.commitments).encode()).hexdigest(),
        "together": TOGETHER if dataset.person is None else PERSON,
    }


def _account(family: Family) -> dict[str, Any]:
    """Return how a family's budget stood: sums over all that was reserved and not given back, whatever the total is
    now.
    """
    figures = {"epsilon": decimal_string(family.epsilon_of(family.used)), "left": decimal_string(epsilon_left(family))}
    return {
        "family": family.identity,
        "budget": family.budget.to_entry(),
        "largest": decimal_string(family.largest),
        **({"whole": True} if family.whole else {}),
        "after": {**price_to_json(family.used, family.filter.orders), **figures},
    }


def _public(subject: Subject, request: Request) -> dict[str, Any]:
    ends = {} if subject.range is None else {"range": dict(zip(("low", "high"), subject.range, strict=True))}
    return {
        **ends,
        "learner": subject.learner,
        "ensemble": subject.ensemble,
        "hyperparameters": dict(request.parameters),
        **({} if request.target is None else {"target": request.target}),
        "inputs": list_if_short(list(subject.inputs)),
        "domains": list_if_short(list(subject.domains)) if subject.domains else None,
        "classes": None if subject.classes is None else [str(label) for label in subject.classes],
    }


def list_if_short(items: list[Any]) -> list[Any] | None:
    """Return the list; None where it is too long: a certificate must never be too large to be issued."""
    return items if len(canonical.encode(items, STATEMENT_LIMIT * 64)) <= LISTED else None


def _name_and_version(found: Distribution) -> str:
    """Return what is installed, from the two lines that say it: a reader of mail takes a fifth of a training's time for
    all of their headers.
    """
    head = (found.read_text("METADATA") or found.read_text("PKG-INFO") or "").partition("\n\n")[0]
    words = dict(re.findall(r"(?m)^(Name|Version): *(\S+) *$", head))
    if len(words) < 2:
        words = {"Name": found.metadata["Name"], "Version": found.version}
    return f"{words['Name']}=={words['Version']}".lower()


@lru_cache(maxsize=1)
def implementation() -> tuple[tuple[str, str], ...]:
    """List the versions that matter, and one digest over everything installed."""
    installed = sorted({_name_and_version(found) for found in distributions()})
    try:
        own = version("dpserve")
    except PackageNotFoundError:  # run from its sources
        own = "source"
    return (
        ("dpserve", own),
        ("python", platform.python_version()),
        ("numpy", version("numpy")),
        ("environment", hashlib.sha256("\n".join(installed).encode()).hexdigest()),
        ("floats", "statistics are integers; samplers are exact; the one scale is rounded towards more noise"),
    )

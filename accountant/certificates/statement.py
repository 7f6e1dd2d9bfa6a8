"""What a certificate says: built from the dataset, the request and the releases that were made, and signed.

Order without a circle: the reservation is in the log before any row is read; the statement names it; the `issued`
entry holds the statement's digest; the proof sidecar shows that entry in the log.
"""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distributions, version
from typing import TYPE_CHECKING, Any

from accountant import canonical
from accountant.budget import from_nano
from accountant.canonical import decimal_string
from accountant.certificates.predicate import PREDICATE_TYPE, STATEMENT_LIMIT, STATEMENT_TYPE
from accountant.keys import dsse
from accountant.keys.private_keys import KeyStore
from accountant.later import later
from accountant.ledger.families import Dataset, Family
from accountant.ledger.left import epsilon_left
from accountant.ledger.records import Request, Unit
from accountant.privacy.claims import Claim, claim
from accountant.privacy.events import Plan, RepeatAndSelect
from accountant.privacy.filter import price_to_json
from accountant.privacy.renyi import compose_pure, compose_rdp

if TYPE_CHECKING:
    from accountant import one_of_k
else:
    one_of_k = later("accountant.one_of_k")  # verifiers draw nothing

TOGETHER = (
    "the promise is to each unit in each block; whoever stands in b blocks of the dataset has, for all that is ever "
    "released from it, b times the family's epsilon E at delta D (e^(b E) - 1) / (e^E - 1)"
)
PERSON = (
    "the rows of each person are bounded over all blocks that a job reads; so all that is ever released from the "
    "dataset keeps, for each person in however many blocks, the total for one person, and for whoever stands in one "
    "block alone the family's as well"
)
LISTED = 1 << 16  # most characters of names and domains; beyond, the schema's digest speaks for them
CONVERSIONS = {  # by prices.BOUNDS: how an auditor gets epsilon from the listed mechanisms
    "pure": "epsilon = the sum of the pure figures of all releases",
    "renyi": "epsilon = rdp + log(1 - 1/order) - (log(delta) + log(order)) / (order - 1)",
    "gaussian": (
        "mu^2 = the sum of 1 / (noise_multiplier^2 - 4 / sensitivity^2) over all releases; "
        "delta = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)"
    ),
    "adaptive": (
        "delta = V(epsilon), V computed from the last release to the first, beginning with max(0, 1 - exp(x)); "
        "before a bounded-range release of e: V(x) = max over t in [0, e] of p V'(x - t) + (1 - p) V'(x - t + e), "
        "p = (exp(e) - exp(t)) / (exp(e) - 1); before any other release with a pure price e: "
        "V(x) = q V'(x - e) + (1 - q) V'(x + e), "
        "q = 1 / (1 + exp(-e)); V' is V after that release"
    ),
}
CENTRAL = "central: the platform sees the rows, the reader of the model does not"
LOCAL = "local: nobody but its owner sees a row; the platform sees one random report of each owner"
SHARED = (
    "two-aggregators: nobody but its owner sees a row; if one of the two aggregators is honest, nobody sees more "
    "than sums over all owners, with that one's whole noise"
)
ADVERSARY = "anyone with the model, this certificate and any other knowledge, without bound on computation"
ADVERSARY_OF_OWNERS = (
    "anyone with every report, the model, this certificate and any other knowledge, the platform and all other owners "
    "included, without bound on computation"
)
ADVERSARY_OF_SHARES = (
    "anyone with the model, this certificate and any other knowledge, the platform, all other owners and one of the "
    "two aggregators included; sealed and split shares are kept from it by cryptography (HPKE), all else holds "
    "without bound on computation"
)
PREPROCESSING = "cut points and categories of the public schema; nothing was fitted to rows"
REMOTE_PREPROCESSING = (
    "cut points and categories of the public schema; coordinates fitted to public rows without labels, whose sha256 is "
    "under public.hyperparameters; nothing was fitted to the owners' rows"
)
NOT_COVERED_OF_QUERY = (
    "what a query ties together: nothing shows that each row it answers is about one unit alone; the steward says so, "
    "for the reason under queries"
)
NOT_COVERED_OF_OWNERS = (
    "owners who lie: a report moves the model by no more than any other report, but nothing shows that it is honest",
    "reports that somebody with other owners' invitations sends in their place",
    "the owners' own machines and programs, by which reports are drawn",
)
NOT_COVERED_OF_SHARES = (
    "both aggregators together: who has both shares of an owner has that owner's statistic",
    "owners who lie: what an owner sends is in shares, and nobody can see whether it is a statistic at all; one "
    "owner can move the model at will",
    "who took part: the promise compares sums with and without an owner's contribution, and participation is public",
    "the owners' own machines and programs, by which shares are made",
)
NOT_COVERED = (
    "what the schema says, and everything else that was public before any row was read",
    "who else holds or released the same records outside this ledger",
    "correlations between units of privacy: a unit's own records are protected, not what others' records reveal",
    "side channels of the machine that trained the model, and the accountant's own keys and disks",
    "an operator who rewrites and signs the whole ledger anew, where nobody else keeps its checkpoints",
)


@dataclass(frozen=True)
class Subject:
    """What a certificate speaks of: a model file's name and digest, the digest of the released numbers it was exported
    from, and what was public about its making. `domains`: what the schema says of each input, in its order;
    `range`: of a number, in place of classes, its public ends as texts."""

    model: str
    sha256: str
    ensemble: str
    learner: str
    inputs: tuple[str, ...]
    classes: tuple[str | int, ...] | None
    domains: Sequence[Mapping[str, Any]] = ()
    range: tuple[str, str] | None = None


def statement(
    subject: Subject, dataset: Dataset, request: Request, spent: Plan, origin: str, reservation: int, leaf: str
) -> bytes:
    """Canonical bytes of the statement. `spent`: the releases that were popped, equal to the reserved plan."""
    unit, shared = dataset.registration.unit, dataset.registration.shared
    library = one_of_k.LIBRARY if unit.remote and not shared else sampler()
    predicate = {
        "claim": claim_to_json(claim(spent, request.budget.delta), spent, dataset),
        "mechanisms": [{**run, "library": library} for run in spent.to_json()],
        "accounting": _accounting(spent),
        "dataset": _dataset(dataset),
        "public": _public(subject, request, unit.remote, shared),
        "preprocessing": REMOTE_PREPROCESSING if unit.remote and not shared else PREPROCESSING,
        "randomness": {"source": "operating system", "seeded": False},
        "implementation": dict(implementation()),
        "ledger": {"origin": origin, "reservation": reservation, "leaf": leaf},
        "notCovered": [
            *NOT_COVERED,
            *not_covered_of(dataset),
            *(NOT_COVERED_OF_SHARES if shared else NOT_COVERED_OF_OWNERS if unit.remote else ()),
        ],
    }
    body: dict[str, Any] = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": subject.model, "digest": {"sha256": subject.sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    return canonical.encode(body, STATEMENT_LIMIT)


def sign(payload: bytes, keys: KeyStore) -> bytes:
    """The DSSE envelope over a statement, by the issuer key."""
    return dsse.sign(payload, keys.signer("issuer"))


def not_covered_of(dataset: Dataset) -> tuple[str, ...]:
    """Say what no proof covers, where a steward answered for a query by a reason."""
    every = [block.query for block in dataset.blocks] or [dataset.registration.query]
    return (NOT_COVERED_OF_QUERY,) if any(query and query.reason for query in every) else ()


def order_text(order: float) -> str:
    """A Renyi order as certificates and the ledger spell it."""
    return decimal_string(Decimal(repr(order)))


def claim_to_json(found: Claim, spent: Plan, dataset: Dataset) -> dict[str, Any]:
    """What is promised of these releases, as statements have it."""
    orders = sorted({float(order) for order in dataset.orders} | ({found.order} if found.order else set()))
    pure = compose_pure(spent.events)
    unit, shared = dataset.registration.unit, dataset.registration.shared
    grown, over = dataset.window is not None, dataset.person is not None
    name = f"{unit.name} in a block" if grown and not over else unit.name
    bounds = bounding(unit, shared)
    if grown and unit.column is not None:
        bounds += ", of all blocks that are read, block by block" if over else ", in each block"
    return {
        "variant": "pure" if found.delta == 0 else "approximate",
        "epsilon": decimal_string(found.epsilon),
        "delta": decimal_string(found.delta),
        "bound": found.bound,
        "pure": None if pure is None else decimal_string(from_nano(pure)),
        "rdp": [
            {"order": order_text(order), "epsilon": decimal_string(from_nano(compose_rdp(spent.events, order)))}
            for order in orders
        ],
        "conversion": CONVERSIONS[found.bound],
        "order": None if found.order is None else order_text(found.order),
        "relation": dataset.registration.relation.value,
        "unit": {"name": name, "contributions": unit.contributions, "bounding": bounds},
        "trustModel": SHARED if shared else LOCAL if unit.remote else CENTRAL,
        "adversary": ADVERSARY_OF_SHARES if shared else ADVERSARY_OF_OWNERS if unit.remote else ADVERSARY,
        "release": "model",
    }


def bounding(unit: Unit, shared: bool = False) -> str:
    """How the records of one unit are bounded."""
    if shared:
        return "an owner contributes once: the mean over its records of a statistic whose length the schema bounds"
    if unit.remote:
        return "none needed: an owner answers once, with one report drawn from all of its records"
    if unit.column is None:
        return "none needed: a unit is a record"
    records = "record" if unit.contributions == 1 else f"{unit.contributions} records"
    return f"the first {records} of each value of {unit.column}, in file order"


def _accounting(spent: Plan) -> dict[str, Any]:
    selected = any(isinstance(release.event, RepeatAndSelect) for release, _ in spent.runs)
    return {
        "composition": "pure: sum; Renyi: sum at each order; valid for releases chosen adaptively",
        "coversTuning": selected,
        "coversPreprocessing": True,
        "tuning": "a private selection among settings, in the price"
        if selected
        else "none: hyper-parameters are public defaults or were given with the request, before any row was read",
    }


def _dataset(dataset: Dataset) -> dict[str, Any]:
    registration = dataset.registration
    first = dataset.own[0] if dataset.window is None else dataset.most_used
    public_count = {"records": registration.records} if registration.relation == "replace-one" else {}
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
        **({} if dataset.window is None else {"blocks": blocks_to_json(dataset)}),
        **({} if dataset.person is None else {"person": person_to_json(dataset.person)}),
        **queries_of(dataset),
    }


def queries_of(dataset: Dataset) -> dict[str, Any]:
    """State by which queries the rows were read; nothing where they are of files or whole tables."""
    every = [block.query for block in dataset.blocks] or [dataset.registration.query]
    counts = Counter(query for query in every if query is not None)
    found = [{**query.to_certificate(), "blocks": number} for query, number in counts.items()]
    return {"queries": listed(found)} if found else {}


def person_to_json(person: Family) -> dict[str, Any]:
    """The total for one person over all blocks, where it stood, and what it promises."""
    stood = _account(person)
    return {"budget": stood["budget"], "after": stood["after"], "promise": PERSON}


def blocks_to_json(dataset: Dataset) -> dict[str, Any]:
    """Of a dataset that grows, which blocks were read, and what is promised to who stands in several."""
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
    """Where a family's budget stood: sums over all that was reserved and not given back, whatever the total is now."""
    figures = {"epsilon": decimal_string(family.epsilon_of(family.used)), "left": decimal_string(epsilon_left(family))}
    return {
        "family": family.identity,
        "budget": family.budget.to_json(),
        "largest": decimal_string(family.largest),
        **({"whole": True} if family.whole else {}),
        "after": {**price_to_json(family.used, family.filter.orders), **figures},
    }


def _public(subject: Subject, request: Request, remote: bool, shared: bool) -> dict[str, Any]:
    ends = {} if subject.range is None else {"range": dict(zip(("low", "high"), subject.range, strict=True))}
    return {
        **ends,
        "learner": subject.learner,
        "ensemble": subject.ensemble,
        "hyperparameters": dict(request.parameters),
        **({} if request.target is None else {"target": request.target}),
        "inputs": listed(list(subject.inputs)),
        "domains": listed(list(subject.domains)) if subject.domains else None,
        "classes": None if subject.classes is None else [str(label) for label in subject.classes],
        "unprotected": ["schema", "hyper-parameters", "plan", "time of the ledger's entries"]
        + (["who answered, and when"] if remote else [])
        + (["the public rows, which are named by their digest"] if remote and not shared else []),
    }


def listed(what: list[Any]) -> list[Any] | None:
    """None where the list is too long: a certificate must never be too large to be issued."""
    return what if len(canonical.encode(what, STATEMENT_LIMIT * 64)) <= LISTED else None


def sampler() -> str:
    """What draws the noise: `accountant.mechanisms`, which has Laplace noise and randomized responses from OpenDP."""
    return f"dpserve {dict(implementation())['dpserve']} with opendp {version('opendp')}"


@lru_cache(maxsize=1)
def implementation() -> tuple[tuple[str, str], ...]:
    """Versions that matter, and one digest over everything installed."""
    installed = sorted({f"{found.metadata['Name']}=={found.version}".lower() for found in distributions()})
    try:
        own = version("dpserve")
    except PackageNotFoundError:  # run from its sources
        own = "source"
    return (
        ("dpserve", own),
        ("python", platform.python_version()),
        *((name, version(name)) for name in ("numpy", "opendp")),
        ("environment", hashlib.sha256("\n".join(installed).encode()).hexdigest()),
        ("floats", "statistics are integers; samplers are exact; the one scale is rounded towards more noise"),
    )

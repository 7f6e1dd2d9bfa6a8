"""The privacy certificate: an in-toto Statement v1 about one model file, in a DSSE envelope, bound to the ledger.

Order without a circle: the reservation is in the log before any row is read; the statement names it; the `issued`
entry holds the statement's digest; the proof sidecar shows that entry in the log. A stolen issuer key alone cannot
mint a valid certificate.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import distributions, version
from typing import Any

from accountant import canonical, dsse, proofs
from accountant.budget import NANO, Budget, from_nano
from accountant.canonical import decimal_string, parse_decimal
from accountant.errors import CertificateInvalid, InputError, LedgerInvalid
from accountant.events import Plan, plan_from_json
from accountant.filter import price_to_json
from accountant.keys import KeyStore, PublicKeys
from accountant.log import read_entry
from accountant.mechanisms import LIBRARY
from accountant.prices import Claim, claim, compose_pure, compose_rdp
from accountant.records import Dataset, Request

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://dpserve/privacy-certificate/v1"
STATEMENT_LIMIT = 1 << 19
CONVERSION = "epsilon = rdp + log(1 - 1/order) - (log(delta) + log(order)) / (order - 1)"
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
    from, and what was public about its making."""

    model: str
    sha256: str
    ensemble: str
    learner: str
    inputs: tuple[str, ...]
    classes: tuple[str | int, ...] | None


def statement(
    subject: Subject, dataset: Dataset, request: Request, spent: Plan, origin: str, reservation: int, leaf: str
) -> bytes:
    """Canonical bytes of the statement. `spent`: the releases that were popped, equal to the reserved plan."""
    found = claim(spent, request.budget.delta)
    predicate = {
        "claim": _claim(found, spent, dataset),
        "mechanisms": [{**run, "library": LIBRARY} for run in spent.to_json()],
        "accounting": {
            "composition": "pure: sum; Renyi: sum at each order; valid for releases chosen adaptively",
            "coversTuning": False,
            "coversPreprocessing": True,
        },
        "dataset": _dataset(dataset),
        "public": {
            "learner": subject.learner,
            "ensemble": subject.ensemble,
            "hyperparameters": dict(request.parameters),
            "inputs": list(subject.inputs),
            "classes": None if subject.classes is None else [str(label) for label in subject.classes],
            "unprotected": ["schema", "hyper-parameters", "plan", "time of the ledger's entries"],
        },
        "preprocessing": "cut points and categories of the public schema; nothing was fitted to rows",
        "randomness": {"source": "operating system", "seeded": False},
        "implementation": _implementation(),
        "ledger": {"origin": origin, "reservation": reservation, "leaf": leaf},
        "notCovered": list(NOT_COVERED),
    }
    body: dict[str, Any] = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": subject.model, "digest": {"sha256": subject.sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    return canonical.encode(body, STATEMENT_LIMIT)


def _claim(found: Claim, spent: Plan, dataset: Dataset) -> dict[str, Any]:
    orders = sorted({float(order) for order in dataset.filter.orders} | ({found.order} if found.order else set()))
    pure = compose_pure(spent.events)
    unit = dataset.registration.unit
    return {
        "variant": "pure" if found.delta == 0 else "approximate",
        "epsilon": decimal_string(found.epsilon),
        "delta": decimal_string(found.delta),
        "pure": None if pure is None else decimal_string(from_nano(pure)),
        "rdp": [
            {"order": _decimal(order), "epsilon": decimal_string(from_nano(compose_rdp(spent.events, order)))}
            for order in orders
        ],
        "conversion": "the pure sum" if found.order is None else CONVERSION,
        "order": None if found.order is None else _decimal(found.order),
        "relation": dataset.registration.relation.value,
        "unit": {"name": unit.name, "contributions": unit.contributions, "bounding": _bounding(unit.column)},
        "trustModel": "central: the platform sees the rows, the reader of the model does not",
        "adversary": "anyone with the model, this certificate and any other knowledge, without bound on computation",
        "release": "model",
    }


def _bounding(column: str | None) -> str:
    return (
        "none needed: a unit is a record"
        if column is None
        else f"the first records of each value of {column}, in file order"
    )


def _dataset(dataset: Dataset) -> dict[str, Any]:
    registration = dataset.registration
    public_count = {"records": registration.records} if registration.relation == "replace-one" else {}
    return {
        "name": registration.name,
        "uuid": dataset.uuid,
        "family": dataset.family,
        "commitment": registration.commitment,
        "schema": registration.schema,
        "budget": registration.budget.to_json(),
        "after": price_to_json(dataset.used, dataset.filter.orders),
        **public_count,
    }


def _implementation() -> dict[str, str]:
    """Versions that matter, and one digest over everything installed."""
    installed = sorted({f"{found.metadata['Name']}=={found.version}".lower() for found in distributions()})
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "opendp")},
        "environment": hashlib.sha256("\n".join(installed).encode()).hexdigest(),
        "floats": "statistics are integers; samplers are exact; the one scale is rounded towards more noise",
    }


def _decimal(order: float) -> str:
    return decimal_string(Decimal(repr(order)))


def sign(payload: bytes, keys: KeyStore) -> bytes:
    """The DSSE envelope over a statement, by the issuer key."""
    return dsse.sign(payload, keys.signer("issuer"))


def digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


@dataclass(frozen=True)
class Certificate:
    """A certificate that was verified, with the model it speaks of."""

    statement: Mapping[str, Any]
    model: str
    epsilon: Decimal
    delta: Decimal
    relation: str
    reservation: int
    issued: int
    checkpoint_size: int

    @property
    def claim(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.statement["predicate"]["claim"]
        return found


@dataclass(frozen=True)
class Policy:
    """What a verifier asks for beyond soundness: a ceiling on epsilon, the largest tree seen, entries known to be
    revoked.
    """

    largest_epsilon: Decimal | None = None
    smallest_size: int = 0
    revoked: Collection[int] = ()


def verify(envelope: bytes, proof: str, model: bytes, trust: PublicKeys, policy: Policy = Policy()) -> Certificate:
    """All checks that need no graph of the model. Raises CertificateInvalid (or LedgerInvalid for the proof); never
    warns.
    """
    parsed = proofs.parse_proof(proof)
    payload = dsse.verify(envelope, trust.issuer_keys(parsed.index))
    found = _read(payload, parsed.index)
    if digest(model) != found["sha256"]:
        raise CertificateInvalid("subject: the model's bytes are not those the certificate speaks of")
    epsilon, delta = _recompute(found["predicate"])
    if policy.largest_epsilon is not None and epsilon > policy.largest_epsilon:
        raise CertificateInvalid(f"epsilon={epsilon}: local policy admits at most {policy.largest_epsilon}")
    size = _in_log(parsed, payload, found, trust)
    if size < policy.smallest_size:
        raise CertificateInvalid(f"checkpoint: size {size} is below {policy.smallest_size}, which was seen before")
    if parsed.index in policy.revoked:
        raise CertificateInvalid(f"certificate: entry {parsed.index} was revoked")
    relation = str(found["predicate"]["claim"]["relation"])
    reservation = int(found["predicate"]["ledger"]["reservation"])
    return Certificate(found["statement"], found["name"], epsilon, delta, relation, reservation, parsed.index, size)


def _read(payload: bytes, index: int) -> dict[str, Any]:
    try:
        body: Any = canonical.decode_canonical(payload, STATEMENT_LIMIT)
        (subject,) = body["subject"]
        if set(body) != {"_type", "subject", "predicateType", "predicate"} or body["_type"] != STATEMENT_TYPE:
            raise CertificateInvalid("statement: not an in-toto Statement v1")
        if body["predicateType"] != PREDICATE_TYPE:
            raise CertificateInvalid(f"predicateType={body['predicateType']!r:.99}: must be {PREDICATE_TYPE}")
        if body["predicate"]["randomness"]["seeded"] is not False:
            raise CertificateInvalid("randomness: a seeded run is not private")
        if not 0 <= body["predicate"]["ledger"]["reservation"] < index:
            raise CertificateInvalid("ledger: the reservation must stand before the issued entry")
        sha256 = subject["digest"]["sha256"]
        return {"statement": body, "predicate": body["predicate"], "name": str(subject["name"]), "sha256": sha256}
    except (KeyError, TypeError, ValueError, canonical.CanonicalError) as error:
        raise CertificateInvalid(f"statement: not of the certificate's form ({error})") from error


def _recompute(predicate: Mapping[str, Any]) -> tuple[Decimal, Decimal]:
    """epsilon again, from the mechanisms that the certificate lists."""
    try:
        stated = predicate["claim"]
        epsilon, delta = parse_decimal(stated["epsilon"]), parse_decimal(stated["delta"])
        Budget(epsilon, delta)
        plan = plan_from_json([{k: v for k, v in run.items() if k != "library"} for run in predicate["mechanisms"]])
        figures = {line["order"]: parse_decimal(line["epsilon"]) for line in stated["rdp"]}
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise CertificateInvalid(f"claim: not of the certificate's form ({error})") from error
    for order, figure in figures.items():
        if figure * NANO != compose_rdp(plan.events, float(order)):
            raise CertificateInvalid(
                f"claim: Renyi figure {figure} at order {order} does not follow from the mechanisms"
            )
    if claim(plan, delta).epsilon != epsilon:
        raise CertificateInvalid(
            f"claim: epsilon {epsilon} does not follow from the mechanisms, {claim(plan, delta).epsilon} does"
        )
    return epsilon, delta


def _in_log(parsed: proofs.TlogProof, payload: bytes, found: Mapping[str, Any], trust: PublicKeys) -> int:
    """The `issued` entry is in the pinned log and binds this statement, this model and this reservation; tree size."""
    if parsed.extra is None:
        raise LedgerInvalid("proof: must carry the entry's bytes in its extra line")
    checkpoint = proofs.verify_proof(parsed, parsed.extra, trust.origin, trust.log_key)
    entry = read_entry(parsed.index, parsed.extra).value
    ledger = found["predicate"]["ledger"]
    expected = {
        "type": "issued",
        "statement": digest(payload),
        "model": found["sha256"],
        "name": found["name"],
        "reservation": ledger["reservation"],
    }
    for field, value in expected.items():
        if entry.get(field) != value:
            raise CertificateInvalid(f"entry {parsed.index}: its {field} is not the certificate's")
    if ledger["origin"] != trust.origin:
        raise CertificateInvalid(f"ledger: origin {ledger['origin']!r:.99} is not the pinned {trust.origin!r}")
    return checkpoint.size

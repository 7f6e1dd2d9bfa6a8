"""Read what a document states of the cost of a release made elsewhere: the signed statement of another dpserve,
the history of a run of DP-SGD, or a record of the deployments registry. Anything else is refused
(docs/privacy/outside.md).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any

from accountant.certificates.statement_kinds import STATEMENTS
from accountant.ledger.families.families import Dataset
from accountant.ledger.outside import PERSON, ROW
from accountant.privacy.sampled_gaussian import LARGEST, divergence
from dpserve_verify.certificates import sentences
from dpserve_verify.certificates.certificate import plan_of, recompute
from dpserve_verify.certificates.predicate import PREDICATE_TYPE, Predicate, Statement, read_as
from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.formats.forms import Form
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKey, PublicKeys, fingerprint, load_public_pem
from dpserve_verify.privacy.budget import MAX_EPSILON, NANO, Relation, exact_decimal, from_nano
from dpserve_verify.privacy.made_from import Name, Source, events_of
from dpserve_verify.privacy.outside import EPSILON, NO_BOUND, RENYI, RHO, Curve
from dpserve_verify.privacy.renyi import compose_pure, compose_rdp

ENVELOPE = frozenset({"payload", "payloadType", "signatures"})
HISTORY = frozenset({"history", "mechanism"})
RECORD = frozenset({"url_slug", "status", "tier", "deployment"})  # registry.opendp.org, as of July 2026
VARIANTS = {"Pure DP": (EPSILON,), "Approximate DP": (EPSILON, "delta"), "Zero-concentrated DP": (RHO,)}
ACCOUNTANTS = ("rdp", "prv", "gdp")  # of Opacus; whichever counted, the steps are the same
MOST_LINES, MOST_TERMS, MOST_BYTES = 10_000, 100_000, 1 << 20
LOW_NOISE, HIGH_NOISE, LOW_RATE = Decimal("0.01"), Decimal(10**6), Decimal("1e-9")
MOST_STEPS = 2**31 - 1
FORMS: dict[str, type[Form]] = {PREDICATE_TYPE: Statement, **{kind.rule.url: kind.form for kind in STATEMENTS}}


@dataclass(frozen=True)
class StatedCost:
    """What a document states: the curve at a dataset's orders; `unit`, which it protects, None where it does not say;
    its sha256; and, of a signed statement, the releases that the curve is of.
    """

    curve: Curve
    unit: str | None
    document: str
    releases: tuple[Name, ...] = ()


def read_statement(
    document: Mapping[str, Any], key: str | None, dataset: Dataset, origin: str, charged: Collection[Name] = ()
) -> StatedCost:
    """Read a document by its form.

    Args:
        document: A parsed JSON object.
        key: Of an envelope, the public key (PEM) or the trust file that its signature must verify by.
        dataset: Whose orders and neighbours the curve is needed for.
        origin: That of the ledger that is charged.
        charged: Releases that were charged to the dataset before: what a statement's release was made from is charged
            with it, each once.

    Raises:
        CertificateInvalid: An envelope's signature, form or claim does not hold.
        InputError: It has no form that is known, or states no cost that holds for the dataset.
    """
    if document.keys() == ENVELOPE:
        try:
            return _read_envelope(document, key, dataset, origin, charged)
        except CertificateInvalid as error:
            raise CertificateInvalid(f"{error.message}; nothing was charged") from error
    if key is not None:
        raise InputError("key: nothing is signed here; leave it out")
    if "history" in document and document.keys() <= HISTORY:
        return _read_history(document, dataset)
    if "deployment" in document and document.keys() <= RECORD:
        return _read_record(document)
    raise InputError(
        "statement: is none of the forms that are read: a signed statement of dpserve (.dsse.json), or the state of an "
        'accountant of DP-SGD, {"history": [[noise multiplier, sample rate, steps], ..], "mechanism": "rdp"}, or a '
        "record of the deployments registry as JSON. State the cost by epsilon at delta 0, rho, mu or a Renyi curve"
    )


def _read_envelope(
    document: Mapping[str, Any], key: str | None, dataset: Dataset, origin: str, charged: Collection[Name]
) -> StatedCost:
    if key is None:
        raise InputError("key: say whose signature it must bear: the other's issuer key in PEM, or its trust.json")
    try:
        envelope = canonical.encode(dict(document), dsse.ENVELOPE_LIMIT)
    except canonical.CanonicalError as error:
        raise CertificateInvalid(f"envelope: {error.message}") from error
    if key.lstrip().startswith("{"):
        issuers: Mapping[str, PublicKey] = PublicKeys.from_json(key.encode()).issuer_keys()
    else:
        public_key = load_public_pem(key)
        issuers = {fingerprint(public_key): public_key}
    payload = dsse.verify(envelope, issuers)
    parsed = canonical.decode(payload, len(payload))
    url = str(parsed.get("predicateType")) if isinstance(parsed, dict) else ""
    if url not in FORMS:
        raise CertificateInvalid(f"statement: predicate type {url!r:.80} is not one of {', '.join(FORMS)}")
    body, statement = read_as(payload, FORMS[url])
    predicate: Any = statement.predicate  # type: ignore[attr-defined]  # every form of a statement has it
    recompute(predicate.claim, predicate.mechanisms)
    sentences.check(body["predicate"])
    if predicate.ledger.origin == origin:
        raise InputError(
            f"statement: is of this very ledger, which charged it as job {predicate.ledger.reservation} already"
        )
    unit = _unit_of(predicate.claim, dataset)
    rows = predicate.dataset if isinstance(predicate, Predicate) else predicate.rows
    sources = [Source.from_json(line.to_json()) for line in rows.made_from or ()]
    own = predicate.ledger.origin, predicate.ledger.reservation
    events, inside = events_of(plan_of(predicate.mechanisms).events, sources, {own, *charged})
    pure = compose_pure(events)
    figures = [compose_rdp(events, float(order)) for order in dataset.orders]
    curve = _curve(dataset, figures, None if pure is None else from_nano(pure))
    return StatedCost(curve, unit, _digest(payload), (own, *inside))


def _unit_of(claim: Any, dataset: Dataset) -> str:
    """Return which unit a claim protects. InputError where it is not about the dataset's neighbours."""
    relation, name = dataset.registration.relation, claim.unit.name
    if claim.relation != relation.value:
        raise InputError(
            f"statement: speaks of {claim.relation} neighbours, and dataset {dataset.registration.name} of "
            f"{relation.value} ones; state what it costs under those by --epsilon, --rho, --mu or --renyi"
        )
    if not claim.trust_model.startswith("central:"):
        raise InputError("statement: its rows stayed with their owners; state what it costs one unit here by --epsilon")
    if name.partition(" ")[0] == ROW:  # a record is in one block alone
        return ROW
    if name != PERSON:
        raise InputError(f"statement: protects one {name:.40}; state what it costs one person by --epsilon or --rho")
    return PERSON


def _read_history(document: Mapping[str, Any], dataset: Dataset) -> StatedCost:
    """Price a run of DP-SGD. InputError where it is none, or the dataset's neighbours are replaced records."""
    lines, accountant = document["history"], document.get("mechanism", ACCOUNTANTS[0])
    if not isinstance(accountant, str) or accountant not in ACCOUNTANTS:
        raise InputError(f"mechanism={accountant!r:.40}: must be one of {', '.join(ACCOUNTANTS)}")
    if not isinstance(lines, list) or not 1 <= len(lines) <= MOST_LINES:
        raise InputError(f"history: must be 1 to {MOST_LINES} lines of noise multiplier, sample rate and steps")
    if dataset.registration.relation is not Relation.ADD_REMOVE:
        raise InputError("history: is priced for add/remove neighbours; state what it costs when a record is replaced")
    if not dataset.orders:
        raise InputError("history: Gaussian noise has no epsilon at delta 0, which is all that this dataset adds up")
    steps = Counter[tuple[Decimal, Decimal]]()
    for at, line in enumerate(lines, 1):
        noise, rate, count = _read_step(at, line)
        steps[noise, rate] += count
    orders = [ceil(order) for order in dataset.orders]  # the divergence does not fall as the order grows
    if len(steps) * sum(orders) > MOST_TERMS:
        raise InputError("history: has too many kinds of steps to be priced here; state its Renyi curve")
    figures = [
        ceil(NANO * sum(count * Fraction(divergence(*kind, order)) for kind, count in steps.items()))
        if order <= LARGEST
        else NO_BOUND
        for order in orders
    ]
    texts: list[canonical.Encodable] = [
        [decimal_string(noise), decimal_string(rate), count] for (noise, rate), count in sorted(steps.items())
    ]
    return StatedCost(_curve(dataset, figures, None), None, _digest(canonical.encode({"history": texts}, MOST_BYTES)))


def _read_step(at: int, line: Any) -> tuple[Decimal, Decimal, int]:
    if not isinstance(line, list) or len(line) != 3:
        raise InputError(f"history: line {at} must be a noise multiplier, a sample rate and a number of steps")
    noise, rate = exact_decimal(f"noise multiplier in line {at}", line[0]), exact_decimal(f"rate in line {at}", line[1])
    if not LOW_NOISE <= noise <= HIGH_NOISE:
        raise InputError(f"history: noise multiplier {noise} in line {at} must be {LOW_NOISE} to {HIGH_NOISE}")
    if not LOW_RATE <= rate <= 1:
        raise InputError(f"history: sample rate {rate} in line {at} must be {LOW_RATE} to 1")
    count = line[2]
    if isinstance(count, str) and count.isascii() and count.isdigit() and len(count) < 20:
        count = int(count)
    if type(count) is not int or not 1 <= count <= MOST_STEPS:
        raise InputError(f"history: steps in line {at} must be a whole number from 1 to {MOST_STEPS}")
    return noise, rate, count


def _read_record(document: Mapping[str, Any]) -> StatedCost:
    """Read a record of the deployments registry. InputError unless its variant and parameters state one curve."""
    deployment: Any = document["deployment"]
    parts = ("dp_variant", "variant_name"), ("privacy_loss", "privacy_parameters"), ("deployment_model", "model_name")
    try:
        variant, stated, model = (deployment[part][field] for part, field in parts)
        names = VARIANTS[variant]
    except (KeyError, TypeError):
        raise InputError(
            f"deployment: must name its dp_variant ({', '.join(VARIANTS)}), privacy_parameters and deployment_model; "
            "of another state the cost by --epsilon, --rho, --mu or --renyi"
        ) from None
    if model != "Central":
        raise InputError("deployment_model: is not Central; state what it costs one unit here by --epsilon or --rho")
    if not isinstance(stated, dict):
        raise InputError("privacy_parameters: must be an object")
    given = {name: value for name, value in stated.items() if name != "delta" or value not in (0, "0")}
    if given.keys() != set(names):
        raise InputError(
            f"privacy_parameters: of {variant} there must be {' and '.join(names)}, and nothing beside; state the cost "
            f"by {' and '.join(f'--{name}' for name in names)}"
        )
    exact = json.dumps(document, sort_keys=True, default=str).encode()
    return StatedCost(Curve.read(given), None, _digest(exact))


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _curve(dataset: Dataset, figures: Sequence[int], pure: Decimal | None) -> Curve:
    """Return the curve of these figures at the dataset's orders, beside a pure epsilon. InputError where nothing of it
    is small enough to be stated.
    """
    points = tuple(
        (order, from_nano(max(1, figure)))
        for order, figure in zip(dataset.orders, figures, strict=True)
        if figure < NO_BOUND
    )
    epsilon = pure if pure is not None and 0 < pure <= MAX_EPSILON else None
    stated = {
        **({} if epsilon is None else {EPSILON: epsilon}),
        **({RENYI: {decimal_string(order): figure for order, figure in points}} if points else {}),
    }
    if not stated:
        raise InputError("statement: costs more than any total of this dataset")
    return Curve.read(stated)

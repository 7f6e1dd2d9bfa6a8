"""The statement of how the rows of a dataset are spread: an in-toto statement about its public schema, signed as
certificates are, and bound to the ledger by a `profiled` entry. It states the noisy counts, from which every figure
follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

from accountant.certificates.statement import claim_to_json, counted_rows, implementation
from accountant.certificates.worth import Whole
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import Request
from accountant.privacy.claims import claim
from dpserve_verify.certificates import sentences
from dpserve_verify.certificates.certificate import digest, in_log, recompute
from dpserve_verify.certificates.predicate import (
    GROWTH,
    QUERIES,
    REFINED,
    STATEMENT_LIMIT,
    STATEMENT_TYPE,
    TOGETHER,
    WORDS,
    AccountingForm,
    ClaimForm,
    Count,
    Figure,
    GrowthForm,
    Hex,
    LedgerForm,
    MechanismForm,
    QueryForm,
    RandomnessForm,
    RefinedForm,
    SubjectForm,
    Text,
    TogetherForm,
    read_as,
)
from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.formats import canonical, forms
from dpserve_verify.formats.forms import Form, Limits, stated
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log import proofs
from dpserve_verify.privacy.events import Plan

PROFILE_TYPE = "https://dpserve/dataset-profile/v1"
METHOD = (
    "each interval holds what a test of the noisy counts does not refuse: figures of the rows themselves, numbers "
    "outside a column's ends taken as the nearer end; only the noise is left to chance"
)
Real = Annotated[str, Limits(pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?$", longest=30)]
Told = Annotated[list[Real | None], Limits(shortest=3, longest=3, about="value, low end, high end")]


class TableForm(Form):
    """Whose rows were counted."""

    dataset: Text
    uuid: Text
    version: Count
    families: list[Text] = stated(about="whose budgets were charged", limits=Limits(shortest=1))
    part: Literal["holdout", "training", "all"] = stated(
        about="holdout: kept aside, no learner reads it; training: what learners read; all: none is kept aside"
    )
    commitment: Hex
    records: Count | None = stated(about="how many rows there are, where that is public; else null")
    queries: list[QueryForm] | None = QUERIES
    refined: list[RefinedForm] | None = REFINED
    together: TogetherForm | None = TOGETHER
    growth: GrowthForm | None = GROWTH


class ColumnForm(Form):
    """One column: its public bins, how many rows fell into each, and what follows from that."""

    name: Text
    role: Literal["feature", "target"]
    type: Literal["numeric", "categorical", "boolean"]
    edges: list[Real] | None = stated(
        default=None, about="of a number: ascending; bin j holds edges[j-1] < x <= edges[j]"
    )
    ends: list[Real] | None = stated(
        default=None, about="of a number: the declared range", limits=Limits(shortest=2, longest=2)
    )
    values: list[Text] | None = stated(default=None, about="the categories, in the order of their counts")
    counts: list[Whole] = stated(about="bins or categories, then other values (categorical), then missing ones")
    missing: Told
    mean: Told | None = stated(default=None, about="of a number, where it is not missing")
    quantiles: list[Told] | None = stated(default=None, about="of a number, at `levels`, where it is not missing")
    shares: list[Told] | None = stated(default=None, about="of each category, of all rows, in the order of the counts")


class PairForm(Form):
    """Two columns together: rows by bin of the first, then of the second, each as in their own counts."""

    columns: list[Text] = stated(limits=Limits(shortest=2, longest=2))
    counts: list[Whole]


class ProfilePredicate(Form):
    """How the rows of a dataset are spread."""

    rows: TableForm
    claim: ClaimForm
    mechanisms: list[MechanismForm]
    accounting: AccountingForm
    grid: Count = stated(about="the counts are in 1 / grid rows")
    variance: Real = stated(about="of the noise in each count, in rows squared")
    columns: list[ColumnForm] = stated(limits=Limits(shortest=1))
    pairs: list[PairForm]
    records: Told
    level: Figure = stated(about="of each interval")
    levels: list[Figure] = stated(about="of the quantiles")
    method: Text
    randomness: RandomnessForm
    implementation: dict[str, Text]
    ledger: LedgerForm
    not_covered: list[Text] = stated(key="notCovered")
    words: Literal[2] | None = WORDS


class ProfileStatement(Form):
    """An in-toto Statement v1 about exactly one schema file."""

    type: Literal["https://in-toto.io/Statement/v1"] = stated(key="_type")
    subject: list[SubjectForm] = stated(limits=Limits(shortest=1, longest=1))
    predicate_type: Literal["https://dpserve/dataset-profile/v1"] = stated(key="predicateType")
    predicate: ProfilePredicate


@dataclass(frozen=True)
class Counted:
    """What was counted, beside what the ledger knows; all as the forms above have it."""

    part: str
    records: int | None
    grid: int
    figures: Mapping[str, Any]


@dataclass(frozen=True)
class Profile:
    """A statement that was verified. Only `verify` makes it. `schema`: sha256 of the schema file it is about; `entry`:
    the index of its `profiled` entry.
    """

    statement: Mapping[str, Any]
    form: ProfilePredicate
    dataset: str
    schema: str
    epsilon: Decimal
    delta: Decimal
    entry: int


def statement(
    counted: Counted, dataset: Dataset, request: Request, spent: Plan, origin: str, reservation: int, leaf: str
) -> bytes:
    """Canonical bytes of the statement. `dataset`: with the accounts of the part; `spent`: the releases as reserved."""
    registration = dataset.registration
    predicate = {
        "rows": {**counted_rows(dataset, counted.part), "records": counted.records},
        "claim": {**claim_to_json(claim(spent, request.budget.delta), spent, dataset), "release": "noisy counts"},
        "mechanisms": spent.to_json(),
        "grid": counted.grid,
        **counted.figures,
        "method": METHOD,
        "randomness": {"source": "operating system", "seeded": False},
        "implementation": dict(implementation()),
        "ledger": {"origin": origin, "reservation": reservation, "leaf": leaf},
    }
    body: dict[str, Any] = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": f"{registration.name}.schema", "digest": {"sha256": registration.schema}}],
        "predicateType": PROFILE_TYPE,
        "predicate": sentences.fill(predicate),
    }
    return canonical.encode(body, STATEMENT_LIMIT)


def read(payload: bytes) -> tuple[dict[str, Any], ProfileStatement]:
    """Exact signed bytes -> what they say, as JSON and by name. CertificateInvalid names the first thing wrong."""
    return read_as(payload, ProfileStatement)


def is_profile(envelope: bytes) -> bool:
    """Whether an envelope says that it holds a profile. Nothing is verified."""
    return f'"predicateType":"{PROFILE_TYPE}"'.encode() in dsse.parse(envelope).payload


def verify(envelope: bytes, proof: str, trust: PublicKeys) -> Profile:
    """Signature by a pinned issuer key, form, claim recomputed, place in the log, the entry that binds it. That the
    figures follow from the counts is checked by `models.profile.stated.check`.

    Raises:
        CertificateInvalid: the statement.
        LedgerInvalid: the proof and what it proves.
        KeyInvalid: no pinned key speaks for the entry, or for the checkpoint's size.
    """
    parsed = proofs.parse_proof(proof)
    payload = dsse.verify(envelope, trust.issuer_keys(parsed.index))
    body, stated = read(payload)
    predicate, subject = stated.predicate, stated.subject[0]
    if predicate.ledger.reservation >= parsed.index:
        raise CertificateInvalid("ledger: reservation and statement must stand in this order")
    epsilon, delta = recompute(predicate.claim, predicate.mechanisms)
    sentences.check(body["predicate"])
    expected = {
        "type": "profiled",
        "statement": digest(payload),
        "dataset": predicate.rows.dataset,
        "reservation": predicate.ledger.reservation,
    }
    in_log(parsed, expected, predicate.ledger.origin, trust, "statement")
    return Profile(body, predicate, predicate.rows.dataset, subject.digest.sha256, epsilon, delta, parsed.index)


def json_schema() -> dict[str, Any]:
    """The published schema of the statement."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{PROFILE_TYPE}/schema.json"}
    return {**head, **forms.json_schema(ProfileStatement)}


if __name__ == "__main__":
    import json

    print(json.dumps(json_schema(), indent=2))

"""What signed statements about released counts have in common: how each is built, found and verified.

A new kind is one subclass, with the form of its statement beside it, and its line in
`accountant.certificates.statement_kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol

from accountant.certificates.statement import claim_to_json, counted_rows, implementation
from accountant.errors import UnknownName
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import Request
from accountant.privacy.claims import claim
from dpserve_verify.certificates import sentences
from dpserve_verify.certificates.predicate import (
    APART,
    GROWTH,
    MADE_FROM,
    QUERIES,
    STATEMENT_LIMIT,
    STATEMENT_TYPE,
    TOGETHER,
    WEIGHT,
    WORDS,
    AccountingForm,
    ApartForm,
    ClaimForm,
    Count,
    Figure,
    GrowthForm,
    Hex,
    LedgerForm,
    MechanismForm,
    QueryForm,
    RandomnessForm,
    SourceForm,
    Text,
    TogetherForm,
    WeightForm,
    read_as,
)
from dpserve_verify.certificates.stated import Predicate, Rule, Stated, verify_stated
from dpserve_verify.formats import canonical, forms
from dpserve_verify.formats.forms import Form, Limits, form_field
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.privacy.events import Plan


class Place(Protocol):
    """A home, as far as statements lie in it and are verified by its keys."""

    @property
    def path(self) -> Path:
        """Return its folder."""

    @property
    def trust(self) -> PublicKeys:
        """Return its pinned keys."""


Whole = Annotated[int, Limits(low=-canonical.MAX_INTEGER, high=canonical.MAX_INTEGER)]


class CountedRows(Form):
    """Whose rows were counted."""

    dataset: Text
    uuid: Text
    version: Count
    families: list[Text] = form_field(about="whose budgets were charged", limits=Limits(shortest=1))
    part: Literal["holdout", "training", "all"] = form_field(
        about="holdout: kept aside, no learner reads it; training: what learners read; all: none is kept aside"
    )
    commitment: Hex
    queries: list[QueryForm] | None = QUERIES
    made_from: list[SourceForm] | None = MADE_FROM
    together: TogetherForm | None = TOGETHER
    weight: WeightForm | None = WEIGHT
    apart: list[ApartForm] | None = APART
    growth: GrowthForm | None = GROWTH


class CountsPredicate(Form):
    """What every statement of counts says: at which price they were released, how, and where that was reserved."""

    claim: ClaimForm
    mechanisms: list[MechanismForm]
    accounting: AccountingForm
    level: Figure = form_field(about="of each interval that follows")
    randomness: RandomnessForm
    implementation: dict[str, Text]
    ledger: LedgerForm
    not_covered: list[Text] = form_field(key="notCovered")
    words: Literal[2] = WORDS


class StatementKind(Generic[Predicate]):
    """A kind of statement.

    Attributes:
        rule: what whoever verifies it knows of it.
        form: of the whole statement.
        folder: where finished statements of this kind lie in a home, each in one with its job's number.
        release: what its claim is of.
    """

    rule: ClassVar[Rule]
    form: ClassVar[type[Form]]
    folder: ClassVar[str]
    release: ClassVar[str] = "noisy counts"

    @property
    def word(self) -> str:
        """Return what its files are called, and the key under which programs find it."""
        return self.rule.word

    @property
    def title(self) -> str:
        """Return what it is called in messages."""
        return self.rule.title

    @property
    def envelope_file(self) -> str:
        """Name of the file with the signed statement."""
        return f"{self.word}.dsse.json"

    @property
    def proof_file(self) -> str:
        """Name of the file that shows it in the log."""
        return f"{self.word}.tlog-proof"

    def encode(
        self,
        figures: Mapping[str, Any],
        rows: Mapping[str, Any],
        part: str,
        dataset: Dataset,
        request: Request,
        spent: Plan,
        place: Mapping[str, Any],
        about: tuple[str, str] | None = None,
    ) -> bytes:
        """Return the statement's canonical bytes.

        Args:
            figures: what this kind of statement says.
            rows: what it says of the rows, beside whose they are.
            part: which rows of the dataset were counted.
            dataset: with the accounts of the part, that the job was charged to.
            request: the job's.
            spent: its releases, as reserved.
            place: the log's `origin`, the job's `reservation`, and the `leaf` hash of that entry.
            about: name and sha256 of the file that it is about; the dataset's public schema where left out.
        """
        registration = dataset.registration
        name, sha256 = about or (f"{registration.name}.schema", registration.schema)
        predicate = {
            **figures,
            "rows": {**counted_rows(dataset, part), **rows},
            "claim": {**claim_to_json(claim(spent, request.budget.delta), spent, dataset), "release": self.release},
            "mechanisms": spent.to_json(),
            "randomness": {"source": "operating system", "seeded": False},
            "implementation": dict(implementation()),
            "ledger": dict(place),
        }
        body: dict[str, Any] = {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": sha256}}],
            "predicateType": self.rule.url,
            "predicate": sentences.fill(predicate),
        }
        return canonical.encode(body, STATEMENT_LIMIT)

    def read(self, payload: bytes) -> tuple[dict[str, Any], Any]:
        """Read exact signed bytes: what they say, as JSON and by name. CertificateInvalid names the first fault."""
        return read_as(payload, self.form)

    def is_in(self, envelope: bytes) -> bool:
        """Tell whether an envelope says that it holds a statement of this kind. Nothing is verified."""
        return f'"predicateType":"{self.rule.url}"'.encode() in dsse.parse(envelope).payload

    def verify(self, envelope: bytes, proof: str, trust: PublicKeys, about: bytes | None = None) -> Stated[Predicate]:
        """Verify as `verify_stated`, by the whole form. That figures follow from the counts is checked in `models`."""

        def read(payload: bytes) -> tuple[dict[str, Any], Predicate]:
            body, stated = self.read(payload)
            return body, stated.predicate

        return verify_stated(envelope, proof, trust, read, about)

    def place(self, home: Place, seq: int) -> Path:
        """Return the folder of a job's finished statement in a home."""
        return home.path / self.folder / str(seq)

    def file(self, home: Place, seq: int) -> Path:
        """Return the file of a job's signed statement in a home."""
        return self.place(home, seq) / self.envelope_file

    def open(self, home: Place, seq: int) -> tuple[bytes, bytes, Stated[Predicate]]:
        """Return the envelope and the proof of a finished statement, and what it says, verified against this home; that
        its figures follow from its counts was checked before it was put here. UnknownName where there is none.
        """
        try:
            envelope, proof = self.file(home, seq).read_bytes(), (self.place(home, seq) / self.proof_file).read_bytes()
        except OSError:
            raise UnknownName(f"job={seq}: no {self.title} of it is in this home", job=seq) from None
        return envelope, proof, self.verify(envelope, proof.decode("utf-8", "replace"), home.trust)

    def json_schema(self) -> dict[str, Any]:
        """Return the published schema of the statement."""
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{self.rule.url}/schema.json"}
        return {**head, **forms.json_schema(self.form)}

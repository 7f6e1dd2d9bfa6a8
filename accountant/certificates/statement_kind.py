"""What signed statements about released counts have in common: how each is built, found and verified.

A new kind is one subclass, with the form of its statement beside it, and its line in
`accountant.certificates.statement_kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic

from accountant.certificates.statement import claim_to_json, implementation
from accountant.errors import UnknownName
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import Request
from accountant.privacy.claims import claim
from dpserve_verify.certificates import sentences
from dpserve_verify.certificates.predicate import STATEMENT_LIMIT, STATEMENT_TYPE, read_as
from dpserve_verify.certificates.stated import Predicate, Rule, Stated, verify_stated
from dpserve_verify.formats import canonical, forms
from dpserve_verify.formats.forms import Form
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.privacy.events import Plan


class StatementKind(Generic[Predicate]):
    """A kind of statement.

    Attributes:
        rule: what whoever verifies it knows of it.
        form: of the whole statement.
    """

    rule: ClassVar[Rule]
    form: ClassVar[type[Form]]

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
        name: str,
        sha256: str,
        figures: Mapping[str, Any],
        dataset: Dataset,
        request: Request,
        spent: Plan,
        place: Mapping[str, Any],
    ) -> bytes:
        """Return the statement's canonical bytes.

        Args:
            name, sha256: what it is about.
            figures: what this kind of statement says.
            dataset: with the accounts that the job was charged to.
            request: the job's.
            spent: its releases, as reserved.
            place: the log's `origin`, the job's `reservation`, and the `leaf` hash of that entry.
        """
        predicate = {
            **figures,
            "claim": {**claim_to_json(claim(spent, request.budget.delta), spent, dataset), "release": "noisy counts"},
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

    def open(self, place: Path, trust: PublicKeys) -> tuple[bytes, bytes, Stated[Predicate]]:
        """Read the statement of a job from its folder in a home. Return its envelope, its proof, and what was verified.
        UnknownName where there is none.
        """
        try:
            envelope, proof = (place / self.envelope_file).read_bytes(), (place / self.proof_file).read_bytes()
        except OSError:
            raise UnknownName(f"job={place.name}: no {self.title} of it is in this home", job=int(place.name)) from None
        return envelope, proof, self.verify(envelope, proof.decode("utf-8", "replace"), trust)

    def json_schema(self) -> dict[str, Any]:
        """Return the published schema of the statement."""
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{self.rule.url}/schema.json"}
        return {**head, **forms.json_schema(self.form)}

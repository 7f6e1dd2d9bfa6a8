"""What verifies a signed statement about released counts: what a model is worth, a profile, an answer to a query. Its
signature, its price, and its place in the ledger. That each figure follows from the counts is for `dpserve verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Generic, TypeVar

from dpserve_verify.certificates import attack, sentences
from dpserve_verify.certificates.certificate import digest, in_log, plan_of, recompute
from dpserve_verify.certificates.headline import headline_of, parts_of
from dpserve_verify.certificates.predicate import (
    APART,
    MADE_FROM,
    STATEMENT_LIMIT,
    TOGETHER,
    WEIGHT,
    ApartForm,
    ClaimForm,
    Index,
    LedgerForm,
    MechanismForm,
    SourceForm,
    SubjectForm,
    Text,
    TogetherForm,
    WeightForm,
)
from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.formats.forms import Form, Limits, NotOfTheForm, form_field
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log import proofs

PREDICATE_KEY = "predicateType"


class PricedRows(Form):
    """Whose rows were counted, and from what it was made."""

    dataset: Text
    part: Text
    made_from: list[SourceForm] | None = MADE_FROM
    together: TogetherForm | None = TOGETHER
    apart: list[ApartForm] | None = APART
    weight: WeightForm | None = WEIGHT


class Certified(Form):
    """A model that was measured, and the entry that certifies it."""

    name: Text
    certificate: Index


class Priced(Form):
    """What every kind of statement has: the rows, the price, and where the job was reserved."""

    rows: PricedRows
    claim: ClaimForm
    mechanisms: list[MechanismForm] = form_field(limits=Limits(shortest=1))
    ledger: LedgerForm
    model: Certified | None = form_field(default=None)
    against: Certified | None = form_field(default=None)
    attack: attack.AttackForm | None = form_field(default=None)

    PARTS: ClassVar[Mapping[str, type[Form]]] = {"rows": PricedRows, "model": Certified, "against": Certified}


@dataclass(frozen=True)
class Rule:
    """A kind of statement, as whoever verifies it knows it.

    Attributes:
        word: what its files are called, and the key under which programs find it.
        title: what it is called in messages.
        url: the predicate's type.
        entry: the type of the entry that binds it.
        about_model: whether it is about a certified model's file; else about a dataset's public schema.
    """

    word: str
    title: str
    url: str
    entry: str
    about_model: bool = False

    def bound_fields(self, name: str, sha256: str, predicate: Any) -> dict[str, Any]:
        """Return what its entry says beside statement and job. `name`, `sha256`: what the statement is about."""
        bound = {"model": sha256, "name": name} if self.about_model else {"dataset": predicate.rows.dataset}
        if self is not ATTACK:
            return bound
        found = predicate.attack
        counts = {"runs": found.runs, "right": found.right, "refuted": None}  # one above its claim was refused
        return {**bound, **counts, "started": found.started, "coins": attack.commitment(found.secret, found.coins)}

    def check(self, predicate: Any, entry: int, trust: PublicKeys) -> None:
        """Raise CertificateInvalid where a certificate stands after the statement, or that of the model was revoked."""
        if not self.about_model:
            return
        for name in ("model", *(("attack",) if self is ATTACK else ())):
            if getattr(predicate, name) is None:
                raise CertificateInvalid(f"predicate.{name}: Field required")
        others = (predicate.model, getattr(predicate, "against", None))
        certified = [each.certificate for each in others if each is not None]
        if max(certified) >= entry:
            raise CertificateInvalid("ledger: certificate and reservation must stand before the statement")
        if predicate.model.certificate in trust.revoked:
            raise CertificateInvalid(f"model: its certificate, entry {predicate.model.certificate}, was revoked")


WORTH = Rule("worth", "statement of worth", "https://dpserve/model-worth/v1", "evaluated", about_model=True)
PROFILE = Rule("profile", "profile", "https://dpserve/dataset-profile/v1", "profiled")
ANSWER = Rule("answer", "answer", "https://dpserve/query-answer/v1", "profiled")
ATTACK = Rule("attack", "attack", "https://dpserve/model-attack/v2", "attacked", about_model=True)
RULES = {rule.url: rule for rule in (PROFILE, ANSWER, WORTH, ATTACK)}


Predicate = TypeVar("Predicate", bound=Any)  # has rows, claim, mechanisms and ledger


@dataclass(frozen=True)
class Stated(Generic[Predicate]):
    """A statement that was verified. Only `verify_stated` makes it.

    Attributes:
        statement: as JSON.
        form: its predicate, by name.
        name: of what it is about.
        sha256: of the file that it is about.
        entry: the index of the entry that binds it.
        rule: of its kind.
    """

    statement: Mapping[str, Any]
    form: Predicate
    name: str
    sha256: str
    epsilon: Decimal
    delta: Decimal
    entry: int
    rule: Rule

    @property
    def headline(self) -> tuple[Decimal, Decimal]:
        """Return what one who has the statement has of one unit, epsilon and delta."""
        return headline_of(self.form.rows, self.epsilon, self.delta)

    @property
    def parts(self) -> tuple[str, ...]:
        """Say what the headline is the sum of, as `headline.parts_of`."""
        return parts_of(self.form.rows, self.epsilon, self.delta)


Reader = Callable[[bytes], tuple[Mapping[str, Any], Any]]


def read_priced(payload: bytes) -> tuple[dict[str, Any], Priced]:
    """Read of a statement of any kind what its price and its place follow from. CertificateInvalid if it has none."""
    try:
        body: Any = canonical.decode_canonical(payload, STATEMENT_LIMIT)
        rule_of(body)
        predicate = _only(Priced, body["predicate"])
        for name, form in Priced.PARTS.items():
            if name in predicate:
                predicate[name] = _only(form, predicate[name])
        return body, Priced.read(predicate)
    except canonical.CanonicalError as error:
        raise CertificateInvalid(f"statement: {error.message}") from error
    except NotOfTheForm as error:
        raise CertificateInvalid(f"predicate.{'.'.join(map(str, error.place)):.99}: {error.message:.200}") from None
    except (LookupError, TypeError, AttributeError) as error:
        raise CertificateInvalid("statement: has no predicate of a known form") from error


def _only(form: type[Form], value: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what this form does not read."""
    known = form.keys()
    return {key: part for key, part in value.items() if key in known}


def verify_stated(
    envelope: bytes, proof: str, trust: PublicKeys, read: Reader = read_priced, about: bytes | None = None
) -> Stated[Any]:
    """Verify the signature by a pinned issuer key, the claim, the place in the log, the entry that binds it; and, where
    the file that it is `about` is at hand, that these are its bytes.

    `read`: what the exact signed bytes say, as JSON and as a form of the predicate, which may be stricter.

    Raises:
        CertificateInvalid: the statement, or the file that it is about.
        LedgerInvalid: the proof and what it proves.
        KeyInvalid: no pinned key speaks for the entry, or for the checkpoint's size.
    """
    parsed = proofs.parse_proof(proof)
    payload = dsse.verify(envelope, trust.issuer_keys(parsed.index))
    body, predicate = read(payload)
    rule, subject = rule_of(body), _subject_of(body)
    if predicate.ledger.reservation >= parsed.index:
        raise CertificateInvalid("ledger: the reservation must stand before the statement")
    if about is not None and digest(about) != subject.digest.sha256:
        raise CertificateInvalid("subject: the file's bytes are not those the statement speaks of")
    rule.check(predicate, parsed.index, trust)
    epsilon, delta = recompute(predicate.claim, predicate.mechanisms, predicate.rows.weight)
    if rule is ATTACK:
        attack.check(predicate.attack, plan_of(predicate.mechanisms), epsilon, delta)
    try:
        sentences.check(body["predicate"])
    except (LookupError, TypeError, AttributeError) as error:  # of a signed statement that has not its form
        raise CertificateInvalid(f"statement: not of its form ({type(error).__name__})") from error
    expected = {
        "type": rule.entry,
        "statement": digest(payload),
        "reservation": predicate.ledger.reservation,
        **rule.bound_fields(subject.name, subject.digest.sha256, predicate),
    }
    in_log(parsed, expected, predicate.ledger.origin, trust, "statement")
    name, sha256 = subject.name, subject.digest.sha256
    return Stated(body, predicate, name, sha256, epsilon, delta, parsed.index, rule)


def rule_of(body: Mapping[str, Any]) -> Rule:
    """Return the rule of the kind that a statement says it is of. CertificateInvalid where that is none."""
    url = body.get(PREDICATE_KEY)
    if not isinstance(url, str) or url not in RULES:
        known = ", ".join(RULES)
        raise CertificateInvalid(f"predicateType: {url!r:.99} is not one of {known}")
    return RULES[url]


def _subject_of(body: Mapping[str, Any]) -> SubjectForm:
    subjects = body.get("subject")
    try:
        if not isinstance(subjects, list) or len(subjects) != 1:
            raise NotOfTheForm((), "must be exactly one")
        return SubjectForm.read(subjects[0])
    except NotOfTheForm as error:
        raise CertificateInvalid(f"subject: {error.message:.200}") from None

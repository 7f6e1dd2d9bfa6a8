"""Verifying a privacy certificate: an in-toto Statement v1 about one model, in a DSSE envelope, bound to the ledger.

Everything is checked, in this order, and the first thing wrong is the answer; nothing is ever a warning:
form of proof and envelope, payload type, a pinned issuer key that may speak for the entry, exactly one subject whose
digest is the model's, the claim recomputed and the words derived again from the listed mechanisms, local policy, the
checkpoint's signature by the log key of its size, inclusion, the entry binding statement, model and reservation,
witnesses, revocation, age.
A stolen issuer key alone cannot mint a valid certificate: its hash is not in the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

from dpserve_verify.certificates import sentences
from dpserve_verify.certificates.headline import headline_of, parts_of
from dpserve_verify.certificates.policy import Policy
from dpserve_verify.certificates.predicate import (
    AncestorForm,
    ClaimForm,
    MechanismForm,
    Predicate,
    Statement,
    WeightForm,
    read_statement,
)
from dpserve_verify.certificates.vouched import taken_at_word
from dpserve_verify.errors import CertificateInvalid, CertificateRevoked, InputError, LedgerInvalid
from dpserve_verify.formats.canonical import decimal_string, parse_decimal
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKeys, fingerprint
from dpserve_verify.log import notes, proofs
from dpserve_verify.log.cosignature import Cosignature
from dpserve_verify.log.entry import read_entry
from dpserve_verify.privacy import pairs, soundness
from dpserve_verify.privacy.budget import Budget, nano, parse_relation, short_delta
from dpserve_verify.privacy.declared import declared_of
from dpserve_verify.privacy.events import Plan, plan_from_json
from dpserve_verify.privacy.weights import PARTS, Weight, relation_fault, weight_fault

ANY = Policy()
LAST_DIGITS = Decimal("0.00001")  # what floating point may add to a figure that is rounded up to 6 digits


def digest(raw: bytes) -> str:
    """Return the sha256 in hex, as certificates and entries name files."""
    return hashlib.sha256(raw).hexdigest()


@dataclass(frozen=True)
class Certificate:
    """A certificate that was verified, with the model it speaks of. Only `verify` makes it.

    `issued`: index of the `issued` entry, whose content is `entry`. `root`: of the tree of `checkpoint_size` entries.
    """

    statement: Mapping[str, Any]
    form: Predicate
    model: str
    sha256: str
    epsilon: Decimal
    delta: Decimal
    relation: str
    reservation: int
    issued: int
    entry: Mapping[str, Any]
    checkpoint_size: int
    root: bytes
    issuers: tuple[str, ...]
    log: str
    witnesses: tuple[Cosignature, ...]

    @property
    def ancestors(self) -> tuple[AncestorForm, ...]:
        """Return the models that an edited model was derived from, the released one first; empty for other models."""
        return tuple(self.form.public.supersedes or ())

    @property
    def learner_words(self) -> str:
        """Say who wrote the learner of others that made it, who admitted that and by which entry; "" of any other."""
        given = self.form.public.hyperparameters
        if "admission" not in given or "code" not in given:
            return ""
        purposes = (run["purpose"] for run in self.statement["predicate"]["mechanisms"])
        return (
            f"its learner, sha256 {given['code']}, was written by {given.get('author')} and admitted by "
            f"{given.get('admitted_by')}, as entry {given['admission']} of the ledger says"
            + "".join(f"; not promised is {sentence}" for sentence in declared_of(purposes, given))
        )

    @property
    def growth(self) -> sentences.Growth:
        """Return what becomes of the promise where the dataset grows."""
        return sentences.facts_of(self.statement["predicate"]).growth

    @property
    def word(self) -> str:
        """Say by whose word the price is, and not by proof; "" of every model but those of programs that read rows."""
        return sentences.facts_of(self.statement["predicate"]).word

    @property
    def headline(self) -> tuple[Decimal, Decimal]:
        """Return what one who has the model has of one unit, epsilon and delta: the claim, and with it what the model
        was made from, where that is of the same people. Whoever states one price states this.
        """
        return headline_of(self.form.dataset, self.epsilon, self.delta)

    @property
    def parts(self) -> tuple[str, ...]:
        """Say what the headline is the sum of, as `headline.parts_of`."""
        return parts_of(self.form.dataset, self.epsilon, self.delta)

    def to_json(self) -> dict[str, Any]:
        """Return the promise in the keys that programs rely on, decimals as texts: `epsilon` and `delta` are the
        headline, and `alone` what the model adds to what it was made from.
        """
        epsilon, delta = map(decimal_string, self.headline)
        alone = {"epsilon": decimal_string(self.epsilon), "delta": decimal_string(self.delta)}
        return {
            "model": self.model,
            "epsilon": epsilon,
            "delta": delta,
            "relation": self.relation,
            "reservation": self.reservation,
            "issued": self.issued,
            **({"vouched": self.word} if self.word else {}),
            **({"alone": alone, "parts": list(self.parts)} if self.parts else {}),
        }

    @property
    def line(self) -> str:
        """State the promise in one line."""
        epsilon, delta = self.headline
        unit, word = self.claim["unit"]["name"], f"; {self.word}" if self.word else ""
        with_sources = ", with what it was made from" if self.parts else ""
        promise = f"({epsilon:f}, {short_delta(delta)})-differential privacy{with_sources}"
        return f"{promise}, {self.relation}, unit: {unit}{word}"

    @property
    def claim(self) -> Mapping[str, Any]:
        """Return what is promised, as the statement has it: decimals as texts."""
        claim: Mapping[str, Any] = self.statement["predicate"]["claim"]
        return claim


def verify(envelope: bytes, proof: str, model: bytes, trust: PublicKeys, policy: Policy = ANY) -> Certificate:
    """Verify all that needs no graph of the model; who runs it checks that, and that other files are those named.

    Args:
        envelope: the DSSE envelope over the statement.
        proof: the text of the proof sidecar, with the entry's bytes.
        model: the bytes of the ONNX file.
        trust: the pinned keys of issuers and of the log, and what was revoked.
        policy: what else is asked for; the default asks for nothing more.

    Raises:
        CertificateInvalid: the certificate, the model or the policy.
        LedgerInvalid: the proof and what it proves.
        KeyInvalid: no pinned key speaks for the entry, or for the checkpoint's size.
    """
    # (1) The proof and the envelope have exactly their form.
    parsed = proofs.parse_proof(proof)
    # (2) Every signature is by a pinned issuer key that may speak for this entry.
    payload = dsse.verify(envelope, trust.issuer_keys(parsed.index))
    # (3) The statement has exactly its form, and its subject is this very model.
    body, statement = read_statement(payload)
    predicate, subject = statement.predicate, statement.subject[0]
    if predicate.ledger.reservation >= parsed.index:
        raise CertificateInvalid("ledger: the reservation must stand before the issued entry")
    sha256 = digest(model)
    if sha256 != subject.digest.sha256:
        raise CertificateInvalid("subject: the model's bytes are not those the certificate speaks of")
    # (4) The claim, and every sentence, follow from the mechanisms.
    epsilon, delta = recompute(predicate.claim, predicate.mechanisms, predicate.dataset.weight)
    sentences.check(body["predicate"])
    # (5) The verifier's own policy admits the claim.
    headline, word = headline_of(predicate.dataset, epsilon, delta), taken_at_word(predicate.not_covered)
    policy.check_claim(*headline, predicate.claim.relation, word)
    # (6) The checkpoint is signed by the log's key of its size, and its tree holds an entry that binds all of it.
    checkpoint, entry = in_log(
        parsed, _binding(parsed.index, statement, payload), predicate.ledger.origin, trust, "certificate"
    )
    # (7) The tree is no smaller than one that was seen, and the witnesses of the policy cosigned it.
    witnesses = policy.check_place(checkpoint.size, parsed.checkpoint_note)
    # (8) Nothing of it was revoked, and it is no older than the policy admits.
    _check_standing(parsed.index, predicate, trust, policy)
    policy.check_age(entry.get("time"))
    return Certificate(
        statement=body,
        form=predicate,
        model=subject.name,
        sha256=sha256,
        epsilon=epsilon,
        delta=delta,
        relation=predicate.claim.relation,
        reservation=predicate.ledger.reservation,
        issued=parsed.index,
        entry=entry,
        checkpoint_size=checkpoint.size,
        root=checkpoint.root,
        issuers=tuple(keyid for keyid, _ in dsse.parse(envelope).signatures),
        log=fingerprint(trust.log_key_at(checkpoint.size)),
        witnesses=witnesses,
    )


def _binding(index: int, statement: Statement, payload: bytes) -> dict[str, Any]:
    """Say what the entry of a certificate must hold."""
    subject = statement.subject[0]
    return {
        **_kind(index, statement.predicate),
        "statement": digest(payload),
        "model": subject.digest.sha256,
        "name": subject.name,
        "reservation": statement.predicate.ledger.reservation,
    }


def _check_standing(index: int, predicate: Predicate, trust: PublicKeys, policy: Policy) -> None:
    """Raise CertificateRevoked if this certificate, or one that its model was derived from, was revoked."""
    chain = [*(ancestor.entry for ancestor in predicate.public.supersedes or ()), index]
    for entry in chain:
        if entry in trust.revoked or entry in policy.revoked:
            base = "" if entry == index else f", which entry {index} was derived from,"
            raise CertificateRevoked(f"certificate: entry {entry}{base} was revoked")


def recompute(
    stated: ClaimForm, mechanisms: Sequence[MechanismForm], weight: WeightForm | None = None
) -> tuple[Decimal, Decimal]:
    """Return epsilon and delta. CertificateInvalid where a figure is less than the mechanisms come to by the
    definitions (`dpserve_verify.privacy.soundness`, for entries too), or where they are not those of records that are
    said to have weights. More than that is sound; whether it is what the job's entry says is for the audit, which has
    the entry.
    """
    try:
        epsilon, delta = parse_decimal(stated.epsilon), parse_decimal(stated.delta)
        Budget(epsilon, delta)
        plan = plan_of(mechanisms)
    except InputError as error:
        raise CertificateInvalid(f"claim: not of the certificate's form ({error})") from error
    if (stated.variant == "pure") != (delta == 0):
        raise CertificateInvalid(f"claim: variant {stated.variant!r} does not go with delta {delta}")
    if not len(plan):
        raise CertificateInvalid("claim: epsilon does not follow where no mechanism is listed")
    _check_pairs(plan, stated)
    if weight is not None:
        _check_weighed(plan, stated, weight)
    _check_curve(plan, stated)
    _check_epsilon(plan, stated, epsilon, delta)
    return epsilon, delta


def plan_of(mechanisms: Sequence[MechanismForm]) -> Plan:
    """Read the plan that a statement lists. InputError where it is none."""
    runs = [{key: part for key, part in run.to_json().items() if key != "library"} for run in mechanisms]
    return plan_from_json(runs)


def _check_pairs(plan: Plan, stated: ClaimForm) -> None:
    fault = pairs.fault_of(plan) or pairs.proof_fault(plan, parse_relation(stated.relation), stated.unit.contributions)
    if fault is None and stated.bound in pairs.KNOWN:
        fault = pairs.bound_fault(plan, stated.bound)
    if fault is not None:
        raise CertificateInvalid(fault)


def _check_weighed(plan: Plan, stated: ClaimForm, weight: WeightForm) -> None:
    Weight(weight.column, parse_decimal(weight.most))
    fault = weight_fault(plan, PARTS, stated.unit.contributions) or relation_fault(parse_relation(stated.relation))
    if weight.parts != PARTS or fault is not None:
        raise CertificateInvalid(fault or f"weight: parts={weight.parts}: must be {PARTS}")


def _check_curve(plan: Plan, stated: ClaimForm) -> None:
    pure_sum = soundness.pure_sum(plan)
    if stated.pure is not None and (pure_sum is None or nano(parse_decimal(stated.pure)) < pure_sum):
        raise CertificateInvalid(f"claim: the pure sum {stated.pure} does not follow from the mechanisms")
    least = soundness.least_renyi(plan, tuple(_order(line.order) for line in stated.rdp))
    for line, low in zip(stated.rdp, least, strict=True):
        if nano(parse_decimal(line.epsilon)) < low:
            raise CertificateInvalid(
                f"claim: Renyi figure {line.epsilon} at order {line.order} does not follow from the mechanisms"
            )


def _order(text: str) -> float:
    order = float(parse_decimal(text))
    if not 1 < order < 1e6:
        raise CertificateInvalid(f"claim: order {text} must be above 1 and below 1000000")
    return order


def _check_epsilon(plan: Plan, stated: ClaimForm, epsilon: Decimal, delta: Decimal) -> None:
    """Check that the bound that is named holds at this epsilon. A bound that is not known here counts for nothing:
    then ours must give no more than what is stated. CertificateInvalid.
    """
    bound = stated.bound
    if (bound == pairs.RENYI) != (stated.order is not None):
        raise CertificateInvalid(f"claim: order {stated.order} does not go with the bound {bound:.60}")
    order = None if stated.order is None else Decimal(_order(stated.order))
    if bound in pairs.KNOWN:
        sound = soundness.holds(plan, bound, order, epsilon, delta)
    else:
        sound = soundness.holds_by_some(plan, epsilon, delta)
    if not sound:
        raise CertificateInvalid(f"claim: epsilon {epsilon} does not follow from the mechanisms, which come to more")


def in_log(
    parsed: proofs.TlogProof, expected: Mapping[str, Any], origin: str, trust: PublicKeys, what: str
) -> tuple[notes.Checkpoint, Mapping[str, Any]]:
    """Return the entry in the pinned log, which must say what is `expected` of `what` (a certificate, a statement),
    after the tree that holds it. `origin`: the log that this names.
    """
    if parsed.extra is None:
        raise LedgerInvalid("proof: must carry the entry's bytes in its extra line")
    size = notes.parse_checkpoint(parsed.checkpoint_note).size
    checkpoint = proofs.verify_proof(parsed, parsed.extra, trust.origin, trust.log_key_at(size))
    entry = read_entry(parsed.index, parsed.extra).value
    for field, value in expected.items():
        if entry.get(field) != value:
            raise CertificateInvalid(f"entry {parsed.index}: its {field} is not the {what}'s")
    if origin != trust.origin:
        raise CertificateInvalid(f"ledger: origin {origin!r:.99} is not the pinned {trust.origin!r}")
    return checkpoint, entry


def _kind(index: int, predicate: Predicate) -> dict[str, Any]:
    """Return what the entry says of where the model came from: a release, or edits of the last model it supersedes."""
    public = predicate.public
    if public.supersedes is None:
        if public.edits is not None:
            raise CertificateInvalid("edits: a model that supersedes none has none")
        return {"type": "issued"}
    chain = [predicate.ledger.reservation, *(ancestor.entry for ancestor in public.supersedes), index]
    if any(before >= after for before, after in pairwise(chain)):
        raise CertificateInvalid("supersedes: must be entries after the reservation, in order, before its own")
    if public.edits == []:
        raise CertificateInvalid("edits: a derived model has some")
    return {"type": "derived", "base": chain[-2]}

"""Certificates in wrong hands: what is moved, forged, taken back, re-signed or malformed is refused, and says why.

The office is in memory (tests/helpers/offices.py), so that every party can cheat: operator, holder of one key, sender
of files.
"""

from __future__ import annotations

import base64
import json
import tracemalloc
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import hexes, plan
from offices import ORIGIN, Office, cosigned, cosigner, dataset, office, path, public_of, root, signer, witness_policy

from accountant.ledger.families.records import Unit
from dpserve_verify.certificates.certificate import digest, recompute, verify
from dpserve_verify.certificates.policy import Policy, read_policy
from dpserve_verify.certificates.predicate import read_statement
from dpserve_verify.errors import (
    CertificateInvalid,
    CertificateRevoked,
    InputError,
    KeyInvalid,
    LedgerInvalid,
    VerificationError,
)
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import IssuerKey, LogKey, PublicKeys
from dpserve_verify.log import notes, proofs
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import BoundedRange, PureDp

OFFICE, FILED = office()
TRUST = OFFICE.trust
EPSILON = json.loads(FILED.payload)["predicate"]["claim"]["epsilon"]


def refused(
    kind,
    word,
    envelope=FILED.envelope,
    proof=FILED.proof,
    onnx=FILED.onnx,
    trust=TRUST,
    policy=Policy(),  # noqa: B008
):
    with pytest.raises(kind, match=word) as caught:
        verify(envelope, proof, onnx, trust, policy)
    assert type(caught.value) is kind
    assert len(caught.value.message) < 600


def body() -> dict:
    return json.loads(FILED.payload)


def entered(change) -> tuple[bytes, str]:
    """Issuer and log keys both in the forger's hands: a changed statement, signed and entered. Envelope and proof."""
    forger, value = Office(), body()
    forger.leaves = list(OFFICE.leaves[:2])
    change(value)
    payload = canonical.encode(value, 1 << 20)
    index = forger.enter(payload, FILED.onnx)
    return forger.sign(payload), forger.proof(index)


def test_what_is_right_is_accepted():
    found = verify(FILED.envelope, FILED.proof, FILED.onnx, TRUST)
    assert (found.issued, found.reservation, found.checkpoint_size) == (2, 1, 3)
    assert found.root == root(OFFICE.leaves[:3])
    assert verify(FILED.envelope, OFFICE.proof(2), FILED.onnx, TRUST).checkpoint_size == 6
    envelope, proof = entered(lambda value: None)
    assert verify(envelope, proof, FILED.onnx, TRUST).epsilon == found.epsilon


# ---- moved ---------------------------------------------------------------------------------------------------------


def test_moved_to_another_model():
    other = OFFICE.__class__().issue(b"another model")
    refused(CertificateInvalid, "subject: the model's bytes", onnx=other.onnx)
    refused(CertificateInvalid, "subject: the model's bytes", onnx=b"")


def test_from_another_run_of_the_same_office():
    twice = Office()
    first, second = twice.issue(b"first"), twice.issue(b"second")
    refused(CertificateInvalid, "entry 4: its statement is not", first.envelope, second.proof, first.onnx, twice.trust)
    same = Office()
    one, two = same.issue(b"same bytes"), same.issue(b"same bytes")
    refused(CertificateInvalid, "its statement is not", one.envelope, two.proof, b"same bytes", same.trust)


def test_of_another_home():
    stranger = Office(issuer=11, log=12)
    theirs = stranger.issue(FILED.onnx)
    refused(CertificateInvalid, "pinned issuer key", theirs.envelope, theirs.proof)
    mixed = PublicKeys(ORIGIN, (*TRUST.issuers, IssuerKey(public_of(11))), TRUST.log_pem)
    refused(LedgerInvalid, "no signature by the pinned key", theirs.envelope, theirs.proof, trust=mixed)
    renamed = Office(origin="example.org/other").issue(FILED.onnx)  # the same keys under another name
    refused(LedgerInvalid, "no signature by the pinned key", renamed.envelope, renamed.proof)


def test_a_statement_that_names_another_origin():
    envelope, proof = entered(lambda value: value["predicate"]["ledger"].update(origin="example.org/other"))
    refused(CertificateInvalid, "origin 'example.org/other' is not the pinned", envelope, proof)


def test_a_certificate_of_another_log_of_the_same_issuer():
    """Each of the two logs is sound. What is entered in one does not count in the other."""
    other = Office(log=22)
    filed = other.issue(FILED.onnx)
    refused(LedgerInvalid, "no signature by the pinned key", filed.envelope, filed.proof)
    longer = other.issue(FILED.onnx)
    refused(CertificateInvalid, "entry 4: its type is not", longer.envelope, OFFICE.proof(4))


# ---- keys and their indices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "word"),
    [
        (IssuerKey(public_of(1), 0, 2), "pinned issuer key"),  # retired before entry 2
        (IssuerKey(public_of(1), 3, None), "pinned issuer key"),  # added after it
        (IssuerKey(public_of(1), 2, 2), "pinned issuer key"),  # speaks for nothing
        (IssuerKey(public_of(7)), "pinned issuer key"),
    ],
)
def test_an_issuer_key_that_may_not_speak_for_the_entry(key, word):
    refused(CertificateInvalid, word, trust=replace(TRUST, issuers=(key,)))


def test_an_issuer_key_that_was_compromised_after_the_entry_still_counts_for_it():
    trust = replace(TRUST, issuers=(IssuerKey(public_of(1), 0, 3), IssuerKey(public_of(5), 3)))
    assert verify(FILED.envelope, FILED.proof, FILED.onnx, trust)
    later = Office()
    later.issue()
    stolen = later.issue(b"made by the thief")  # entered as 4, beyond what the key may speak for
    refused(CertificateInvalid, "pinned issuer key", stolen.envelope, stolen.proof, stolen.onnx, trust)


def test_a_log_key_by_tree_size():
    """The old log key was compromised after size 3: what it signs later, or of another size, does not count."""
    trust = PublicKeys(ORIGIN, TRUST.issuers, public_of(6), 4, (LogKey(public_of(2), 0, 4),))
    assert verify(FILED.envelope, FILED.proof, FILED.onnx, trust)
    assert verify(FILED.envelope, OFFICE.proof(2, 6, log=6), FILED.onnx, trust).checkpoint_size == 6
    refused(LedgerInvalid, "no signature by the pinned key", proof=OFFICE.proof(2, 6), trust=trust)
    refused(LedgerInvalid, "no signature by the pinned key", proof=OFFICE.proof(2, 3, log=6), trust=trust)
    gap = PublicKeys(ORIGIN, TRUST.issuers, public_of(6), 5, (LogKey(public_of(2), 0, 3),))
    refused(KeyInvalid, "no pinned log key speaks for size 3", trust=gap)


def test_signed_by_the_log_key():
    envelope = OFFICE.sign(FILED.payload, key=OFFICE.log)
    refused(CertificateInvalid, "pinned issuer key", envelope)


def test_keyids_swapped():
    """The name of a pinned key over another key's signature, and the other way round."""
    both = replace(TRUST, issuers=(*TRUST.issuers, IssuerKey(public_of(5))))
    value = json.loads(OFFICE.sign(FILED.payload, key=5))
    value["signatures"][0]["keyid"] = TRUST.issuers[0].keyid
    refused(CertificateInvalid, "signature does not verify", json.dumps(value).encode(), trust=both)
    value["signatures"][0]["keyid"] = "SHA256:" + "A" * 43
    refused(CertificateInvalid, "pinned issuer key", json.dumps(value).encode(), trust=both)


def test_revoked():
    refused(CertificateRevoked, "entry 2 was revoked", trust=replace(TRUST, revoked=frozenset({2})))
    refused(CertificateRevoked, "entry 2 was revoked", policy=Policy(revoked={2, 9}))
    assert verify(FILED.envelope, FILED.proof, FILED.onnx, replace(TRUST, revoked=frozenset({1, 3})))


# ---- claims --------------------------------------------------------------------------------------------------------


def lower(value):
    value["predicate"]["claim"]["epsilon"] = "0.1"


def test_epsilon_lowered_by_the_issuer_key_alone():
    """The holder of the issuer key signs anything; what it signs is not in the log, and does not add up either."""
    value = body()
    lower(value)
    envelope = OFFICE.sign(canonical.encode(value, 1 << 20))
    refused(CertificateInvalid, "epsilon 0.1 does not follow from the mechanisms", envelope)
    fewer = Office().issue(FILED.onnx, plan(count=5))  # sound in itself: 5 releases instead of 25
    refused(CertificateInvalid, "entry 2: its statement is not", fewer.envelope)


def at(*steps, to):
    def change(value):
        *inner, last = ("predicate", *steps)
        for step in inner:
            value = value[step]
        if to is None:
            del value[last]
        else:
            value[last] = to

    return change


CLAIMS = {
    "epsilon lowered": (lower, "epsilon 0.1 does not follow"),
    "epsilon 0": (at("claim", "epsilon", to="0"), "must be > 0"),
    "epsilon beyond all use": (at("claim", "epsilon", to="101"), "at most 100"),
    "delta 1": (at("claim", "delta", to="1"), "below 1"),
    "delta lowered": (at("claim", "delta", to="0.0000001"), f"epsilon {EPSILON} does not follow"),
    "an order of no use": (at("claim", "order", to="2"), "order 2 does not go"),
    "pure in name": (at("claim", "variant", to="pure"), "variant"),
    "a pure sum that is none": (at("claim", "pure", to="0.4"), "the pure sum 0.4"),
    "a Renyi figure": (at("claim", "rdp", 0, "epsilon", to="0.01"), "Renyi figure 0.01 at order"),
    "an order of 1": (at("claim", "rdp", 0, "order", to="1"), "order 1 must be above 1"),
    "an order without end": (at("claim", "rdp", 0, "order", to="9" * 40), "must be above 1 and below"),
    "a count of 0": (at("mechanisms", 0, "count", to=0), "mechanisms.0.count"),
    "a count below 0": (at("mechanisms", 0, "count", to=-25), "mechanisms.0.count"),
    "an event of our own": (at("mechanisms", 0, "event", to={"type": "free"}), "mechanisms.0.event"),
    "an event of no cost": (at("mechanisms", 0, "event", "epsilon", to="0"), "epsilon=0"),
    "an event that is no object": (at("mechanisms", 0, "event", to="free"), "mechanisms.0.event"),
    "no mechanisms": (at("mechanisms", to=[]), "does not follow"),
    "another relation's name": (at("claim", "relation", to="none"), "claim.relation"),
    "seeded": (at("randomness", "seeded", to=True), "a seeded run is not private"),
    "seeded by a zero": (at("randomness", "seeded", to=0), "a seeded run is not private"),
    "a reservation after the certificate": (at("ledger", "reservation", to=2), "must stand before"),
    "one field more": (at("claim", "accuracy", to="0.9"), "claim.accuracy"),
    "one field less": (at("notCovered", to=None), "notCovered"),
    "records under add-remove as text": (at("dataset", "records", to="1000"), "dataset.records"),
    "contributions of none": (at("claim", "unit", "contributions", to=0), "unit.contributions"),
}


@pytest.mark.parametrize("what", CLAIMS)
def test_a_claim_that_does_not_hold_is_refused_though_signed_and_in_the_log(what):
    """Operator and both keys together: what the certificate says must still follow from what it lists."""
    change, word = CLAIMS[what]
    envelope, proof = entered(change)
    refused(CertificateInvalid, word, envelope, proof)


SOUND = {
    "epsilon raised": at("claim", "epsilon", to="0.9"),
    "delta raised": at("claim", "delta", to="0.1"),
    "a pure sum raised": at("claim", "pure", to="0.6"),
    "no pure sum, which is infinity": lambda value: value["predicate"]["claim"].update(pure=None),
    "a Renyi figure raised": at("claim", "rdp", 0, "epsilon", to="1"),
}


@pytest.mark.parametrize("what", SOUND)
def test_a_claim_that_promises_less_than_it_could_is_sound(what):
    """What is stated may be more than what the mechanisms come to: the law of the ledger, its audit and the browser."""
    envelope, proof = entered(SOUND[what])
    found = verify(envelope, proof, FILED.onnx, TRUST)
    assert found.epsilon == Decimal("0.9" if what == "epsilon raised" else EPSILON)


def test_a_bound_that_is_not_ours_may_state_more_and_never_less():
    _, form = read_statement(FILED.payload)

    def by(bound, epsilon, order=None):
        claim = replace(form.predicate.claim, bound=bound, epsilon=epsilon, order=order)
        return claim, form.predicate.mechanisms

    for good in (
        by("pure", "0.5"),
        by("pure", "0.51"),
        by("renyi", "0.201209", "94.03699691520004"),
        by("unknown here", "0.3"),
    ):
        assert recompute(*good)
    for bad in (
        by("pure", "0.49"),
        by("pure", "0.5", "2"),
        by("renyi", "0.201209"),
        by("renyi", "0.201209", "2"),
        by("renyi", "0.201208", "94.03699691520004"),
        by("unknown here", "0.1"),
    ):
        with pytest.raises(CertificateInvalid, match="does not (follow|go)"):
            recompute(*bad)
    with pytest.raises(CertificateInvalid, match="gaussian bound is not proved for exponential"):
        recompute(*by("gaussian", "0.4"))


# ---- bytes ---------------------------------------------------------------------------------------------------------


def inner(old: bytes, new: bytes) -> bytes:
    assert old in FILED.payload
    return FILED.payload.replace(old, new, 1)


PAYLOADS = {
    "a float": (inner(b'"count":25', b'"count":25.0'), "must not be a float"),
    "a float with an exponent": (inner(b'"count":25', b'"count":2.5e1'), "must not be a float"),
    "NaN": (inner(b'"count":25', b'"count":NaN'), "must not be a float"),
    "Infinity": (inner(b'"count":25', b'"count":-Infinity'), "must not be a float"),
    "a huge integer": (inner(b'"count":25', b'"count":' + b"9" * 5000), "below 2.53"),
    "a key twice": (inner(b'"delta":"0.000001"', b'"delta":"0.000001","delta":"0.000001"'), "must not come twice"),
    "a key twice, escaped": (
        inner(b'"delta":"0.000001"', b'"delta":"0.000001","d\\u0065lta":"0"'),
        "must not come twice",
    ),
    "an escaped key": (inner(b'"delta"', b'"d\\u0065lta"'), "must be canonical"),
    "a key that is no ASCII": (inner(b'"delta"', '"dеlta"'.encode()), "must be an ASCII string"),  # a Cyrillic e
    "an escape that need not be": (inner(b'"add-remove"', b'"add\\u002dremove"'), "must be canonical"),
    "half a surrogate": (inner(b'"name":"adult"', b'"name":"\\ud800"'), "lone surrogate"),
    "UTF-8 that need not be": (inner(b'"name":"adult"', '"name":"adült"'.encode()), "must be canonical"),
    "bytes that are no UTF-8": (inner(b'"name":"adult"', b'"name":"\xff"'), "must be UTF-8"),
    "a byte order mark": (b"\xef\xbb\xbf" + FILED.payload, "statement"),
    "a blank": (FILED.payload + b" ", "must be canonical"),
    "trailing bytes": (FILED.payload + b"{}", "statement"),
    "trailing zero": (FILED.payload + b"\0", "statement"),
    "cut": (FILED.payload[:-1], "statement"),
    "empty": (b"", "statement"),
    "an array": (b"[]", "statement"),
    "deep": (b"[" * 31 + b"]" * 31, "statement"),
    "deeper": (b"[" * 40 + b"]" * 40, "at most 32 deep"),
    "deepest": (b"[" * 200_000 + b"]" * 200_000, "deep"),
    "too long": (FILED.payload + b" " * (1 << 19), "at most 524288 bytes"),
    "two subjects": (
        inner(b'"subject":[', b'"subject":[{"digest":{"sha256":"' + b"0" * 64 + b'"},"name":"other"},'),
        "subject",
    ),
    "no subject": (b"".join([FILED.payload[: FILED.payload.index(b'"subject":')], b'"subject":[]}']), "subject"),
    "a subject of two digests": (inner(b'"sha256":"', b'"sha1":"00","sha256":"'), "subject.0.digest.sha1"),
    "a digest in capitals": (
        inner(digest(FILED.onnx).encode(), digest(FILED.onnx).upper().encode()),
        "subject.0.digest.sha256",
    ),
    "another statement type": (inner(b"Statement/v1", b"Statement/v0.1"), "_type"),
    "another predicate type": (inner(b"privacy-certificate/v1", b"privacy-certificate/v2"), "predicateType"),
}


@pytest.mark.parametrize("what", PAYLOADS)
def test_a_statement_that_is_signed_and_in_the_log_is_still_read_strictly(what):
    payload, word = PAYLOADS[what]
    forger = Office()
    forger.leaves = list(OFFICE.leaves[:2])
    fields = {"reservation": 1, "statement": digest(payload), "model": digest(FILED.onnx), "name": "adult"}
    proof = forger.proof(forger.append("issued", **fields))
    refused(CertificateInvalid, word, forger.sign(payload), proof)


def envelope(**changes) -> bytes:
    return json.dumps(json.loads(FILED.envelope) | changes).encode()


ONE = json.loads(FILED.envelope)["signatures"][0]
TEXT = json.loads(FILED.envelope)["payload"]
ENVELOPES = {
    "another payload type": (envelope(payloadType="application/json"), "payloadType="),
    "payload type in other case": (envelope(payloadType="application/vnd.in-toto+JSON"), "payloadType="),
    "payload type with a blank": (envelope(payloadType=dsse.PAYLOAD_TYPE + " "), "payloadType="),
    "payload type of no text": (envelope(payloadType=5), "payloadType="),
    "URL base64": (envelope(payload=TEXT.replace("+", "-").replace("/", "_") + "-_"), "payload="),
    "base64 of no possible length": (envelope(payload=TEXT[: len(TEXT) // 4 * 4 - 3]), "payload="),
    "base64 in lines": (envelope(payload=TEXT[:76] + "\n" + TEXT[76:]), "payload="),
    "base64 with a blank": (envelope(payload=" " + TEXT), "payload="),
    "base64 of other letters": (envelope(payload=TEXT[:-4] + "АААА"), "payload="),  # Cyrillic
    "signature base64 without padding": (envelope(signatures=[{**ONE, "sig": ONE["sig"].rstrip("=")}]), "sig="),
    "signature with stray bits": (envelope(signatures=[{**ONE, "sig": ONE["sig"][:-3] + "B=="}]), "sig="),
    "a signature of zeros": (
        envelope(signatures=[{**ONE, "sig": base64.b64encode(bytes(64)).decode()}]),
        "does not verify",
    ),
    "a signature too short": (envelope(signatures=[{**ONE, "sig": "AAAA"}]), "does not verify"),
    "no signature": (envelope(signatures=[]), "1 to 4"),
    "many signatures": (envelope(signatures=[ONE] * 5), "1 to 4"),
    "one key twice": (envelope(signatures=[ONE, ONE]), "must sign once"),
    "a second, unknown signer": (
        envelope(signatures=[ONE, json.loads(OFFICE.sign(FILED.payload, key=9))["signatures"][0]]),
        "pinned issuer key",
    ),
    "a certificate chain beside it": (envelope(signatures=[{**ONE, "cert": "x"}]), "exactly the keys"),
    "a field more": (envelope(comment="ours"), "exactly the keys"),
    "a float": (envelope(payloadType=1.5), "must not be a float"),
    "NaN": (FILED.envelope[:-1] + b',"x":NaN}', "must not be a float"),
    "a key twice": (b'{"payload":"e30=",' + FILED.envelope[1:], "must not come twice"),
    "trailing bytes": (FILED.envelope + b"x", "envelope"),
    "two envelopes": (FILED.envelope * 2, "envelope"),
    "deep": (b"[" * 500_000, "envelope"),
    "empty": (b"", "envelope"),
}


@pytest.mark.parametrize("what", ENVELOPES)
def test_the_envelope_is_read_strictly(what):
    raw, word = ENVELOPES[what]
    refused(CertificateInvalid, word, raw)


@pytest.mark.parametrize("fill", [b" ", b"[", b'{"a":', b"1,", b'"'])
def test_ten_megabytes_are_refused_without_being_parsed(fill):
    raw = (fill * 10_000_000)[:10_000_000]
    tracemalloc.start()
    refused(CertificateInvalid, "at most 1048576 bytes", raw)
    refused(LedgerInvalid, "proof: must be at most", proof=raw.decode())
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 30_000_000  # ten times: an object of each character would take 500 MB


# ---- proofs --------------------------------------------------------------------------------------------------------


def note(size: int, root_hash: bytes, key: int = 2) -> str:
    return notes.sign_checkpoint(ORIGIN, size, root_hash, signer(key))


def test_the_proof_of_another_entry():
    for index in range(len(OFFICE.leaves)):
        if index != FILED.index:
            with pytest.raises((CertificateInvalid, LedgerInvalid)):
                verify(FILED.envelope, OFFICE.proof(index), FILED.onnx, TRUST)
    refused(CertificateInvalid, "entry 5: its type is not", proof=OFFICE.proof(5))
    refused(CertificateInvalid, "must stand before", proof=OFFICE.proof(1))


def test_a_leaf_that_is_not_in_the_tree():
    """The entry travels unauthenticated in the proof; its hash must lead to the signed root."""
    forged = canonical.encode({**json.loads(OFFICE.leaves[2]), "by": "me"})
    proof = proofs.write_proof(2, path(2, OFFICE.leaves), OFFICE.checkpoint(), forged)
    refused(LedgerInvalid, "root|inclusion|proof", proof=proof)
    refused(LedgerInvalid, "extra line", proof="\n".join(FILED.proof.split("\n")[:1] + FILED.proof.split("\n")[2:]))


def test_a_tree_that_the_log_did_not_sign():
    forged = [*OFFICE.leaves[:2], canonical.encode({"type": "issued"})]
    refused(
        LedgerInvalid,
        "no signature by the pinned key",
        proof=proofs.write_proof(2, path(2, OFFICE.leaves), note(6, root(OFFICE.leaves), key=8), OFFICE.leaves[2]),
    )
    refused(
        LedgerInvalid,
        "root|inclusion|proof",
        proof=proofs.write_proof(2, path(2, OFFICE.leaves[:3]), note(3, root(forged)), OFFICE.leaves[2]),
    )


def test_a_checkpoint_smaller_than_one_that_was_seen():
    refused(CertificateInvalid, "size 3 is below 6, which was seen before", policy=Policy(smallest_size=6))
    assert verify(FILED.envelope, OFFICE.proof(2), FILED.onnx, TRUST, Policy(smallest_size=6))


@pytest.mark.parametrize(
    ("field", "value"),
    [("type", "committed"), ("statement", "0" * 64), ("model", "0" * 64), ("name", "other"), ("reservation", 0)],
)
def test_an_entry_that_binds_something_else(field, value):
    forger = Office()
    payload = forger.statement(b"a model")
    fields = {"reservation": 1, "statement": digest(payload), "model": digest(b"a model"), "name": "adult"}
    kind = value if field == "type" else "issued"
    changes = {} if field == "type" else {field: value}
    index = forger.append(kind, **{**fields, **changes})
    refused(CertificateInvalid, f"entry 2: its {field} is not", forger.sign(payload), forger.proof(index))


# ---- local policy --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        (Policy(largest_epsilon=Decimal("0.1")), f"epsilon={EPSILON}: local policy admits at most 0.1"),
        (Policy(largest_delta=Decimal("0.0000001")), "delta=0.000001: local policy"),
        (Policy(relations=["replace-one"]), "relation=add-remove: local policy"),
        (Policy(oldest_days=0), "local policy admits at most 0 days"),
        (Policy(oldest_days=1), "days of age"),
    ],
)
def test_policy(policy, word):
    refused(CertificateInvalid, word, policy=policy)


def test_policy_that_is_met():
    policy = Policy(Decimal(EPSILON), Decimal("0.000001"), ["add-remove"], 3, [1, 3], 36_500)
    assert verify(FILED.envelope, FILED.proof, FILED.onnx, TRUST, policy)


@pytest.mark.parametrize("time", ["2026-11-21", "", None, 5, "9999-01-01T00:00:00Z", "2026-11-21T08:00:00+00:00"])
def test_an_entry_of_no_time_or_of_a_time_to_come_has_no_age(time):
    forger = Office()
    payload = forger.statement(FILED.onnx)
    index = forger.enter(payload, FILED.onnx, time=time)
    sent = forger.sign(payload), forger.proof(index)
    assert verify(*sent, FILED.onnx, TRUST)  # nobody asked for its age
    refused(CertificateInvalid, "time=|days of age", *sent, policy=Policy(oldest_days=36_500))


def test_witnesses_of_the_policy_must_have_cosigned():
    policy = Policy(witnesses=witness_policy(31, 32))
    refused(LedgerInvalid, "not met", policy=policy)
    head, _, checkpoint = FILED.proof.partition("\n\n")
    one = cosigned(checkpoint, 31)
    refused(LedgerInvalid, "not by w32", proof=f"{head}\n\n{one}", policy=policy)
    both = f"{head}\n\n{cosigned(one, 32)}"
    found = verify(FILED.envelope, both, FILED.onnx, TRUST, policy)
    assert [each.witness for each in found.witnesses] == ["w31", "w32"]
    assert verify(FILED.envelope, both, FILED.onnx, TRUST).witnesses == ()


def test_a_policy_file(tmp_path):
    (tmp_path / "witnesses").write_text(f"witness w {cosigner(31)}\nquorum w\n")
    value = {
        "largest_epsilon": "1", "largest_delta": "0.00001", "relations": ["add-remove"], "smallest_size": 3,
        "revoked": [9], "oldest_days": 365, "proved": True, "witnesses": "witnesses",
    }  # fmt: skip
    (tmp_path / "policy.json").write_text(json.dumps(value))
    found = read_policy(tmp_path / "policy.json")
    assert (found.largest_epsilon, found.largest_delta) == (Decimal(1), Decimal("0.00001"))
    assert (found.relations, found.smallest_size, found.revoked, found.oldest_days) == ({"add-remove"}, 3, {9}, 365)
    assert found.proved is True
    assert [each.name for each in found.witnesses.witnesses] == ["w"]


@pytest.mark.parametrize(
    "bad",
    [
        {"largest_epsilom": "1"}, {"largest_epsilon": 1}, {"largest_epsilon": None}, {"largest_epsilon": "x"},
        {"relations": []}, {"relations": ["any"]}, {"relations": "add-remove"}, {"smallest_size": -1},
        {"smallest_size": True}, {"revoked": [1.5]}, {"revoked": ["1"]}, {"oldest_days": "9"}, {"witnesses": "absent"},
        {"proved": 1}, {"proved": "true"},
        {"witnesses": None}, [], "x",
    ],
)  # fmt: skip
def test_a_policy_file_that_is_none_weakens_nothing(tmp_path, bad):
    (tmp_path / "policy.json").write_text(json.dumps(bad))
    with pytest.raises(InputError):
        read_policy(tmp_path / "policy.json")


def test_a_policy_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_policy(tmp_path / "absent.json")


# ---- every byte counts -----------------------------------------------------------------------------------------------

FLIPS = settings(max_examples=400)
PLACE = st.integers(0, 10**9)
BIT = st.integers(1, 255)


def flipped(raw: bytes, place: int, bit: int) -> bytes:
    place %= len(raw)
    return raw[:place] + bytes([raw[place] ^ bit]) + raw[place + 1 :]


@pytest.mark.slow
@FLIPS
@given(place=PLACE, bit=BIT)
def test_any_flipped_byte_of_the_envelope_is_refused(place, bit):
    raw = flipped(FILED.envelope, place, bit)
    with pytest.raises(VerificationError):
        verify(raw, FILED.proof, FILED.onnx, TRUST)


@pytest.mark.slow
@FLIPS
@given(place=PLACE, bit=BIT)
def test_any_flipped_byte_of_the_proof_is_refused(place, bit):
    raw = flipped(FILED.proof.encode(), place, bit)
    with pytest.raises(VerificationError):
        verify(FILED.envelope, raw.decode("utf-8", "surrogateescape"), FILED.onnx, TRUST)


@pytest.mark.slow
@FLIPS
@given(place=PLACE, bit=BIT)
def test_any_flipped_byte_of_the_model_is_refused(place, bit):
    with pytest.raises(CertificateInvalid):
        verify(FILED.envelope, FILED.proof, flipped(FILED.onnx, place, bit), TRUST)


@pytest.mark.slow
@FLIPS
@given(place=PLACE, bit=BIT)
def test_any_flipped_byte_of_a_statement_is_refused_by_the_log_even_where_it_is_signed_again(place, bit):
    """With the issuer key alone in the forger's hands."""
    payload = flipped(FILED.payload, place, bit)
    with pytest.raises(VerificationError):
        verify(OFFICE.sign(payload), FILED.proof, FILED.onnx, TRUST)


# ---- what is stated --------------------------------------------------------------------------------------------------


def issued(**options):
    made = Office()
    filed = made.issue(**options)
    return verify(filed.envelope, filed.proof, filed.onnx, made.trust).form


def test_units_and_their_bounds_are_stated():
    unit = Unit("person", "customer", 3)
    form = issued(about=dataset(Relation.REPLACE_ONE, unit))
    assert form.claim.unit.bounding == "the first 3 records of each value of customer, in file order"
    assert (form.claim.unit.name, form.claim.unit.contributions, form.dataset.records) == ("person", 3, 1000)
    one = issued(about=dataset(unit=Unit("person", "customer", 1)))
    assert one.claim.unit.bounding == "the first record of each value of customer, in file order"
    assert one.dataset.records is None  # under add/remove the number is private


def test_every_family_is_stated_where_there_are_several():
    form = issued(about=dataset(families=2, version=3))
    assert form.dataset.version == 3
    assert [each.family for each in form.dataset.families] == [form.dataset.family, str(form.dataset.family)[:-1] + "2"]
    assert issued().dataset.families is None


def test_a_pure_claim():
    form = issued(what=plan(PureDp(Decimal("0.05")), 10), about=dataset(budget=Budget.of("3")), delta="0")
    assert (form.claim.variant, form.claim.bound, form.claim.epsilon, form.claim.pure) == ("pure", "pure", "0.5", "0.5")
    assert form.claim.rdp == []


def test_a_list_too_long_is_left_to_the_schemas_digest():
    """A certificate must never be too large to be issued: its budget is spent by then."""
    from ledgers import request

    from accountant.certificates.statement import Subject, statement

    names = tuple(f"feature {number} with a name of some length" for number in range(16_000))
    subject = Subject(
        "adult", hexes("a"), hexes("b"), "lazybb", names, None, [{"name": n, "type": "boolean"} for n in names]
    )
    raw = statement(subject, dataset(), request(), plan(BoundedRange(Decimal("0.02"))), ORIGIN, 1, hexes("leaf"))
    value = json.loads(raw)["predicate"]["public"]
    assert (value["inputs"], value["domains"], len(raw) < 1 << 14) == (None, None, True)

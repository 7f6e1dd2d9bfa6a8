"""The audit's judge of keys, alone: what it lets pass, what it refuses, and what it makes of a pinned trust file."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from trusts import followed

from dpserve_verify.entries.keys import KeyRing
from dpserve_verify.entries.kinds import read_form
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.keys.trust import IssuerKey, LogKey, PublicKeys, fingerprint, load_public_pem, public_pem

ORIGIN = "example.org/ledger"


def pem(kind=Ed25519PrivateKey.generate) -> str:
    return public_pem(kind().public_key())


def p256() -> str:
    return pem(lambda: ec.generate_private_key(ec.SECP256R1()))


def keyid(text: str) -> str:
    return fingerprint(load_public_pem(text))


A, B, C = pem(), pem(), p256()  # issuers
L, M, N = pem(), pem(), pem()  # logs
PINNED = PublicKeys(ORIGIN, (IssuerKey(A),), L)
FIRST = {"format": "dpserve-ledger/v1", "origin": ORIGIN, "issuer": A, "log": L}
WHY = {"by": "operator", "reason": "a drill"}


def ring(trust: PublicKeys = PINNED) -> KeyRing:
    ring = KeyRing(trust)
    judge(ring, "genesis", 0, FIRST)
    return ring


def added(text: str, role: str = "issuer", **changes) -> dict:
    return {"role": role, "keyid": keyid(text), "pem": text, **WHY} | changes


def ended(text: str, role: str = "issuer", **changes) -> dict:
    return {"role": role, "keyid": keyid(text), **WHY} | changes


def handover(ring: KeyRing, seq: int, new: str, old: str, role: str) -> None:
    """A rotation: two entries from `seq` on."""
    judge(ring, "key-added", seq, added(new, role))
    judge(ring, "key-retired", seq + 1, ended(old, role))


def judge(ring: KeyRing, kind: str, seq: int, value: dict, *more) -> None:
    """As an audit does: by the form of the kind, and then by its rule."""
    rules = {
        "genesis": ring.judge_genesis,
        "key-added": ring.judge_added,
        "key-retired": ring.judge_retired,
        "key-compromised": ring.judge_compromised,
        "revoked": ring.judge_revoked,
    }
    try:
        rules[kind](seq, read_form(kind, {"type": kind, "time": "2026-01-31T00:00:00Z", **value}), *more)
    except InputError as error:
        raise LedgerInvalid(error.message) from error


def ended_keys(ring: KeyRing) -> dict[str, str]:
    return {keyid: key.ended for keyid, key in ring.keys.items() if key.ended is not None}


def at(ring: KeyRing, size: int) -> str:
    return public_pem(ring.log_key_at(size))


def test_the_first_keys_must_be_pinned():
    other = PublicKeys(ORIGIN, (IssuerKey(B), IssuerKey(A, 5)), L)
    for trust in (PublicKeys(ORIGIN, (IssuerKey(A),), M), other, PublicKeys(ORIGIN, (IssuerKey(A),), L, 1)):
        with pytest.raises(LedgerInvalid, match="pinned"):
            ring(trust)
    assert ring(PublicKeys(ORIGIN, (IssuerKey(A, 0, 1), IssuerKey(B, 7)), L)).issuers.keys() == {keyid(A)}


def test_an_issuer_rotation():
    found = ring()
    handover(found, 7, C, A, "issuer")
    assert [sorted(found.issuer_keys(index)) for index in (0, 6)] == [[keyid(A)]] * 2
    assert sorted(found.issuer_keys(7)) == sorted([keyid(A), keyid(C)])  # neither entry is one of a certificate
    assert sorted(found.issuer_keys(8)) == [keyid(C)]
    assert ended_keys(found) == {keyid(A): "retired"}
    assert followed(found) == PublicKeys(ORIGIN, (IssuerKey(A, 0, 8), IssuerKey(C, 7)), L)


def test_a_log_rotation():
    found = ring()
    handover(found, 7, M, L, "log")
    handover(found, 12, N, M, "log")
    assert [at(found, size) for size in (0, 7, 8, 12, 13, 10**6)] == [L, L, M, M, N, N]
    logs = (LogKey(L, 0, 8), LogKey(M, 8, 13), LogKey(N, 13))
    assert followed(found) == PublicKeys.of(ORIGIN, (IssuerKey(A),), logs, frozenset())
    assert ended_keys(found) == {keyid(L): "retired", keyid(M): "retired"}


def test_a_log_has_one_key_also_where_the_entry_that_retires_the_old_one_is_left_out():
    found = ring()
    judge(found, "key-added", 7, added(M, "log"))
    assert [key.good for key in found.logs.values()] == [False, True]
    with pytest.raises(LedgerInvalid, match="retired by the entry after"):
        judge(found, "key-retired", 9, ended(L, "log"))
    with pytest.raises(LedgerInvalid, match="only good log key"):
        judge(found, "key-retired", 8, ended(M, "log"))


def test_a_compromised_issuer():
    found = ring()
    judge(found, "key-added", 20, added(B))
    judge(found, "key-compromised", 21, ended(A, after=9))
    assert [sorted(found.issuer_keys(index)) for index in (9, 10, 20)] == [[keyid(A)], [], [keyid(B)]]
    with pytest.raises(LedgerInvalid, match="speaks for nothing after entry 9"):
        judge(found, "key-compromised", 22, ended(A, after=9))
    judge(found, "key-compromised", 22, ended(A, after=3))
    assert [sorted(found.issuer_keys(index)) for index in (3, 4)] == [[keyid(A)], []]
    assert ended_keys(found) == {keyid(A): "compromised"}


def test_a_compromised_log_key_counts_no_more_by_itself():
    found = ring()
    judge(found, "key-added", 20, added(M, "log"))
    judge(found, "key-compromised", 21, ended(L, "log", after=9))
    trust = followed(found)
    assert trust.logs == (LogKey(L, 0, 11), LogKey(M, 21))
    assert at(found, 15) == L  # held against the entries, what it signed is evidence all the same


def test_a_retired_key_may_turn_out_compromised_but_not_be_good_for_longer():
    found = ring()
    handover(found, 7, B, A, "issuer")
    with pytest.raises(LedgerInvalid, match="was retired before"):
        judge(found, "key-compromised", 12, ended(A, after=11))
    judge(found, "key-compromised", 12, ended(A, after=2))
    assert found.issuers[keyid(A)].until == 3


@pytest.mark.parametrize(
    "value",
    [
        added(B, keyid=keyid(A)),
        added(B, role="root"),
        added(B, role=None),
        added(B, pem=B + B),
        added(B, pem=7),
        added(B, by=""),
        added(B, reason=" "),
        added(B, reason=3),
        added(A),
        added(L),
        added(A, "log"),
        added(C, "log"),
    ],
)
def test_a_key_that_must_not_be_added(value):
    found = ring()
    before = dict(found.keys)
    with pytest.raises(LedgerInvalid):
        judge(found, "key-added", 7, value)
    assert found.keys == before


@pytest.mark.parametrize(
    "value", [ended(B), ended(A, "log"), ended(A, keyid=5), ended(A, by=None), ended(A), ended(L, "log")]
)
def test_a_key_that_must_not_end(value):
    """Unknown, of another role, without a reason, or the only good one."""
    found = ring()
    with pytest.raises(LedgerInvalid):
        judge(found, "key-retired", 7, value)
    with pytest.raises(LedgerInvalid):
        judge(found, "key-compromised", 7, value | {"after": 3})
    assert followed(found) == PINNED


@pytest.mark.parametrize("after", [-1, 21, 10**6, True, "3", None])
def test_compromised_after_no_entry(after):
    found = ring()
    judge(found, "key-added", 20, added(B))
    with pytest.raises(LedgerInvalid, match="after[=:]"):
        judge(found, "key-compromised", 21, ended(A, after=after))


def test_retired_twice():
    found = ring()
    handover(found, 7, B, A, "issuer")
    with pytest.raises(LedgerInvalid, match="was retired before"):
        judge(found, "key-retired", 9, ended(A))


def test_revocations():
    found = ring()
    judge(found, "revoked", 9, {"issued": 4, **WHY}, {4, 6})
    for index in (4, 5, True, "6", None):
        with pytest.raises(LedgerInvalid, match="issued[=:]"):
            judge(found, "revoked", 10, {"issued": index, **WHY}, {1, 4, 6} - {index})
    with pytest.raises(LedgerInvalid, match="reason"):
        judge(found, "revoked", 10, {"issued": 6, **WHY, "reason": ""}, {4, 6})
    assert found.revocations == {4: 9}
    assert followed(found).revoked == {4}


def test_a_pinned_key_must_come_where_it_was_pinned():
    for trust in (
        PublicKeys(ORIGIN, (IssuerKey(A), IssuerKey(B, 8)), L),
        PublicKeys(ORIGIN, (IssuerKey(A),), B, 8, (LogKey(L, 0, 8),)),
    ):
        with pytest.raises(LedgerInvalid, match="names this key otherwise"):
            judge(ring(trust), "key-added", 7, added(B))
    with pytest.raises(LedgerInvalid, match="names this key otherwise"):
        judge(ring(PublicKeys(ORIGIN, (IssuerKey(A),), M, 9, (LogKey(L, 0, 9),))), "key-added", 7, added(M, "log"))


def test_a_pinned_end_is_not_undone():
    found = ring(PublicKeys(ORIGIN, (IssuerKey(A, 0, 30), IssuerKey(B, 7)), L))
    judge(found, "key-added", 7, added(B))
    with pytest.raises(LedgerInvalid, match="good until 30"):
        judge(found, "key-retired", 8, ended(A))
    found = ring(PublicKeys(ORIGIN, (IssuerKey(A),), M, 21, (LogKey(L, 0, 20),)))
    judge(
        found, "key-added", 20, added(M, "log")
    )  # compromised since, says the pinned trust: it is the narrower one that counts
    assert found.logs[keyid(L)].until == 21


def test_a_newer_trust_narrows_what_an_older_export_says():
    found = ring(PublicKeys(ORIGIN, (IssuerKey(A, 0, 5), IssuerKey(B, 40)), L))
    assert [sorted(found.issuer_keys(index)) for index in (4, 5)] == [[keyid(A)], []]
    found.end(40)  # the export ends before B was added
    with pytest.raises(LedgerInvalid, match="names 1 that the ledger does not add"):
        found.end(41)


def test_an_older_trust_follows_to_a_newer_one():
    found = ring()
    handover(found, 7, M, L, "log")
    handover(found, 9, B, A, "issuer")
    found.end(11)
    newer = followed(found)
    assert newer.continues(PINNED)
    assert not PINNED.continues(newer)
    again = KeyRing(newer)
    judge(again, "genesis", 0, FIRST)
    handover(again, 7, M, L, "log")
    handover(again, 9, B, A, "issuer")
    assert followed(again) == newer

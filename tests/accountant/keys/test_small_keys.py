"""Keys that anybody can sign by: read nowhere, whether a file pins them, a note names them or an envelope is signed."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpserve_verify.errors import InputError, KeyInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.keys.trust import IssuerKey, PublicKeys, fingerprint, load_public_pem, public_pem
from dpserve_verify.keys.verifier_keys import COSIGNATURE, ED25519, key_id_of, parse_verifier_key, verifier_key
from dpserve_verify.log.witness_policy import parse_policy
from local.reports.shared import Aggregator

PRIME, SIGN = 2**255 - 19, 1 << 255
EIGHTH = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
CANONICAL = [1, PRIME - 1, 0, SIGN, EIGHTH, EIGHTH | SIGN, PRIME - EIGHTH, (PRIME - EIGHTH) | SIGN]
OTHERS = [PRIME, PRIME + 1, PRIME | SIGN, (PRIME + 1) | SIGN, 1 | SIGN, (PRIME - 1) | SIGN, PRIME + 18]
GOOD = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()


def spelled(number: int) -> bytes:
    return number.to_bytes(32, "little")


def verifies_for_nobody(key: Ed25519PublicKey) -> bool:
    """Whether a signature that nobody made, of a point of small order and the number 0, verifies for some message."""
    for message in range(64):
        for point in CANONICAL:
            with suppress(InvalidSignature):
                key.verify(spelled(point) + bytes(32), b"%d" % message)
                return True
    return False


@pytest.mark.parametrize("number", CANONICAL + OTHERS)
def test_a_key_that_anybody_can_sign_by_is_pinned_nowhere(number):
    raw = spelled(number)
    key = Ed25519PublicKey.from_public_bytes(raw)  # the library takes it
    assert number not in CANONICAL or verifies_for_nobody(key)
    with pytest.raises(KeyInvalid, match="anybody can sign by"):
        load_public_pem(public_pem(key))
    good = PublicKeys("o/x", (IssuerKey(public_pem(GOOD)),), public_pem(Ed25519PrivateKey.generate().public_key()))
    text = canonical.decode(good.to_json())
    for entry in (text["issuers"][0], text["logs"][0]):
        before = dict(entry)
        entry["pem"] = public_pem(key)
        if "keyid" in entry:
            entry["keyid"] = fingerprint(key)
        with pytest.raises(KeyInvalid, match="anybody can sign by"):
            PublicKeys.from_json(canonical.encode(text))
        entry.update(before)
    PublicKeys.from_json(canonical.encode(text))
    for kind in (ED25519, COSIGNATURE):
        line = f"w+{key_id_of('w', raw, kind).hex()}+{base64.b64encode(kind + raw).decode()}"
        with pytest.raises(KeyInvalid, match="anybody can sign by"):
            parse_verifier_key(line, kind)
        named = f"log {line}" if kind == ED25519 else f"witness w {line}"
        with pytest.raises((KeyInvalid, InputError), match="anybody can sign by"):
            parse_policy(f"{named}\nquorum none\n".encode())
    assert parse_verifier_key(verifier_key("w", GOOD)) == ("w", GOOD)
    with pytest.raises(KeyInvalid, match="anybody can sign by"):
        Aggregator("a", "aa" * 32, raw.hex())

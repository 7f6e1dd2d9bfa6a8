"""DSSE envelopes: verified by openssl as well as by us, and every change to one is refused."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner, SSlibKey

from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.keys import dsse
from dpserve_verify.keys.dsse import (
    BUNDLE_TYPE,
    ENVELOPE_LIMIT,
    PAYLOAD_TYPE,
    from_sigstore_bundle,
    pae,
    parse,
    sign,
    to_sigstore_bundle,
    verify,
)
from dpserve_verify.keys.trust import fingerprint, public_pem


def signer_of(private):
    public = private.public_key()
    return CryptoSigner(private, SSlibKey.from_crypto(public, keyid=fingerprint(public)))


ED25519, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in (1, 2))
P256 = ec.derive_private_key(12345, ec.SECP256R1())
PAYLOAD = b'{"_type":"https://in-toto.io/Statement/v1","predicate":{"epsilon":"0.5"}}'
KEYS = {fingerprint(k.public_key()): k.public_key() for k in (ED25519, P256)}
KEYID = fingerprint(ED25519.public_key())
RAW = sign(PAYLOAD, signer_of(ED25519))


def encoded(raw):
    return base64.b64encode(raw).decode()


def envelope(**changes):
    return json.dumps(json.loads(RAW) | changes).encode()


def entry(private=ED25519, payload=PAYLOAD, kind=PAYLOAD_TYPE, **changes):
    """One signature object, made by hand."""
    algorithm = [] if private in (ED25519, OTHER) else [ec.ECDSA(dsse.SHA256())]
    sig = encoded(private.sign(pae(kind, payload), *algorithm))
    return {"keyid": fingerprint(private.public_key()), "sig": sig} | changes


def refuse(raw, match=None, keys=KEYS):
    with pytest.raises(CertificateInvalid, match=match):
        verify(raw, keys)


def test_pae_is_the_specified_one():
    """The example of DSSE's protocol.md."""
    assert (
        pae("http://example.com/HelloWorld", b"hello world")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert pae("é", b"") == "DSSEv1 2 é 0 ".encode()


@pytest.mark.parametrize("private", [ED25519, P256], ids=["ed25519", "p256"])
def test_sign_and_verify(private):
    raw = sign(PAYLOAD, signer_of(private))
    assert verify(raw, KEYS) == PAYLOAD
    assert set(json.loads(raw)) == {"payload", "payloadType", "signatures"}
    assert [keyid for keyid, _ in parse(raw).signatures] == [fingerprint(private.public_key())]
    assert verify(b"\n" + raw + b"\n", KEYS) == PAYLOAD


def test_a_signature_made_by_hand_verifies():
    """So that what `entry` makes below is refused for its fault alone."""
    assert verify(envelope(signatures=[entry()]), KEYS) == PAYLOAD
    assert verify(envelope(signatures=[entry(), entry(P256)]), KEYS) == PAYLOAD


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
@pytest.mark.parametrize(("private", "raw_input"), [(ED25519, ["-rawin"]), (P256, ["-rawin", "-digest", "sha256"])])
def test_openssl_verifies_what_we_sign(tmp_path, private, raw_input):
    value = json.loads(sign(PAYLOAD, signer_of(private)))
    payload = base64.b64decode(value["payload"])
    kind = value["payloadType"].encode()
    message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)  # rebuilt without our code
    (tmp_path / "key.pem").write_text(public_pem(private.public_key()))
    (tmp_path / "sig").write_bytes(base64.b64decode(value["signatures"][0]["sig"]))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "key.pem", *raw_input, "-sigfile", "sig", "-in"]
    for content, status in ((message, 0), (message + b" ", 1)):
        (tmp_path / "pae").write_bytes(content)
        assert subprocess.run([*command, "pae"], cwd=tmp_path, capture_output=True).returncode == status


def test_every_flipped_bit_is_refused():
    for i in range(len(RAW)):
        for bit in range(8):
            changed = bytearray(RAW)
            changed[i] ^= 1 << bit
            refuse(bytes(changed))


@pytest.mark.parametrize("kind", ["application/json", "application/vnd.in-toto+JSON", "", None, 5])
def test_another_payload_type_is_refused_although_signed(kind):
    signatures = [entry(kind=kind)] if isinstance(kind, str) else [entry()]
    refuse(envelope(payloadType=kind, signatures=signatures), "payloadType")


def test_another_payload_is_refused():
    refuse(envelope(payload=encoded(PAYLOAD + b" ")), "does not verify")
    refuse(envelope(payload=encoded(PAYLOAD), signatures=[entry(payload=b"{}")]), "does not verify")


def test_one_key_signs_once():
    refuse(envelope(signatures=[entry(), entry()]), "sign once")
    twice = KEYS | {"SHA256:alias": ED25519.public_key()}
    refuse(envelope(signatures=[entry(), entry(keyid="SHA256:alias")]), "fingerprint of its key", twice)


def test_an_unknown_key_is_refused_even_beside_a_known_one():
    refuse(envelope(signatures=[entry(OTHER)]), "pinned")
    refuse(envelope(signatures=[entry(), entry(OTHER)]), "pinned")
    refuse(RAW, "pinned", {})


def test_a_known_name_over_another_key_is_refused():
    refuse(envelope(signatures=[entry(OTHER, keyid=KEYID)]), "does not verify")
    refuse(envelope(signatures=[entry(OTHER, keyid=KEYID)]), "fingerprint", {KEYID: OTHER.public_key()})
    refuse(envelope(signatures=[entry(P256, keyid=KEYID)]), "does not verify")


def test_every_signature_must_verify():
    refuse(envelope(signatures=[entry(), entry(P256, payload=b"{}")]), "does not verify")
    refuse(envelope(signatures=[entry(P256, sig="")]), "does not verify")


@pytest.mark.parametrize("signatures", [[], {}, None, "x", [1], [[]], [entry()] * 5, [{}], [entry(extra=1)]])
def test_malformed_signature_lists_are_refused(signatures):
    refuse(envelope(signatures=signatures))


@pytest.mark.parametrize(
    "changes", [{"keyid": None}, {"keyid": 5}, {"sig": None}, {"sig": "!"}, {"sig": entry()["sig"].rstrip("=")}]
)
def test_malformed_signatures_are_refused(changes):
    refuse(envelope(signatures=[entry(**changes)]))


def test_fields_missing_or_added_are_refused():
    refuse(envelope(extra=1), "exactly the keys")
    for name in json.loads(RAW):
        refuse(json.dumps({k: v for k, v in json.loads(RAW).items() if k != name}).encode(), "exactly the keys")


@pytest.mark.parametrize("payload", [None, 5, encoded(PAYLOAD) + "\n", encoded(PAYLOAD).rstrip("="), "-_8=", "=", "é"])
def test_malformed_payloads_are_refused(payload):
    refuse(envelope(payload=payload))


def test_base64_has_one_spelling():
    text = encoded(b"{}")  # e30=, whose last digit carries two unused bits
    signatures = [entry(payload=b"{}")]
    assert verify(envelope(payload=text, signatures=signatures), KEYS) == b"{}"
    refuse(envelope(payload=text.replace("0=", "1="), signatures=signatures), "canonical base64")


@pytest.mark.parametrize("tail", [b"x", b"{}", b"\0", b",", RAW])
def test_trailing_bytes_are_refused(tail):
    refuse(RAW + tail, "envelope")


def test_json_traps_are_refused():
    refuse(RAW.replace(b'"payload":', b'"payload":"e30=","payload":', 1), "twice")
    refuse(RAW.replace(b'{"keyid"', b'{"x":1.5,"keyid"'), "float")
    refuse(RAW.replace(b'{"keyid"', b'{"x":NaN,"keyid"'), "float")
    refuse(RAW.replace(b'{"keyid"', b'{"x":' + b"[" * 90_000 + b",", 1), "envelope")
    refuse(b"", "envelope")
    refuse(b"[]", "object")
    refuse(b"\xef\xbb\xbf" + RAW, "envelope")


def test_ten_megabytes_are_refused_unread():
    refuse(b" " * 10_000_000 + RAW, f"at most {ENVELOPE_LIMIT}")
    refuse(b"[" * 10_000_000, f"at most {ENVELOPE_LIMIT}")
    with pytest.raises(CertificateInvalid, match="at most"):
        sign(bytes(ENVELOPE_LIMIT), signer_of(ED25519))


def test_a_signer_under_another_keyid_does_not_sign():
    """securesystemslib's default keyid is a plain hex digest; nothing of it may get out."""
    with pytest.raises(CertificateInvalid, match="fingerprint"):
        sign(PAYLOAD, CryptoSigner(ED25519))


def test_verify_leaves_its_arguments_alone():
    keys, raw = dict(KEYS), bytes(RAW)
    assert verify(raw, keys) == verify(raw, keys) == PAYLOAD
    assert (keys, raw) == (KEYS, RAW)


def test_sigstore_bundle_holds_the_same_envelope():
    bundle = json.loads(to_sigstore_bundle(RAW, KEYID))
    assert bundle["mediaType"] == BUNDLE_TYPE == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert bundle["verificationMaterial"] == {"publicKey": {"hint": KEYID}, "tlogEntries": []}
    assert verify(json.dumps(bundle["dsseEnvelope"]).encode(), KEYS) == PAYLOAD
    with pytest.raises(CertificateInvalid, match="exactly one"):
        to_sigstore_bundle(envelope(signatures=[entry(), entry(P256)]), KEYID)
    with pytest.raises(CertificateInvalid, match="envelope"):
        to_sigstore_bundle(RAW + b"x", KEYID)


def test_sigstore_bundle_is_read_back():
    assert from_sigstore_bundle(to_sigstore_bundle(RAW)) == (parse(RAW), KEYID)
    assert from_sigstore_bundle(to_sigstore_bundle(RAW, "another hint")) == (parse(RAW), "another hint")


BUNDLE = json.loads(to_sigstore_bundle(RAW, KEYID))


@pytest.mark.parametrize(
    "changes",
    [
        {"mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.3"},
        {"mediaType": None},
        {"verificationMaterial": {"publicKey": {"hint": KEYID}}},
        {"verificationMaterial": {"publicKey": {"hint": KEYID}, "tlogEntries": [{}]}},
        {"verificationMaterial": {"publicKey": {"hint": 5}, "tlogEntries": []}},
        {"verificationMaterial": {"certificate": {"rawBytes": ""}, "tlogEntries": []}},
        {"dsseEnvelope": None},
        {"dsseEnvelope": {**BUNDLE["dsseEnvelope"], "payloadType": "text/plain"}},
        {"dsseEnvelope": {**BUNDLE["dsseEnvelope"], "payload": "e30"}},
        {"messageSignature": {}},
    ],
)
def test_another_sigstore_bundle_is_refused(changes):
    with pytest.raises(CertificateInvalid):
        from_sigstore_bundle(json.dumps(BUNDLE | changes).encode())


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"{}", b"[" * 100_000, b" " * (2 * ENVELOPE_LIMIT + 1)])
def test_what_is_no_sigstore_bundle_is_refused(raw):
    with pytest.raises(CertificateInvalid):
        from_sigstore_bundle(raw)

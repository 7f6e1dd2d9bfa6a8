"""DSSE envelopes around in-toto statements: written and verified.

No library reads them: securesystemslib's `Envelope.verify` ignores payloadType and counts one key under two keyids
twice, and its `from_dict` destroys its argument. Here every signature must be by a pinned key, every key may sign once,
and a keyid must be the fingerprint of its key. Every refusal is a CertificateInvalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.formats.canonical import (
    JSON,
    CanonicalError,
    decode,
    decode_base64,
    encode,
    encode_base64,
    exact_object,
    exact_text,
)
from dpserve_verify.keys.signer import Signer
from dpserve_verify.keys.trust import PublicKey, fingerprint, load_public_pem
from dpserve_verify.keys.verifier_keys import ed25519_key

PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
ENVELOPE_LIMIT = 2**20
MAX_SIGNATURES = 4


@dataclass(frozen=True)
class Envelope:
    """A parsed envelope, nothing verified. `signatures` are (keyid, signature) as written, keyids distinct."""

    payload: bytes
    payload_type: str
    signatures: tuple[tuple[str, bytes], ...]


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed: the pre-authentication encoding of DSSE."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload: bytes, signer: Signer) -> bytes:
    """Return the JSON envelope over an in-toto statement, with one signature; it has passed `verify` before it is
    handed out.

    The signer's keyid must be its key's fingerprint: Go's dsse and cosign refuse securesystemslib's default keyid.
    """
    signed = signer.sign(pae(PAYLOAD_TYPE, payload))
    signature = signed.keyid, bytes.fromhex(signed.signature)
    raw = spell(Envelope(payload, PAYLOAD_TYPE, (signature,)))
    verify(raw, {signer.public_key.keyid: _public_key(signer)})
    return raw


def parse(envelope: bytes) -> Envelope:
    """Parse strictly: exact keys, canonical base64, in-toto payload type, 1 to 4 signatures with distinct keyids."""
    try:
        return _parse(decode(envelope, ENVELOPE_LIMIT))
    except CanonicalError as error:
        raise CertificateInvalid(f"envelope: {error.message}") from error


def spell(envelope: Envelope) -> bytes:
    """Return the JSON of an envelope, as `parse` reads it."""
    return _encode(_envelope_value(envelope))


def verify(envelope: bytes, keys: Mapping[str, PublicKey]) -> bytes:
    """Return the payload. CertificateInvalid unless every signature is by one of `keys` (keyid to key) and verifies.

    The payload is the exact bytes signed; what it says is not looked at here.
    """
    parsed = parse(envelope)
    message = pae(parsed.payload_type, parsed.payload)
    for keyid, signature in parsed.signatures:
        if keyid not in keys:
            raise CertificateInvalid(f"keyid={keyid}: must be a pinned issuer key")
        if fingerprint(keys[keyid]) != keyid:  # else one key could be counted under two names
            raise CertificateInvalid(f"keyid={keyid}: must be the fingerprint of its key, {fingerprint(keys[keyid])}")
        key = keys[keyid]
        try:
            if isinstance(key, Ed25519PublicKey):
                key.verify(signature, message)
            else:
                key.verify(signature, message, ECDSA(SHA256()))
        except InvalidSignature as error:
            raise CertificateInvalid(f"keyid={keyid}: the signature does not verify") from error
    return parsed.payload


def to_sigstore_bundle(envelope: bytes, hint: str | None = None) -> bytes:
    """Return an envelope as a Sigstore bundle v0.3; `hint` tells the reader which public key to fetch: the signature's
    keyid, where nothing else is given.

    A bundle holds exactly one signature.
    """
    parsed = parse(envelope)
    if len(parsed.signatures) != 1:
        raise CertificateInvalid(f"signatures={len(parsed.signatures)}: a Sigstore bundle holds exactly one")
    material: dict[str, JSON] = {"publicKey": {"hint": hint or parsed.signatures[0][0]}, "tlogEntries": []}
    bundle: dict[str, JSON] = {
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": material,
        "dsseEnvelope": _envelope_value(parsed),
    }
    return _encode(bundle, 2 * ENVELOPE_LIMIT)


def from_sigstore_bundle(raw: bytes) -> tuple[Envelope, str]:
    """Read strictly what `to_sigstore_bundle` writes: return its envelope, nothing verified, and the key's hint."""
    try:
        top = exact_object(
            decode(raw, 2 * ENVELOPE_LIMIT), ("mediaType", "verificationMaterial", "dsseEnvelope"), "bundle"
        )
        material = exact_object(top["verificationMaterial"], ("publicKey", "tlogEntries"), "verificationMaterial")
        key = exact_object(material["publicKey"], ("hint",), "publicKey")
        if top["mediaType"] != BUNDLE_TYPE or material["tlogEntries"] != []:
            raise CertificateInvalid(f"mediaType={top['mediaType']!r:.80}: must be {BUNDLE_TYPE}, without log entries")
        return _parse(top["dsseEnvelope"]), exact_text(key["hint"], "hint")
    except CanonicalError as error:
        raise CertificateInvalid(f"sigstore bundle: {error.message}") from error


def _envelope_value(envelope: Envelope) -> dict[str, JSON]:
    signatures: list[JSON] = [{"keyid": keyid, "sig": encode_base64(sig)} for keyid, sig in envelope.signatures]
    payload = encode_base64(envelope.payload)
    return {"payload": payload, "payloadType": envelope.payload_type, "signatures": signatures}


def _encode(value: Mapping[str, JSON], limit: int = ENVELOPE_LIMIT) -> bytes:
    try:
        return encode(value, limit)
    except CanonicalError as error:
        raise CertificateInvalid(f"envelope: {error.message}") from error


def _parse(value: JSON) -> Envelope:
    top = exact_object(value, ("payload", "payloadType", "signatures"), "envelope")
    kind, items = top["payloadType"], top["signatures"]
    if kind != PAYLOAD_TYPE:
        raise CertificateInvalid(f"payloadType={kind!r:.80}: must be {PAYLOAD_TYPE}")
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_SIGNATURES:
        raise CertificateInvalid(f"signatures: must be a list of 1 to {MAX_SIGNATURES}")
    signatures = []
    for item in items:
        fields = exact_object(item, ("keyid", "sig"), "signature")
        keyid = exact_text(fields["keyid"], "keyid")
        signatures.append((keyid, decode_base64(exact_text(fields["sig"], "sig"), "sig")))
    if len(dict(signatures)) != len(signatures):
        raise CertificateInvalid("signatures: a key must sign once")
    return Envelope(decode_base64(exact_text(top["payload"], "payload"), "payload"), PAYLOAD_TYPE, tuple(signatures))


def _public_key(signer: Signer) -> PublicKey:
    key = signer.public_key
    if key.scheme == "ed25519":
        return ed25519_key(bytes.fromhex(key.keyval["public"]), "issuer key")
    return load_public_pem(key.keyval["public"], "issuer key")

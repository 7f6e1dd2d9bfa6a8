"""How a C2SP signed note names a key: its name, its 4-byte key id, and the verifier key string that other tools take.

Ed25519 keys that anybody can sign by, those of small order, are read nowhere (`ed25519_key`).

Format: c2sp.org/signed-note@v1.0.0. Ed25519 only: 0x01 is the signature type of a log, 0x04 that of a witness
(`dpserve_verify.log.cosignature`).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpserve_verify.errors import InputError, KeyInvalid
from dpserve_verify.formats.canonical import decode_base64, encode_base64

MAX_NAME = 255
ED25519, COSIGNATURE = b"\x01", b"\x04"  # signature types
_PRIME = 2**255 - 19
_SMALL_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
SMALL_ORDER = frozenset((0, 1, _PRIME - 1, _SMALL_8, _PRIME - _SMALL_8))  # y of the points whose order divides 8


def ed25519_key(raw: bytes, what: str = "public key") -> Ed25519PublicKey:
    """Return the key that 32 bytes spell (RFC 8032, 5.1.2). KeyInvalid for another length, for a point of small order,
    under which signatures verify that nobody made, and for a second spelling of a point.
    """
    y = int.from_bytes(raw, "little") & ~(1 << 255)
    if len(raw) != 32 or y >= _PRIME or y in SMALL_ORDER:
        raise KeyInvalid(f"{what}: must be 32 bytes that spell an Ed25519 key, and none that anybody can sign by")
    return Ed25519PublicKey.from_public_bytes(raw)


def key_id(name: str, public_key: Ed25519PublicKey, kind: bytes = ED25519) -> bytes:
    """Return the 4 bytes that say which key signed, and how: a hint, not a fingerprint to trust."""
    return key_id_of(name, public_key.public_bytes_raw(), kind)


def key_id_of(name: str, public_key: bytes, kind: bytes = ED25519) -> bytes:
    """Return the `key_id` of the 32 bytes of a key."""
    return hashlib.sha256(name.encode() + b"\n" + kind + public_key).digest()[:4]


def verifier_key(name: str, public_key: Ed25519PublicKey, kind: bytes = ED25519) -> str:
    """Return the verifier key string `name+hex(key id)+base64(type || key)` that other tools take."""
    check_origin(name)
    material = encode_base64(kind + public_key.public_bytes_raw())
    return f"{name}+{key_id(name, public_key, kind).hex()}+{material}"


def parse_verifier_key(text: str, kind: bytes = ED25519) -> tuple[str, Ed25519PublicKey]:
    """Return name and key of a verifier key string. KeyInvalid unless `verifier_key` would write the same string."""
    name, _, rest = text.partition("+")
    try:
        material = decode_base64(rest.partition("+")[2], "verifier key")
        if len(material) != 33 or material[:1] != kind:
            raise KeyInvalid(f"verifier key: must be of Ed25519 (type 0x{kind.hex()}, 32 bytes)")
        public_key = ed25519_key(material[1:], "verifier key")
        if verifier_key(name, public_key, kind) != text:
            raise KeyInvalid("verifier key: its key id does not belong to its name and key")
    except InputError as error:
        raise KeyInvalid(error.message) from error
    return name, public_key


def check_origin(origin: str) -> None:
    """Raise InputError unless `origin` can name a log and its key: printable ASCII, no blank, no plus, at most 255
    long.
    """
    if not (is_key_name(origin) and origin.isascii() and origin.isprintable() and len(origin) <= MAX_NAME):
        raise InputError(f"origin={origin[:80]!r}: must be like example.org/ledger: ASCII, no blanks, no plus")


@lru_cache(maxsize=16)  # a log asks for its own at every entry
def is_key_name(name: str) -> bool:
    """Return whether a key may have this name (signed-note, Format): not empty, no Unicode spaces, no plus;
    isspace() knows control characters 0x1c-0x1f too.
    """
    return bool(name) and not any(c.isspace() or c < " " or c == "+" for c in name)

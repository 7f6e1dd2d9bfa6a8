"""A private key in PEM under a passphrase: PKCS8 (RFC 8018, PBES2) by PBKDF2-HMAC-SHA256 and AES-256-CBC.

Spelled here since the library's own writer derives by 2,048 rounds and takes no other number. Its reader, and openssl,
take any.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import textwrap

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

ROUNDS = 600_000
_SEQUENCE, _INTEGER, _OCTETS, _NULL = 0x30, 0x02, 0x04, b"\x05\x00"
# Object identifiers, spelled: 1.2.840.113549.1.5.13, .1.5.12, .2.9; 2.16.840.1.101.3.4.1.42.
_PBES2, _PBKDF2 = bytes.fromhex("06092a864886f70d01050d"), bytes.fromhex("06092a864886f70d01050c")
_HMAC_SHA256, _AES_256_CBC = bytes.fromhex("06082a864886f70d0209"), bytes.fromhex("060960864801650304012a")


def encrypt_pem(private: bytes, passphrase: bytes) -> bytes:
    """Return a key's PKCS8 in DER as PEM, under a passphrase."""
    salt, start = secrets.token_bytes(16), secrets.token_bytes(16)
    padder = PKCS7(AES.block_size).padder()
    padded = padder.update(private) + padder.finalize()
    cipher = Cipher(AES(hashlib.pbkdf2_hmac("sha256", passphrase, salt, ROUNDS, 32)), CBC(start)).encryptor()
    rounds = ROUNDS.to_bytes(3, "big")  # its first bit is 0: a number above 0
    derived = _der(_SEQUENCE, _der(_OCTETS, salt), _der(_INTEGER, rounds), _der(_SEQUENCE, _HMAC_SHA256, _NULL))
    scheme = _der(
        _SEQUENCE, _der(_SEQUENCE, _PBKDF2, derived), _der(_SEQUENCE, _AES_256_CBC, _der(_OCTETS, start))
    )  # fmt: skip
    whole = _der(
        _SEQUENCE, _der(_SEQUENCE, _PBES2, scheme), _der(_OCTETS, cipher.update(padded) + cipher.finalize())
    )  # fmt: skip
    lines = textwrap.wrap(base64.b64encode(whole).decode(), 64)
    text = "\n".join(("-----BEGIN ENCRYPTED PRIVATE KEY-----", *lines, "-----END ENCRYPTED PRIVATE KEY-----", ""))
    return text.encode("ascii")


def _der(tag: int, *parts: bytes) -> bytes:
    """Return one element of DER, of fewer than 65,536 bytes."""
    body = b"".join(parts)
    size = len(body)
    if size < 0x80:
        return bytes((tag, size)) + body
    spelled = size.to_bytes(2 if size > 0xFF else 1, "big")
    return bytes((tag, 0x80 | len(spelled))) + spelled + body

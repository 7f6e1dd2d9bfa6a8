"""Small files that nobody else may read: how they are read, and how a key is spelled in them."""

from __future__ import annotations

import os
import stat

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as pkix
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from accountant.keys.encrypted_pem import encrypt_pem
from dpserve_verify.errors import KeyInvalid
from dpserve_verify.system.files import open_no_link

PASSPHRASE_VARIABLE = "DPSERVE_KEY_PASSPHRASE"
_LIMIT = 16_384


def passphrase_from_environment(variable: str = PASSPHRASE_VARIABLE) -> bytes | None:
    """Return the passphrase in a variable; None where it is not set."""
    value = os.environ.get(variable)
    if value == "":
        raise KeyInvalid(f"{variable}: must not be empty; unset it for keys without a passphrase")
    return None if value is None else os.fsencode(value)


def private_pem(key: Ed25519PrivateKey | X25519PrivateKey, secret: bytes | None) -> bytes:
    """Serialize the key as PKCS8 in PEM, encrypted where there is a passphrase."""
    form = pkix.PrivateFormat.PKCS8, pkix.NoEncryption()
    if secret is None:
        return key.private_bytes(pkix.Encoding.PEM, *form)
    return encrypt_pem(key.private_bytes(pkix.Encoding.DER, *form), secret)


def read_pem(raw: bytes, secret: bytes | None, name: str, variable: str = PASSPHRASE_VARIABLE) -> PrivateKeyTypes:
    """Read what `private_pem` wrote, of any kind of key. KeyInvalid for anything else, or for the wrong passphrase."""
    try:
        return pkix.load_pem_private_key(raw, secret)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:  # TypeError: passphrase missing or not needed
        raise KeyInvalid(f"{name}: must be PKCS8 in PEM, {variable} set iff encrypted: {error}") from error


def load_private(raw: bytes, secret: bytes | None, name: str) -> Ed25519PrivateKey | EllipticCurvePrivateKey:
    """Load what `private_pem` wrote; KeyInvalid for anything but an Ed25519 or EC key, or for the wrong passphrase."""
    key = read_pem(raw, secret, name)
    if not isinstance(key, (Ed25519PrivateKey, EllipticCurvePrivateKey)):
        raise KeyInvalid(f"{name}: must be an Ed25519 or ECDSA key")
    return key


def check_owner(status: os.stat_result, name: str, forbidden: int, mounted: bool = False) -> None:
    """Raise KeyInvalid unless the file is ours and has none of these mode bits. `mounted`: it may also be root's, and
    readable by a group of ours, as clusters mount secrets.
    """
    if mounted and status.st_uid == 0 != os.geteuid():
        if status.st_gid in (os.getegid(), *os.getgroups()):
            forbidden &= ~stat.S_IRGRP
    elif status.st_uid != os.geteuid():
        raise KeyInvalid(f"{name}: must belong to the user who runs this (uid {os.geteuid()}, is {status.st_uid})")
    if status.st_mode & forbidden:
        raise KeyInvalid(f"{name}: mode={status.st_mode & 0o7777:04o}: must have none of the bits {forbidden:04o}")


def read_file(directory_fd: int | None, name: str, forbidden: int, mounted: bool = False) -> bytes:
    """Read a small regular file of ours, never through a link; `forbidden` are the mode bits it must not have;
    `mounted` as for `check_owner`.
    """
    try:
        fd = open_no_link(name, directory_fd)
    except OSError as error:
        raise KeyInvalid(f"{name}: must be a readable file and no link ({error.strerror})") from error
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LIMIT:
            raise KeyInvalid(f"{name}: must be a regular file of at most {_LIMIT} bytes")
        check_owner(status, name, forbidden, mounted)
        return file.read(_LIMIT)


def is_absent(uri: str) -> bool:
    """Return whether this URI means that the process has no issuer's key: what needs one is done elsewhere."""
    return uri == "none"


def in_keys(uri: str) -> bool:
    """Return whether this URI means the file among our own keys."""
    return uri in ("", "file:")

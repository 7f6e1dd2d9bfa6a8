"""Numbers in two shares, of which each alone is uniform whatever the numbers are; and sealed, each to one reader.

first is uniform modulo 2^64, by the operating system's entropy; second = values - first. Their sum is `values`, so sums
of shares are shares of sums. Sealing is HPKE (RFC 9180) as `cryptography` has it: X25519, HKDF-SHA256, AES-256-GCM;
nothing here is a construction of our own.
"""

from __future__ import annotations

import os

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from numpy.typing import NDArray

from dpserve_verify.errors import InputError

Share = NDArray[np.uint64]
BITS = 64
OVERHEAD = 48  # bytes of a sealed text beyond the text: HPKE's own public key, and the tag
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def within(values: NDArray[np.int64], sensitivity: int) -> NDArray[np.int64]:
    """Return `values` (n,), or as many zeros where they are longer (L2) than `sensitivity`: compared in exact integers.

    What is promised rests on that length, and that an answer comes is part of what is released: so what is too long
    neither leaves nor keeps its owner from answering.
    """
    length = sum(value * value for value in values.tolist())
    return values * np.int64(length <= sensitivity * sensitivity)


def split(values: NDArray[np.int64], sensitivity: int, bits: int = BITS) -> tuple[Share, Share]:
    """Split `values` (n,) into two shares (n,) modulo 2^bits: the first is uniform and says nothing, and so is the
    second. Of zeros where `values` are longer than the `sensitivity` that was priced.
    """
    return share(within(values, sensitivity), bits)


def share(values: NDArray[np.int64], bits: int = BITS) -> tuple[Share, Share]:
    """Split `values` (n,) as `split` does, whatever their length: sums over rows, which whoever counts them has bounded
    row by row.
    """
    drawn = np.frombuffer(os.urandom(8 * values.size), "<u8").astype(np.uint64)
    first = drawn >> np.uint64(BITS - bits)  # the high bits of 64 uniform ones are uniform
    return first, (np.ascontiguousarray(values, np.int64).view(np.uint64) - first) & _mask(bits)


def join(first: Share, second: Share, bits: int = BITS) -> NDArray[np.int64]:
    """Join shares, or sums of shares, into the values: numbers (n,) from -2^(bits - 1) below 2^(bits - 1)."""
    total = ((first + second) & _mask(bits)) << np.uint64(BITS - bits)
    return total.view(np.int64) >> np.int64(BITS - bits)


def _mask(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)


def to_bytes(share: Share) -> bytes:
    """Convert to bytes: eight a number, the lowest first."""
    return share.astype("<u8").tobytes()


def from_bytes(raw: bytes) -> Share:
    """Read what `to_bytes` wrote; InputError where bytes are left over."""
    if len(raw) % 8:
        raise InputError(f"share: {len(raw)} bytes, which are no whole numbers")
    return np.frombuffer(raw, "<u8").astype(np.uint64)


def check_key(key: bytes) -> None:
    """Raise InputError where nothing can be sealed to this X25519 public key (32 bytes): a point of small order."""
    try:
        seal(b"", key, b"")
    except ValueError:
        raise InputError("seal: is a key that nothing can be sealed to") from None


def seal(text: bytes, key: bytes, about: bytes) -> bytes:
    """Seal `text` for the holder of the X25519 public `key` (32 bytes) alone; it opens under the same `about`, no
    other.
    """
    return SUITE.encrypt(text, X25519PublicKey.from_public_bytes(key), about)


def unseal(sealed: bytes, private: X25519PrivateKey, about: bytes) -> bytes:
    """Open what `seal` wrote. InputError where it is of another key, about something else, or was changed."""
    try:
        return SUITE.decrypt(sealed, private, about)
    except (InvalidTag, ValueError):
        raise InputError("share: does not open: it was sealed to another key, for something else, or changed") from None

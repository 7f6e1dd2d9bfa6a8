"""What signs: a key of securesystemslib, or anything of the same form."""

from __future__ import annotations

from typing import Any, Protocol


class Signature(Protocol):
    """A signature, and by which key.

    keyid: the key's fingerprint.
    signature: hexadecimal.
    """

    keyid: str
    signature: str


class Signer(Protocol):
    """A private key, wherever it is kept."""

    @property
    def public_key(self) -> Any:
        """Return its public key, with `keyid`, `scheme` and `keyval`."""

    def sign(self, payload: bytes) -> Signature:
        """Sign these bytes."""

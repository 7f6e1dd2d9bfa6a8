"""Checkpoints judged in their turn: signed by the key that the entries below give the log at that size, and, where the
key is another than at the checkpoint before, by that one too.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpserve_verify.audit.tree_of_entries import Findings, Head
from dpserve_verify.entries.keys import KeyRing
from dpserve_verify.errors import DpserveError
from dpserve_verify.log.notes import verify_checkpoint

KeyAt: TypeAlias = Callable[[int], Ed25519PublicKey]
"""The log's key for the checkpoint of a size. A key holds for one unbroken range of sizes."""


class Checked(NamedTuple):
    """A filed checkpoint; `key` is the one that its signature is known to be good by, where it is."""

    size: int
    note: str
    key: Ed25519PublicKey | None


class Signatures(Protocol):
    """What verifies the signatures of filed checkpoints, as long as it is open."""

    def check(self, filed: Iterable[tuple[int, str]]) -> Iterator[Checked]:
        """Look at every (size, note), in order. What is not known to be good is verified when its turn comes."""

    def __enter__(self) -> Signatures:
        """Open it."""

    def __exit__(self, *error: Any) -> None:
        """Close it, however the block ends."""


OpenSignatures: TypeAlias = Callable[[str, KeyAt, int | None], Signatures]
"""Name of the log, its keys, and how many processes may help (None: as many as pay)."""


class OneByOne:
    """Verifies none ahead: each when its turn comes."""

    def __init__(self, origin: str, key_at: KeyAt, helpers: int | None = None) -> None:
        pass

    def check(self, filed: Iterable[tuple[int, str]]) -> Iterator[Checked]:
        """Give every (size, note) as it is."""
        return (Checked(size, note, None) for size, note in filed)

    def __enter__(self) -> OneByOne:
        return self

    def __exit__(self, *error: Any) -> None:
        pass


class Signed:
    """Gives the heads of checkpoints that count; what is wrong with others goes to `findings`."""

    def __init__(self, ring: KeyRing, findings: Findings) -> None:
        self._ring, self._trust, self._findings = ring, ring.trust, findings
        self._last, self._before = -1, ring.trust.logs[0].public_key
        self._newest, self._known = self._before, 0
        self.ended = False  # every entry was read

    def guess(self, size: int) -> Ed25519PublicKey:
        """Return the key that is likely to have signed the checkpoint of a later size: the pinned one, else the
        newest.
        """
        try:
            return self._trust.log_key_at(size)
        except DpserveError:
            return self._newest

    def head(self, checked: Checked) -> Head | None:
        """Return the head of a checkpoint that the ledger holds, filed under its size; None where it is not in
        order.
        """
        filed, at = checked.size, max(checked.size - 1, 0)
        before, self._last = self._last, max(self._last, filed)
        try:
            key = self._key(filed)
            size, root = self._read(checked, key)
        except DpserveError as error:
            self._findings.add(at, f"entry {at}: the checkpoint of size {filed}: {error.message}")
            return None
        if size != filed or filed <= before:
            self._findings.add(at, f"entry {at}: a checkpoint of size {filed} is out of place")
            return None
        self._before = key
        return Head(filed, 0, root, f"the checkpoint of size {filed}")

    def kept(self, checked: Checked) -> Head | None:
        """Return the head of a checkpoint that an auditor kept from before; None where it is not signed as it must
        be.
        """
        try:
            checkpoint = verify_checkpoint(checked.note, self._trust.origin, self._key(checked.size))
        except DpserveError as error:
            self._findings.add(None, f"a checkpoint kept from before: {error.message}")
            return None
        return Head(checkpoint.size, 2, checkpoint.root, "a checkpoint kept from before")

    def _read(self, checked: Checked, key: Ed25519PublicKey) -> tuple[int, bytes]:
        """Return size and root of the checkpoint, once every key that must sign it is seen to have signed it."""
        if checked.key == key and self._before == key:
            _, size, root, _ = checked.note.split("\n", 3)
            return int(size), a2b_base64(root)
        checkpoint = verify_checkpoint(checked.note, self._trust.origin, key)
        if self._before != key:
            verify_checkpoint(checked.note, self._trust.origin, self._before)
        return checkpoint.size, checkpoint.root

    def _key(self, size: int) -> Ed25519PublicKey:
        """Return the log's key at this size, by the ring. Of sizes beyond the last entry the ring may know less than
        the pin.
        """
        if len(self._ring.keys) != self._known:
            self._known, self._newest = len(self._ring.keys), self._ring.log_key_at(size)
        return self.guess(size) if self.ended else self._newest

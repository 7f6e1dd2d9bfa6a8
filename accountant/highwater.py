"""The high-water mark: the largest tree that was ever signed, kept beside the keys and outside the database."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from accountant import canonical, merkle
from accountant.canonical import CanonicalError, exact_integer, exact_object, exact_text
from accountant.errors import LedgerInvalid
from accountant.keys import sync_directory, write_new


@dataclass(frozen=True)
class HighWater:
    """The largest (size, root) ever signed, kept outside the database: a rolled-back database is found by it.

    A missing file reads as None: whoever finds entries in the ledger and no mark must refuse, not start again.
    A mark older than the ledger is weaker but never wrong, so a mark is advanced after the entry has been committed."""

    path: Path

    def read(self) -> tuple[int, bytes] | None:
        """The mark, or None where there is none yet. Needs no lock: the file is only ever replaced whole."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            item = exact_object(canonical.decode_canonical(raw), ("root", "size"), "mark")
            return exact_integer(item["size"], "size"), canonical.decode_base64(exact_text(item["root"], "root"))
        except CanonicalError as error:
            raise LedgerInvalid(f"{self.path}: damaged high-water mark, {error.message}") from error

    @contextmanager
    def locked(self) -> Iterator[LockedMark]:
        """Hold the mark against every other thread and process of this host, across check, commit and advance.

        Not re-entrant: inside, use the `LockedMark`, never `HighWater.advance`."""
        fd = os.open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield LockedMark(self.path, self.read())
        finally:
            os.close(fd)

    def advance(self, size: int, root: bytes) -> None:
        """Raise the mark. LedgerInvalid below it, or for another root at its size; the same (size, root) is fine."""
        with self.locked() as mark:
            mark.advance(size, root)


@dataclass
class LockedMark:
    """The high-water mark while its lock is held."""

    path: Path
    value: tuple[int, bytes] | None

    def check(self, size: int, read: merkle.NodeReader) -> None:
        """LedgerInvalid unless the ledger of `size` entries still begins with the tree at the mark."""
        if self.value is not None:
            self._compare(size, merkle.root(self.value[0], read) if size >= self.value[0] else b"")

    def advance(self, size: int, root: bytes) -> None:
        """As `HighWater.advance`. That (size, root) continues the tree at the mark is for `check` to say, before."""
        if size < 0 or len(root) != merkle.HASH_SIZE:
            raise LedgerInvalid(f"size={size}: must be a tree size, with a root of {merkle.HASH_SIZE} bytes")
        if self.value is not None and size <= self.value[0]:
            self._compare(size, root)
            return
        new = self.path.with_name(self.path.name + ".new")
        new.unlink(missing_ok=True)  # left by a crash; we hold the lock
        write_new(new, canonical.encode({"root": canonical.encode_base64(root), "size": size}), 0o600)
        new.replace(self.path)
        if self.value is None:  # later renames need no sync: losing one leaves an older mark, not a wrong one
            sync_directory(self.path.parent)
        self.value = size, root

    def _compare(self, size: int, root_at_mark: bytes) -> None:
        marked, marked_root = self.value or (0, b"")
        if size < marked:
            raise LedgerInvalid(f"size={size}: a tree of size {marked} was signed before: the ledger was rolled back")
        if root_at_mark != marked_root:
            raise LedgerInvalid(f"size={marked}: another root was signed at this size: the ledger was rewritten")

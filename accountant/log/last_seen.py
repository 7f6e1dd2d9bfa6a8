"""The high-water mark: the largest tree that was ever signed, kept beside the keys and outside the database.

A file of two slots, written in turn and in place: a crash in the middle of a write can tear the slot that was being
written, which the digest in it shows, and then the other one, the mark before, is the mark. So readers need no lock;
writers hold it to compare and to raise, for as long as files of this host take, and never while a database is asked.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dpserve_verify.errors import LedgerInvalid, LedgerUnavailable
from dpserve_verify.formats import canonical, merkle
from dpserve_verify.system.files import PRIVATE, replace_file

SLOT = 4096  # no block of a disk holds a part of both
BLANK = b" " * (SLOT - 1) + b"\n"
WAIT_SECONDS = 3.0  # for another process that holds the lock, before anything was written
RAISE_SECONDS = 20.0  # to raise the mark: what it is raised for is written
TRY_SECONDS = 0.002  # between two tries
_LINE = re.compile(rb'\{"root":"(?P<root>[A-Za-z0-9+/]{43}=)","sha256":"[0-9a-f]{64}","size":(?P<size>[0-9]{1,19})\}')


@dataclass(frozen=True)
class HighWater:
    """The largest (size, root) ever signed, kept outside the database: a rolled-back database is found by it.

    A missing file reads as None: whoever finds entries in the ledger and no mark must refuse, not start again.
    A mark older than the ledger is weaker but never wrong, so a mark is advanced after the entry has been committed."""

    path: Path

    def read(self) -> tuple[int, bytes] | None:
        """Return the mark, or None where there is none yet."""
        return self.look().value

    def look(self) -> Mark:
        """Return the mark as it is at this moment, without the lock: never one that was not, though it may be the one
        before.
        """
        try:
            return Mark(_find(self.path)[0])
        except LedgerInvalid:  # two marks may have been written while we read
            with self.locked() as mark:
                return Mark(mark.value)

    @contextmanager
    def locked(self, seconds: float | None = None) -> Iterator[LockedMark]:
        """Lock the mark against every other thread and process of this host. LedgerUnavailable where another holds it
        for longer than `seconds` (None: WAIT_SECONDS): it stands still, for nobody asks a database meanwhile.

        Not re-entrant: inside, use the `LockedMark`, never `HighWater.advance`.
        """
        fd = _open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT)
        wait = WAIT_SECONDS if seconds is None else seconds
        end = time.monotonic() + wait
        try:
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system frees the lock of a killed process
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise LedgerUnavailable(
                            f"{self.path}: another process holds the lock of the high-water mark for more than "
                            f"{wait:g} seconds; it stands still: let it go on, or end it"
                        ) from None
                time.sleep(TRY_SECONDS)
            value, slot = _find(self.path)
            yield LockedMark(value, self.path, slot)
        finally:
            os.close(fd)

    def advance(self, size: int, root: bytes) -> None:
        """Raise the mark. LedgerInvalid below it, or for another root at its size; the same (size, root) is fine."""
        with self.locked() as mark:
            mark.advance(size, root)


@dataclass
class Mark:
    """A high-water mark: `value` is (size, root), or None where there is none yet."""

    value: tuple[int, bytes] | None

    @property
    def size(self) -> int:
        """Count the entries that it speaks of."""
        return 0 if self.value is None else self.value[0]

    def check(self, size: int, read: merkle.NodeReader) -> None:
        """Raise LedgerInvalid unless the ledger of `size` entries still begins with the tree at the mark."""
        if self.value is not None:
            self._compare(size, merkle.root(self.value[0], read) if size >= self.value[0] else b"")

    def _compare(self, size: int, root_at_mark: bytes) -> None:
        marked, marked_root = self.value or (0, b"")
        if size < marked:
            raise LedgerInvalid(f"size={size}: a tree of size {marked} was signed before: the ledger was rolled back")
        if root_at_mark != marked_root:
            raise LedgerInvalid(f"size={marked}: another root was signed at this size: the ledger was rewritten")


@dataclass
class LockedMark(Mark):
    """The high-water mark while its lock is held. `slot`: where it stands; None where there is no file yet."""

    path: Path
    slot: int | None

    def advance(self, size: int, root: bytes) -> None:
        """Advance as `HighWater.advance` does. `check` must have shown before that (size, root) continues the tree at
        the mark.
        """
        if size < 0 or len(root) != merkle.HASH_SIZE:
            raise LedgerInvalid(f"size={size}: must be a tree size, with a root of {merkle.HASH_SIZE} bytes")
        if self.value is not None and size <= self.value[0]:
            self._compare(size, root)
            return
        try:
            self._write(_slot(size, root))
        except OSError as error:
            raise LedgerUnavailable(f"{self.path}: the high-water mark cannot be raised ({error.strerror})") from error
        self.value = size, root

    def _write(self, content: bytes) -> None:
        if self.slot is None:
            replace_file(self.path, content + BLANK, PRIVATE, alone=True)
            self.slot = 0
        else:
            _overwrite(self.path, (1 - self.slot) * SLOT, content)
            self.slot = 1 - self.slot


def _find(path: Path) -> tuple[tuple[int, bytes] | None, int | None]:
    """Find the mark and its slot."""
    raw = _read(path)
    if raw is None:
        return None, None
    if len(raw) != 2 * SLOT:
        raise LedgerInvalid(f"{path}: damaged high-water mark, it is not of {2 * SLOT} bytes")
    marks = [(mark, slot) for slot in (0, 1) if (mark := _read_slot(raw[slot * SLOT : (slot + 1) * SLOT]))]
    if not marks:
        raise LedgerInvalid(f"{path}: damaged high-water mark, neither of its slots is whole")
    return max(marks)


def _read(path: Path) -> bytes | None:
    """Read at most as many bytes as the file may hold. Not `read_bytes`: its fstat has the next write store a finer
    time, and that doubles what the sync of that write takes.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerUnavailable(f"{path}: cannot be read ({error.strerror})") from error
    try:
        return os.read(fd, 2 * SLOT + 1)
    finally:
        os.close(fd)


def _slot(size: int, root: bytes) -> bytes:
    """Return the text of one slot: a line of canonical JSON with its digest, then spaces. Built as text, since every
    append needs it.
    """
    encoded = canonical.encode_base64(root)
    digest = hashlib.sha256(f'{{"root":"{encoded}","size":{size}}}'.encode()).hexdigest()
    return f'{{"root":"{encoded}","sha256":"{digest}","size":{size}}}'.encode().ljust(SLOT - 1) + b"\n"


def _read_slot(raw: bytes) -> tuple[int, bytes] | None:
    """Read one slot; None where it is blank or torn."""
    match = _LINE.match(raw)
    if match is None:
        return None
    mark = int(match["size"]), base64.b64decode(match["root"])
    return mark if _slot(*mark) == raw else None


def _overwrite(path: Path, offset: int, content: bytes) -> None:
    """Write in place and sync to disk. The file's length stays, so its data alone need be synced."""
    fd = _open(path, os.O_WRONLY)
    try:
        if os.pwrite(fd, content, offset) != len(content):
            raise OSError(0, "written in part")
        os.fdatasync(fd)
    finally:
        os.close(fd)


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, PRIVATE)
    except OSError as error:
        raise LedgerUnavailable(f"{path}: cannot be opened ({error.strerror})") from error

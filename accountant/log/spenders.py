"""Hash table: the latest entry per analyst and account, found in constant time. It stands beside the file of
`accountant.log.newest` and is trusted as much.

It doubles when a key finds no free slot within MAX_PROBES. The key of an empty slot is zeros.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from struct import Struct

from dpserve_verify.system.files import PRIVATE, replace_unsynced

PLACE = Struct("<16sq")  # name, entry
MAX_PROBES = 16  # places in which a name may stand
MAX_READ_BYTES = 1 << 16  # bytes of a table that is read at once
FIRST = 256  # places of a new table, besides those behind the last
NOBODY = bytes(16)


@lru_cache(maxsize=1 << 14)  # of a window of blocks many, and thrice in an admission
def spender(account: int, analyst: str) -> bytes:
    """Return the name of an analyst as charged to the account of this number."""
    return hashlib.sha256(f"{account} {analyst}".encode()).digest()[:16]


@dataclass(frozen=True)
class Spenders:
    """A hash table in the file at `path`."""

    path: Path

    def exists(self) -> bool:
        """Return whether the file exists and is large enough to be a table."""
        try:
            return self._places(self.path.stat().st_size) > 0
        except FileNotFoundError:
            return False

    def begin(self) -> None:
        """Write an empty table."""
        replace_unsynced(self.path, bytes(PLACE.size * (FIRST + MAX_PROBES)), PRIVATE)

    def of(self, names: Iterable[bytes]) -> list[int]:
        """Return the latest entry per name; 0 where none was written."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            table = os.pread(fd, size, 0) if size <= MAX_READ_BYTES else None
            return [self._at(fd, self._places(size), name, table)[1] for name in names]
        finally:
            os.close(fd)

    def put(self, newest: Mapping[bytes, int]) -> None:
        """Store the latest entry per name."""
        if not newest:
            return
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            places = self._places(os.fstat(fd).st_size)
            for name, seq in newest.items():
                at, _ = self._at(fd, places, name)
                if at is None:
                    self._grow(newest)
                    return
                os.pwrite(fd, PLACE.pack(name, seq), PLACE.size * at)
        finally:
            os.close(fd)

    @staticmethod
    def _at(fd: int, places: int, name: bytes, table: bytes | None = None) -> tuple[int | None, int]:
        """Find the slot of a key, and its entry: the first within MAX_PROBES that is its own or free; None where there
        is none. Keys are never removed, so a free slot ends the search. `table`: all of it, where it was read.
        """
        first = int.from_bytes(name[:8]) % places
        raw = os.pread(fd, PLACE.size * MAX_PROBES, PLACE.size * first) if table is None else table
        begin = first if table is None else 0
        for at in range(first, min(first + MAX_PROBES, begin + len(raw) // PLACE.size)):
            stored_name, seq = PLACE.unpack_from(raw, PLACE.size * (at - begin))
            if stored_name in (name, NOBODY):
                return at, seq
        return None, 0

    @staticmethod
    def _places(size: int) -> int:
        return size // PLACE.size - MAX_PROBES

    def _grow(self, newest: Mapping[bytes, int]) -> None:
        """Store as `put` does, in a larger table that replaces this one."""
        raw = self.path.read_bytes()
        entries = {name: seq for name, seq in PLACE.iter_unpack(raw) if name != NOBODY} | dict(newest)
        places, table = self._places(len(raw)), None
        while table is None:
            places *= 2
            table = _build_table(entries, places)
        replace_unsynced(self.path, table, PRIVATE)


def _build_table(entries: Mapping[bytes, int], places: int) -> bytes | None:
    """Return a table of so many places that holds all entries; None where one finds no slot within MAX_PROBES."""
    table = [(NOBODY, 0)] * (places + MAX_PROBES)
    for name, seq in entries.items():
        first = int.from_bytes(name[:8]) % places
        free = next((at for at in range(first, first + MAX_PROBES) if table[at][0] == NOBODY), None)
        if free is None:
            return None
        table[free] = name, seq
    return b"".join(PLACE.pack(*place) for place in table)

"""For every analyst who was charged to an account, the newest entry that says so: found by name, in the same time
however many there are. A table of places by the digests of names, beside the numbers of `accountant.log.newest` and as
trusted.

It gets twice the places where a name finds none that is free among its NEAR. The name of an empty place is zeros.
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
NEAR = 16  # places in which a name may stand
SMALL = 1 << 16  # bytes of a table that is read at once
FIRST = 256  # places of a new table, besides those behind the last
NOBODY = bytes(16)


@lru_cache(maxsize=1 << 14)  # of a window of blocks many, and thrice in an admission
def spender(account: int, analyst: str) -> bytes:
    """The name of an analyst as charged to the account of this number."""
    return hashlib.sha256(f"{account} {analyst}".encode()).digest()[:16]


@dataclass(frozen=True)
class Spenders:
    """The file at `path`."""

    path: Path

    def exists(self) -> bool:
        """Whether it is there, and may be a table."""
        try:
            return self._places(self.path.stat().st_size) > 0
        except FileNotFoundError:
            return False

    def begin(self) -> None:
        """Nobody stands in it."""
        replace_unsynced(self.path, bytes(PLACE.size * (FIRST + NEAR)), PRIVATE)

    def of(self, names: Iterable[bytes]) -> list[int]:
        """The newest entry about who has each of these names; 0: none was written."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            table = os.pread(fd, size, 0) if size <= SMALL else None
            return [self._at(fd, self._places(size), name, table)[1] for name in names]
        finally:
            os.close(fd)

    def put(self, newest: Mapping[bytes, int]) -> None:
        """Note the newest entry about each of these."""
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
        """Where a name stands or would stand in a table of so many places, and its entry: the first place that is its
        own or free; None where none near is. Nobody is ever taken out, so behind a free place it does not stand.
        `table`: all of it, where it was read.
        """
        first = int.from_bytes(name[:8]) % places
        raw = os.pread(fd, PLACE.size * NEAR, PLACE.size * first) if table is None else table
        begin = first if table is None else 0
        for at in range(first, min(first + NEAR, begin + len(raw) // PLACE.size)):
            known, seq = PLACE.unpack_from(raw, PLACE.size * (at - begin))
            if known in (name, NOBODY):
                return at, seq
        return None, 0

    @staticmethod
    def _places(size: int) -> int:
        return size // PLACE.size - NEAR

    def _grow(self, newest: Mapping[bytes, int]) -> None:
        """As `put`, into a larger file in the place of this one."""
        raw = self.path.read_bytes()
        known = {name: seq for name, seq in PLACE.iter_unpack(raw) if name != NOBODY} | dict(newest)
        places, table = self._places(len(raw)), None
        while table is None:
            places *= 2
            table = _filled(known, places)
        replace_unsynced(self.path, table, PRIVATE)


def _filled(known: Mapping[bytes, int], places: int) -> bytes | None:
    """A table of so many places with all of these; None where one finds none near."""
    table = [(NOBODY, 0)] * (places + NEAR)
    for name, seq in known.items():
        first = int.from_bytes(name[:8]) % places
        free = next((at for at in range(first, first + NEAR) if table[at][0] == NOBODY), None)
        if free is None:
            return None
        table[free] = name, seq
    return b"".join(PLACE.pack(*each) for each in table)

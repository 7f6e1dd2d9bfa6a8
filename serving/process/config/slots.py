"""Memory in which a serving process leaves what its connections have asked for, for its keeper to see, and which of
them may go on at another process where this one ends (`serving.process.workers.rescue`).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator

SLOTS, ROOM = 256, 64 << 10  # connections of a process, and bytes of a request, that go on elsewhere
WITHOUT, IDLE, ASKED = range(3)  # nothing goes on; no request was begun; one that may be answered anew
_HEAD = struct.Struct("=IiB")  # bytes of the request, number of the connection's file, state; written in this order
_SIZE = _HEAD.size + ROOM


class Slot:
    """What a keeper is told of one connection. Each call leaves it whole, wherever this process ends."""

    def __init__(self, memory: mmap.mmap, place: int, file: int) -> None:
        self.place = place
        self._memory, self._start, self._file = memory, place * _SIZE, file
        self._state, self._length, self._is_lost = WITHOUT, 0, False
        self.rest()

    def rest(self) -> None:
        """Say that all is answered, and nothing was begun."""
        self._is_lost = False
        self._set(IDLE, 0)

    def add(self, data: bytes) -> None:
        """Say what came: the beginning of a request, or more of it."""
        end = self._length + len(data)
        if self._is_lost or end > ROOM:
            return self.lose()
        start = self._start + _HEAD.size + self._length
        self._memory[start : start + len(data)] = data
        self._set(ASKED if self._state == IDLE else self._state, end)

    def may_repeat(self, may: bool) -> None:
        """Say whether the request may be answered anew by another process."""
        if not self._is_lost:
            self._set(ASKED if may else WITHOUT, self._length)

    def lose(self) -> None:
        """Say that the connection ends with this process, until it rests again."""
        self._is_lost = True
        self._set(WITHOUT, 0)

    def _set(self, state: int, length: int) -> None:
        self._state, self._length = state, length
        _HEAD.pack_into(self._memory, self._start, length, self._file, state)


class Slots:
    """What a keeper is told of the connections of a process."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, SLOTS * _SIZE)
        self._free = [*reversed(range(SLOTS))]

    def take(self, file: int) -> Slot | None:
        """Return a slot for a connection; None where all are taken."""
        return Slot(self._memory, self._free.pop(), file) if self._free else None

    def give_back(self, slot: Slot) -> None:
        """Say that a connection is no more."""
        slot.lose()
        self._free.append(slot.place)

    def rescue(self) -> Iterator[tuple[int, bytes]]:
        """Yield the file of each connection that may go on elsewhere, and what it asks for so far."""
        for place in range(SLOTS):
            length, file, state = _HEAD.unpack_from(self._memory, place * _SIZE)
            if state != WITHOUT:
                start = place * _SIZE + _HEAD.size
                yield file, self._memory[start : start + length]

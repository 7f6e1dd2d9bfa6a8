"""Numba kernel that counts the rows of each person: `training.rows.people.people` says which rows are used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.numba_cache import njit

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]


@njit()
def _same(held: Bytes, at: Any, data: Bytes, start: Any, size: Any) -> Any:
    """Return whether these bytes are held there: eight of their number, then they."""
    length = np.uint64(0)
    for j in range(8):
        length |= np.uint64(held[at + j]) << np.uint64(8 * j)
    if length != np.uint64(size):
        return False
    for j in range(size):  # noqa: SIM110, numba knows no generators
        if held[at + 8 + j] != data[start + j]:
            return False
    return True


@njit()
def first_of_each(
    data: Bytes, offsets: NDArray[np.int64], words: Words, table: Words, held: Bytes, end: int, most: int,
    used: NDArray[np.bool_],
) -> tuple[int, int]:  # fmt: skip
    """Set used[i]: whether the id data[offsets[i]:offsets[i + 1]] was seen less than `most` times before. Returns how
    many ids are new, and the new `end` of what is `held`: the bytes of each id.

    `table`: open addressing by `words` (any function of the ids, which decides about time alone); a slot has the word,
    one more than the place in `held`, and how often the id was seen. It has 2^k slots and room for all that are new.
    """
    last, fresh = np.int64(len(table) - 1), 0
    for i in range(used.size):
        start, size = offsets[i], offsets[i + 1] - offsets[i]
        slot = np.int64(words[i] & np.uint64(last))
        while table[slot, 1] != 0:
            if table[slot, 0] == words[i] and _same(held, np.int64(table[slot, 1]) - 1, data, start, size):
                break
            slot = (slot + 1) & last
        if table[slot, 1] == 0:
            table[slot, 0], table[slot, 1], table[slot, 2] = words[i], np.uint64(end + 1), np.uint64(0)
            for j in range(8):
                held[end + j] = np.uint8((np.uint64(size) >> np.uint64(8 * j)) & np.uint64(255))
            for j in range(size):
                held[end + 8 + j] = data[start + j]
            end, fresh = end + 8 + size, fresh + 1
        used[i] = table[slot, 2] < np.uint64(most)
        table[slot, 2] += np.uint64(1)
    return fresh, end


@njit()
def move(table: Words, larger: Words) -> None:
    """Move the slots of a table to a larger one that is empty."""
    last = np.int64(len(larger) - 1)
    for i in range(len(table)):
        if table[i, 1] != 0:
            slot = np.int64(table[i, 0] & np.uint64(last))
            while larger[slot, 1] != 0:
                slot = (slot + 1) & last
            for j in range(3):
                larger[slot, j] = table[i, j]


@njit()
def times_of(table: Words, most: int) -> tuple[NDArray[np.int64], Any]:
    """Return (most + 1,): how many ids of the table were seen k times, the last one: `most` times or oftener; and how
    often the most frequent one was.
    """
    times, top = np.zeros(most + 1, np.int64), np.int64(0)
    for i in range(len(table)):
        if table[i, 1] != 0:
            count = np.int64(table[i, 2])
            times[min(count, np.int64(most))] += 1
            top = max(top, count)
    return times, top


@njit()
def rows_of(data: Bytes, word: np.uint64, table: Words, held: Bytes) -> Any:
    """Return how often the id `data`, whose word is `word`, was seen."""
    last = np.int64(len(table) - 1)
    slot = np.int64(word & np.uint64(last))
    while table[slot, 1] != 0:
        if table[slot, 0] == word and _same(held, np.int64(table[slot, 1]) - 1, data, 0, data.size):
            return np.int64(table[slot, 2])
        slot = (slot + 1) & last
    return np.int64(0)


@njit()
def texts_of(table: Words, held: Bytes) -> tuple[NDArray[np.int64], Bytes]:
    """Return (places, bytes): the ids of these slots of a table; the i-th is bytes[places[i]:places[i + 1]]."""
    people, size = 0, 0
    sizes = np.zeros(len(table), np.int64)
    for i in range(len(table)):
        if table[i, 1] != 0:
            at, length = np.int64(table[i, 1]) - 1, np.uint64(0)
            for j in range(8):
                length |= np.uint64(held[at + j]) << np.uint64(8 * j)
            sizes[i] = np.int64(length)
            people, size = people + 1, size + sizes[i]
    places, texts = np.zeros(people + 1, np.int64), np.empty(size, np.uint8)
    person = 0
    for i in range(len(table)):
        if table[i, 1] != 0:
            start = np.int64(table[i, 1]) + 7
            for j in range(sizes[i]):
                texts[places[person] + j] = held[start + j]
            places[person + 1] = places[person] + sizes[i]
            person += 1
    return places, texts

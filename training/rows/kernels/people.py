"""Numba kernel that counts the rows of each person: `training.rows.people` says which rows are used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.machine_code import njit

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]


@njit()
def _same(held: Bytes, at: Any, data: Bytes, start: Any, size: Any) -> Any:
    """Whether these bytes are held there: eight of their number, then they."""
    told = np.uint64(0)
    for j in range(8):
        told |= np.uint64(held[at + j]) << np.uint64(8 * j)
    if told != np.uint64(size):
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
    """used[i]: whether the id data[offsets[i]:offsets[i + 1]] was seen less than `most` times before. Returns how many
    ids are new, and the new `end` of what is `held`: the bytes of each id.

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
    """What stands in a table, to a larger one that is empty."""
    last = np.int64(len(larger) - 1)
    for i in range(len(table)):
        if table[i, 1] != 0:
            slot = np.int64(table[i, 0] & np.uint64(last))
            while larger[slot, 1] != 0:
                slot = (slot + 1) & last
            for j in range(3):
                larger[slot, j] = table[i, j]

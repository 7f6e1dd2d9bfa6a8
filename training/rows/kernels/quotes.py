"""Numba kernel that follows the quotes of a text in UTF-8, by the grammar of `csv` where it is strict: a quote opens a
cell at its beginning alone, two within it are one, and after the one that closes it a mark or the line's end comes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accountant.system.numba_cache import njit

BEGIN, BARE, QUOTED, CLOSED, BROKEN = range(5)  # where in a cell the text is
# What the kernel keeps from one part of a text to the next: where it is (above), how many lines it still passes over,
# whether the last byte was a carriage return, how many bytes there were, where the last quote opened a cell, where text
# followed the one that closed it, and whether a line ended within quotes.
PLACE, SKIP, AFTER_CR, BYTES, OPENED, BROKE, HELD_LINES = range(7)


@njit()
def follow(data: NDArray[np.uint8], mark: int, state: NDArray[np.int64]) -> None:
    """Follow the quotes of one more part, until text follows a quote that closes a cell."""
    place, skip, after_cr = state[0], state[1], state[2]
    for i in range(data.size):
        byte = data[i]
        ends = byte == 10 or byte == 13
        if skip > 0:
            skip -= 1 if ends and not (after_cr and byte == 10) else 0
            after_cr = 1 if byte == 13 else 0
        elif place == 2:
            if byte == 34:
                place = 3
            elif ends:
                state[6] = 1
        elif byte == mark or ends:
            place = 0
        elif byte == 34 and (place == 0 or place == 3):
            if place == 0:
                state[4] = state[3] + i
            place = 2
        elif place == 3:
            state[0], state[5] = 4, state[3] + i
            return
        elif place == 0:
            place = 1
    state[0], state[1], state[2] = place, skip, after_cr
    state[3] += data.size

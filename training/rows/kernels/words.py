"""Numba kernels that make one 64-bit word of every value: `training.rows.people.fingerprints` says which."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.numba_cache import njit

Hashes = NDArray[np.uint64]


@njit(inline="always")
def _mixed(bits: Any) -> Any:
    """Return bits of which every one depends on every bit given (the last steps of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit()
def mix(bits: Hashes, key: np.uint64, out: Hashes) -> None:
    """Set out[i]: the fingerprint of bits[i] under a key, a permutation of words."""
    for i in range(bits.size):
        out[i] = _mixed(bits[i] ^ key)


@njit()
def number_bits(values: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Set out[i], as bits: whole numbers as they are, -0.0 as 0.0, others as 32-bit floats know them, for files of both
    widths. NaN has one form.
    """
    for i in range(values.size):
        value = values[i]
        if np.isnan(value):
            out[i] = np.nan
        elif value == np.floor(value):
            out[i] = value + 0.0
        else:
            out[i] = np.float64(np.float32(value))


@njit()
def text_bits(data: NDArray[np.uint8], offsets: NDArray[np.int64], key: np.uint64) -> Hashes:
    """Return a keyed 64-bit word for each of the texts data[offsets[i]:offsets[i + 1]]."""
    words = np.empty(offsets.size - 1, np.uint64)
    for i in range(words.size):
        word = key
        for j in range(offsets[i], offsets[i + 1]):
            word = (word ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
            word ^= word >> np.uint64(29)
        words[i] = _mixed(word)
    return words


CAPITAL, QUOTE, BLANK, BEYOND = 1, 2, 4, 8  # what texts may hold that they are compared without


@njit()
def kinds_of(data: NDArray[np.uint8]) -> int:
    """Return which of CAPITAL, QUOTE, BLANK (blanks and controls) and BEYOND (what is no ASCII) stand among the
    bytes.
    """
    kinds = 0
    for i in range(data.size):
        byte = data[i]
        if byte >= 127:
            kinds |= 8
        elif byte <= 32:
            kinds |= 4
        elif 65 <= byte <= 90:
            kinds |= 1
        elif byte == 34 or byte == 39:
            kinds |= 2
    return kinds


@njit()
def unmix(words: Hashes, key: np.uint64, out: Hashes) -> None:
    """Set out[i]: what `mix` made words[i] of, under the same key."""
    for i in range(words.size):
        bits = words[i] ^ (words[i] >> np.uint64(31)) ^ (words[i] >> np.uint64(62))
        bits *= np.uint64(0x319642B2D24D8EC3)
        bits = (bits ^ (bits >> np.uint64(27)) ^ (bits >> np.uint64(54))) * np.uint64(0x96DE1B173F119089)
        out[i] = bits ^ (bits >> np.uint64(30)) ^ (bits >> np.uint64(60)) ^ key


@njit()
def count_few(words: Hashes, values: Hashes, counts: NDArray[np.int64]) -> int:
    """Return the distinct words, in no order, and how often each stands there: how many they are, or -1 where they are
    more than a quarter of the room in `values`, which has 2^k places.
    """
    last, distinct = np.uint64(values.size - 1), 0
    counts[:] = 0
    for i in range(words.size):
        slot: Any = np.int64(words[i] & last)
        while counts[slot] != 0 and values[slot] != words[i]:
            slot = (slot + 1) & np.int64(last)
        if counts[slot] == 0:
            if 4 * distinct >= values.size:
                return -1
            values[slot] = words[i]
            distinct += 1
        counts[slot] += 1
    place = 0
    for at in range(values.size):
        if counts[at] != 0:
            values[place], counts[place] = values[at], counts[at]
            place += 1
    return distinct

"""Numba kernels that make one 64-bit word of every value: `training.rows.fingerprints` says which."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.machine_code import njit

Hashes = NDArray[np.uint64]


@njit(inline="always")
def _mixed(bits: Any) -> Any:
    """Every bit of the result depends on every bit given (the last steps of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit()
def mix(bits: Hashes, key: np.uint64, out: Hashes) -> None:
    """out[i]: the fingerprint of bits[i] under a key, a permutation of words."""
    for i in range(bits.size):
        out[i] = _mixed(bits[i] ^ key)


@njit()
def number_bits(values: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """out[i], as bits: whole numbers as they are, -0.0 as 0.0, others as 32-bit floats know them, for files of both
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
    """A keyed 64-bit word for each of the texts data[offsets[i]:offsets[i + 1]]."""
    words = np.empty(offsets.size - 1, np.uint64)
    for i in range(words.size):
        word = key
        for j in range(offsets[i], offsets[i + 1]):
            word = (word ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
            word ^= word >> np.uint64(29)
        words[i] = _mixed(word)
    return words

"""Keyed 64-bit fingerprints of values, the same whatever type or format holds them: 39, 39.0 and the text "39" are one.

They tell equal values apart from others within one home, and are kept beside its packed rows, never elsewhere.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from training.rows.people import NOBODY

Hashes = NDArray[np.uint64]
NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
MISSING = 0x7FF8_0000_0000_0000  # the bits of NaN


@numba.njit(nogil=True, cache=True, inline="always")
def _mixed(bits: Any) -> Any:
    """Every bit of the result depends on every bit given (the last steps of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@numba.njit(nogil=True, cache=True)
def mix(bits: Hashes, key: np.uint64) -> Hashes:
    """Fingerprints of words under a key: a permutation."""
    hashes = np.empty_like(bits)
    for i in range(bits.size):
        hashes[i] = _mixed(bits[i] ^ key)
    return hashes


@numba.njit(nogil=True, cache=True)
def number_bits(values: NDArray[np.float64]) -> Hashes:
    """The bits of each number: whole ones as they are, -0.0 as 0.0, others as 32-bit floats know them, for files of
    both widths. NaN has one form.
    """
    numbers = np.empty_like(values)
    for i in range(values.size):
        value = values[i]
        if np.isnan(value):
            numbers[i] = np.nan
        elif value == np.floor(value):
            numbers[i] = value + 0.0
        else:
            numbers[i] = np.float64(np.float32(value))
    return numbers.view(np.uint64)


@numba.njit(nogil=True, cache=True)
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


def bits_of(column: pa.Array, key: np.uint64) -> Hashes | None:
    """(rows,): a word for each value, equal exactly where the values are (but for chance, 2^-64 a pair of texts), which
    `mix` makes a fingerprint. None where the column holds lists or structs.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        words = bits_of(column.dictionary, key)
        return None if words is None else _at(words, column.indices)
    if pa.types.is_nested(kind):
        return None
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
        if pa.types.is_boolean(kind):
            column = column.cast(pa.uint8())
        if kind != pa.float64() or column.null_count:
            column = column.cast(pa.float64(), safe=False).fill_null(float("nan"))
        return number_bits(column.to_numpy(zero_copy_only=False))
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.large_string())
    elif pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    words = column.cast(pa.large_binary()).dictionary_encode()
    return _at(_of_texts(words.dictionary, key), words.indices)


def _at(words: Hashes, indices: pa.Array) -> Hashes:
    words = np.append(words, np.uint64(MISSING))
    at = indices.cast(pa.int64()).fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(words[at], np.uint64)


def _of_texts(texts: pa.Array, key: np.uint64) -> Hashes:
    """Of distinct texts: what spells a number counts as the number, true and false as 1 and 0, NOBODY as missing."""
    if not len(texts):
        return np.zeros(0, np.uint64)
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    bits = text_bits(np.frombuffer(data or b"\0", np.uint8), places, key)
    spelt = np.asarray(pc.match_substring_regex(texts, NUMBER).fill_null(False))
    if spelt.any():
        numbers = texts.filter(pa.array(spelt)).cast(pa.large_string())
        numbers = pc.replace_substring_regex(pc.utf8_trim_whitespace(numbers), r"^\+", "").cast(pa.float64())
        bits[spelt] = number_bits(numbers.to_numpy(zero_copy_only=False))
    short = np.flatnonzero(np.asarray(pc.less(pc.binary_length(texts), 8).fill_null(True)))
    for place, text in zip(short.tolist(), texts.take(pa.array(short)).to_pylist(), strict=True):
        word = b"" if text is None else text.strip().lower()
        if word in _WORDS:
            bits[place] = _WORDS[word]
    return bits


_WORDS = {word.encode(): np.uint64(MISSING) for word in NOBODY} | {
    word: number_bits(np.array([value]))[0] for word, value in ((b"true", 1.0), (b"false", 0.0))
}

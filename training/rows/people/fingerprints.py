"""Keyed 64-bit fingerprints of values, the same whatever type or format holds them: 39, 39.0 and the text "39" are one,
and texts that capitals, or what `people.visible_texts` passes over, alone tell apart.

They tell equal values apart from others within one home, and are kept beside its packed rows, never elsewhere.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from training.rows import kernels
from training.rows.people.people import NOBODY, WHOLE, is_text, visible_texts

Hashes = NDArray[np.uint64]
NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
FRACTION = r"^\s*[+-]?[0-9]*\.[0-9]*[1-9][0-9]*\s*$"
LONG = "^-?[0-9]{16,}$"
MISSING, ONE, ZERO = 0x7FF8_0000_0000_0000, 0x3FF0_0000_0000_0000, 0  # the bits of NaN, 1.0 and 0.0
_WORDS = {word.encode(): MISSING for word in NOBODY} | {b"true": ONE, b"false": ZERO}


def mix(bits: Hashes, key: np.uint64) -> Hashes:
    """Return the fingerprints of words under a key: a permutation."""
    out = np.empty_like(bits)
    kernels.words.mix(bits, key, out)
    return out


def unmix(words: Hashes, key: np.uint64) -> Hashes:
    """Return what `mix` made `words` of, under the same key."""
    out = np.empty_like(words)
    kernels.words.unmix(words, key, out)
    return out


def fingerprints(column: pa.Array, texts: np.uint64, key: np.uint64, out: Hashes) -> bool:
    """Set out to `bits_of(column, texts)`, mixed with `key`; False where the column has none."""
    if column.type == pa.float64() and not column.null_count:  # as most columns are: nothing is made on the way
        kernels.words.number_bits(column.to_numpy(), out.view(np.float64))
        kernels.words.mix(out, key, out)
        return True
    bits = bits_of(column, texts)
    if bits is not None:
        kernels.words.mix(bits, key, out)
    return bits is not None


def number_bits(numbers: NDArray[np.float64]) -> Hashes:
    """Return the words of numbers."""
    out = np.empty(len(numbers), np.uint64)
    kernels.words.number_bits(numbers, out.view(np.float64))
    return out


def bits_of(column: pa.Array, key: np.uint64) -> Hashes | None:
    """Return (rows,): a word for each value, equal exactly where the values are (but for chance, 2^-64 a pair of
    texts), which `mix` makes a fingerprint. None where the column holds lists, structs or intervals of the calendar.
    """
    column = plain_storage(column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        words = bits_of(column.dictionary, key)
        return None if words is None else _at(words, column.indices)
    if pa.types.is_nested(kind) or pa.types.is_interval(kind):
        return None
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
        if pa.types.is_boolean(kind):
            column = column.cast(pa.uint8())
        if pa.types.is_integer(kind) and _beyond_floats(column):
            return bits_of(column.cast(pa.large_string()), key)
        if kind != pa.float64() or column.null_count:
            column = column.cast(pa.float64(), safe=False).fill_null(float("nan"))
        return number_bits(column.to_numpy(zero_copy_only=False))
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.large_string())
    elif pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    words = column.cast(pa.large_binary()).dictionary_encode()
    return _at(_of_texts(plain_texts(words.dictionary), key), words.indices)


def plain_storage(column: pa.Array) -> pa.Array:
    """Return a column of an extension type, such as Arrow's own bool8, as it is stored."""
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def plain_texts(texts: pa.Array) -> pa.Array:
    """Return large binaries as they are compared: `visible_texts` in small letters; what is no text stays as it is. The
    spelling of each follows from it alone.
    """
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return texts
    places = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    byte_kinds = kernels.words.kinds_of(np.frombuffer(data, np.uint8)[places[0] : places[-1]])
    if not byte_kinds:
        return texts
    try:
        words = texts.cast(pa.large_string())
    except pa.ArrowInvalid:  # some are no texts
        values = texts.to_pylist()
        are_texts = np.array([is_text(value) for value in values])
        spelt = np.array(values, object)
        spelt[are_texts] = plain_texts(texts.filter(pa.array(are_texts))).to_pylist()
        return pa.array(spelt, pa.large_binary())
    if byte_kinds & ~kernels.words.CAPITAL:
        words = visible_texts(words)
    return (pc.utf8_lower if byte_kinds & kernels.words.BEYOND else pc.ascii_lower)(words).cast(pa.large_binary())


def holds_fractions(column: pa.Array) -> bool:
    """Return whether one of the first values is a number, or spells one, that is not whole: such columns name no
    people.
    """
    sample = plain_storage(column.slice(0, 1000))
    if pa.types.is_dictionary(sample.type):
        sample = sample.dictionary_decode()
    if pa.types.is_floating(sample.type):
        numbers = sample.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        return bool((np.isfinite(numbers) & (numbers != np.floor(numbers))).any())
    if pa.types.is_decimal(sample.type):
        sample = sample.cast(pa.large_string())
    if pa.types.is_primitive(sample.type) or pa.types.is_nested(sample.type) or pa.types.is_null(sample.type):
        return False  # whole numbers, truth values, times
    return bool(pc.any(pc.match_substring_regex(sample.cast(pa.large_binary()), FRACTION)).as_py())


def _beyond_floats(column: pa.Array) -> bool:
    """Return whether some whole number is too large for a float to tell it from its neighbours, as ids of 17 digits
    are.
    """
    ends = pc.min_max(column).as_py()
    return ends["max"] is not None and (ends["max"] >= WHOLE or ends["min"] <= -WHOLE)


def _at(words: Hashes, indices: pa.Array) -> Hashes:
    words = np.append(words, np.uint64(MISSING))
    at = indices.cast(pa.int64()).fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(words[at], np.uint64)


def _of_texts(texts: pa.Array, key: np.uint64) -> Hashes:
    """Return the words of distinct texts: what spells a number that floats tell from others counts as the number, true
    and false as 1 and 0, NOBODY as missing.
    """
    if not len(texts):
        return np.zeros(0, np.uint64)
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    bits = kernels.words.text_bits(np.frombuffer(data or b"\0", np.uint8), places, key)
    spelt = np.asarray(pc.match_substring_regex(texts, NUMBER).fill_null(False))
    if spelt.any():
        numbers = texts.filter(pa.array(spelt)).cast(pa.large_string())
        numbers = pc.replace_substring_regex(pc.utf8_trim_whitespace(numbers), r"^\+", "").cast(pa.float64())
        values, long = numbers.to_numpy(zero_copy_only=False), np.asarray(pc.match_substring_regex(texts, LONG))[spelt]
        told_apart = np.isfinite(values) & ~(long & (np.abs(values) >= WHOLE))
        bits[np.flatnonzero(spelt)[told_apart]] = number_bits(values[told_apart])
    short = np.flatnonzero(np.asarray(pc.less(pc.binary_length(texts), 8).fill_null(True)))
    for place, text in zip(short.tolist(), texts.take(pa.array(short)).to_pylist(), strict=True):
        bits[place] = _WORDS.get(b"" if text is None else text.strip().lower(), bits[place])
    return bits

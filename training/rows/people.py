"""The unit of privacy in a file: whose each row is, and which rows of one person are used.

A missing id is nobody's name: rows without one would be one person with every blank in the file, or, since NaN is not
equal to itself, any number of people. Such a file is refused.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from accountant.errors import DataError

NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]
# Besides, what Python, pandas, spreadsheets and databases write of a missing value where a column is turned into texts.
_WRITTEN = {"none", "nil", "<na>", "nat", "-nan", "#na", "#n/a", r"\n", "<null>", "(null)", "?", "-", "."}
NOBODY = sorted({word.lower() for word in NULLS} | _WRITTEN)
WHOLE = 2.0**53  # from here on, two neighbouring whole numbers may be one float


def unit_ids(name: str, column: pa.Array) -> pa.Array:
    """A column of ids as bytes, one spelling to an id and null where it is missing, whatever type the file gives it:
    7, 7.0, "7" and "7.0" are one person, 0.0 and -0.0 too; "07" and "7" are two. The spelling of an id is a function of
    that id alone: what else stands in the column, or how it is cut into batches, makes no difference.

    Missing: null, NaN, and any of NOBODY in either case, with or without blanks around it. DataError where a column
    cannot hold ids: floats that are not whole or not below 2^53, truth values, lists.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary()).cast(pa.large_binary())
        try:
            column = column.cast(pa.large_string())
        except pa.ArrowInvalid:  # some are no texts: those stay as they are, and the others are read as ever
            return _texts_or_bytes(name, column)
    if pa.types.is_floating(kind):
        column = _whole_numbers(name, column)
    if pa.types.is_boolean(kind) or pa.types.is_nested(kind):
        raise DataError(f"column {name!r}: holds {kind}; the unit of privacy is named by texts or whole numbers")
    texts = column.cast(pa.large_string())
    texts = pc.replace_substring_regex(texts, r"^(-?[0-9]+)\.0*$", r"\1")
    texts = pc.replace_substring_regex(texts, "^-(0+)$", r"\1")
    return pc.if_else(missing_texts(texts), None, texts).cast(pa.large_binary())


def missing_texts(texts: pa.Array) -> pa.Array:
    """Which of a column of large texts say nothing: null, or any of NOBODY."""
    words = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), pa.array(NOBODY, pa.large_string()))
    return pc.or_(pc.is_null(texts), words)


def _texts_or_bytes(name: str, column: pa.Array) -> pa.Array:
    words = column.dictionary_encode()
    values = words.dictionary.to_pylist()
    are_texts = np.array([_is_text(value) for value in values])
    texts = unit_ids(name, words.dictionary.filter(pa.array(are_texts))).to_pylist()
    ids = np.array(values, object)
    ids[are_texts] = texts
    return pa.array(ids, pa.large_binary()).take(words.indices)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _whole_numbers(name: str, column: pa.Array) -> pa.Array:
    numbers = column.cast(pa.float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False)
    missing = np.isnan(numbers)
    if not (missing | ((np.abs(numbers) < WHOLE) & (np.floor(numbers) == numbers))).all():
        raise DataError(
            f"column {name!r}: holds numbers that are not whole, or too large to be told apart as {column.type}; the "
            "unit of privacy is named by texts or whole numbers"
        )
    return pa.array(np.where(missing, 0, numbers).astype(np.int64), mask=missing)


class FirstOfEach:
    """Bounds contributions: of each person the first rows in file order are used, `contributions` at most.

    Whether the k-th row of a person is used is whether k <= contributions. It depends on that person's own rows and
    their order, on no other row, and not on how the file is cut into batches; so adding a person adds at most so many
    rows, and changes no other (docs/privacy/filter.md).
    """

    def __init__(self, column: str, contributions: int) -> None:
        self._column, self._most, self._rows_of = column, contributions, Counter[bytes]()
        self._missing, self._first_missing = 0, 0

    def __call__(self, batch: pa.RecordBatch, start: int) -> NDArray[np.bool_]:
        """Which rows of this batch, whose first row is the file's row `start` from 0, are used."""
        ids = unit_ids(self._column, batch[self._column])
        if ids.null_count:
            if not self._missing:
                self._first_missing = start + 1 + int(pc.index(pc.is_null(ids), True).as_py())
            self._missing += ids.null_count
            return np.zeros(len(batch), np.bool_)  # the file will be refused
        words = ids.dictionary_encode()
        which, values = words.indices.to_numpy(), words.dictionary.to_pylist()
        counts = np.bincount(which, minlength=len(values))
        before = np.array([self._rows_of[value] for value in values], dtype=np.int64)
        self._rows_of.update(dict(zip(values, counts.tolist(), strict=True)))
        order = np.argsort(which, kind="stable")
        rank = np.empty(len(which), dtype=np.int64)  # how many rows of the same person stand before, in this batch
        rank[order] = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        used: NDArray[np.bool_] = before[which] + rank < self._most
        return used

    def check(self) -> None:
        """At the end of the file: DataError where rows had no id, with their number and the first one's place."""
        if self._missing:
            about: dict[str, Any] = {"column": self._column, "rows": self._missing, "first": self._first_missing}
            raise DataError(
                f"{self._column}: the unit of privacy is missing in {self._missing} of the rows, the first of them row "
                f"{self._first_missing} (counted from 1, a header not counted); a missing id is no person: leave these "
                "rows out, or give each an id of its own",
                **about,
            )

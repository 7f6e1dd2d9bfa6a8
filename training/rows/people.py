"""The unit of privacy in a file: whose each row is, and which rows of one person are used.

A missing id is nobody's name: rows without one would be one person with every blank in the file, or, since NaN is not
equal to itself, any number of people. Such a file is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from accountant.errors import DataError, JobFailed, LedgerUnavailable
from training.rows import kernels
from training.rows.packed.scratch import scratch

NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]
# Besides, what Python, pandas, spreadsheets and databases write of a missing value where a column is turned into texts.
_WRITTEN = {"none", "nil", "<na>", "nat", "-nan", "#na", "#n/a", r"\n", "<null>", "(null)", "?", "-", "."}
NOBODY = sorted({word.lower() for word in NULLS} | _WRITTEN)
SLOTS = 1 << 12  # of the table of people, at first
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
    rows, and changes no other (docs/privacy/filter.md). Ids are compared byte by byte, and no hash decides.

    People are counted in a table that lies, where it is large, in a file without a name in `folder` (None: in memory):
    anonymous memory does not grow with them.
    """

    def __init__(self, column: str, contributions: int, folder: Path | None = None) -> None:
        self._column, self._most, self._folder = column, contributions, folder
        self._missing, self._first_missing = 0, 0
        self._people, self._end = 0, 0
        self._table, self._held = self._room(SLOTS, 3, np.uint64), self._room(1, SLOTS, np.uint8)

    def __call__(self, batch: pa.RecordBatch, start: int) -> NDArray[np.bool_]:
        """Which rows of this batch, whose first row is the file's row `start` from 0, are used. LedgerUnavailable where
        the disk has no room for the people.
        """
        ids, used = unit_ids(self._column, batch[self._column]), np.zeros(len(batch), np.bool_)
        if ids.null_count:
            if not self._missing:
                self._first_missing = start + 1 + int(pc.index(pc.is_null(ids), True).as_py())
            self._missing += ids.null_count
            return used  # the file will be refused
        _, offsets, data = ids.buffers()
        places = np.frombuffer(offsets, np.int64)[ids.offset : ids.offset + len(ids) + 1]
        texts = np.frombuffer(data or b"\0", np.uint8)
        self._grow(len(ids), int(places[-1] - places[0]) + 8 * len(ids))
        words = kernels.words.text_bits(texts, places, np.uint64(0))
        fresh, self._end = kernels.people.first_of_each(
            texts, places, words, self._table, self._held[0], self._end, self._most, used
        )
        self._people += fresh
        return used

    def _grow(self, people: int, size: int) -> None:
        """Room for so many more, and for the bytes of their ids: half of the table stays empty."""
        slots, length = len(self._table), self._held.size
        while slots < 2 * (self._people + people):
            slots *= 2
        if slots > len(self._table):
            larger = self._room(slots, 3, np.uint64)
            kernels.people.move(self._table, larger)
            self._table = larger
        while length < self._end + size:
            length *= 2
        if length > self._held.size:
            longer = self._room(1, length, np.uint8)
            longer[0, : self._end] = self._held[0, : self._end]
            self._held = longer

    def _room(self, rows: int, columns: int, kind: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
        try:
            empty = scratch((rows, columns), kind, self._folder)
        except JobFailed as error:
            raise LedgerUnavailable(
                f"disk: no room to count the rows of each person where the home's datasets lie ({error.message}); up "
                "to 100 bytes a person are needed, and twice their ids. Nothing was registered"
            ) from None
        empty.fill(0)
        return empty

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

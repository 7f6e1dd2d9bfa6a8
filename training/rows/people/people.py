"""The unit of privacy in a file: whose each row is, and which rows of one person are used.

A missing id is nobody's name: rows without one would be one person with every blank in the file, or, since NaN is not
equal to itself, any number of people. Such a file is refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from accountant.errors import DataError, JobFailed
from dpserve_verify.errors import InputError, LedgerUnavailable
from models.features.column_law import NULLS
from training.rows import kernels
from training.rows.packed.scratch import scratch_array

# Besides, what Python, pandas, spreadsheets and databases write of a missing value where a column is turned into texts.
_WRITTEN = {"none", "nil", "<na>", "nat", "-nan", "#na", "#n/a", r"\n", "<null>", "(null)", "?", "-", "."}
NOBODY = sorted({word.lower() for word in NULLS} | _WRITTEN)
# Words that stand where an id is not known; and what spreadsheets write of an error. In small letters, as ids alone:
# in other columns "unknown" may be a category.
_MARKS = """
n.a. n.a n/a. n/k unknown unspecified undefined undisclosed missing anonymous nobody noid tbd tba
#value! #ref! #name? #div/0! #num! #null! #spill! #calc! #error! #unknown!
"""
_PHRASES = {"no id", "not available", "not applicable", "not known", "not given", "not recorded", "no data", "n / a"}
PLACEHOLDERS = frozenset(_MARKS.split()) | _PHRASES
# What is an id only where it stands no more often than others do: fillers of numbers and of keyboards.
FILLERS = tuple(
    [digit * size for digit in "09" for size in range(1, 13)]
    + ["-1", "-9", "-99", "-999", "-9999", "1234", "12345", "123456", "1234567", "12345678", "123456789", "1234567890"]
    + [letter * size for letter in "xX" for size in range(1, 9)] + ["test", "Test", "TEST", "dummy", "Dummy", "DUMMY"]
)  # fmt: skip
MANY_ROWS = 10  # times as many rows as 99 of 100 ids have at most: then it is asked whether the id is one person
BLANKS = r"[\s\p{Z}\x{85}\x{1c}-\x{1f}]+"
INVISIBLE = r"[\p{Cc}\p{Cf}\x{34f}\x{115f}\x{1160}\x{17b4}\x{17b5}\x{2800}\x{3164}\x{fe00}-\x{fe0f}\x{ffa0}]+"
# What spreadsheets and exports put around an id so that it stays a text: "7", ="7", '7', and '7.
QUOTES = ((r'^=?"(.*)"$', r"\1"), (r"^'(.*)'$", r"\1"), (r"^'(.+)$", r"\1"))
POWER = r"^[+-]?[1-9](\.[0-9]+)?[eE]\+[0-9]{2}$"  # of ten, as programs write large numbers
OTHER_DIGIT = r"[^\P{Nd}0-9]"  # of another script
DISTINCT_IDS, ONE_PERSON = "distinct-ids", "one-person"  # what a steward may say of ids; it stands in the entry
MOST_TIMES = 1 << 16  # an id stands so often, or oftener
AT_ONCE = 1 << 16  # slots of the table of people
SLOTS = 1 << 12  # of the table of people, at first
WHOLE = 2.0**53  # from here on, two neighbouring whole numbers may be one float


def unit_ids(name: str, column: pa.Array) -> pa.Array:
    """Return a column of ids as bytes, one spelling to an id and null where it is missing, whatever type the file gives
    it: 7, 7.0, "7", " 7", "+7", "'7", '="7"' and full-width digits are one person, 0.0 and -0.0 too, and 100000 and
    1e+05, as R and spreadsheets write it (7e3 may be a code); so are "Zoe" and what looks the same (NFKC), with
    whatever blanks around it and characters within that are not seen. "07" and "7" are two, "a7" and "A7" too, and are
    asked about (`FirstOfEach`). The spelling of an id is a function of that id alone: what else stands in the column,
    or how it is cut into batches, makes no difference.

    Missing: null, NaN, any of NOBODY and PLACEHOLDERS in either case, and what has no letter and no digit. DataError
    where a column cannot hold ids: floats that are not whole or not below 2^53, truth values, lists.
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
    if pa.types.is_boolean(kind) or pa.types.is_nested(kind) or pa.types.is_interval(kind):
        raise DataError(f"column {name!r}: holds {kind}; the unit of privacy is named by texts or whole numbers")
    if pa.types.is_integer(kind):
        return column.cast(pa.large_string()).cast(pa.large_binary())
    texts = visible_texts(column.cast(pa.large_string()))
    if pc.any(powers := pc.match_substring_regex(texts, POWER)).as_py():
        written = [(power, Decimal(power)) for power in texts.filter(powers).to_pylist()]
        spelt = [str(int(each)) if each == int(each) and abs(each) < WHOLE else power for power, each in written]
        texts = pc.replace_with_mask(texts, powers, pa.array(spelt, texts.type))
    texts = pc.replace_substring_regex(texts, r"^\+?(-?[0-9]+)(\.0*)?$", r"\1")
    texts = pc.replace_substring_regex(texts, "^-(0+)$", r"\1")
    return pc.if_else(_names_nobody(texts), None, texts).cast(pa.large_binary())


def visible_texts(texts: pa.Array) -> pa.Array:
    """Return texts as they are compared, wherever people or rows are told apart: in Unicode's composed form without
    differences of width (NFKC), digits of any script as 0 to 9, without what is not seen (controls, zero widths, marks
    of direction) and without what programs put around an id (quotes, ="7", an apostrophe before it), each run of
    blanks as one, none at either end.
    """
    if _is_plain(texts):
        return pc.utf8_trim(texts, " ")
    texts = pc.replace_substring_regex(texts, BLANKS, " ")
    texts = pc.replace_substring_regex(texts, INVISIBLE, "")
    texts = pc.utf8_normalize(texts, "NFKC")
    if pc.any(pc.match_substring_regex(texts, OTHER_DIGIT)).as_py():
        words = texts.dictionary_encode()
        spelt = ["".join(map(ascii_digit, word)) for word in words.dictionary.to_pylist()]
        texts = pa.array(spelt, pa.large_string()).take(words.indices)
    texts = pc.utf8_trim(pc.replace_substring_regex(texts, BLANKS, " "), " ")  # some blanks are made of others
    for around, within in QUOTES:
        texts = pc.replace_substring_regex(texts, around, within)
    return pc.utf8_trim(texts, " ")


@lru_cache(maxsize=4096)
def ascii_digit(letter: str) -> str:
    """Return a letter as it is, a digit of any script as 0 to 9."""
    return str(unicodedata.decimal(letter, letter))


def _is_plain(texts: pa.Array) -> bool:
    """Return whether all texts are printable ASCII without quotes or two blanks that follow each other, so that
    trimming is all.
    """
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return True
    places = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    codes = np.frombuffer(data, np.uint8)[places[0] : places[-1]]
    blank = codes == ord(" ")
    odd = (codes < ord(" ")) | (codes > ord("~")) | (codes == ord("'")) | (codes == ord('"'))
    return not odd.any() and not (blank[1:] & blank[:-1]).any()


def _names_nobody(texts: pa.Array) -> pa.Array:
    """Return which of a column of ids, as they are compared, name no person."""
    words = pc.utf8_lower(texts)
    placeholders = pc.is_in(words, pa.array(sorted({*NOBODY, *PLACEHOLDERS}), pa.large_string()))
    says_nothing = pc.invert(pc.match_substring_regex(words, r"[\p{L}\p{N}]"))
    return pc.fill_null(pc.or_(placeholders, says_nothing), True)


def missing_texts(texts: pa.Array) -> pa.Array:
    """Return which of a column of large texts say nothing: null, or any of NOBODY."""
    words = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), pa.array(NOBODY, pa.large_string()))
    return pc.or_(pc.is_null(texts), words)


def _texts_or_bytes(name: str, column: pa.Array) -> pa.Array:
    words = column.dictionary_encode()
    values = words.dictionary.to_pylist()
    are_texts = np.array([is_text(value) for value in values])
    texts = unit_ids(name, words.dictionary.filter(pa.array(are_texts))).to_pylist()
    ids = np.array(values, object)
    ids[are_texts] = texts
    return pa.array(ids, pa.large_binary()).take(words.indices)


def is_text(value: bytes | None) -> bool:
    """Return whether these bytes are UTF-8; nothing at all is."""
    try:
        (value or b"").decode()
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
    anonymous memory does not grow with them. `said`: of DISTINCT_IDS and ONE_PERSON, what needs no question.
    """

    def __init__(self, column: str, contributions: int, folder: Path | None = None, said: Collection[str] = ()) -> None:
        self._column, self._most, self._folder, self._said = column, contributions, folder, frozenset(said)
        self._missing, self._first_missing = 0, 0
        self._people, self._end = 0, 0
        self.ids = pa.nulls(0, pa.large_binary())  # of the batch that came last
        self._small = self._capital = self._zero = False
        self._lengths = (1 << 62, 0)
        self._table, self._held = self._room(SLOTS, 3, np.uint64), self._room(1, SLOTS, np.uint8)

    def __call__(self, batch: pa.RecordBatch, start: int) -> NDArray[np.bool_]:
        """Return which rows of this batch, whose first row is the file's row `start` from 0, are used.
        LedgerUnavailable where the disk has no room for the people.
        """
        self.ids = ids = unit_ids(self._column, batch[self._column])
        used = np.zeros(len(batch), np.bool_)
        if ids.null_count:
            if not self._missing:
                self._first_missing = start + 1 + int(pc.index(pc.is_null(ids), True).as_py())
            self._missing += ids.null_count
            return used  # the file will be refused
        self._count(*_bytes_of(ids), used)
        return used

    def _count(self, texts: NDArray[np.uint8], places: NDArray[np.int64], used: NDArray[np.bool_]) -> None:
        """Count ids, the bytes texts[places[i]:places[i + 1]], into the table; `used` as `first_of_each` sets it."""
        if not len(used):
            return
        self._note_spelling(texts[places[0] : places[-1]], texts, places)
        self._grow(len(used), int(places[-1] - places[0]) + 8 * len(used))
        words = kernels.words.text_bits(texts, places, np.uint64(0))
        fresh, self._end = kernels.people.first_of_each(
            texts, places, words, self._table, self._held[0], self._end, self._most, used
        )
        self._people += fresh

    def _note_spelling(
        self, used_bytes: NDArray[np.uint8], texts: NDArray[np.uint8], places: NDArray[np.int64]
    ) -> None:
        """Note whether capitals or leading zeros could be all that tells two ids apart; where not, none are
        compared.
        """
        beyond = bool((used_bytes > 127).any())
        self._capital = self._capital or beyond or bool(((used_bytes >= 65) & (used_bytes <= 90)).any())
        self._small = self._small or beyond or bool(((used_bytes >= 97) & (used_bytes <= 122)).any())
        sizes = np.diff(places)
        self._lengths = min(self._lengths[0], int(sizes.min())), max(self._lengths[1], int(sizes.max()))
        self._zero = self._zero or bool(np.isin(texts[places[:-1]], (ord("0"), ord("-"))).any())

    def _grow(self, people: int, size: int) -> None:
        """Make room for so many more, and for the bytes of their ids: half of the table stays empty."""
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
            empty = scratch_array((rows, columns), kind, self._folder)
        except JobFailed as error:
            raise LedgerUnavailable(
                f"disk: no room to count the rows of each person where the home's datasets lie ({error.message}); up "
                "to 100 bytes a person are needed, and twice their ids. Nothing was registered"
            ) from None
        empty.fill(0)
        return empty

    def check(self) -> None:
        """Check the ids at the end of the file.

        Raises:
            DataError: rows had no id, with their number and the first one's place.
            InputError: it must be said whether an id with many more rows than others is one person, or whether ids that
                capitals or leading zeros alone tell apart are different people.
        """
        if self._missing:
            about: dict[str, Any] = {"column": self._column, "rows": self._missing, "first": self._first_missing}
            raise DataError(
                f"{self._column}: the unit of privacy is missing in {self._missing} of the rows, the first of them row "
                f"{self._first_missing} (counted from 1, a header not counted); a missing id is no person: leave these "
                "rows out, or give each an id of its own",
                **about,
            )
        if ONE_PERSON not in self._said:
            self._ask_of_many_rows()
        could_differ = (self._capital and self._small) or (self._zero and self._lengths[0] < self._lengths[1])
        if DISTINCT_IDS not in self._said and could_differ:
            self._ask_of_alike()

    def _ask_of_many_rows(self) -> None:
        """Raise InputError where an id stands in so many rows that it may be no person. Where one id is a placeholder,
        those who share it are one person, of whom few rows are used: each of them moves rows of the others, so the
        bound does not hold (docs/privacy/rows.md).
        """
        if not self._people:
            return
        times, most = kernels.people.times_of(self._table, MOST_TIMES)
        below_top = self._people - min(self._people - 1, max(1, -(-self._people // 100)))  # of 100 ids, the first 99
        usual = int(np.searchsorted(np.cumsum(times), below_top)) if self._people > 1 else 1
        filler = max((self._rows_of(word) for word in FILLERS), default=0)
        if most <= MANY_ROWS * usual and filler <= max(1, usual):
            return
        rows = most if most > MANY_ROWS * usual else filler
        raise InputError(
            f"{self._column}: one id stands in {rows} rows, and 99 of 100 ids in at most {usual}; is it one person, or "
            "does it stand where the person is not known? Leave the rows out that name nobody, or give each person an "
            "id of its own; or, if it is one person, say so by --one-person, which stands in the ledger",
            column=self._column, answers=["--one-person"],
        )  # fmt: skip

    def _rows_of(self, word: str) -> int:
        """Return in how many rows this id stands."""
        raw = np.frombuffer(word.encode(), np.uint8)
        places = np.array([0, len(raw)], np.int64)
        bits = kernels.words.text_bits(raw, places, np.uint64(0))
        return int(kernels.people.rows_of(raw, bits[0], self._table, self._held[0]))

    def _ask_of_alike(self) -> None:
        """Raise InputError where capitals or leading zeros are all that tells two ids apart: ids are folded and counted
        once more.
        """
        folded = FirstOfEach(self._column, 1, self._folder)
        for first in range(0, len(self._table), AT_ONCE):
            places, texts = kernels.people.texts_of(self._table[first : first + AT_ONCE], self._held[0])
            folded._count(*_bytes_of(_fold_case(texts, places)), np.zeros(len(places) - 1, np.bool_))
        alike = self._people - folded._people
        if alike:
            raise InputError(
                f"{self._column}: {alike} ids differ from another one by capitals or leading zeros alone; are they the "
                "same people? Then write each person's id in one way in the file; or, if they are different people, "
                "say so by --distinct-ids, which stands in the ledger",
                column=self._column, answers=["--distinct-ids"],
            )  # fmt: skip


def _bytes_of(ids: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return (bytes, places): of a column of large binaries, the i-th one is bytes[places[i]:places[i + 1]]."""
    _, offsets, data = ids.buffers()
    places = np.frombuffer(offsets, np.int64)[ids.offset : ids.offset + len(ids) + 1]
    return np.frombuffer(data or b"\0", np.uint8), places


def _fold_case(texts: NDArray[np.uint8], places: NDArray[np.int64]) -> pa.Array:
    """Return ids in small letters, whole numbers without leading zeros; what is no text stays as it is."""
    size = len(places) - 1
    ids = pa.Array.from_buffers(pa.large_binary(), size, [None, pa.py_buffer(places), pa.py_buffer(texts)])
    try:
        words = ids.cast(pa.large_string())
    except pa.ArrowInvalid:
        return ids
    words = pc.replace_substring_regex(pc.utf8_lower(words), "^(-?)0+([0-9]+)$", r"\1\2")
    return words.cast(pa.large_binary())

"""How a file seems to be written: told to its steward, to be declared in a schema. Nothing is read by it."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from models.features.column_forms import DATES, NUMBERS, is_likely
from models.features.column_law import NULLS, number_pattern
from models.features.csv_lines import CsvLines
from models.features.date_patterns import day_of, has_short_year, pattern_of, problem_of
from models.features.written import FALSE, TRUE, Decimal, Delimiter, Form, Thousands
from training.rows.sources.cell_kinds import (
    DAYS,
    NO,
    YES,
    is_missing_word,
    patterns_like,
    sign_first,
    unit_beside,
    without_unit,
)
from training.rows.sources.encoding import list_readings
from training.rows.sources.files import CsvTable

# What stands in rows and names no column: nothing, a missing value, a number with its sign and unit, a date, a time.
NO_NAME = re.compile(
    r"(?!\s*e\s*$)\s*(na|n/a|nan|null|none|true|false|[-+<>=$€£%.,:/\s\d]*(e[-+]?)?[\d%$€£]*)\s*", re.IGNORECASE
)
_CLOCK = re.compile(pattern_of("time", None), re.ASCII)
FIRST_LINES = 5
LIKE_IDS_AMONG = 2_000  # cells
LONGEST = 1_000  # characters of a number, a date or a word
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_BELOW_ONE = re.compile(r"[+-]?0+([.,])")  # no mark between thousands stands after nothing
# How numbers may be written, the plainest first.
_NUMBERS = {each: re.compile(number_pattern(each), re.ASCII) for each in NUMBERS}


def form_of(table: CsvTable) -> Form:
    """Return the encoding and the delimiter that a file seems to have: by its first bytes, by what decodes, and by its
    first lines.
    """
    encoding = list_readings(table)[0].encoding
    first, *more = first_lines(table, Form(encoding=encoding))
    delimiter = max(",;\t|", key=first.count)
    if first.count(delimiter) and not (delimiter == "\t" and "  " in first):
        marks, with_blank = (sum(line.count(mark) for line in more) for mark in (delimiter, delimiter + " "))
        spaced = delimiter in ",;" and 0 < marks == with_blank
        return Form(cast(Delimiter, delimiter + " " if spaced else delimiter), encoding)
    cells = set[int]()
    with suppress(csv.Error):  # quotes that are not closed: no blanks part its columns
        cells = {len(row) for row in CsvLines([first, *more], Form(" ")) if row}
    return Form(" " if len(cells) == 1 and cells != {1} else ",", encoding)


def first_lines(table: CsvTable, form: Form) -> list[str]:
    """Return the first lines of a file, at least one."""
    with table.raw() as file:
        start = codecs.getincrementaldecoder(form.codec)("replace").decode(file.read(1 << 20))
    return re.split(r"\r\n|\r|\n", start, maxsplit=FIRST_LINES)[:FIRST_LINES]


class Column:
    """What is seen of a column, cell by cell, in kind: no value is kept, but hashes of the first LIKE_IDS_AMONG."""

    def __init__(self) -> None:
        self.cells = self.long = self.padded = 0
        self._numbers = self._days = self._clocks = self._truths = True
        self._forms = list(_NUMBERS)  # in which all numbers seen may be written
        self._marks: set[str] = set()
        self.unit_mark = ""
        self.missing: set[str] = set()  # words for a missing value, of those that people write
        self._seen: list[frozenset[str]] = []
        self._with_time = 0
        self.words: set[str] = set()  # of YES and NO alone
        self._usual: set[str] = set()
        self._different: set[int] = set()

    def __call__(self, cell: str) -> None:
        """Take in one more cell."""
        if len(cell) > LONGEST:  # nothing but a text, and not looked through: there may be any number of them
            self.cells, self.long = self.cells + 1, self.long + 1
            self._numbers = self._days = self._clocks = self._truths = False
            return
        text = cell.strip()
        if text in NULLS:
            return
        if is_missing_word(text) and text.lower() not in YES | NO:
            self.missing.add(text)
            return
        self.cells += 1
        self.padded += text != cell
        if self.cells <= LIKE_IDS_AMONG:
            self._different.add(hash(text))
        self.long += len(text) > 40 or "\n" in text
        if self._numbers and not _WHOLE.fullmatch(text):
            self._see_number(text)
        if self._days:
            self._see_date(text)
        self._clocks = self._clocks and _CLOCK.match(text) is not None
        if self._truths:
            word = text.lower()
            self._truths = word in YES | NO or word in (*TRUE, *FALSE)
            (self.words if word in YES | NO else self._usual).add(word)

    def _see_date(self, text: str) -> None:
        patterns = patterns_like(re.sub("[0-9]", "9", text))
        self._days = bool(patterns)
        matches = {pattern: match for pattern in patterns if (match := DAYS[pattern].match(text))}
        self._with_time += any(match["hour"] for match in matches.values())
        days = {pattern: match for pattern, match in matches.items() if day_of(match)}
        real = frozenset(pattern for pattern, match in days.items() if is_likely(match)) or frozenset(days)
        if real and real not in self._seen:
            self._seen.append(real)

    def _see_number(self, text: str) -> None:
        text = sign_first(text)
        unit = unit_beside(text)
        if unit is not None:
            self._numbers = self.unit_mark in ("", unit)
            self.unit_mark, text = unit, without_unit(text, unit)
        if _WHOLE.fullmatch(text):
            return
        self._marks.update(text)
        below_one = _BELOW_ONE.match(text)
        fitting = (each for each in self._forms if _NUMBERS[each].fullmatch(text))
        self._forms = [each for each in fitting if not (below_one and each.thousands == below_one[1])]
        self._numbers = self._numbers and bool(self._forms)

    @property
    def like_ids(self) -> bool:
        """Tell whether its texts repeat as ids of people with several rows do: some occur twice, and there are more of
        them than a list of categories has, at most some 20 rows to each.
        """
        looked, different = min(self.cells, LIKE_IDS_AMONG), len(self._different)
        texts = self.kind == "text" and 2 * self.long <= self.cells
        return texts and max(looked**0.5, looked / 20) < different < looked

    @property
    def fractions(self) -> bool:
        """Tell whether some number has a mark before its fraction, or between its thousands."""
        return bool(self._marks)

    @property
    def decimal(self) -> Decimal:
        """Return the mark before fractions: ".", ",", or "either"."""
        return self._forms[0].decimal if self._marks else "."

    @property
    def thousands(self) -> Thousands:
        """Return the mark between thousands."""
        return self._forms[0].thousands if self._marks else ""

    @property
    def thousands_or_decimal(self) -> tuple[str, Decimal] | None:
        """Return the mark that may part thousands, and what it is else; None where the cells say which."""
        seen = self._marks.intersection(".,")
        may_part = next((each.thousands for each in self._forms if each.thousands in seen), None)
        plain = next((each.decimal for each in self._forms if not each.thousands), None)
        return (may_part, plain) if may_part and plain else None

    @property
    def kind(self) -> str:
        """Return the kind of its cells: empty, boolean, numeric, date, datetime, time, or text."""
        if not self.cells:
            return "empty"
        if self._truths and len(self.words | self._usual) > 1:
            return "boolean"
        if self._clocks:
            return "time"
        if self._days and not self._numbers:
            return "datetime" if self._with_time == self.cells else "date"
        return "numeric" if self._numbers else "text"

    @property
    def dates(self) -> Sequence[str] | None:
        """Return the fewest patterns that fit all dates, each the only one of some date; None where that is open."""
        chosen: list[str] = []
        for fits in sorted(self._seen, key=len):
            if not fits.intersection(chosen):
                if len(fits) != 1:
                    return None
                chosen += fits
        return None if problem_of(tuple(chosen), self.first_year_of(chosen)) else sorted(chosen, reverse=True)

    @property
    def date_choices(self) -> list[str]:
        """Return the patterns of which each fits all dates; where none does, those that fit some."""
        every = frozenset.intersection(*self._seen) or frozenset.union(*self._seen)
        return [pattern for pattern in DATES if pattern in every]

    @staticmethod
    def first_year_of(patterns: Sequence[str]) -> int | None:
        """Return any first year where a pattern needs one."""
        return 1950 if any(map(has_short_year, patterns)) else None

"""How a file seems to be written: told to its steward, to be declared in a schema. Nothing is read by it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import cast

from models.features.column_law import NULLS
from models.features.date_patterns import pattern_of
from models.features.written import FALSE, TRUE, Decimal, Delimiter, Form, Thousands
from training.rows.people.people import NOBODY, PLACEHOLDERS
from training.rows.sources.cell_kinds import DATES, NO, YES, unit_beside
from training.rows.sources.encoding import list_readings
from training.rows.sources.files import CsvTable

# What stands in rows and names no column: nothing, a missing value, a number with its sign and unit, a date, a time.
NO_NAME = re.compile(r"\s*(na|n/a|nan|null|none|true|false|[-+<>=$€£%.,:/\s\d]*(e[-+]?)?[\d%$€£]*)\s*", re.IGNORECASE)
_DAYS = {each: re.compile(pattern_of("date", each), re.ASCII) for each in DATES}
_MOMENTS = {each: re.compile(pattern_of("datetime", each), re.ASCII) for each in DATES}
_CLOCK = re.compile(pattern_of("time", None), re.ASCII)
LIKE_IDS_AMONG = 2_000  # cells
LONGEST = 1_000  # characters of a number, a date or a word
_NUMBER = re.compile(r"[+-]?(\d+(?P<mark>[.,])?\d*|(?P<bare>[.,])\d+)([eE][+-]?\d+)?", re.ASCII)
# Marks between thousands: blanks and apostrophes are nothing else; a point or a comma is one where it stands twice, or
# before another mark.
_GROUPED = re.compile(
    r"[+-]?\d{1,3}(?:(?:(?P<blank>[ \u00a0\u202f])\d{3}(?:(?P=blank)\d{3})*"
    r"|(?P<quote>['\u2019])\d{3}(?:(?P=quote)\d{3})*)(?:(?P<mark>[.,])\d*)?"
    r"|(?P<sign>[.,])\d{3}(?:(?:(?P=sign)\d{3})+(?:(?!(?P=sign))(?P<last>[.,])\d*)?|(?!(?P=sign))(?P<only>[.,])\d+))",
    re.ASCII,
)
# Words for a missing value, small: what a column of numbers or days holds beside them.
MISSING = {
    *NOBODY,
    *PLACEHOLDERS,
    "?",
    "-",
    "--",
    ".",
    "nc",
    "n/c",
    "n.c.",
    "nsp",
    "s.o.",
    "k.a.",
    "inconnu",
    "unbekannt",
}


def form_of(table: CsvTable) -> Form:
    """Return the encoding and the delimiter that a .csv seems to have: by its first bytes, by what decodes, and by its
    first line.
    """
    form = Form(encoding=list_readings(table)[0].encoding)
    with table.raw() as file:
        start = codecs.getincrementaldecoder(form.codec)().decode(file.read(1 << 20))
    first = start.partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    return Form(cast(Delimiter, delimiter) if first.count(delimiter) else ",", form.encoding)


class Column:
    """What is seen of a column, cell by cell, in kind: no value is kept, but hashes of the first LIKE_IDS_AMONG."""

    def __init__(self) -> None:
        self.cells = self.long = 0
        self._numbers = self._days = self._clocks = self._truths = True
        self._marks: set[str] = set()
        self._seen: list[frozenset[str]] = []
        self._with_time = 0
        self.words: set[str] = set()  # of YES and NO alone
        self._usual: set[str] = set()
        self._different: set[int] = set()
        self._thousands: set[Thousands] = set()
        self._units: set[str] = set()
        self.missing: set[str] = set()  # of MISSING alone, as they are written

    def __call__(self, cell: str) -> None:
        """Take in one more cell."""
        if len(cell) > LONGEST:  # nothing but a text, and not looked through: there may be any number of them
            self.cells, self.long = self.cells + 1, self.long + 1
            self._numbers = self._days = self._clocks = self._truths = False
            return
        text = cell.strip()
        if text in NULLS:
            return
        if text.lower() in MISSING:
            self.missing.add(text)
            return
        self.cells += 1
        if self.cells <= LIKE_IDS_AMONG:
            self._different.add(hash(text))
        self.long += len(text) > 40 or "\n" in text
        if self._numbers:
            self._see_number(text)
        if self._days:
            self._see_date(text)
        self._clocks = self._clocks and _CLOCK.match(text) is not None
        if self._truths:
            word = text.lower()
            self._truths = word in YES | NO or word in (*TRUE, *FALSE)
            (self.words if word in YES | NO else self._usual).add(word)

    def _see_number(self, text: str) -> None:
        if unit := unit_beside(text):
            self._units.add(unit)
            text = text.replace(unit, "", 1).strip()
        number, grouped = _NUMBER.fullmatch(text), _GROUPED.fullmatch(text)
        self._numbers = number is not None or grouped is not None
        if number is not None and (mark := number["mark"] or number["bare"]):
            self._marks.add(mark)
        elif number is None and grouped is not None:
            self._thousands.add(
                " " if grouped["blank"] else "'" if grouped["quote"] else cast(Thousands, grouped["sign"])
            )
            if mark := grouped["mark"] or grouped["last"] or grouped["only"]:
                self._marks.add(mark)

    def _see_date(self, text: str) -> None:
        attempts = {pattern: _MOMENTS[pattern].match(text) or _DAYS[pattern].match(text) for pattern in DATES}
        matches = {pattern: match for pattern, match in attempts.items() if match}
        self._days = bool(matches)
        self._with_time += any(match["hour"] for match in matches.values())
        real = frozenset(
            pattern
            for pattern, match in matches.items()
            if 1 <= int(match["month"]) <= 12 and 1 <= int(match["day"]) <= 31
        )
        if real and real not in self._seen:
            self._seen.append(real)

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
        """Tell whether some number has a mark before its fraction."""
        return bool(self._marks)

    @property
    def decimal(self) -> Decimal:
        """Return the mark before fractions: ".", ",", or "either"."""
        return "either" if len(self._marks) > 1 else "," if self._marks == {","} else "."

    @property
    def thousands(self) -> Thousands:
        """Return the mark between thousands; empty where there is none."""
        return next(iter(self._thousands), "")

    @property
    def unit_mark(self) -> str:
        """Return the unit beside the numbers; empty where there is none."""
        return next(iter(self._units), "")

    @property
    def kind(self) -> str:
        """Return the kind of its cells: empty, boolean, numeric, date, datetime, time, or text."""
        if not self.cells:
            return "empty"
        several = max(len(self._thousands), len(self._units)) > 1
        if self._numbers and (several or self._thousands & self._marks):
            return "text"  # of two units, or a mark that stands before fractions and between thousands
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
        clash = ({"DD/MM/YYYY", "MM/DD/YYYY"}, {"DD-MM-YYYY", "MM-DD-YYYY"})
        return None if any(patterns <= set(chosen) for patterns in clash) else sorted(chosen, reverse=True)

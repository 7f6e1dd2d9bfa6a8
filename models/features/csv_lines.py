"""Lines of text cut into cells, as the form of a file says: one way for files and for what is sent to a server."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice

from models.features.written import DELIMITERS, Form

_SAYS = re.compile(r"\ufeff?\"?sep=(.)\"?[\r\n]*")  # Excel's own first line
_CELL = re.compile(r'"((?:[^"]|"")*)"|([^ \t]+)')
_LINE = re.compile(r'(?:(?:"(?:[^"]|"")*+"|[^ \t"][^ \t]*+)(?:[ \t]++|$))*+')
REMEDY = "delete that quote, or write the whole cell within quotes and each quote of its own twice"
LONGEST_CELL = 1 << 20
LONG = f"has more than {LONGEST_CELL} characters; shorten it, or leave its column out of the file"
csv.field_size_limit(LONGEST_CELL)


class OtherDelimiter(ValueError):
    """The first line of a file says that its columns are parted otherwise than they are declared to be."""


class CsvLines:
    """The rows of a text, the names of its columns first, which the form may have. A first line `sep=;` is no row:
    `skipped` counts it with those that the form skips, and OtherDelimiter is raised where it says another mark than the
    form. `lines` of the text end as they stand there. Quotes are read strictly: a quote opens a cell at its beginning
    alone, and after the one that closes it the cell ends.
    """

    def __init__(self, lines: Iterable[str], form: Form) -> None:
        source: Iterator[str] = islice(lines, form.skip, None)
        first = next(source, "").removeprefix("\ufeff")
        said = said_delimiter(first)
        self.skipped = form.skip + int(said is not None)
        if said not in (None, form.mark):
            named = DELIMITERS.get(str(said))
            remedy = f"say `delimiter: {named}` under `format`" if named else "write the file with commas"
            raise OtherDelimiter(f"its first line says that columns are parted by {said!r}; {remedy}")
        source = source if said is not None else chain([first], source)
        self._reader = csv.reader(source, delimiter=form.mark, strict=True, skipinitialspace=form.has_blanks)
        self._columns = [*form.columns]
        cut = map(_cut_at_blanks, source) if form.delimiter == " " else None
        self._rows: Iterator[list[str]] = self._reader if cut is None else cut
        if form.skip_rows:
            self._rows = self._without_nobody(self._rows, form)
        self._lines = 0 if self._columns else 1 if cut is not None else None  # of the names; None: as the reader counts

    @staticmethod
    def _without_nobody(rows: Iterator[list[str]], form: Form) -> Iterator[list[str]]:
        """Yield the rows, those that are nobody's as empty lines: the names of the columns are none of them."""
        if not form.columns:
            yield from islice(rows, 1)
        for cells in rows:
            yield [] if cells and form.is_nobody(cells) else cells

    def __iter__(self) -> Iterator[list[str]]:
        """Iterate over the rows; an empty line is one without cells. Raises csv.Error, of which `explain_quotes` tells
        the place.
        """
        if self._columns:
            columns, self._columns = self._columns, []
            self._rows = chain([columns], self._rows)
        return self._rows

    def header(self) -> tuple[list[str], int]:
        """Return the first row, and how many lines it and what stands before it take."""
        names = next(iter(self), [])
        return names, self.skipped + (self._reader.line_num if self._lines is None else self._lines)


def said_delimiter(first: str) -> str | None:
    """Return the mark that a first line says to stand between columns; None where it says none."""
    match = _SAYS.fullmatch(first)
    return match and match[1]


def _cut_at_blanks(line: str) -> list[str]:
    plain = line.strip(" \t\r\n")
    if '"' not in plain:
        return [*filter(None, plain.replace("\t", " ").split(" "))]
    if not _LINE.fullmatch(plain):
        raise csv.Error("a quote that is not closed")
    return [quoted.replace('""', '"') or bare for quoted, bare in _CELL.findall(plain)]


def broken_quote(opened: int, broke: int | None) -> str:
    """Say in which line a quote `opened` a cell that does not end as one in quotes: text goes on in line `broke`, or
    the file ends within it. With a remedy.
    """
    what = (
        "is never closed" if broke is None else f"is followed by text after the quote that closes it, in line {broke}"
    )
    return f"line {opened}: a quote opens a cell there and {what}; {REMEDY}"


def explain_quotes(lines: Iterable[str], form: Form, error: csv.Error) -> str:
    """Say where the quotes of a text are wrong, whose rows `CsvLines` refused with this error: its `lines` once more.

    Only the row that is refused is looked at letter by letter: it holds at most LONGEST_CELL of them and a line.
    """
    row: list[str] = []

    def remember() -> Iterator[str]:
        for line in lines:
            row.append(line)
            yield line

    rows, begins = CsvLines(remember(), replace(form, columns=())), 1
    begins += rows.skipped
    del row[: rows.skipped]
    cut = iter(rows)
    with suppress(csv.Error):
        for _ in cut:
            begins += len(row)
            row.clear()
    opened, broke = _find_quote(row, form)
    if "limit" in str(error):
        return f"line {begins + max(0, len(row) - 1)}: a cell there {LONG}"
    if opened is None:
        return f"line {begins + (opened or 0)}: a cell there cannot be read ({error}); {REMEDY}"
    return broken_quote(begins + opened, None if broke is None else begins + broke)


def _find_quote(lines: Sequence[str], form: Form) -> tuple[int | None, int | None]:
    """Return at which of a row's lines the last quote opened a cell, and where text followed one that closed it."""
    ends, passed = (
        (" \t\r\n", " \t") if form.delimiter == " " else (f"{form.mark}\r\n", "\ufeff" + " " * form.has_blanks)
    )
    place, opened = "begin", None
    for at, line in enumerate(lines):
        for letter in line:
            if place == "quoted":
                place = "closed" if letter == '"' else place
            elif letter in ends:
                place = "begin"
            elif letter == '"' and place in ("begin", "closed"):
                opened, place = (at if place == "begin" else opened), "quoted"
            elif place == "closed":
                return opened, at
            elif not (place == "begin" and letter in passed):
                place = "bare"
        if form.delimiter == " " and place == "quoted":
            return opened, None
    return (opened, None) if place == "quoted" else (None, None)


def name_columns(header: Sequence[str]) -> list[str]:
    """Name each column once: the third is `column 3` where it has no name, and a second `note` is `note (2)`, or has
    the next number by which no other is called. Blanks about a name are no part of it; line breaks and signs that are
    not printed are one blank, or nothing.
    """
    own = [name.strip() for name in header]
    for at, name in enumerate(own):
        if not name.isprintable():
            own[at] = " ".join("".join(sign for sign in name if sign.isprintable() or sign.isspace()).split())
    names, counts, taken = list[str](), Counter[str](), {*own}
    first = taken - {""}
    for at, given in enumerate(own, 1):
        name = called = given or f"column {at}"
        while called in taken and given not in first:
            counts[name] += 1
            called = f"{name} ({counts[name] + 1})"
        first.discard(given)
        taken.add(called)
        names.append(called)
    return names

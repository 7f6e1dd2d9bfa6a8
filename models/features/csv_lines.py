"""Lines of text cut into cells, as the form of a file says: one way for files and for what is sent to a server."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from models.features.written import DELIMITERS, Form

_SAYS = re.compile(r"\ufeff?\"?sep=(.)\"?[\r\n]*")  # Excel's own first line
_CELL = re.compile(r'"((?:[^"]|"")*)"|([^ \t]+)')


class OtherDelimiter(ValueError):
    """The first line of a file says that its columns are parted otherwise than they are declared to be."""


class CsvLines:
    """The rows of a text, the names of its columns first, which the form may have. A first line `sep=;` is no row:
    `skipped` counts it with those that the form skips, and OtherDelimiter is raised where it says another mark than the
    form. `lines` of the text end as they stand there.
    """

    def __init__(self, lines: Iterable[str], form: Form, strict: bool = False) -> None:
        source: Iterator[str] = islice(lines, form.skip, None)
        first = next(source, "").removeprefix("\ufeff")
        said = said_delimiter(first)
        self.skipped = form.skip + int(said is not None)
        if said not in (None, form.mark):
            named = DELIMITERS.get(str(said))
            remedy = f"say `delimiter: {named}` under `format`" if named else "write the file with commas"
            raise OtherDelimiter(f"its first line says that columns are parted by {said!r}; {remedy}")
        source = source if said is not None else chain([first], source)
        self._reader = csv.reader(source, delimiter=form.mark, strict=strict, skipinitialspace=form.has_blanks)
        self._columns = [*form.columns]
        cut = map(_cut_at_blanks, source) if form.delimiter == " " else None
        self._rows: Iterator[list[str]] = self._reader if cut is None else cut
        self._lines = 0 if self._columns else 1 if cut is not None else None  # of the names; None: as the reader counts

    def __iter__(self) -> Iterator[list[str]]:
        """Iterate over the rows; an empty line is one without cells. Raises csv.Error."""
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
    return [quoted.replace('""', '"') or bare for quoted, bare in _CELL.findall(line.rstrip("\r\n"))]


def name_columns(header: Sequence[str]) -> list[str]:
    """Name each column once: the third is `column 3` where it has no name, and a second `note` is `note (2)`."""
    names: list[str] = []
    counts = Counter[str]()
    for at, given in enumerate(header, 1):
        name = given or f"column {at}"
        counts[name] += 1
        names.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return names

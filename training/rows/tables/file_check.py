"""Whether a file can be registered with a schema: every problem at once, for the steward alone.

Rows are counted as a spreadsheet does: the header is row 1, and a line break within quotes begins no new one. What was
found is told in kind, a date for instance, and never as it stands.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from accountant.errors import DataError
from models.features.column_law import Misfit, is_text, read_column
from models.features.features import (
    MISSING_TEXT,
    CategoricalFeature,
    Feature,
    NumericFeature,
)
from models.features.written import Written
from training.rows.schema.schema import Schema
from training.rows.sources.encoding import can_decode
from training.rows.sources.files import CsvTable, Table, cells_of, no_such_file
from training.rows.sources.folders import FolderTable, open_table
from training.rows.sources.sniff import form_of
from training.rows.tables.cell_tests import tests_of

FIRST = 5  # rows that are named of one problem


@dataclass
class Problem:
    """`column` "" where it is of the whole file. `rows`: the first ones, `count`: how many there are."""

    column: str
    found: str
    remedy: str
    rows: list[int] = field(default_factory=list)
    count: int = 0

    def at(self, row: int) -> None:
        """Note one more place."""
        self.count += 1
        if len(self.rows) < FIRST:
            self.rows.append(row)

    def to_json(self) -> dict[str, Any]:
        """Return the problem for programs."""
        return {"column": self.column, "found": self.found, "remedy": self.remedy, "rows": self.rows,
                "count": self.count}  # fmt: skip

    def __str__(self) -> str:
        where = f"row {', '.join(map(str, self.rows))} as a spreadsheet counts: " if self.rows else ""
        return f"{self.column or 'the file'}: {where}{self.found}; {self.remedy}"


def check_file(schema: Schema, path: Path, most: int | None = None) -> list[Problem]:
    """Return what keeps the rows from being registered; none where nothing does. DataError where there is no such file.
    At `most` so many problems: then what follows is not looked at.
    """
    problems: dict[tuple[str, str], Problem] = {}

    def note(column: str, found: str, remedy: str, row: int | None = None) -> None:
        problem = problems.setdefault((column, found), Problem(column, found, remedy))
        if row is not None:
            problem.at(row)

    listed = {
        feature.name: _Listed(feature, schema.written_as(feature.name))
        for feature in schema.features
        if isinstance(feature, CategoricalFeature) and feature.name not in schema.expects_other
    }
    try:
        table = open_table(path, schema.form)
        for part in table.parts if isinstance(table, FolderTable) else [table]:
            where = f" (in {part.name})" if isinstance(table, FolderTable) else ""
            keys = {*table.keys} if isinstance(table, FolderTable) else set()
            tests = tests_of(schema)
            names, rows = (_csv if isinstance(part, CsvTable) else _typed)(part, schema, note)
            _compare(schema, {*names, *keys}, note)
            places = [(at, name, tests[name]) for at, name in enumerate(names) if name in tests]
            looks = [(at, listed[name]) for at, name in enumerate(names) if name in listed]
            for row, cells in rows:
                for at, look in looks:
                    look.count(cells[at])
                for at, name, test in places:
                    verdict = test(cells[at])
                    if verdict is not None:
                        note(name, f"{verdict[0]}{where}", verdict[1], row)
                if most is not None and len(problems) >= most:
                    return list(problems.values())
    except FileNotFoundError:
        raise DataError(no_such_file(str(path))) from None
    except (pa.ArrowException, OSError, csv.Error, UnicodeError) as error:
        note("", f"what cannot be read as {path.suffix[1:] or 'a table'} ({type(error).__name__})", "write it anew")
    for name, look in listed.items():
        if problem := look.problem():
            note(name, *problem)
    return list(problems.values())


@dataclass
class _Listed:
    """Counts how many cells of a column of categories are listed, and how those that are not differ from the listed."""

    feature: CategoricalFeature
    written: Written
    listed: int = 0
    other: int = 0
    misses: Counter[str] = field(default_factory=Counter)
    verdicts: dict[str, str | None] = field(default_factory=dict)

    def count(self, cell: str) -> None:
        """Count one cell; each text is looked at once."""
        if cell not in self.verdicts:
            self.verdicts[cell] = self._judge(cell)
        verdict = self.verdicts[cell]
        self.listed += verdict == ""
        if verdict:
            self.other += 1
            self.misses[verdict] += 1

    def _judge(self, cell: str) -> str | None:
        """Return "" of a listed text, None of a missing one, else how it differs from a listed one."""
        if cell in self.feature.values:
            return ""
        if cell == MISSING_TEXT or cell.strip() in self.written.missing:
            return None
        for miss, plain in NEAR_MISSES.items() if len(cell) <= LONGEST else ():
            if plain(cell) in {plain(value) for value in self.feature.values}:
                return miss
        return "none of the listed values"

    def problem(self) -> tuple[str, str] | None:
        """Return what is found and the remedy where fewer than half of the cells are listed."""
        if self.other <= self.listed:
            return None
        [(miss, count)] = self.misses.most_common(1)
        share = f"{self.other / (self.listed + self.other):.0%} of the cells are not listed under `values`"
        if miss != "none of the listed values" and 2 * count > self.other:
            return f"{share}: they have {miss}", "list the values as the file writes them, or write the cells as listed"
        return share, "list the values that are publicly known, or say `other: expected` of the column"


_BLANKS = " \t\r\n\u00a0\u202f\ufeff"
LONGEST = 200  # characters of a cell that is compared with the listed values
NEAR_MISSES: dict[str, Callable[[str], str]] = {
    "blanks about them": str.strip,
    "letters that are put together otherwise (Unicode NFC)": lambda text: unicodedata.normalize("NFC", text),
    "other capitals": str.casefold,
    "`.0` after them": lambda text: re.sub(r"\.0+$", "", text),
    "other zeros before them": lambda text: text.lstrip("0") or "0",
    "quotes about them": lambda text: text.strip("\"'"),
    "a dot after them": lambda text: text.rstrip("."),
    "blanks, capitals, quotes or a dot of their own": lambda text: (
        unicodedata.normalize("NFC", text).strip(f"{_BLANKS}\"'").rstrip(".").casefold()
    ),
}


@contextmanager
def explaining(schema: Schema, path: Path) -> Iterator[None]:
    """Add to a refusal of rows that do not fit the first row, kind and remedy that the check of the file finds."""
    try:
        yield
    except DataError as error:
        problems = check_file(schema, path, most=1) if path.exists() else []
        if not problems:
            raise
        details = {**error.details, "problem": problems[0].to_json()}
        own = "row" in error.details and problems[0].column == error.details.get("column") and problems[0].rows
        raise DataError(str(problems[0]) if own else f"{error.message}. {problems[0]}", **details) from None


def _compare(schema: Schema, names: set[str], note: Callable[..., None]) -> None:
    wanted = {*(feature.name for feature in schema.stored), *schema.target_names}
    for name in sorted(wanted - names):
        note(name, "no such column", "name it in the first row as the schema does, or take it out of the schema")
    twice = schema.twice(names)
    for name in twice:
        note(name, "a name that stands twice in the first row", "name each column once")
    for name in sorted(name for name in names - wanted if not schema.ignores(name)):
        note(name, "a column that the schema does not speak of", "add it to `features`, or to `ignore`")


Rows = Iterator[tuple[int, Sequence[str]]]


def _csv(table: Table, schema: Schema, note: Callable[..., None]) -> tuple[list[str], Rows]:
    assert isinstance(table, CsvTable)
    seems, form = form_of(table), schema.form
    is_utf8 = seems.encoding == "utf-8" and not can_decode(table, "ascii")
    if (is_utf8 and form.encoding != "utf-8") or not can_decode(table, form.encoding):
        note("", f"text that is not {form.encoding.upper()} (read here as {seems.encoding})",
             f"say `encoding: {seems.encoding}` under `format` in the schema")  # fmt: skip
        form = replace(form, encoding=seems.encoding)
    with table.raw() as file:
        first = bytes(file.read(1 << 20)).decode(form.encoding, "replace").partition("\n")[0]
    if seems.delimiter != form.delimiter and form.delimiter not in first:
        note("", f"columns parted by {seems.delimiter!r}",
             f"say `delimiter: {_NAMED[seems.delimiter]}` under `format` in the schema")  # fmt: skip
        form = replace(form, delimiter=seems.delimiter)
    text = io.TextIOWrapper(table.raw(), form.codec, "replace", "")
    lines = csv.reader(text, delimiter=form.delimiter)
    next(lines, [])
    names = CsvTable(table.path, form).names

    def rows() -> Rows:
        with text:
            for row, cells in enumerate(lines, 2):
                if not cells:
                    continue  # an empty line is no row
                if len(cells) != len(names):
                    note(
                        "",
                        "a row with more or fewer cells than the first one",
                        "quote texts that hold the mark between columns",
                        row,
                    )
                    continue
                yield row, cells

    return names, rows()


_NAMED = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}


def _typed(table: Table, schema: Schema, note: Callable[..., None]) -> tuple[list[str], Rows]:
    """Test a form that says types: what is no text is judged by the law of columns, column by column."""
    names = [*table.types()]
    described: dict[str, Feature] = {feature.name: feature for feature in schema.stored}
    for target in schema.targets:
        answers = tuple(str(label) for label in target.classes or ())
        described[target.name] = (
            CategoricalFeature(target.name, answers) if answers else NumericFeature(target.name, ())
        )

    def cells(name: str, column: pa.Array, first: int) -> list[str]:
        feature, values = described.get(name), cells_of(column)
        if feature is not None and not is_text(column.type):
            try:
                values = read_column(feature, column, schema.written_as(name)).tolist()
            except Misfit as misfit:
                row = None if misfit.row is None else first + misfit.row
                note(name, misfit.problem, "store the column as the schema declares it, or declare what it holds", row)
                values = []
            if not isinstance(feature, CategoricalFeature):
                numbers = name in schema.target_names  # of which none may be missing
                values = [value if numbers else None for value in values]
            values = values or [None] * len(column)
        return ["" if value is None or value != value else str(value) for value in values]

    def rows() -> Rows:
        row = 2
        for batch in table.batches(names, {}):
            columns = [cells(name, column, row) for name, column in zip(names, batch.columns, strict=True)]
            for row_cells in zip(*columns, strict=True):
                yield row, row_cells
                row += 1

    return names, rows()

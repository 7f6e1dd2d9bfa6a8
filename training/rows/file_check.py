"""Whether a file can be registered with a schema: every problem at once, for the steward alone.

Rows are counted as a spreadsheet does: the header is row 1, and a line break within quotes begins no new one. What was
found is told in kind, a date for instance, and never as it stands.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from accountant.errors import DataError
from models.features import BooleanFeature, NumericFeature
from training.rows.people import NULLS
from training.rows.schema import Schema

FIRST = 5  # rows that are named of one problem
TRUTH = {"true", "false", "1", "0", "yes", "no"}
OTHER_TRUTH = {"ja", "nein", "oui", "non", "si", "sí", "y", "n", "t", "f", "on", "off", "j", "wahr", "falsch", "x"}
_KINDS = (
    ("a date", re.compile(r"\d{4}-\d\d-\d\d([ T].*)?|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( .*)?")),
    ("a time", re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?")),
    ("a number with a decimal comma", re.compile(r"[-+]?\d+,\d+")),
    ("a number with marks between thousands", re.compile(r"[-+]?\d{1,3}([., '’]\d{3})+([.,]\d+)?")),
    ("a number with a unit", re.compile(r"[-+<>~]?\s*\d+([.,]\d+)?\s*[^\d\s].*|[$€£]\s*\d.*")),
)
REMEDIES = {
    "a date": "put the column under `ignore`, or store it as a number, days since a date for instance",
    "a time": "put the column under `ignore`, or store it as a number, minutes for instance",
    "a number with a decimal comma": "write 1.5 for 1,5 in the whole column",
    "a number with marks between thousands": "write 1000 for 1,000 in the whole column",
    "a number with a unit": "keep the number alone, in one unit",
    "a word for yes or no": "write true or false (or 1 and 0, yes and no)",
    "text": "declare the column `categorical` with its public values, or put it under `ignore`",
    "nothing": "leave the row out, or say `missing: leave-out` of the target (under add-remove)",
    "no class": "list the class in `classes`, or mend the row",
}
Test = Callable[[str], str | None]


@dataclass
class Problem:
    """`column` "" where it is of the whole file. `rows`: the first ones, `count`: how many there are."""

    column: str
    found: str
    remedy: str
    rows: list[int] = field(default_factory=list)
    count: int = 0

    def at(self, row: int) -> None:
        """One more."""
        self.count += 1
        if len(self.rows) < FIRST:
            self.rows.append(row)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"column": self.column, "found": self.found, "remedy": self.remedy, "rows": self.rows,
                "count": self.count}  # fmt: skip


def check_file(schema: Schema, path: Path) -> list[Problem]:
    """What keeps the file from being registered; none where nothing does. DataError where there is no such file."""
    problems: dict[tuple[str, str], Problem] = {}

    def note(column: str, found: str, remedy: str, row: int | None = None) -> None:
        problem = problems.setdefault((column, found), Problem(column, found, remedy))
        if row is not None:
            problem.at(row)

    try:
        names, rows = _parquet(path, note) if path.suffix == ".parquet" else _csv(path, note)
        wanted = [*dict.fromkeys((*(feature.name for feature in schema.stored), *schema.target_names))]
        for name in sorted(set(wanted) - set(names)):
            note(name, "no such column", "name it in the first row as the schema does, or take it out of the schema")
        for name in sorted(set(names) - set(wanted) - set(schema.ignore)):
            note(name, "a column that the schema does not speak of", "add it to `features`, or to `ignore`")
        tests = _tests(schema)
        places = [(at, name, tests[name]) for at, name in enumerate(names) if name in tests]
        for row, cells in rows:
            for at, name, test in places:
                found = test(cells[at])
                if found is not None:
                    note(name, found, REMEDIES[found], row)
    except FileNotFoundError:
        raise DataError(f"data={path}: no such file") from None
    except (pa.ArrowException, OSError, csv.Error, UnicodeDecodeError) as error:
        note("", f"what cannot be read as {path.suffix[1:] or 'a table'} ({type(error).__name__})", "write it anew")
    return list(problems.values())


def _tests(schema: Schema) -> dict[str, Test]:
    """By column: what is wrong with a cell, in kind; None where nothing is. Categories take anything."""
    found: dict[str, Test] = {}
    for feature in schema.stored:
        if isinstance(feature, NumericFeature):
            found[feature.name] = _number
        elif isinstance(feature, BooleanFeature):
            found[feature.name] = lambda cell: None if not cell or cell.lower() in TRUTH else kind_of(cell)
    for target in schema.targets:
        classes, may_miss = {str(label) for label in target.classes or ()}, target.leave_out

        def test(cell: str, classes: set[str] = classes, may_miss: bool = may_miss) -> str | None:
            if cell in NULLS or not cell:
                return None if may_miss else "nothing"
            return (None if cell in classes else "no class") if classes else _number(cell)

        found[target.name] = test
    return found


def _number(cell: str) -> str | None:
    if not cell or cell in NULLS:
        return None
    try:
        float(cell)
    except ValueError:
        return kind_of(cell)
    return "text" if "_" in cell else None  # Python's own spelling of a number


def kind_of(cell: str) -> str:
    """What stands in a cell that is no number, in kind: one of REMEDIES."""
    text = cell.strip()
    if text.lower() in OTHER_TRUTH:
        return "a word for yes or no"
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(text)), "text")


Rows = Iterator[tuple[int, Sequence[str]]]


def _csv(path: Path, note: Callable[..., None]) -> tuple[list[str], Rows]:
    with path.open("rb") as file:
        start = file.read(1 << 20)
    encoding = "utf-8"
    try:
        path.read_text("utf-8")
    except UnicodeDecodeError:
        encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "cp1252"
        note(
            "",
            f"text that is not UTF-8 (read here as {encoding})",
            f"iconv -f {encoding} -t utf-8, or save it as UTF-8",
        )
    if start.startswith(b"\xef\xbb\xbf"):
        encoding = "utf-8-sig"
    first = start.decode(encoding, "replace").partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    if first.count(delimiter) == 0:
        delimiter = ","
    if delimiter != ",":
        note("", f"columns parted by {delimiter!r}", "save it with commas between columns; decimals then take a point")
    file_text = path.open(encoding=encoding, errors="replace", newline="")
    lines = csv.reader(file_text, delimiter=delimiter)
    names = [name.strip() for name in next(lines, [])]
    for name in sorted({name for name in names if names.count(name) > 1 or not name}):
        note(name, "a name that is empty or stands twice in the first row", "name each column once")

    def rows() -> Rows:
        with file_text:
            for row, cells in enumerate(lines, 2):
                if not cells:
                    continue  # an empty line is no row
                if len(cells) != len(names):
                    note("", "a row with more or fewer cells than the first one", "quote texts that hold commas", row)
                    continue
                yield row, cells

    return names, rows()


def _parquet(path: Path, note: Callable[..., None]) -> tuple[list[str], Rows]:
    file = pyarrow.parquet.ParquetFile(path)
    names = file.schema_arrow.names

    def rows() -> Rows:
        row = 2
        for batch in file.iter_batches(1 << 14):
            columns = [["" if v is None or v != v else str(v) for v in each.to_pylist()] for each in batch.columns]
            for cells in zip(*columns, strict=True):
                yield row, cells
                row += 1

    return names, rows()

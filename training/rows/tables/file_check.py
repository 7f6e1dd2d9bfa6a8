"""Whether a file can be registered with a schema: every problem at once, for the steward alone.

Rows are counted as a spreadsheet does: the header is row 1, and a line break within quotes begins no new one. What was
found is told in kind, a date for instance, and never as it stands.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accountant.errors import DataError
from dpserve_verify.errors import InputError
from models.features.column_law import Misfit, is_text, plain_column, read_numbers
from models.features.features import Feature
from models.features.written import DELIMITERS, LONGEST_WORD
from training.rows.schema.schema import Schema, Target
from training.rows.sources.cell_tables import split_sheet
from training.rows.sources.files import no_such_file
from training.rows.sources.folders import open_table
from training.rows.sources.tables import FileTable
from training.rows.tables.cell_tests import NO_CLASS, NOTHING, OF_ANSWERS, CellTests, Remedies, of_type
from training.rows.tables.column_counts import PARTS, TRIM, ColumnCount, counts_of, find_misfit, weight_faults
from training.rows.tables.data import read_classes, read_codes
from training.rows.tables.nobody_rows import DELETE, describe_nobody
from training.rows.tables.remedies import Remedy, Unsaid, describe_remedies, remedies_from_json, write_anew

SEEN = 200  # cells of a batch that a remedy must leave as they are
FIRST = 5  # rows that are named of one problem
_UNSAYABLE = re.compile(r"^\d|\*$")  # a text that cannot be said under `skip_rows`
ABOUT = 1.5  # times as many or as few rows as declared are still about as many
NEW_COLUMN = (Remedy({"ignore": [Unsaid.COLUMN]}, "schema"), *write_anew("declare it under `features`"))
ONE_MARK = write_anew("write it with commas, semicolons, tabs or | between cells")
NAME_ALL = write_anew("name each column in the first row")
QUOTE = write_anew("quote texts that hold the mark between columns")


@dataclass
class Problem:
    """`column` "" where it is of the whole file. `rows`: the first ones, `count`: how many there are."""

    column: str
    found: str
    remedies: tuple[Remedy, ...]
    rows: list[int] = field(default_factory=list)
    count: int = 0

    @property
    def remedy(self) -> str:
        """Say the remedies, of which one is done."""
        return describe_remedies(self.remedies)

    def at(self, row: int) -> None:
        """Note one more place."""
        self.count += 1
        if len(self.rows) < FIRST:
            self.rows.append(row)

    def to_json(self) -> dict[str, Any]:
        """Return the problem for programs."""
        return {"column": self.column, "found": self.found, "remedy": self.remedy,
                "remedies": [remedy.to_json() for remedy in self.remedies], "rows": self.rows,
                "count": self.count}  # fmt: skip

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Problem:
        """Read what `to_json` gives."""
        return cls(body["column"], body["found"], remedies_from_json(body["remedies"]), body["rows"], body["count"])

    def __str__(self) -> str:
        where = f"row {', '.join(map(str, self.rows))} as a spreadsheet counts: " if self.rows else ""
        return f"{self.column or 'the file'}: {where}{self.found}; {self.remedy}"


def problem_of(error: DataError) -> Problem:
    """Return the problem of a refusal that is no single cell's."""
    if "problem" in error.details:
        return Problem.from_json(error.details["problem"])
    found, _, remedy = error.message.rpartition("; ")
    remedies = write_anew(remedy if found else "write it anew")
    if "remedies" in error.details:
        remedies = remedies_from_json(error.details["remedies"])
    return Problem(str(error.details.get("column", "")), found or error.message, remedies)


@dataclass(frozen=True)
class FileCheck:
    """What the steward of a file is told: its `problems`, and what becomes of the cells of each column. `records`:
    about how many rows the schema declares.
    """

    problems: Sequence[Problem]
    counts: Mapping[str, ColumnCount]
    records: int

    @property
    def rows(self) -> int:
        """Count the rows that were read."""
        return max((count.cells for count in self.counts.values()), default=0)

    def questions(self) -> dict[str, str]:
        """Return what is asked before the rows are registered, for it is seldom meant, each with its remedy: far fewer
        or more rows than declared, and what the cells of a column are read as and may not be.
        """
        if self.problems:
            return {}
        asked = {words: remedy for count in self.counts.values() for words, remedy in count.questions().items()}
        if not self.records / ABOUT <= self.rows <= self.records * ABOUT:
            asked[f"{self._rows_words()}: far {'fewer' if self.rows < self.records else 'more'}"] = (
                "mend the file, or say in the schema about how many `records` there are"
            )
        return asked

    def require_meant(self, is_meant: bool) -> None:
        """Raise InputError with all that is asked, unless it `is_meant`."""
        if asked := self.questions():
            if is_meant:
                return
            text = "; ".join(f"{question}. To mend it: {remedy}" for question, remedy in asked.items())
            raise InputError(f"as-read: is this meant? {text}. If it is meant, answer by --as-read",
                             answers=["--as-read"])  # fmt: skip

    def _rows_words(self) -> str:
        return f"{self.rows} row{'' if self.rows == 1 else 's'} read, and the schema declares about {self.records}"

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "ok": not self.problems,
            "rows": self.rows,
            "records": self.records,
            "questions": [*self.questions()],
            "problems": [problem.to_json() for problem in self.problems],
            "columns": [count.to_json() for count in self.counts.values()],
        }

    def words(self) -> str:
        """Say how many rows were read, and what will be asked."""
        return "\n".join(
            [
                *([f"{self._rows_words()}."] if self.rows else []),
                *(f"{question}; {remedy}" for question, remedy in self.questions().items()),
            ]
        )

    def columns_table(self, most: int = 24) -> list[tuple[str, ...]]:
        """Return what becomes of the cells of each column; of more than `most`, those alone of which not all fit."""
        lines = [(name, *count.shares()) for name, count in self.counts.items()]
        odd = [line for line, count in zip(lines, self.counts.values(), strict=True) if count.fits < count.cells]
        if len(lines) > most and len(odd) < len(lines):
            lines = [*odd, (f"({len(lines) - len(odd)} others)", "100.0 %", *"-" * (len(PARTS) - 1))]
        return [("CELLS OF", *map(str.upper, PARTS)), *lines]

    def mostly_clipped(self) -> list[str]:
        """Return the columns of which half or more of the cells lie outside of the range, and are not expected to."""
        return [count.name for count in self.counts.values() if not count.expected and count.clipped >= count.fits > 0]

    def problems_table(self) -> list[tuple[str, ...]]:
        """Return the problems line by line."""
        lines: list[tuple[str, ...]] = [("COLUMN", "FOUND", "ROWS", "REMEDY")]
        for problem in self.problems:
            places = ", ".join(map(str, problem.rows)) + (", .." if problem.count > len(problem.rows) else "")
            lines.append((problem.column or "(the file)", problem.found, places, problem.remedy))
        return lines


def find_problems(schema: Schema, path: Path, most: int | None = None) -> FileCheck:
    """Return what keeps the rows from being registered, as far as it is found column by column. At `most` so many
    problems: then what follows is not looked at.
    """
    look = _Look(schema)
    try:
        table = open_table(path, schema.form)
        for part in table.parts:
            look.where = "" if part.name == table.name else f" (in {part.name})"
            look.has_floats = part.has_floats
            part = _as_it_seems(schema, part, look.note)
            names = [*part.types()]
            part = part.spelling({name for name in names if schema.written_as(name).decimal == ","})
            _compare(schema, {*names, *part.keys}, look.note)
            for placed in part.placed([*filter(schema.ignores, names)]):
                for row, cells in placed.odd.items():
                    nobody = describe_nobody(dict(zip_longest(names, cells[: len(names)], fillvalue="")))
                    look.note("", *(nobody or ("a row with more or fewer cells than the first one", QUOTE)), row)
                rows = len(placed.places)
                keys = {name: pa.repeat(pa.scalar(key, pa.string()), rows) for name, key in part.keys.items()}
                look.at({**placed.columns, **keys}, placed.places)
                if most is not None and len(look.problems) >= most:
                    look.explain()
                    return FileCheck([*look.problems.values()], look.counts, schema.records)
    except FileNotFoundError:
        raise DataError(no_such_file(str(path))) from None
    except DataError as error:
        problem = problem_of(error)
        look.note(problem.column, problem.found, problem.remedies)
    except (pa.ArrowException, OSError, csv.Error, UnicodeError) as error:
        kind = path.suffix[1:] or "a table"
        look.note("", f"what cannot be read as {kind} ({type(error).__name__})", write_anew("write it anew"))
    look.where = ""
    look.explain()
    for name, (found, remedies) in look.shares() if most is None else ():  # of all rows, and no reason of a refusal
        look.note(name, found, remedies)
    return FileCheck([*look.problems.values()], look.counts, schema.records)


class _Look:
    """Looks at the cells of each column by the law of columns, and notes the rows of those that do not fit, in kind."""

    def __init__(self, schema: Schema) -> None:
        self.problems: dict[tuple[str, str], Problem] = {}
        self.counts, self.where = counts_of(schema), ""
        self._schema = schema
        self._batch: Mapping[str, pa.Array] = {}
        self._nobody: dict[int, tuple[str, Remedies] | None] = {}  # by the place of a row in the batch
        self._tests: dict[str, CellTests] = {}
        self._begins, self._nobodies = Counter[str](), dict[str, Counter[str]]()  # texts that stand first in rows
        self._named: dict[tuple[str, str], str] = {}  # problems whose remedies are asked of the tests in the end
        self.has_floats = False

    def note(self, column: str, found: str, remedies: Remedies, row: int | None = None) -> None:
        """Note what is wrong with a column, at a row."""
        problem = self.problems.setdefault((column, found), Problem(column, found, remedies))
        if row is not None:
            problem.at(row)

    def explain(self) -> None:
        """Find the remedies of the cells that were named, and take away those that would pass over people."""
        for found, begins in self._nobodies.items():
            may_be_said = all(len(text) <= LONGEST_WORD and not _UNSAYABLE.search(text) for text in begins)
            if not may_be_said or any(self._begins[text] != count for text, count in begins.items()):
                self.problems["", found].remedies = (DELETE,)
        for (column, found), kind in self._named.items():
            if (column, found) in self.problems:
                count, tests = self.counts[column], self._tests[column]
                is_odd = 2 * count.refused < count.cells - count.missing
                self.problems[column, found].remedies = tests.remedies(kind, is_odd)

    def _note_cell(self, column: str, found: str, remedies: Remedies, rows: Sequence[int], place: int) -> None:
        """Note what is wrong with a cell, or once that its row is nobody."""
        if place not in self._nobody:
            texts = {name: cells[place].as_py() for name, cells in self._batch.items()}
            self._nobody[place] = describe_nobody(
                {name: "" if text is None else str(text) for name, text in texts.items()}
            )
            if (nobody := self._nobody[place]) is not None:
                found = nobody[0] + self.where
                self.note("", found, nobody[1], rows[place])
                first = next((text for each in texts.values() if (text := str(each or "").strip())), "")
                self._nobodies.setdefault(found, Counter())[first] += 1
        if self._nobody[place] is None:
            self.note(column, found + self.where, remedies, rows[place])

    def at(self, columns: Mapping[str, pa.Array], rows: Sequence[int]) -> None:
        """Look at a batch; `rows`: where each row stands, as a spreadsheet counts."""
        self._batch, self._nobody = columns, dict[int, tuple[str, Remedies] | None]()
        self._begins.update(_first_texts([*columns.values()]))
        for feature in self._schema.stored:
            if feature.name in columns:
                self._fit(feature, columns[feature.name], rows, partial(self._read, feature, rows))
        for target in self._schema.targets:
            if target.name in columns:
                self._fit(target, columns[target.name], rows, partial(self._answer, target, rows))

    def _fit(
        self, of: Feature | Target, column: pa.Array, rows: Sequence[int], read: Callable[[pa.Array], None]
    ) -> None:
        """Read a column; where cells do not fit, note each, and read the rest."""
        column, count = plain_column(column), self.counts[of.name]
        if count.feature is (None if isinstance(of, Target) and of.classes is None else of):
            count.see(column, self._schema.written_as(of.name))
        tests = self._tests.setdefault(of.name, CellTests(of, self._schema.written_as(of.name), self.has_floats))
        try:
            read(column)
            return tests.see(_texts(column.slice(0, SEEN)))
        except Misfit as error:
            misfit = error
        if misfit.cells is None:
            count.cells, count.refused = count.cells + len(column), count.refused + len(column)
            return self.note(of.name, misfit.problem + self.where, of_type(of, column.type))
        places = np.flatnonzero(misfit.cells).tolist()
        rest = column.take(pa.array(np.arange(len(column)), mask=misfit.cells))
        tests.see(_texts(rest.slice(0, SEEN)))
        if is_text(column.type):
            cells = column.take(pa.array(places)).to_pylist()
            distinct = list(dict.fromkeys(cells))
            kinds = dict(zip(distinct, tests.name(distinct), strict=True))
            for place, cell in zip(places, cells, strict=True):
                self._named[of.name, kinds[cell] + self.where] = kinds[cell]
                self._note_cell(of.name, kinds[cell], (), rows, place)
        else:
            for place in places:
                self._note_cell(of.name, misfit.problem, of_type(of, column.type), rows, place)
        read(rest)
        count.missing, count.refused = count.missing - len(places), count.refused + len(places)
        return None

    def _read(self, feature: Feature, rows: Sequence[int], column: pa.Array) -> None:
        count, written = self.counts[feature.name], self._schema.written_as(feature.name)
        if self._schema.weight is not None and feature.name == self._schema.weight.column:
            for wrong, found, remedies in weight_faults(self._schema.weight, read_numbers(column, written)):
                for place in np.flatnonzero(wrong).tolist():
                    self._note_cell(feature.name, found, remedies, rows, place)
        read_codes(feature, column, written, count if count.feature is feature else None)

    def _answer(self, target: Target, rows: Sequence[int], column: pa.Array) -> None:
        written, count = self._schema.written_as(target.name), self.counts[target.name]
        if target.classes is None:
            numbers = read_numbers(column, written)
            places = np.where(np.isnan(numbers), -1, 0)
            if count.feature is None:
                count.add_numbers(numbers)
        else:
            places = read_classes(target, column, written)
            if count.feature is None:
                count.add(len(places), int(np.count_nonzero(places == -1)))
                count.refused += int(np.count_nonzero(places == -2))
            if (places == -2).any() and is_text(column.type) and not written.trim:
                padded = (places == -2) & (read_classes(target, column, replace(written, trim=True)) >= 0)
                for place in np.flatnonzero(padded).tolist():
                    self._note_cell(target.name, "a class with blanks about it", TRIM, rows, place)
                places = np.where(padded, 0, places)
        for code, found in ((-1, NOTHING), (-2, NO_CLASS)):
            for place in np.flatnonzero(places == code).tolist() if code == -2 or not target.leave_out else ():
                self._note_cell(target.name, found, OF_ANSWERS[found], rows, place)

    def shares(self) -> Iterator[tuple[str, tuple[str, Remedies]]]:
        """Yield the columns that hardly a cell fits, with what is found and the remedies."""
        for name, count in self.counts.items():
            if (problem := count.problem()) is not None:
                yield name, problem
        name, found, remedies = find_misfit(self._schema, self.counts) or ("-", "", ())
        if not name and not self.problems:
            yield name, (found, remedies)


def _first_texts(columns: Sequence[pa.Array]) -> dict[str, int]:
    """Count the texts that stand first in rows, "" where nothing does."""
    texts = [pc.utf8_trim_whitespace(column.cast(pa.large_string())) for column in columns if is_text(column.type)]
    if not texts:
        return {}
    present = [pc.if_else(pc.equal(each, ""), None, each) for each in texts]
    counted = pc.coalesce(*present, "").value_counts()
    return dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True))


def _texts(column: pa.Array) -> list[str | None]:
    """Return the cells of a column of texts; none of another."""
    texts: list[str | None] = column.to_pylist() if is_text(column.type) else []
    return texts


@contextmanager
def explaining(schema: Schema, path: Path, unit: str | None = None) -> Iterator[None]:
    """Add to a refusal of rows that do not fit the first row, kind and remedy that the check of the file finds. `unit`:
    the column that names persons, of which the schema need not speak.
    """
    try:
        yield
    except DataError as error:
        raise explained(error, replace(schema, ignore=(*schema.ignore, *filter(None, [unit]))), path) from None


def explained(error: DataError, schema: Schema, path: Path) -> DataError:
    """Return a refusal with what `explaining` adds to it."""
    problems = find_problems(schema, path, most=1).problems if split_sheet(path)[0].exists() else []
    if not problems:
        return error
    details = {**error.details, "problem": problems[0].to_json()}
    own = "row" in error.details and problems[0].column == error.details.get("column") and problems[0].rows
    return DataError(str(problems[0]) if own else f"{error.message}. {problems[0]}", **details)


def _as_it_seems(schema: Schema, part: FileTable, note: Callable[..., None]) -> FileTable:
    """Return a file as it seems to be written, and note what of that the schema declares otherwise."""
    form, seems = part.form, part.fitting_form({*(feature.name for feature in schema.stored), *schema.target_names})
    if seems.skip != form.skip and seems.columns == form.columns:
        said = Remedy({"skip": seems.skip}, "format", leave_out=not seems.skip)
        note("", f"names of the columns in row {seems.skip + 1}", (said,))
    for line in part.lines_of_another_encoding() if seems.encoding == form.encoding else ():
        alike = write_anew(f"write these rows in {form.encoding.upper()} as well")
        note("", f"letters that are not {form.encoding.upper()}, as those of the other rows are", alike, line)
    if seems.encoding != form.encoding:
        found = f"text that is not {form.encoding.upper()} (read here as {seems.encoding})"
        note("", found, (Remedy({"encoding": seems.encoding}, "format"),))
    if seems.mark != form.mark:
        said = Remedy({"delimiter": DELIMITERS[seems.delimiter]}, "format")
        note("", f"columns parted by {seems.delimiter!r}", (said,))
    if seems.columns != form.columns:
        said = Remedy({"columns": [*seems.columns], "skip": seems.skip}, "format")
        note("", "rows of which each has one cell more than there are names", (said, *NAME_ALL))
    return part if seems == form else replace(part, form=seems)


def _compare(schema: Schema, names: set[str], note: Callable[..., None]) -> None:
    wanted = {*(feature.name for feature in schema.stored), *schema.target_names}
    if len(names) == 1 and not wanted & names:
        return note("", "one column alone: no mark that a schema names stands between cells", ONE_MARK)
    for name in sorted(wanted - names):
        absent = Remedy({"features": [Unsaid.COLUMN]}, "schema", leave_out=True)
        note(name, "no such column", (*write_anew("name it in the first row as the schema does"), absent))
    twice = schema.twice(names)
    for name in twice:
        note(name, "a name that stands twice in the first row", write_anew("name each column once"))
    for name in sorted(name for name in names - wanted if not schema.ignores(name)):
        note(name, "a column that the schema does not speak of", NEW_COLUMN)
    return None

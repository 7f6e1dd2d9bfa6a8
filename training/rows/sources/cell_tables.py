"""Workbooks, records of JSON and files of SPSS, Stata and SAS: columns of cells that have types of their own, held in
memory.

A column whose cells are of one type is of that type; else it is one of texts, in which numbers and days are written
plainly. A cell that is shown as per cents is the number that is shown. An empty cell, an error of the spreadsheet's and
a code that the file itself calls missing are missing.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from accountant.errors import DataError
from accountant.system.lazy_import import later
from models.features.csv_lines import name_columns
from models.features.written import PLAIN, Form
from training.rows.sources.json_cells import read_records
from training.rows.sources.sheet_cells import Place, SheetCells

python_calamine, pyreadstat = later("python_calamine"), later("pyreadstat")
SHEETS = (".xlsx", ".xlsm")
STATISTICS = {
    ".sav": "read_sav", ".zsav": "read_sav", ".por": "read_por", ".dta": "read_dta", ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}  # fmt: skip
MOST_UNPACKED, MOST_CELLS, BATCH_ROWS = 1 << 30, 1 << 25, 1 << 16
MOST_ABOVE = 20  # rows in which the names of the columns are looked for
Cells = Sequence[Any]


@dataclass
class CellTable:
    """Such a file; of a workbook the one sheet that holds cells, or that of the form."""

    path: Path
    form: Form = PLAIN
    _commas: frozenset[str] = frozenset()
    _uncomputed: Set[Place] = frozenset()
    _left: int = 0  # columns of a sheet before its first

    @property
    def name(self) -> str:
        """Return the file's name."""
        return self.path.name

    @property
    def is_plain(self) -> bool:
        """Return False: it is read here alone."""
        return False

    def types(self) -> dict[str, pa.DataType | None]:
        """Return names and types of the columns."""
        return dict(zip(self._table.schema.names, self._table.schema.types, strict=True))

    def batches(self, columns: Sequence[str], kinds: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """Yield the rows. DataError where one of these columns holds formulas that were never computed."""
        self.require_computed(columns)
        yield from self.batches_as_they_are(columns)

    def batches_as_they_are(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, a formula that was never computed as an empty cell."""
        yield from self._table.select(list(columns)).to_batches(BATCH_ROWS)

    def require_computed(self, columns: Sequence[str]) -> None:
        """Raise DataError where a person's cell of one of these columns is a formula that was never computed."""
        names, _, places = self._content
        if not self._uncomputed:
            return
        own, persons = {names.index(name) + self._left for name in columns}, {*places}
        holds = {(row + 1, column) for row, column in self._uncomputed if column in own and row + 1 in persons}
        if holds:
            row, column = min(holds)
            raise DataError(
                f"data={self.name}: {len(holds)} cell{'' if len(holds) == 1 else 's'}, the first in column "
                f"{names[column - self._left]!r} of row {row}, hold a formula that no program has computed; "
                "open the file in a spreadsheet program and save it",
                column=names[column - self._left],
            )

    def most_rows(self) -> int:
        """Return as many rows as there are."""
        return int(self._table.num_rows)

    def spell(self, commas: Collection[str]) -> None:
        """Write the numbers of these columns with a comma before the fraction, where others of their cells are texts,
        which are declared to be written so.
        """
        self._commas = frozenset(commas)
        self.__dict__.pop("_table", None)

    @cached_property
    def places(self) -> list[int]:
        """Return where each row stands in the file, as a spreadsheet counts: its first row is 1."""
        return self._content[2]

    @cached_property
    def _content(self) -> tuple[list[str], list[Cells], list[int]]:
        """Read the names of the columns, the rows, and where they stand."""
        if self.path.suffix.lower() in SHEETS:
            return self._read_sheet()
        is_known = self.path.suffix.lower() in STATISTICS
        columns, rows, places = self._read_statistics() if is_known else read_records(self.path, self.form.codec)
        return name_columns(columns), rows, places

    @cached_property
    def _table(self) -> pa.Table:
        columns, rows, _ = self._content
        self._check_size(len(columns), len(rows))
        kinds: list[set[type]] = [set() for _ in columns]
        for cells in rows:
            for kind, cell in zip(kinds, cells, strict=True):
                if cell is not None and cell != "":
                    kind.add(type(cell))
        types, commas = [_type_of(kind) for kind in kinds], [name in self._commas for name in columns]
        parts = [rows[at : at + BATCH_ROWS] for at in range(0, len(rows), BATCH_ROWS)] or [[]]
        return pa.Table.from_batches([_batch(columns, types, commas, part) for part in parts])

    def _check_size(self, columns: int, rows: int) -> None:
        if columns * rows > MOST_CELLS:
            raise DataError(f"data={self.name}: has more than {MOST_CELLS} cells; save it as .csv or .parquet")

    def _read_sheet(self) -> tuple[list[str], list[Cells], list[int]]:
        """Read a sheet from where `skip` says on, without the empty rows at its end and those that are nobody's."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                if sum(part.file_size for part in archive.infolist()) > MOST_UNPACKED:
                    raise DataError(f"data={self.name}: unpacks to more than {MOST_UNPACKED} bytes; save it as .csv")
                book = python_calamine.load_workbook(str(self.path))
                called = self._sheet_of(book)
                written = SheetCells(archive, called)
                percents, self._uncomputed = written.percents(), written.uncomputed()
        except python_calamine.PasswordError:
            raise DataError(f"data={self.name}: has a password; save it without one") from None
        except (zipfile.BadZipFile, python_calamine.CalamineError) as error:
            kind = type(error).__name__
            raise DataError(f"data={self.name}: cannot be read as a workbook ({kind}); save it anew as .xlsx") from None
        sheet, skip, names = book.get_sheet_by_name(called), self.form.skip, [*self.form.columns]
        self._check_size(sheet.width, sheet.height)
        top, self._left = sheet.start or (0, 0)
        rows = [*([[""] * sheet.width] * top), *map(list, sheet.to_python())]
        for row, column in ((row, column - self._left) for row, column in percents if row < len(rows)):
            if type(cell := rows[row][column]) in (int, float):  # what is shown, as the text of it has it
                rows[row][column] = float(Decimal(repr(cell)).scaleb(2))
        while rows and not any(cell not in ("", None) for cell in rows[-1]):
            rows.pop()
        if not names:
            names, skip = [_plain(cell) for cell in (rows[skip:] or [[""]])[0]], skip + 1
        if not any(map(str.strip, names)):
            raise DataError(
                f"data={self.name}: row {skip} has no names; say `skip` under `format`, how many rows stand above the "
                f"one that has them: {max(top, skip)} for instance"
            )
        if len(names) != sheet.width:
            raise DataError(f"data={self.name}: has {sheet.width} columns; `columns` under `format` names {len(names)}")
        texts = (["" if cell is None else _plain(cell) for cell in row] if self.form.skip_rows else [] for row in rows)
        nobody = [self.form.is_nobody(cells) for cells in texts]
        kept = [at for at in range(skip, len(rows)) if not nobody[at]]
        return name_columns(names), [rows[at] for at in kept], [at + 1 for at in kept]

    def row_of_names(self, wanted: Collection[str]) -> int | None:
        """Return how many rows stand above the one in which all these names are; None where none of the first has."""
        if self.path.suffix.lower() not in SHEETS:
            return None
        for skip in range(MOST_ABOVE):
            above = CellTable(self.path, replace(self.form, columns=(), skip=skip, skip_rows=()))
            with suppress(DataError):  # an empty row
                names, rows, _ = above._content
                named = ({*name_columns([*map(_plain, cells)])} for cells in [names, *rows])
                return next((at for at, has in enumerate(islice(named, MOST_ABOVE), skip) if {*wanted} <= has), None)
        return None

    def _sheet_of(self, book: Any) -> str:
        said = [name for name in book.sheet_names if name.casefold() == self.form.sheet.casefold()]
        if self.form.sheet in said or len(said) == 1:
            return self.form.sheet if self.form.sheet in said else str(said[0])
        listed = [
            about.name
            for about in book.sheets_metadata
            if about.typ == python_calamine.SheetTypeEnum.WorkSheet
            and about.visible == python_calamine.SheetVisibleEnum.Visible
            and book.get_sheet_by_name(about.name).height
        ]
        if self.form.sheet or len(listed) != 1:
            found = f"no sheet {self.form.sheet!r}" if self.form.sheet else f"{len(listed)} sheets that hold cells"
            remedy = "name another file"
            if listed:
                remedy = f"say `sheet: NAME` under `format`, or name one with the file, like '{self.name}#{listed[0]}'"
            remedies = [{"place": "format", "say": {"sheet": name}} for name in listed]
            kept = {"remedies": remedies} if remedies else {}
            raise DataError(f"data={self.name}: has {found}: {', '.join(listed)}; {remedy}", **kept)
        return str(listed[0])

    def _read_statistics(self) -> tuple[list[str], list[Cells], list[int]]:
        try:
            read = getattr(pyreadstat, STATISTICS[self.path.suffix.lower()])
        except ImportError:
            raise DataError(
                f"data={self.name}: needs pyreadstat, which is not here; pip install pyreadstat, or save it as .csv"
            ) from None
        if not self.path.exists():
            raise FileNotFoundError(self.path)
        try:
            columns, _ = read(str(self.path), output_format="dict")
        except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError) as error:
            kind = type(error).__name__
            raise DataError(f"data={self.name}: cannot be read ({kind}); save it anew, or as .csv") from None
        rows: list[Cells] = [*zip(*columns.values(), strict=True)]
        return [*columns], rows, [*range(2, len(rows) + 2)]


def _type_of(kinds: set[type]) -> pa.DataType:
    """Return the type of a column whose cells are of these."""
    if not kinds:
        return pa.null()
    if kinds <= {float, int}:
        return pa.int64() if kinds == {int} else pa.float64()
    if kinds <= {date, datetime}:
        return pa.date32() if kinds == {date} else pa.timestamp("us")
    kind = kinds.pop() if len(kinds) == 1 else str
    return {bool: pa.bool_(), time: pa.time64("us")}.get(kind, pa.string())


def _batch(
    names: Sequence[str], types: Sequence[pa.DataType], commas: Sequence[bool], rows: Sequence[Cells]
) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = []
    for kind, has_comma, cells in zip(types, commas, columns, strict=True):
        plain = [None if cell == "" else cell for cell in cells]
        if pa.types.is_string(kind):
            plain = [
                None if cell is None else _plain(cell).replace(".", ",") if has_comma and type(cell) is float
                else _plain(cell) for cell in plain
            ]  # fmt: skip
        elif pa.types.is_timestamp(kind):
            plain = [datetime.combine(cell, time()) if type(cell) is date else cell for cell in plain]
        elif pa.types.is_floating(kind):
            plain = [None if cell is None else float(cell) for cell in plain]
        arrays.append(pa.array(plain, kind))
    return pa.RecordBatch.from_arrays(arrays, list(names))


def split_sheet(path: Path) -> tuple[Path, str]:
    """Return the file and the sheet that `book.xlsx#sheet` names; "" where it names none."""
    book, mark, sheet = path.name.rpartition("#")
    if not mark or not book.lower().endswith(SHEETS) or path.exists():
        return path, ""
    return path.with_name(book), sheet


def _plain(cell: Any) -> str:
    """Write a cell as a text: whole numbers without a point, days as ISO has them."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time() else cell.isoformat(" ")
    return cell.isoformat() if isinstance(cell, date | time) else str(cell)

"""Workbooks (.xlsx) and files of SPSS, Stata and SAS: columns of cells that have types of their own, held in memory.

A column whose cells are of one type is of that type; else it is one of texts, in which numbers and days are written
plainly. An empty cell, an error of the spreadsheet's and a code that the file itself calls missing are missing.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from accountant.errors import DataError
from accountant.system.lazy_import import later
from models.features.csv_lines import name_columns
from models.features.written import PLAIN, Form

python_calamine, pyreadstat = later("python_calamine"), later("pyreadstat")
SHEETS = (".xlsx", ".xlsm")
STATISTICS = {
    ".sav": "read_sav", ".zsav": "read_sav", ".por": "read_por", ".dta": "read_dta", ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}  # fmt: skip
MOST_UNPACKED, MOST_CELLS, BATCH_ROWS = 1 << 30, 1 << 25, 1 << 16
Cells = Sequence[Any]


@dataclass
class CellTable:
    """Such a file; of a workbook the one sheet that holds cells, or that of the form."""

    path: Path
    form: Form = PLAIN

    @property
    def name(self) -> str:
        """Return the file's name."""
        return self.path.name

    def types(self) -> dict[str, pa.DataType | None]:
        """Return names and types of the columns."""
        return dict(zip(self._table.schema.names, self._table.schema.types, strict=True))

    def batches(self, columns: Sequence[str], kinds: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        yield from self._table.select(list(columns)).to_batches(BATCH_ROWS)

    def most_rows(self) -> int:
        """Return as many rows as there are."""
        return int(self._table.num_rows)

    @cached_property
    def _table(self) -> pa.Table:
        columns, rows = self._read_sheet() if self.path.suffix.lower() in SHEETS else self._read_statistics()
        self._check_size(len(columns), sum(1 for _ in rows()))
        kinds: list[set[type]] = [set() for _ in columns]
        for cells in rows():
            for kind, cell in zip(kinds, cells, strict=True):
                if cell is not None and cell != "":
                    kind.add(type(cell))
        types = [_type_of(kind) for kind in kinds]
        batches, chunk = [], list[Cells]()
        for cells in rows():
            chunk.append(cells)
            if len(chunk) == BATCH_ROWS:
                batches.append(_batch(columns, types, chunk))
                chunk = []
        return pa.Table.from_batches([*batches, _batch(columns, types, chunk)])

    def _check_size(self, columns: int, rows: int) -> None:
        if columns * rows > MOST_CELLS:
            raise DataError(f"data={self.name}: has more than {MOST_CELLS} cells; save it as .csv or .parquet")

    def _read_sheet(self) -> tuple[list[str], Callable[[], Iterable[Cells]]]:
        """Return the names of the first row, and what yields the other rows, without the empty ones at the end."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                if sum(part.file_size for part in archive.infolist()) > MOST_UNPACKED:
                    raise DataError(f"data={self.name}: unpacks to more than {MOST_UNPACKED} bytes; save it as .csv")
            book = python_calamine.load_workbook(str(self.path))
        except python_calamine.PasswordError:
            raise DataError(f"data={self.name}: has a password; save it without one") from None
        except (zipfile.BadZipFile, python_calamine.CalamineError) as error:
            kind = type(error).__name__
            raise DataError(f"data={self.name}: cannot be read as a workbook ({kind}); save it anew as .xlsx") from None
        sheet = book.get_sheet_by_name(self._sheet_of(book))
        if sheet.start is None or sheet.start[0]:
            raise DataError(f"data={self.name}: its first row has no names; delete what is above the row that has them")
        self._check_size(sheet.width, sheet.height)
        header, *rest = sheet.to_python()
        while rest and not any(cell not in ("", None) for cell in rest[-1]):
            rest.pop()
        return name_columns([_plain(cell).strip() for cell in header]), lambda: rest

    def _sheet_of(self, book: Any) -> str:
        if self.form.sheet in book.sheet_names:
            return self.form.sheet
        listed = [
            about.name
            for about in book.sheets_metadata
            if about.typ == python_calamine.SheetTypeEnum.WorkSheet
            and about.visible == python_calamine.SheetVisibleEnum.Visible
            and book.get_sheet_by_name(about.name).height
        ]
        if self.form.sheet or len(listed) != 1:
            found = f"no sheet {self.form.sheet!r}" if self.form.sheet else f"{len(listed)} sheets that hold cells"
            remedy = "say `sheet: NAME` under `format`" if listed else "name another file"
            raise DataError(f"data={self.name}: has {found}: {', '.join(listed)}; {remedy}")
        return str(listed[0])

    def _read_statistics(self) -> tuple[list[str], Callable[[], Iterable[Cells]]]:
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
        return [*columns], lambda: zip(*columns.values(), strict=True)


def _type_of(kinds: set[type]) -> pa.DataType:
    """Return the type of a column whose cells are of these."""
    if not kinds:
        return pa.null()
    if kinds <= {float, int}:
        return pa.float64()
    if kinds <= {date, datetime}:
        return pa.date32() if kinds == {date} else pa.timestamp("us")
    kind = kinds.pop() if len(kinds) == 1 else str
    return {bool: pa.bool_(), time: pa.time64("us")}.get(kind, pa.string())


def _batch(names: Sequence[str], types: Sequence[pa.DataType], rows: Sequence[Cells]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = []
    for kind, cells in zip(types, columns, strict=True):
        plain = [None if cell == "" else cell for cell in cells]
        if pa.types.is_string(kind):
            plain = [None if cell is None else _plain(cell) for cell in plain]
        elif pa.types.is_timestamp(kind):
            plain = [datetime.combine(cell, time()) if type(cell) is date else cell for cell in plain]
        elif pa.types.is_floating(kind):
            plain = [None if cell is None else float(cell) for cell in plain]
        arrays.append(pa.array(plain, kind))
    return pa.RecordBatch.from_arrays(arrays, list(names))


def _plain(cell: Any) -> str:
    """Write a cell as a text: whole numbers without a point, days as ISO has them."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time() else cell.isoformat(" ")
    return cell.isoformat() if isinstance(cell, date | time) else str(cell)

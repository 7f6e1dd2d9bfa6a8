"""Workbooks, SQLite, records of JSON and files of SPSS, Stata and SAS: columns of cells that have types of their own,
held in memory.

A column whose cells are of one type is of that type; else it is one of texts, in which numbers and days are written
plainly. A cell that is shown as per cents is the number that is shown. An empty cell, an error of the spreadsheet's and
a code that the file itself calls missing are missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from accountant.errors import DataError
from models.features.csv_lines import name_columns
from models.features.written import Form
from training.rows.sources.cell_readers import AS_URL, as_table
from training.rows.sources.json_cells import read_records
from training.rows.sources.sealed import read_sealed
from training.rows.sources.tables import BATCH_ROWS, FileTable, Kinds, Placed

SHEETS = (".xlsx", ".xlsm", ".xls", ".ods")
STATISTICS = {
    ".sav": "read_sav", ".zsav": "read_sav", ".por": "read_por", ".dta": "read_dta", ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}  # fmt: skip
DATABASES = (".sqlite", ".sqlite3", ".db", ".db3")
MOST_UNPACKED, MOST_CELLS = 1 << 30, 1 << 25


@dataclass
class CellTable(FileTable):
    """Such a file, of a `kind` that ENDINGS of files name; of a workbook the one sheet that holds cells, of SQLite the
    one table, or that of the form.
    """

    kind: str = ""
    _commas: frozenset[str] = frozenset()

    has_floats = True

    @property
    def own(self) -> Sequence[tuple[str, pa.DataType]]:
        """Return names and types of the columns."""
        return [*zip(self._table.schema.names, self._table.schema.types, strict=True)]

    def batches(self, columns: Sequence[str], kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Yield the rows. DataError where one of these columns holds formulas that were never computed."""
        self.require_computed(columns)
        yield from self._table.select(list(columns)).to_batches(BATCH_ROWS)

    def placed(self, ignored: Collection[str] = ()) -> Iterator[Placed]:
        """Yield the rows, a formula of an ignored column that was never computed as an empty cell."""
        self.require_computed([name for name in self._table.column_names if name not in ignored])
        for batch in self._content[1].to_batches(BATCH_ROWS):
            *columns, places = batch.columns
            yield Placed(places.to_pylist(), dict(zip(batch.schema.names, columns, strict=False)))

    def require_computed(self, columns: Sequence[str]) -> None:
        """Raise DataError where a person's cell of one of these columns is a formula that was never computed."""
        names = self._table.column_names
        formulas = {names[place]: about for place, about in self._content[0].get("uncomputed", ()) if place >= 0}
        own = {name: formulas[name] for name in columns if name in formulas}
        if own:
            name = min(own, key=lambda each: (own[each][1], names.index(each)))
            holds = sum(count for count, _ in own.values())
            raise DataError(
                f"data={self.name}: {holds} cell{'' if holds == 1 else 's'}, the first in column {name!r} of row "
                f"{own[name][1]}, hold a formula that no program has computed; open the file in a spreadsheet program "
                "and save it",
                column=name,
            )

    def most_rows(self) -> int:
        """Return as many rows as there are."""
        return int(self._table.num_rows)

    def spelling(self, commas: Collection[str]) -> CellTable:
        """Return it with a comma before the fraction of numbers of these columns, where others of their cells are
        texts, which are declared to be written so.
        """
        return self if self._commas == {*commas} else replace(self, _commas=frozenset(commas))

    @property
    def _table(self) -> pa.Table:
        table = self._content[1]
        return table.remove_column(table.num_columns - 1)

    @cached_property
    def _content(self) -> tuple[dict[str, Any], pa.Table]:
        """Read what is told of the rows, and the rows, each with its place behind it."""
        if self._is_sheet or self.kind in (*STATISTICS, *DATABASES):
            return self._read("sheet" if self._is_sheet else "database" if self.kind in DATABASES else "statistics")
        asked = {"name": self.name, "most_cells": MOST_CELLS, "commas": self._commas}
        return {}, as_table(*read_records(self.path, self.form.codec), asked)

    @property
    def _is_sheet(self) -> bool:
        return self.kind in SHEETS

    def _read(self, reader: str) -> tuple[dict[str, Any], pa.Table]:
        asked: dict[str, Any] = {"most_cells": MOST_CELLS, "commas": [*self._commas]}
        if self._is_sheet:
            asked |= {"form": asdict(self.form), "most_unpacked": MOST_UNPACKED}
            asked["fails"] = "cannot be read as a workbook ({}); save it anew as .xlsx"
        elif self.kind in DATABASES:
            asked |= {"table": self.form.sheet, "fails": "cannot be read as SQLite ({}); " + AS_URL}
            journals = (self.path.with_name(self.name + end) for end in ("-wal", "-journal"))
            if any(journal.is_file() and journal.stat().st_size for journal in journals):
                raise DataError(f"data={self.name}: some of its rows lie in a journal beside it; {AS_URL}")
        elif find_spec("pyreadstat") is None:
            raise DataError(
                f"data={self.name}: needs pyreadstat, which is not here; pip install pyreadstat, or save it as .csv"
            )
        else:
            asked["call"] = STATISTICS[self.kind]
            asked["fails"] = "cannot be read ({}); save it anew, or as .csv"
        return read_sealed(self.path, reader, asked)

    def fitting_form(self, wanted: Collection[str]) -> Form:
        """Return the form with the row of a sheet that has the names of all these columns."""
        if self.form.columns:
            return self.form
        rows = enumerate(self.first_rows["rows"])
        skips = (skip for skip, cells in rows if {*wanted} <= {*name_columns(cells)})
        return replace(self.form, skip=next(skips, self.form.skip))

    @cached_property
    def first_rows(self) -> dict[str, Any]:
        """Return the texts of the first `rows` of a workbook as they stand, of which `sheet`, and all `sheets` with
        cells; no rows of another file, or where the sheet must be said.
        """
        return self._read("first")[0] if self._is_sheet else {"rows": [], "sheet": "", "sheets": []}

    @property
    def uses(self) -> Collection[str]:
        """Return what chooses cells of a sheet, the table of SQLite, and the encoding of records."""
        if self._is_sheet:
            return ("sheet", "columns", "skip", "skip_rows")
        return () if self.kind in STATISTICS else ("sheet",) if self.kind in DATABASES else ("encoding",)


def split_sheet(path: Path) -> tuple[Path, str]:
    """Return the file and the sheet that `book.xlsx#sheet` names; "" where it names none."""
    name, mark, sheet = path.name.rpartition("#")
    book = path.with_name(name) if name else path
    if not mark or path.exists() or not (book.is_file() or name.lower().endswith((*SHEETS, *DATABASES))):
        return path, ""
    return book, sheet

"""The readers that others made of workbooks, of SQLite and of files of SPSS, Stata and SAS. They run behind the seal
alone (`training.rows.sources.sealed`), which their faults end in: a memory fault of theirs is a refusal of the file.

A reader takes an open file and what is asked of it, and returns plain facts, as JSON has them, and a table.
"""

from __future__ import annotations

import sqlite3
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from accountant.errors import DataError
from accountant.system.lazy_import import later
from models.features.csv_lines import name_columns
from models.features.written import Form
from training.rows.sources.old_sheets import read_old_cells
from training.rows.sources.sheet_cells import SheetCells, read_ods_cells, read_sheet_cells
from training.rows.sources.tables import BATCH_ROWS, MOST_ABOVE

python_calamine, pyreadstat = later("python_calamine"), later("pyreadstat")
_ODS = "content.xml"
MOST_TIMES = 10  # as many cells as all other sheets together has the one that is meant where none is named
AS_URL = "register it as sqlite:///FILE, with --table NAME"
MOST_NAMED = 5  # tables, as remedies
_TABLES = (
    "select name from sqlite_master where type = 'table' and sql like 'create table %' "
    "and name not like 'sqlite!_%' escape '!'"
)
Asked = Mapping[str, Any]
Cells = Sequence[Any]
Sheet = tuple[list[str], list[Cells], list[int], dict[int, list[int]]]
"""Names; rows; where each stands, as a spreadsheet counts; of columns, by place, how many formulas of persons' rows no
program has computed, and the first such row.
"""


def read_sheet(file: BinaryIO, asked: Asked) -> tuple[dict[str, Any], pa.Table]:
    """Return the rows of a workbook's sheet, and behind the columns of it one of where each row stands."""
    names, rows, places, uncomputed = _cells_of_sheet(file, asked, Form(**asked["form"]))
    return {"uncomputed": [*uncomputed.items()]}, as_table(names, rows, places, asked)


def read_first(file: BinaryIO, asked: Asked) -> tuple[dict[str, Any], pa.Table]:
    """Return the texts of the first rows of a sheet, as they stand from the first row on, which sheet that is ("" where
    it must be said), and those that hold cells; and no table.
    """
    with _explaining(asked["name"]):
        book = _load_book(file, asked)
    sizes = _sheets_of(book)
    called = _likely_sheet(book, sizes, asked["form"]["sheet"])
    first: list[list[str]] = []
    if called:
        sheet = book.get_sheet_by_name(called)
        _check_size(sheet.width, sheet.height, asked)
        rows = [[*map(_plain, cells)] for cells in sheet.to_python(nrows=MOST_ABOVE)]
        first = [*([[""] * sheet.width] * (sheet.start or (0, 0))[0]), *rows][:MOST_ABOVE]
    return {"rows": first, "sheet": called, "sheets": [*sizes]}, pa.table({})


def read_statistics(file: BinaryIO, asked: Asked) -> tuple[dict[str, Any], pa.Table]:
    """Return the rows of a file of SPSS, Stata or SAS, and where each stands below the names."""
    columns, _ = getattr(pyreadstat, asked["call"])(file, output_format="dict")
    rows = [*zip(*columns.values(), strict=True)]
    return {}, as_table([*columns], rows, range(2, len(rows) + 2), asked)


def read_database(file: BinaryIO, asked: Asked) -> tuple[dict[str, Any], pa.Table]:
    """Return the rows of the one table of a SQLite file, or of that which is asked for."""
    raw = bytearray(file.read())
    raw[18:20] = b"\1\1"  # of a journal ahead, which lies beside the file and is empty
    database = sqlite3.connect(":memory:")
    database.deserialize(bytes(raw))
    tables = [name for (name,) in database.execute(_TABLES)]
    said = [name for name in tables if name.lower() == asked["table"].lower()] if asked["table"] else tables
    if len(said) != 1:
        name, listed = asked["name"], ", ".join(tables)[:1000]
        found = f"no table {asked['table']!r}" if asked["table"] else f"{len(tables)} tables of rows"
        if not tables:
            raise DataError(f"data={name}: has {found}: name another file")
        raise DataError(
            f"data={name}: has {found}: {listed}; say `sheet: NAME` under `format`, or name one with the file, like "
            f"'{name}#{tables[0]}', or {AS_URL}",
            remedies=[
                *({"place": "format", "say": {"sheet": table}} for table in tables[:MOST_NAMED]),
                {"how": AS_URL},
            ],
        )
    rows = database.execute('select * from "{}"'.format(said[0].replace('"', '""')))
    columns = [[*cells] for cells in zip(*rows, strict=True)] or [[] for _ in rows.description]
    for cells in columns:
        if any(isinstance(cell, bytes) for cell in cells):  # such a column is none of texts or numbers
            cells[:] = [b""] * len(cells)
    names, count = [about[0] for about in rows.description], len(columns[0])
    return {}, as_table(names, [*zip(*columns, strict=True)], range(2, count + 2), asked)


READERS = {
    "sheet": read_sheet, "first": read_first, "statistics": read_statistics, "database": read_database,
}  # fmt: skip


def _cells_of_sheet(file: BinaryIO, asked: Asked, form: Form) -> Sheet:
    """Read a sheet from where `skip` says on, without the empty rows at its end and those that are nobody's."""
    name, skip, names = asked["name"], form.skip, [*form.columns]
    with _explaining(name):
        book, called, written = _open_book(file, asked, form)
    sheet = book.get_sheet_by_name(called)
    _check_size(sheet.width, sheet.height, asked)
    top, left = sheet.start or (0, 0)
    rows = [*([[""] * sheet.width] * top), *map(list, sheet.to_python())]
    for row, column in ((row, column - left) for row, column in written.percents if row < len(rows)):
        if type(cell := rows[row][column]) in (int, float):  # what is shown, as the text of it has it
            rows[row][column] = float(Decimal(repr(cell)).scaleb(2))
    while rows and not any(cell not in ("", None) for cell in rows[-1]):
        rows.pop()
    if not names:
        names, skip = [_plain(cell) for cell in (rows[skip:] or [[""]])[0]], skip + 1
    if not any(map(str.strip, names)):
        raise DataError(
            f"data={name}: row {skip} has no names; say `skip` under `format`, how many rows stand above the "
            f"one that has them: {max(top, skip)} for instance"
        )
    if len(names) != sheet.width:
        raise DataError(f"data={name}: has {sheet.width} columns; `columns` under `format` names {len(names)}")
    texts = (["" if cell is None else _plain(cell) for cell in row] if form.skip_rows else [] for row in rows)
    nobody = [form.is_nobody(cells) for cells in texts]
    kept = [at for at in range(skip, len(rows)) if not nobody[at]]
    formulas: dict[int, list[int]] = {}
    persons = {*kept}
    for row, column in sorted(written.uncomputed):
        if row in persons:
            formulas.setdefault(column - left, [0, row + 1])[0] += 1
    return names, [rows[at] for at in kept], [at + 1 for at in kept], formulas


@contextmanager
def _explaining(name: str) -> Iterator[None]:
    """Raise DataError for a workbook with a password."""
    try:
        yield
    except (python_calamine.PasswordError, PermissionError):
        raise DataError(f"data={name}: has a password; save it without one") from None


def _open_book(file: BinaryIO, asked: Asked, form: Form) -> tuple[Any, str, SheetCells]:
    """Open a workbook, by what it is and not by what it is called. Return which sheet is read, and where it has cells
    of which the reader tells less than the file.
    """
    file.seek(0)
    if file.read(2) != b"PK":
        file.seek(0)
        old = read_old_cells(file.read())
        book = _load_book(file, asked)
        called = _sheet_of(book, form, asked["name"])
        return book, called, dict(zip(book.sheet_names, old, strict=True))[called]
    book = _load_book(file, asked)
    with zipfile.ZipFile(file) as archive:
        of_sheets = read_ods_cells(archive, partial(_check_size, 1, asked=asked)) if _ODS in archive.namelist() else {}
        called = _sheet_of(book, form, asked["name"])
        return book, called, of_sheets[called] if of_sheets else read_sheet_cells(archive, called)


def _load_book(file: BinaryIO, asked: Asked) -> Any:
    """Open a workbook that unpacks to no more than may be. DataError."""
    file.seek(0)
    if file.read(2) == b"PK":
        with zipfile.ZipFile(file) as archive:
            if sum(part.file_size for part in archive.infolist()) > asked["most_unpacked"]:
                most = asked["most_unpacked"]
                raise DataError(f"data={asked['name']}: unpacks to more than {most} bytes; save it as .csv")
    file.seek(0)
    return python_calamine.load_workbook(file)


def _sheets_of(book: Any) -> dict[str, int]:
    """Return the sheets that people see and that hold cells, each with how many it is wide times high."""
    listed = [
        book.get_sheet_by_name(about.name)
        for about in book.sheets_metadata
        if about.typ == python_calamine.SheetTypeEnum.WorkSheet
        and about.visible == python_calamine.SheetVisibleEnum.Visible
    ]
    return {str(sheet.name): sheet.width * sheet.height for sheet in listed if sheet.height}


def _named_sheet(book: Any, named: str) -> str:
    """Return the sheet of this name, in whatever capitals it is written; "" where there is none, or several."""
    named_so = [str(sheet) for sheet in book.sheet_names if sheet.casefold() == named.casefold()]
    return named if named in named_so else named_so[0] if len(named_so) == 1 else ""


def _likely_sheet(book: Any, sizes: Mapping[str, int], named: str) -> str:
    """Return the sheet of this name; without one, the sheet that has MOST_TIMES as many cells as all others have; ""
    where there is none.
    """
    if named:
        return _named_sheet(book, named)
    return next((name for name, size in sizes.items() if size >= MOST_TIMES * (sum(sizes.values()) - size)), "")


def _sheet_of(book: Any, form: Form, name: str) -> str:
    """Return the sheet that the form names, or the one that holds cells. DataError."""
    if form.sheet and (called := _named_sheet(book, form.sheet)):
        return called
    listed = [*_sheets_of(book)]
    if form.sheet or len(listed) != 1:
        found = f"no sheet {form.sheet!r}" if form.sheet else f"{len(listed)} sheets that hold cells"
        remedy = "name another file"
        if listed:
            remedy = f"say `sheet: NAME` under `format`, or name one with the file, like '{name}#{listed[0]}'"
        remedies = [{"place": "format", "say": {"sheet": sheet}} for sheet in listed]
        kept = {"remedies": remedies} if remedies else {}
        raise DataError(f"data={name}: has {found}: {', '.join(listed)}; {remedy}", **kept)
    return listed[0]


def _check_size(columns: int, rows: int, asked: Asked) -> None:
    if columns * rows > asked["most_cells"]:
        raise DataError(f"data={asked['name']}: has more than {asked['most_cells']} cells; save it as .csv or .parquet")


def as_table(columns: Sequence[str], rows: Sequence[Cells], places: Sequence[int], asked: Asked) -> pa.Table:
    """Return rows as a table, and behind its columns one of where each stands in its file."""
    columns = name_columns(columns)
    _check_size(len(columns), len(rows), asked)
    kinds: list[set[type]] = [set() for _ in columns]
    for cells in rows:
        for kind, cell in zip(kinds, cells, strict=True):
            if cell is not None and cell != "":
                kind.add(type(cell))
    types, commas = [_type_of(kind) for kind in kinds], [name in asked["commas"] for name in columns]
    parts = [rows[at : at + BATCH_ROWS] for at in range(0, len(rows), BATCH_ROWS)] or [[]]
    table = pa.Table.from_batches([_batch(columns, types, commas, part) for part in parts])
    return table.append_column("", pa.array(places, pa.int64()))


def _type_of(kinds: set[type]) -> pa.DataType:
    """Return the type of a column whose cells are of these."""
    if not kinds:
        return pa.null()
    if kinds <= {float, int}:
        return pa.int64() if kinds == {int} else pa.float64()
    if kinds <= {date, datetime}:
        return pa.date32() if kinds == {date} else pa.timestamp("us")
    kind = kinds.pop() if len(kinds) == 1 else str
    return {bool: pa.bool_(), time: pa.time64("us"), bytes: pa.binary()}.get(kind, pa.string())


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


def _plain(cell: Any) -> str:
    """Write a cell as a text: whole numbers without a point, days as ISO has them."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time() else cell.isoformat(" ")
    return cell.isoformat() if isinstance(cell, date | time) else str(cell)

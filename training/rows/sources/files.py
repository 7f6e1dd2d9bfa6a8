"""One file of rows, by the end of its name, one of ENDINGS, and by what it begins with.

Read in batches: memory is bounded whatever the size of a file, and what a compressed one may unpack to is.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from accountant.errors import DataError
from models.features.written import PLAIN, Form
from training.rows.sources.cell_tables import DATABASES, SHEETS, STATISTICS, CellTable, split_sheet
from training.rows.sources.tables import FileTable
from training.rows.sources.text_bytes import PACKED, RECORDS, TEXT, kind_of_bytes
from training.rows.sources.text_tables import CsvTable
from training.rows.sources.typed_tables import ArrowTable, ParquetTable

ARROW = (".arrow", ".feather", ".ipc")
_PACKED = [f"{text}{packed}" for text in (*TEXT, *RECORDS) for packed in PACKED]
ENDINGS = (".parquet", *SHEETS, *STATISTICS, *DATABASES, *_PACKED, *TEXT, *RECORDS, *ARROW, ".zip")
SAID = (
    "text, records of JSON (both also packed), Parquet, Arrow, a workbook, SQLite, or of SPSS, Stata and SAS; call it "
    f"by one of {', '.join(ENDINGS[:1] + tuple(end for end in ENDINGS[1:] if end.count('.') == 1))}"
)


def named_ending(path: Path) -> str:
    """Return the ending of the file's name, one of ENDINGS; "" where it has none of them."""
    name = split_sheet(path)[0].name.lower()
    return next((suffix for suffix in ENDINGS if name.endswith(suffix)), "")


def ending(path: Path) -> str:
    """Return the kind of a file, one of ENDINGS, "" where it is none of them: what it begins with tells more than a
    name that is one of text, or of nothing that is known.
    """
    file, named = split_sheet(path)[0], named_ending(path)
    if not file.is_file() or (named and named not in (*TEXT, *RECORDS, *_PACKED, ".zip")):
        return named
    found = kind_of_bytes(file)
    return found if not named or found not in ("", ".csv", ".zip") else named


def form_ending(path: Path) -> str:
    """Return the ending without that of a packed file, which is a .csv where it says nothing else."""
    suffix = ending(path)
    plain = next((suffix.removesuffix(packed) for packed in PACKED if suffix.endswith(packed)), suffix)
    return plain or (".csv" if suffix else "")


def no_such_file(data: str) -> str:
    """Say that there is no such file; of an address, which a path has lost a stroke of, where one may stand."""
    address = "; name a file or folder of this machine: `dpserve dataset register` alone reads addresses"
    return f"data={data}: no such file{address if re.match('[a-z0-9+]+:/', data) else ''}"


def open_file(path: Path, form: Form = PLAIN) -> FileTable:
    """Open a file; `book.xlsx#name` is a sheet of a workbook, or a table of SQLite. DataError where it is of no kind
    that is known.
    """
    path, sheet = split_sheet(path)
    form, suffix = replace(form, sheet=sheet) if sheet else form, ending(path)
    if path.exists() and not path.is_file():  # a pipe: it would be waited for, and can be read once
        raise DataError(f"data={path.name}: must be a file; write what comes out of a pipe to one first")
    if not suffix:
        path.stat()
        raise DataError(f"data={path.name}: must be {SAID}")
    if suffix == ".parquet":
        return ParquetTable(path, form)
    if suffix in (*SHEETS, *STATISTICS, *DATABASES) or form_ending(path) in RECORDS:
        return CellTable(path, form, kind=suffix)
    return ArrowTable(path, form) if suffix in ARROW else CsvTable(path, form)

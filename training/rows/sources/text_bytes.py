"""What a file begins with, whatever its name ends with: which kind it is of, and the bytes of one of text, unpacked as
they are read.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from accountant.errors import DataError

TEXT = (".csv", ".tsv", ".txt", ".data")  # read alike: what parts the columns is declared
RECORDS = (".jsonl", ".ndjson", ".json")
PACKED = {".gz": "gzip", ".zst": "zstd", ".zip": "zip"}
MOST_UNPACKED = 1 << 36  # bytes
_MARKS = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip"}
_KINDS = {
    b"PAR1\x15": ".parquet", b"ARROW1\0": ".arrow", b"\xd0\xcf\x11\xe0": ".xls", b"SQLite format 3\0": ".sqlite",
    b"$FL2@(#)": ".sav", b"$FL3@(#)": ".zsav", b"<stata_dta>": ".dta", b"HEADER RECORD*******L": ".xpt",
    b"\0" * 12 + b"\xc2\xea\x81\x60": ".sas7bdat",
}  # fmt: skip
_DOCUMENTS = {
    b"%pdf-": "a PDF", b"{\\rtf": "a document of RTF", b"<!doctype html": "a page of HTML",
    b"<html": "a page of HTML", b"<?xml": "XML",
}  # fmt: skip
_SHEETS = {"[Content_Types].xml": ".xlsx", "mimetype": ".ods"}  # members of archives that are workbooks
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # how texts of two bytes a letter begin
_DAMAGED = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError)


def kind_of_bytes(path: Path) -> str:
    """Return the ending that a file should have by what it begins with, "" where that is no known kind; .csv of text.
    DataError where it is a database of DuckDB's, which is asked, or a document.
    """
    with path.open("rb") as file:
        start = file.read(4096)
    if start[8:12] == b"DUCK":
        raise DataError(f"data={path.name}: is a database of DuckDB's; register it as duckdb:FILE, with --table NAME")
    if kind := next((kind for mark, kind in _KINDS.items() if start.startswith(mark)), ""):
        return kind
    if start.startswith(b"PK"):
        with suppress(*_DAMAGED), zipfile.ZipFile(path) as archive:
            names = {*archive.namelist()}
            return next((kind for member, kind in _SHEETS.items() if member in names), ".zip")
    head = start.removeprefix(b"\xef\xbb\xbf").lstrip()[:20].lower()
    if document := next((name for mark, name in _DOCUMENTS.items() if head.startswith(mark)), ""):
        raise DataError(f"data={path.name}: is {document} and no table; save the table in it as .csv or .xlsx")
    zeros = sorted(half.count(0) / max(1, len(half)) for half in (start[::2], start[1::2]))
    is_wide = start.startswith(_WIDE) or (zeros[0] < 0.01 and zeros[1] > 0.5)
    return ".csv" if start and (b"\0" not in start or is_wide or _packing_of(start)) else ""


def packing_of(path: Path) -> str:
    """Return by which of PACKED a file of text is packed, "" where by none."""
    with path.open("rb") as file:
        return _packing_of(file.read(16))


def _packing_of(start: bytes) -> str:
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), "")


def open_bytes(path: Path) -> Any:
    """Open a file of text for reading, from its beginning. DataError where it is an archive of several, or unpacks to
    more than MOST_UNPACKED.
    """
    if not (packing := packing_of(path)):
        return pa.OSFile(str(path))
    source = _open_member(path) if packing == "zip" else pa.input_stream(str(path), compression=packing)
    return io.BufferedReader(_Unpacked(path, source), 1 << 20)


def _open_member(path: Path) -> Any:
    """Open the one file of rows in an archive."""
    try:
        archive = zipfile.ZipFile(path)
        listed = [member for member in archive.infolist() if not member.is_dir()]
        files = [each for each in listed if not any(part[:1] in "._" for part in each.filename.split("/"))]
        if len(files) != 1:
            raise DataError(f"data={path.name}: is an archive of {len(files)} files; unpack it, and name one")
        (member,) = files
        kinds = RECORDS if path.name.lower().removesuffix(".zip").endswith(RECORDS) else TEXT
        if not member.filename.lower().endswith(kinds):
            raise DataError(f"data={path.name}: holds no text of this kind; unpack it, and name the file within")
        return archive.open(member)
    except _DAMAGED as error:
        raise _refuse(path, error) from None


def _refuse(path: Path, error: Exception) -> DataError:
    if isinstance(error, RuntimeError | NotImplementedError):
        return DataError(f"data={path.name}: has a password, or is packed in a rare way; unpack it, and name the file")
    return DataError(f"data={path.name}: is damaged, or was cut; pack it anew, or name the unpacked file")


class _Unpacked(io.RawIOBase):
    """What is packed in a file, at most MOST_UNPACKED bytes of it."""

    def __init__(self, path: Path, source: Any) -> None:
        self._path, self._source, self._size = path, source, 0

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, and count. DataError where what is packed cannot be read, or is too much."""
        room = memoryview(buffer).cast("B")
        try:
            part = self._source.read(len(room))
        except _DAMAGED as error:
            raise _refuse(self._path, error) from None
        self._size += len(part)
        if self._size > MOST_UNPACKED:
            raise DataError(f"data={self._path.name}: unpacks to more than {MOST_UNPACKED} bytes")
        room[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Close the file."""
        self._source.close()
        super().close()

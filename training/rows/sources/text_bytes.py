"""The bytes of a file of text, unpacked as they are read: by what the file begins with, whatever its name ends with."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa

from accountant.errors import DataError

TEXT = (".csv", ".tsv", ".txt", ".data")  # read alike: what parts the columns is declared
RECORDS = (".jsonl", ".ndjson", ".json")
PACKED = {".gz": "gzip", ".zst": "zstd", ".zip": "zip"}
MOST_UNPACKED = 1 << 36  # bytes
_MARKS = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip"}
_NO_TEXT = {
    b"PAR1\x15": "Parquet; call it .parquet", b"ARROW1\0": "Arrow; call it .arrow",
    b"\xd0\xcf\x11\xe0": "a workbook; call it .xls",
    b"SQLite format 3\0": "a SQLite file; name it as sqlite:///FILE, with --table NAME",
}  # fmt: skip
_DAMAGED = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError)


def packing_of(path: Path) -> str:
    """Return by which of PACKED a file of text is packed, "" where by none. DataError where it is another kind."""
    with path.open("rb") as file:
        start = file.read(16)
    if kind := next((kind for mark, kind in _NO_TEXT.items() if start.startswith(mark)), None):
        raise DataError(f"data={path.name}: is no text but {kind}")
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), "")


def open_bytes(path: Path) -> Any:
    """Open a file of text for reading, from its beginning. DataError where it is another kind of file, an archive of
    several, or unpacks to more than MOST_UNPACKED.
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
        if {member.filename for member in listed} & {"[Content_Types].xml", "mimetype"}:
            raise DataError(f"data={path.name}: is no text but a workbook; call it .xlsx, or .ods")
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

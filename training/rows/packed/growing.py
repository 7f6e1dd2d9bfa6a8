"""Packed columns on their way to disk: written batch by batch, so that memory does not grow with the rows.

They are written, and not mapped, so that a full disk is an error here and no signal later.
"""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from accountant.system.numpy_files import map_array
from dpserve_verify.errors import LedgerUnavailable
from dpserve_verify.system.files import PRIVATE

CHUNK = 1 << 22  # values that are in memory at one time, where rows are chosen


class Growing:
    """A .npy file of (columns, rows), or of (rows,) where `columns` is None, with room for `most` rows: of the disk it
    takes what is written to. LedgerUnavailable where that is full.
    """

    def __init__(self, path: Path, kind: type[np.generic], columns: int | None, most: int) -> None:
        self.path, self._kind, self._columns, self._most = path, np.dtype(kind), columns, most
        self._file = path.open("x+b", buffering=0)
        self._fd = self._file.fileno()
        os.fchmod(self._fd, PRIVATE)
        self._start = self._put(0, self._header(most))

    def write(self, column: int, start: int, values: NDArray[Any]) -> None:
        """Write rows `start` .. of a column, or of the only one."""
        self._put(self._at(self._most, column, start), np.ascontiguousarray(values, self._kind).data.cast("B"))

    def done(self, rows: int) -> NDArray[Any]:
        """Cut the file to the first so many rows, as `numpy.save` would have written them, and map it to be read."""
        if rows < self._most:
            self._close_up(rows)
        self.close()
        shape = (rows,) if self._columns is None else (self._columns, rows)
        if 0 in shape:
            return np.empty(shape, self._kind)
        return map_array(self.path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _close_up(self, rows: int) -> None:
        """Move columns down to where they begin when there are fewer rows: never over what has yet to be read."""
        step = CHUNK * self._kind.itemsize
        header = self._header(rows)
        before, self._start = self._start, len(header)
        for column in range(self._columns or 1):
            source = before + column * self._most * self._kind.itemsize
            target, size = self._at(rows, column, 0), rows * self._kind.itemsize
            for at in range(0, size, step):
                self._put(target + at, os.pread(self._fd, min(step, size - at), source + at))
        self._put(0, header)
        os.ftruncate(self._fd, self._at(rows, self._columns or 1, 0))

    def _at(self, most: int, column: int, row: int) -> int:
        return self._start + (column * most + row) * self._kind.itemsize

    def _header(self, rows: int) -> bytes:
        text = io.BytesIO()
        shape = (rows,) if self._columns is None else (self._columns, rows)
        header = {"descr": npy.dtype_to_descr(self._kind), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(text, header)
        return text.getvalue()

    def _put(self, at: int, values: bytes | memoryview) -> int:
        rest = memoryview(values)
        try:
            while rest:
                done = os.pwrite(self._fd, rest, at)
                rest, at = rest[done:], at + done
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise LedgerUnavailable(
                f"disk: no room for the packed rows where the home's datasets lie ({error.strerror}); one byte a row "
                "and feature is needed, two more for a number with a range, and once more as much where a part is kept "
                "aside or a .csv is read. Nothing was registered"
            ) from None
        return len(values)


def write_chosen(source: NDArray[Any], own: NDArray[np.bool_], count: int, path: Path) -> NDArray[Any]:
    """Return the `count` rows that are `own` of a mapped array, in a file of their own."""
    columns = None if source.ndim == 1 else len(source)
    file = Growing(path, source.dtype.type, columns, count)
    for column in range(columns or 1):
        values, end = (source if columns is None else source[column]), 0
        for start in range(0, len(own), CHUNK):
            chunk = values[start : start + CHUNK][own[start : start + CHUNK]]
            file.write(column, end, chunk)
            end += len(chunk)
    return file.done(count)

"""Large arrays that are needed for a while: in a file without a name, which is gone with the process however it ends.
The system writes to it what memory is needed for, and takes it back when nobody looks.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.errors import JobFailed

IN_MEMORY = 1 << 24  # bytes: smaller arrays are held; a learner may ask for a dozen of a partition


def scratch_array(shape: tuple[int, int], kind: type[np.unsignedinteger[Any]], folder: Path | None) -> NDArray[Any]:
    """Return an array to be written to. It is in memory where it is small or there is no `folder`, else in a file
    there. JobFailed where the disk has no room: room is set aside at once.
    """
    size = shape[0] * shape[1] * np.dtype(kind).itemsize
    if folder is None or size < IN_MEMORY:
        return np.empty(shape, kind)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, kind, "r+", shape=shape)
    except OSError as error:
        raise JobFailed(f"rows: no room in the home for what is made of them ({error.strerror})") from None


def let_go(array: NDArray[Any]) -> None:
    """Drop the cached pages of an array that is mapped to a file; nothing happens to others. Whoever reads it again
    reads the file.
    """
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap) and getattr(array, "mode", "c") != "c":
        mapped.madvise(mmap.MADV_DONTNEED)

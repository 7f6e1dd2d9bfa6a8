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


def scratch(shape: tuple[int, int], kind: type[np.unsignedinteger[Any]], folder: Path | None) -> NDArray[Any]:
    """An array to be written to: in memory where it is small or there is no `folder`, else in a file there, for which
    room is set aside at once: a full disk is told here, and not by a signal on the first write. JobFailed then.
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
    """Memory that holds pages of a file is given back, where the array is such a file's: who looks at it again reads
    them again. Where it is none, nothing happens.
    """
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap) and getattr(array, "mode", "c") != "c":
        mapped.madvise(mmap.MADV_DONTNEED)

"""What a commitment to packed rows is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

CHUNK = 1 << 20  # small enough for a processor to keep it between reading and hashing
Read = Callable[[str], Iterable[bytes]]  # the bytes of one of a folder's files


def content_of(folder: Path, files: Iterable[str], read: Read | None = None) -> Iterator[bytes]:
    """Return what a commitment is over: the names and bytes of these files, which `read` gives where there is one."""
    for name in files:
        yield name.encode()
        if read is not None:
            yield from read(name)
            continue
        with (folder / name).open("rb") as file:
            yield from iter(lambda file=file: file.read(CHUNK), b"")  # type: ignore[misc]

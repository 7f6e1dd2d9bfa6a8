"""What a commitment to packed rows is over, and the commitments themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from accountant.home import Home
from training.rows.packed.names import is_cells

CHUNK = 1 << 20  # small enough for a processor to keep it between reading and hashing
Read = Callable[[str], Iterable[bytes]]  # the bytes of one of a folder's files


def content_of(folder: Path, files: Iterable[str], read: Read | None = None) -> Iterator[bytes]:
    """What a commitment is over: the names and bytes of these files, which `read` gives where there is one."""
    for name in files:
        yield name.encode()
        if read is not None:
            yield from read(name)
            continue
        with (folder / name).open("rb") as file:
            yield from iter(lambda file=file: file.read(CHUNK), b"")  # type: ignore[misc]


def commitments(home: Home, folder: Path, files: Iterable[str]) -> tuple[str, str]:
    """Over all these files, and over those without fine cells: what both begin with is read and hashed once."""
    macs = [home.keys.mac()]
    for name in files:
        if is_cells(name) and len(macs) == 1:
            macs.append(macs[0].copy())
        for chunk in content_of(folder, [name]):
            for mac in macs[:1] if is_cells(name) else macs:
                mac.update(chunk)
    return macs[0].hexdigest(), macs[-1].hexdigest()

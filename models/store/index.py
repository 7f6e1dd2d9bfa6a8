"""What lies in a store, told cheaply and often: a thousand names cost a thousand looks at a folder's times, not a
reading of each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from accountant.errors import UnknownName
from dpserve_verify.errors import DpserveError, ModelInvalid
from models.store.bundle import CHAMPION, NAME, ModelStore

Stamp = tuple[int, int, int, int]
ABSENT: Stamp = (0, 0, 0, 0)
SETTLED = 2_000_000_000  # nanoseconds: a folder that changed since may change again within one tick of its clock


@dataclass(frozen=True)
class Shelf:
    """One model's folder. `versions` ascend; `champion`: the version that the name alone means, None while none was
    promoted, or why that cannot be told; `retired`: versions that are kept and not served. `settled`: its stamp tells
    every later change."""

    versions: tuple[int, ...]
    champion: int | ModelInvalid | None
    retired: frozenset[int]
    stamp: tuple[Stamp, Stamp]
    settled: bool


def look(store: ModelStore, known: Mapping[str, Shelf]) -> dict[str, Shelf]:
    """Return every name that has a version, sorted; of those in `known` only what changed is read again."""
    shelves = {}
    for name in store.candidates():
        shelf = _shelf(store, name, known.get(name))
        if shelf is not None:
            shelves[name] = shelf
    return shelves


def look_at(store: ModelStore, name: str, known: Shelf | None) -> Shelf | None:
    """Return the same of one name, which may be anything that was asked for."""
    return _shelf(store, name, known) if NAME.fullmatch(name) else None


def _shelf(store: ModelStore, name: str, known: Shelf | None) -> Shelf | None:
    folder, now = f"{store.root}/{name}", time.time_ns()
    stamp = (stamp_of(folder), stamp_of(f"{folder}/{CHAMPION}"))
    if known is not None and known.settled and known.stamp == stamp:
        return known
    try:
        versions = tuple(store.versions(name))
        retired = frozenset(store.retired(name))
    except UnknownName:  # none, or gone since
        return None
    champion: int | ModelInvalid | None
    try:
        champion = store.champion(name)
    except (DpserveError, OSError) as error:
        champion = error if isinstance(error, ModelInvalid) else ModelInvalid(f"champion: {error}")
    newest = max(stamp[0][2:] + stamp[1][2:])
    return Shelf(versions, champion, retired, stamp, now - newest > SETTLED)


def stamp_of(path: str) -> Stamp:
    """Return a stamp that changes when the file or folder does: the time of change cannot be set back. The path is a
    text, because joining paths costs more than the look."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return ABSENT
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

"""What lies in a store, told cheaply and often: where nothing changes a look asks for the times of some hundred
folders, however many there are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from accountant.errors import UnknownName
from dpserve_verify.errors import DpserveError, ModelInvalid
from models.store.bundle import CHAMPION, NAME, ModelStore

Stamp = tuple[int, int, int, int]
ABSENT: Stamp = (0, 0, 0, 0)
AT_A_LOOK = 200  # names that are looked at, in turn, where the store's stamp tells no change
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


@dataclass(frozen=True)
class Seen:
    """What a look at a store saw: its `shelves`, sorted by name. `stamp`: the store's own, which each change by
    `ModelStore` renews; `settled`: it tells every later one; `turn`: where the next look goes on.
    """

    shelves: Mapping[str, Shelf]
    stamp: Stamp
    settled: bool
    turn: int = 0


NOTHING = Seen({}, ABSENT, False)


def look(store: ModelStore, seen: Seen = NOTHING) -> Seen:
    """Look at every name, where the store's stamp tells a change; else, for what other hands change, at AT_A_LOOK
    names in turn. Of what was `seen` before, only what changed is read again.
    """
    now, stamp = time.time_ns(), stamp_of(str(store.root))
    if not seen.settled or stamp != seen.stamp:
        names = store.candidates()
        shelves = {name: shelf for name in names if (shelf := _shelf(store, name, seen.shelves.get(name))) is not None}
        same = shelves.keys() == seen.shelves.keys() and all(seen.shelves[name] is shelves[name] for name in shelves)
        return Seen(seen.shelves if same else shelves, stamp, now - max(stamp[2:]) > SETTLED, seen.turn)
    names = list(islice(seen.shelves, seen.turn, seen.turn + AT_A_LOOK))
    found = {name: _shelf(store, name, seen.shelves[name]) for name in names}
    turn = seen.turn + AT_A_LOOK if len(names) == AT_A_LOOK else 0
    if all(seen.shelves[name] is shelf for name, shelf in found.items()):
        return replace(seen, turn=turn)
    shelves = {name: shelf for name, shelf in {**seen.shelves, **found}.items() if shelf is not None}
    return replace(seen, shelves=shelves, turn=turn)


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

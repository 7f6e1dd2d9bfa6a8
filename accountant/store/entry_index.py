"""Of which kind and job each entry is: two columns of numbers beside the store, which grow with the ledger. Read once
and kept for as long as the process lives, 9 bytes an entry; nothing is decided by them but what is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from accountant.store.store import Store, body_at, size
from accountant.store.tables import entry_table
from dpserve_verify.entries.kinds import FORMS
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats.canonical_bytes import Key

_CODES = {kind: code for code, kind in enumerate(FORMS)}
_TYPE, _RESERVATION = Key("type"), Key("reservation")
_CERTIFICATES = {kind: Key(form.certificate()) for kind, form in FORMS.items() if form.certificate()}


@dataclass(frozen=True, eq=False)
class EntryIndex:
    """By an entry's number: the place of its kind in `FORMS` (beyond its end: a kind that is not known), and the job
    that it is about, -1 where there is none. `last`: the newest entry's bytes.
    """

    kinds: NDArray[np.uint8]
    jobs: NDArray[np.int64]
    last: bytes = b""

    def of_kind(self, kind: str) -> NDArray[np.bool_]:
        """Return a mask of the entries of this kind, one of `FORMS`; shape (entries,)."""
        found: NDArray[np.bool_] = self.kinds == _CODES[kind]
        return found

    def of_jobs(self, jobs: list[int]) -> NDArray[np.bool_]:
        """Return a mask of the entries about one of these jobs; shape (entries,)."""
        return np.isin(self.jobs, np.array(jobs, np.int64))


_EMPTY = EntryIndex(np.zeros(0, np.uint8), np.zeros(0, np.int64))
_KEPT: WeakKeyDictionary[Store, EntryIndex] = WeakKeyDictionary()
_LOCK = Lock()


def is_indexed(database: Store) -> bool:
    """Return whether somebody has read the index before, so that no more than what came since is read."""
    return database in _KEPT


def entry_index(database: Store, connection: Connection) -> EntryIndex:
    """Return the index of every entry that `connection` sees, which may be of one moment that is past."""
    count = size(connection)
    with _LOCK:
        index = _KEPT.get(database, _EMPTY)
        indexed = len(index.kinds)
        if indexed > count:  # another thread has seen more
            return EntryIndex(index.kinds[:count], index.jobs[:count])
        if indexed and body_at(connection, indexed - 1) != index.last:  # another ledger was put in this one's place
            index, indexed = _EMPTY, 0
        if indexed < count:
            index = _extend(connection, index, count)
            _KEPT[database] = index
        return index


def _extend(connection: Connection, index: EntryIndex, count: int) -> EntryIndex:
    indexed, body = len(index.kinds), index.last
    kinds: list[int] = []
    jobs: list[int] = []
    for number, body in enumerate(_bodies(connection, indexed, count), indexed):
        kind = _TYPE.last_text(body) or ""
        job = number if kind == "reserved" else _RESERVATION.first_integer(body)
        if job is None and kind in _CERTIFICATES:
            entry = _CERTIFICATES[kind].first_integer(body)
            if entry is not None:
                job = int(index.jobs[entry]) if entry < indexed else jobs[entry - indexed]
        kinds.append(_CODES.get(kind, len(FORMS)))
        jobs.append(-1 if job is None else job)
    if indexed + len(kinds) != count:
        raise LedgerInvalid(f"ledger: not every entry below {count} is there")
    return EntryIndex(
        np.concatenate([index.kinds, np.array(kinds, np.uint8)]),
        np.concatenate([index.jobs, np.array(jobs, np.int64)]),
        body,
    )


def _bodies(connection: Connection, seen: int, count: int) -> Iterator[bytes]:
    """Yield the bodies of entries from `seen` on, below `count`: more may have come since they were counted."""
    seq = entry_table.c.seq
    query = select(entry_table.c.body).where(seq >= seen, seq < count).order_by(seq)
    result = connection.execute(query, execution_options={"yield_per": 1000})
    for bodies in result.scalars().partitions():
        yield from map(bytes, bodies)

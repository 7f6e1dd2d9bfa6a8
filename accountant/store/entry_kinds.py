"""What every entry is of (its kind, its job), read once and kept for as long as the process lives: two columns of
numbers beside the store, which grow with the ledger. 9 bytes an entry; nothing is decided by them but what is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from accountant.errors import LedgerInvalid
from accountant.store.store import Store, body_at, size
from accountant.store.tables import entry_table

KINDS = (
    "genesis", "dataset-registered", "dataset-joined", "budget-changed", "quota-set",
    "reserved", "started", "committed", "burned", "released", "issued", "derived", "revoked",
    "model-promoted", "model-retired", "model-restored",
    "token-created", "token-revoked", "key-added", "key-retired", "key-compromised",
)  # fmt: skip
# Keys stand in alphabetical order and quotes inside texts are escaped, so these are found only as an entry's own keys.
_KIND, _JOB, _CERTIFICATE = b'"type":"', b'"reservation":', b'"issued":'
_CODES = {kind.encode(): code for code, kind in enumerate(KINDS)}
_RESERVED = KINDS.index("reserved")
_OF_CERTIFICATE = {KINDS.index(kind) for kind in ("revoked", "model-promoted", "model-retired", "model-restored")}


@dataclass(frozen=True, eq=False)
class EntryIndex:
    """By an entry's number: the place of its kind in KINDS (beyond its end: a kind that is not known), and the job that
    it is about, -1 where there is none. `last`: the newest entry's bytes.
    """

    kinds: NDArray[np.uint8]
    jobs: NDArray[np.int64]
    last: bytes = b""

    def of_kind(self, kind: str) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.kinds == KINDS.index(kind)
        return found

    def of_jobs(self, jobs: list[int]) -> NDArray[np.bool_]:
        return np.isin(self.jobs, np.array(jobs, np.int64))


_EMPTY = EntryIndex(np.zeros(0, np.uint8), np.zeros(0, np.int64))
_KEPT: WeakKeyDictionary[Store, EntryIndex] = WeakKeyDictionary()
_LOCK = Lock()


def entry_index(database: Store, connection: Connection) -> EntryIndex:
    """The index of every entry that `connection` sees, which may be of one moment that is past."""
    count = size(connection)
    with _LOCK:
        known = _KEPT.get(database, _EMPTY)
        seen = len(known.kinds)
        if seen > count:  # another thread has seen more
            return EntryIndex(known.kinds[:count], known.jobs[:count])
        if seen and body_at(connection, seen - 1) != known.last:  # another ledger was put in this one's place
            known, seen = _EMPTY, 0
        if seen < count:
            known = _grown(connection, known, count)
            _KEPT[database] = known
        return known


def _grown(connection: Connection, known: EntryIndex, count: int) -> EntryIndex:
    kinds: list[int] = []
    jobs: list[int] = []
    body = known.last
    for body in _bodies(connection, len(known.kinds)):
        kinds.append(_CODES.get(body.rpartition(_KIND)[2].partition(b'"')[0], len(KINDS)))
        number = body.partition(_JOB)[2]
        jobs.append(int(number.partition(b",")[0]) if number else -1)  # another key follows: "statement" or "time"
        if kinds[-1] == _RESERVED:
            jobs[-1] = len(known.jobs) + len(jobs) - 1
        elif kinds[-1] in _OF_CERTIFICATE:
            jobs[-1] = _job_at(int(body.partition(_CERTIFICATE)[2].partition(b",")[0]), known, jobs)
    if len(known.kinds) + len(kinds) != count:
        raise LedgerInvalid(f"ledger: not every entry below {count} is there")
    return EntryIndex(
        np.concatenate([known.kinds, np.array(kinds, np.uint8)]),
        np.concatenate([known.jobs, np.array(jobs, np.int64)]),
        body,
    )


def _job_at(entry: int, known: EntryIndex, jobs: list[int]) -> int:
    seen = len(known.jobs)
    return int(known.jobs[entry]) if entry < seen else jobs[entry - seen]


def _bodies(connection: Connection, seen: int) -> Iterator[bytes]:
    query = select(entry_table.c.body).where(entry_table.c.seq >= seen).order_by(entry_table.c.seq)
    result = connection.execute(query, execution_options={"yield_per": 1000})
    for bodies in result.scalars().partitions():
        yield from map(bytes, bodies)

"""Figures of the ledger for those who watch over it: jobs by dataset, learner and state; how long the queue is.

Read from the index, again and again: jobs that came to their end are read once.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, and_, func, select

from accountant.ledger.families.records import ISSUED, PUBLIC_STATES, State
from accountant.store.store import Store, body_at, stream
from accountant.store.tables import entry_table, job_table
from dpserve_verify.log.entry import read_entry

AT_ONCE = 500
Tally = Counter[tuple[str, str, str]]


@dataclass
class JobFigures:
    """Counts that grow with the ledger. Kept by a process; each look reads what is new and what had not ended."""

    _passed: Tally = field(default_factory=Counter)
    _open: dict[int, tuple[str, str]] = field(default_factory=dict)  # job -> (dataset, learner)
    _last: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def passed(self, database: Store) -> Tally:
        """Count, by (dataset, learner, state), the jobs that ever reached it. Monotone, as a counter must be."""
        with self._lock, database.reading() as connection:
            self._take(connection)
            figures = self._passed.copy()
            for seq, state in _states(connection, tuple(self._open)):
                figures.update((*self._open[seq], passed) for passed in PUBLIC_STATES[state].passed)
            return figures

    def _take(self, connection: Connection) -> None:
        """Read every new job, and count for good those that have ended."""
        job, entry = job_table.c, entry_table.c
        query = select(job.seq, job.dataset, entry.body).join(entry_table, entry.seq == job.seq)
        for seq, dataset, body in stream(connection, query.where(job.seq > self._last).order_by(job.seq)):
            self._open[seq], self._last = (dataset, str(json.loads(bytes(body))["learner"])), seq
        for seq, state in list(_states(connection, tuple(self._open))):
            if not PUBLIC_STATES[state].open:
                job_key = self._open.pop(seq)
                self._passed.update((*job_key, passed) for passed in PUBLIC_STATES[state].passed)


def _states(connection: Connection, jobs: Sequence[int]) -> Iterator[tuple[int, str]]:
    job = job_table.c
    for start in range(0, len(jobs), AT_ONCE):
        query = select(job.seq, job.state, job.issued).where(job.seq.in_(jobs[start : start + AT_ONCE]))
        for seq, state, issued in connection.execute(query):
            yield seq, state if issued is None else ISSUED


@dataclass(frozen=True)
class Queue:
    """Reservations that no process holds, and the seconds that the oldest has waited; jobs that run. `left`: how many
    of the former a worker left for another, by why: one of WAITING.
    """

    length: int
    oldest_seconds: float
    running: int
    left: Mapping[str, int]


def queue(database: Store, now: datetime) -> Queue:
    """Return the queue as it stands at `now`, a time with its zone."""
    job = job_table.c
    waiting = and_(job.state == State.RESERVED, job.queued == 1)
    counted = select(func.count(), func.min(job.seq)).where(waiting)
    with database.reading() as connection:
        length, oldest = connection.execute(counted).one()
        running = connection.execute(select(func.count()).where(job.state == State.STARTED)).scalar_one()
        by_reason = select(job.waiting, func.count()).where(waiting, job.waiting.is_not(None)).group_by(job.waiting)
        left_by_reason: dict[str, int] = {str(why): count for why, count in connection.execute(by_reason)}
        if oldest is None:
            return Queue(0, 0.0, running, left_by_reason)
        since = datetime.fromisoformat(read_entry(oldest, body_at(connection, oldest)).value["time"])
    return Queue(length, max(0.0, (now - since).total_seconds()), running, left_by_reason)

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
from accountant.store.store import Store, body_at
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
            figures, ended = self._passed.copy(), []
            for seq, state in _states(connection, tuple(self._open)):
                reached = Counter((*self._open[seq], passed) for passed in PUBLIC_STATES[state].passed)
                figures.update(reached)
                if not PUBLIC_STATES[state].open:  # for good
                    self._passed.update(reached)
                    ended.append(seq)
            for seq in ended:
                del self._open[seq]
            return figures

    def _take(self, connection: Connection) -> None:
        """Read every new job, AT_ONCE in a statement: the first look alone has more than a few."""
        job, entry = job_table.c, entry_table.c
        query = select(job.seq, job.dataset, entry.body).join(entry_table, entry.seq == job.seq).order_by(job.seq)
        is_more = True
        while is_more:
            rows = connection.execute(query.where(job.seq > self._last).limit(AT_ONCE)).all()
            for seq, dataset, body in rows:
                self._open[seq], self._last = (dataset, str(json.loads(bytes(body))["learner"])), seq
            is_more = len(rows) == AT_ONCE


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
    counted = select(job.state, job.waiting, func.count(), func.min(job.seq))
    counted = counted.where(waiting | (job.state == State.STARTED)).group_by(job.state, job.waiting)
    with database.reading() as connection:
        rows = connection.execute(counted).all()
        running = sum(count for state, _, count, _ in rows if state == State.STARTED)
        queued = [(why, count, first) for state, why, count, first in rows if state == State.RESERVED]
        length, oldest = sum(count for _, count, _ in queued), min((first for _, _, first in queued), default=None)
        left_by_reason = {str(why): count for why, count, _ in queued if why is not None}
        if oldest is None:
            return Queue(0, 0.0, running, left_by_reason)
        since = datetime.fromisoformat(read_entry(oldest, body_at(connection, oldest)).value["time"])
    return Queue(length, max(0.0, (now - since).total_seconds()), running, left_by_reason)

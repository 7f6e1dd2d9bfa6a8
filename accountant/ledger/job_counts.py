"""Figures of the ledger for those who watch over it: jobs by dataset, learner and state; how long the queue is.

Read from the index, again and again: jobs that came to their end are read once.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, select

from accountant.ledger.families.records import ISSUED, PUBLIC_STATES, State
from accountant.store.queries import Queries
from accountant.store.store import Store, batched
from accountant.store.tables import entry_table, job_table

AT_ONCE = 500
_JOB, _WAITS = job_table.c, (job_table.c.state == State.RESERVED) & (job_table.c.queued == 1)
_NEW = (
    select(_JOB.seq, _JOB.state, _JOB.issued, _JOB.dataset, entry_table.c.body)
    .join(entry_table, entry_table.c.seq == _JOB.seq)
    .where(_JOB.seq > bindparam("last"))
    .order_by(_JOB.seq)
    .limit(AT_ONCE)
)
_STATES = select(_JOB.seq, _JOB.state, _JOB.issued).where(_JOB.seq.in_(bindparam("seqs", expanding=True)))
_COUNTED = (
    select(_JOB.state, _JOB.waiting, func.count())
    .where(_WAITS | (_JOB.state == State.STARTED))
    .group_by(_JOB.state, _JOB.waiting)
)
_OLDEST = select(entry_table.c.body).where(
    entry_table.c.seq == select(func.min(_JOB.seq)).where(_WAITS).scalar_subquery()
)
QUEUE: Queries = ((_COUNTED, {}), (_OLDEST, {}))  # what `queue` asks
Tally = Counter[tuple[str, str, str]]


@dataclass
class JobFigures:
    """Counts that grow with the ledger. Kept by a process; each look reads what is new and what had not ended."""

    _passed: Tally = field(default_factory=Counter)
    _open: dict[int, tuple[str, str]] = field(default_factory=dict)  # job -> (dataset, learner)
    _last: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def questions(self) -> Queries:
        """List what `passed` will ask."""
        return [(_NEW, {"last": self._last}), *((_STATES, {"seqs": part}) for part in batched([*self._open], AT_ONCE))]

    def passed(self, database: Store) -> Tally:
        """Count, by (dataset, learner, state), the jobs that ever reached it. Monotone, as a counter must be."""
        with self._lock, database.reading() as connection:
            parts = batched([*self._open], AT_ONCE)
            before = [row for part in parts for row in connection.execute(_STATES, {"seqs": part})]
            new, figures, ended = [*self._take(connection)], self._passed.copy(), []
            for seq, state, issued in (*before, *new):
                known = PUBLIC_STATES[state if issued is None else ISSUED]
                reached = Counter((*self._open[seq], passed) for passed in known.passed)
                figures.update(reached)
                if not known.open:  # for good
                    self._passed.update(reached)
                    ended.append(seq)
            for seq in ended:
                del self._open[seq]
            return figures

    def _take(self, connection: Connection) -> Iterator[tuple[int, str, int | None]]:
        """Yield every new job and its state, AT_ONCE in a statement: the first look alone has more than a few."""
        is_more = True
        while is_more:
            rows = connection.execute(_NEW, {"last": self._last}).all()
            for seq, state, issued, dataset, body in rows:
                self._open[seq], self._last = (dataset, str(json.loads(bytes(body))["learner"])), seq
                yield seq, state, issued
            is_more = len(rows) == AT_ONCE


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
    with database.reading(QUEUE) as connection:
        rows, oldest = connection.execute(_COUNTED).all(), connection.execute(_OLDEST).scalar()
    running = sum(count for state, _, count in rows if state == State.STARTED)
    queued = {why: count for state, why, count in rows if state == State.RESERVED}
    left_by_reason = {str(why): count for why, count in queued.items() if why is not None}
    if oldest is None:
        return Queue(0, 0.0, running, left_by_reason)
    since = datetime.fromisoformat(json.loads(bytes(oldest))["time"])
    return Queue(sum(queued.values()), max(0.0, (now - since).total_seconds()), running, left_by_reason)

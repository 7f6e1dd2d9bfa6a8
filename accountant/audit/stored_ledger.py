"""What the database derived from the entries, compared with what an audit of them finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from accountant.audit.index_check import compare_index
from accountant.audit.lost import find_lost
from accountant.store.store import stream
from accountant.store.tables import node_table
from dpserve_verify.audit.replay import Replay
from dpserve_verify.audit.tree_of_entries import Findings

BATCH = 1000  # rows


class StoredLedger:
    """Its `node` rows, level by level, each read once in the order in which a tree completes them, and its index; and
    `lost`, what the entries know of and the home has no files of.
    """

    def __init__(self, connection: Connection, home: Path) -> None:
        self._connection, self._home, self.lost = connection, home, tuple[str, ...]()
        self._waiting: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self._levels: dict[int, Iterator[Any]] = {}
        self._broken: tuple[int, int, int] | None = None

    def expect(self, completed: list[tuple[int, int, bytes]]) -> None:
        """Compare these subtrees, which the tree completes next, with the rows, a thousand at a time."""
        for level, index, digest in completed:
            waiting = self._waiting[level]
            waiting.append((index, digest))
            if len(waiting) == BATCH:
                self._compare(level, waiting)

    def check_end(self, findings: Findings) -> None:
        """Report the first row that is not the rebuilt tree's; what follows from it is not reported again."""
        for level, waiting in self._waiting.items():
            self._compare(level, waiting)
        if self._broken is not None:
            entry, level, index = self._broken
            wrong = "its bytes are not those that the tree was built from" if level == 0 else "it completes another"
            findings.add(entry, f"entry {entry}: {wrong} (node {level}, {index})")
            return
        higher = select(node_table.c.level).where(node_table.c.level.not_in(self._levels)).limit(1)
        extra_levels = [level for level, rows in self._levels.items() if next(rows, None) is not None]
        extra_levels += self._connection.execute(higher).scalars().all()
        if extra_levels:
            findings.add(None, f"node: rows at level {extra_levels[0]} that no entry gives")

    def compare_index(self, replay: Replay) -> Iterable[str]:
        """Find where the derived index is not what the entries give."""
        self.lost = find_lost(self._home, replay)
        return compare_index(self._connection, replay)

    def _compare(self, level: int, expected: list[tuple[int, bytes]]) -> None:
        if level not in self._levels:
            query = select(node_table.c.idx, node_table.c.hash).where(node_table.c.level == level)
            self._levels[level] = stream(self._connection, query.order_by(node_table.c.idx))
        rows = [(index, bytes(digest)) for index, digest in islice(self._levels[level], len(expected))]
        if rows != expected:
            index = next(ours[0] for ours, row in zip_longest(expected, rows) if ours != row)
            broken = ((index + 1) << level) - 1, level, index
            self._broken = broken if self._broken is None else min(broken, self._broken)
        expected.clear()

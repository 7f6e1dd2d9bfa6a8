"""The tree once more, from raw leaves and by other code than `accountant.merkle`, held against all who vouch for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from accountant.canonical import encode_base64
from accountant.store import stream
from accountant.tables import node_table

MOST_PROBLEMS = 100


@dataclass(frozen=True)
class Report:
    """`root`: of the tree of all entries, as a checkpoint spells it. `first`: the first wrong entry, where one is."""

    entries: int
    root: str
    problems: tuple[str, ...]
    first: int | None = None

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {"entries": self.entries, "root": self.root, "ok": self.ok, "problems": list(self.problems)}


@dataclass(frozen=True, order=True)
class Head:
    """A tree that somebody vouches for: its size, its root, and who says so.

    `rank`: how far it is from the hands of who may have written the ledger anew. 0: in it, 1: beside it, 2: elsewhere.
    """

    size: int
    rank: int
    root: bytes
    what: str


@dataclass
class Findings:
    """Problems with the entry each is about (None: none of them), at most MOST_PROBLEMS."""

    found: list[tuple[int | None, str]] = field(default_factory=list)

    def add(self, entry: int | None, problem: str) -> None:
        if len(self.found) < MOST_PROBLEMS:
            self.found.append((entry, problem))

    def report(self, tree: Tree) -> Report:
        """The first wrong entry comes first; what is about no entry comes last."""
        ordered = sorted(self.found, key=lambda each: (each[0] is None, each[0] or 0))
        first = ordered[0][0] if ordered else None
        return Report(tree.size, encode_base64(tree.root()), tuple(problem for _, problem in ordered), first)


class Tree:
    """RFC 6962 by its definition: the complete subtrees from the left, largest first. Memory O(log n)."""

    def __init__(self) -> None:
        self.size = 0
        self._complete: list[tuple[int, bytes]] = []

    def append(self, body: bytes) -> list[tuple[int, int, bytes]]:
        """The subtrees (level, index, hash) that this leaf completes."""
        level, index, digest = 0, self.size, hashlib.sha256(b"\x00" + body).digest()
        completed = [(level, index, digest)]
        while self._complete and self._complete[-1][0] == level:
            digest = hashlib.sha256(b"\x01" + self._complete.pop()[1] + digest).digest()
            level, index = level + 1, index >> 1
            completed.append((level, index, digest))
        self._complete.append((level, digest))
        self.size += 1
        return completed

    def root(self) -> bytes:
        if not self._complete:
            return hashlib.sha256(b"").digest()
        digest = self._complete[-1][1]
        for _, left in reversed(self._complete[:-1]):
            digest = hashlib.sha256(b"\x01" + left + digest).digest()
        return digest


class StoredNodes:
    """The `node` rows, level by level, each read once in the order in which a tree completes them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._levels: dict[int, Iterator[Any]] = {}
        self._broken = False

    def check(self, entry: int, completed: list[tuple[int, int, bytes]], findings: Findings) -> None:
        """Report the first row that is not the rebuilt tree's; what follows from it is not reported again."""
        for level, index, digest in completed:
            row = next(self._level(level), None)
            if not self._broken and (row is None or (row.idx, bytes(row.hash)) != (index, digest)):
                self._broken = True
                wrong = "its bytes are not those that the tree was built from" if level == 0 else "it completes another"
                findings.add(entry, f"entry {entry}: {wrong} (node {level}, {index})")

    def check_end(self, findings: Findings) -> None:
        higher = select(node_table.c.level).where(node_table.c.level.not_in(self._levels)).limit(1)
        more = [level for level, rows in self._levels.items() if next(rows, None) is not None]
        more += self._connection.execute(higher).scalars().all()
        if more and not self._broken:
            findings.add(None, f"node: rows at level {more[0]} that no entry gives")

    def _level(self, level: int) -> Iterator[Any]:
        if level not in self._levels:
            query = select(node_table.c.idx, node_table.c.hash).where(node_table.c.level == level)
            self._levels[level] = stream(self._connection, query.order_by(node_table.c.idx))
        return self._levels[level]


class Heads:
    """Compares the heads, smallest first, with the growing tree."""

    def __init__(self, heads: Iterator[Head], findings: Findings) -> None:
        self._heads, self._findings = heads, findings
        self._next, self._agreed = next(heads, None), [0, 0, 0]
        self._broken = 3

    def check(self, tree: Tree) -> None:
        while self._next is not None and self._next.size <= tree.size:
            self._compare(self._next, tree)
            self._next = next(self._heads, None)

    def _compare(self, head: Head, tree: Tree) -> None:
        """Who writes it anew signs all that is within reach: only evidence of the same rank narrows down where."""
        if head.root == tree.root():
            self._agreed[head.rank] = head.size
        elif head.rank < self._broken:
            self._broken = head.rank
            first = max(self._agreed[head.rank :])
            first = first if first < head.size else 0  # two of one rank and size contradict each other
            which = f"entry {first}" + (f" to {head.size - 1}" if head.size - 1 > first else "")
            self._findings.add(first, f"{which}: not what was signed; {head.what} has another root")

    def check_end(self, tree: Tree) -> None:
        if self._next is not None:
            size = tree.size
            self._findings.add(size, f"entry {size}: missing; {self._next.what} signs {self._next.size} entries")
        elif max(self._agreed) < tree.size and self._broken == 3:
            first = max(self._agreed)
            self._findings.add(first, f"entry {first}: stands under no signed checkpoint")

"""The rounds of one campaign of institutions, in a file of its own: sealed shares of the round that is asked, whose
they are, and the noisy sums of those that are over.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accountant.errors import IdempotencyConflict, WrongState
from local.reports.sqlite_file import SqliteFile

_TABLES = """
CREATE TABLE IF NOT EXISTS part (owner INTEGER PRIMARY KEY, round INTEGER NOT NULL, sealed BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS chosen (round INTEGER NOT NULL, owner INTEGER NOT NULL, PRIMARY KEY (round, owner)) STRICT;
CREATE TABLE IF NOT EXISTS said (aggregator INTEGER PRIMARY KEY, round INTEGER NOT NULL, envelope BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS answer (round INTEGER PRIMARY KEY, at REAL NOT NULL, total BLOB NOT NULL) STRICT;
"""


@dataclass(frozen=True)
class Rule:
    """When a round is closed. `owners`: how many are asked; `least`: in a sum; `patience`: seconds for one that was in
    the round before.
    """

    owners: int
    least: int
    patience: float


class RoundStore(SqliteFile):
    """Safe to use from any number of processes of one host. Rounds are counted from 0."""

    def __init__(self, path: Path, rule: Rule) -> None:
        super().__init__(path, _TABLES, "rounds")
        self._rule = rule

    def add(self, turn: int, owner: int, sealed: bytes) -> bytes | None:
        """Take in an institution's shares of a round, and close the round where it is due. The noisy sum of the round,
        once it is there. Until the round is closed the last that an institution sent count, and then nothing that
        comes: it is answered alike. WrongState where the round has not come.
        """
        with self._writing() as connection:
            due = _due(connection)
            if turn > due:
                raise WrongState(f"campaign: is at round {due}; shares of round {turn} do not count now")
            if turn == due and not _chosen(connection, due):
                connection.execute("INSERT OR REPLACE INTO part VALUES (?, ?, ?)", (owner, due, sealed))
                self._close(connection, due)
            row = connection.execute("SELECT total FROM answer WHERE round = ?", (turn,)).fetchone()
            return None if row is None else bytes(row[0])

    def begin(self) -> None:
        """Close the round that is asked with those who sent, though not all did. WrongState where too few have."""
        with self._writing() as connection:
            due = _due(connection)
            sent = _sent(connection, due)
            if _chosen(connection, due):
                return
            if len(sent) < self._rule.least:
                raise WrongState(f"campaign: {len(sent)} institutions sent, and {self._rule.least} are needed")
            _choose(connection, due, sent)

    def parts(self, turn: int) -> list[tuple[int, bytes]] | None:
        """Return the sealed shares of a round, by institution, once it is closed; none where it is over."""
        with self._writing() as connection:
            due = _due(connection)
            if turn == due:
                self._close(connection, due)
            owners = _chosen(connection, turn)
            if not owners:
                return None
            rows = connection.execute(
                "SELECT owner, sealed FROM part WHERE round = ? ORDER BY owner", (turn,)
            ).fetchall()
            return [(owner, bytes(sealed)) for owner, sealed in rows if owner in owners]

    def say(self, turn: int, aggregator: int, envelope: bytes) -> list[bytes] | None:
        """Keep what an aggregator says of a round; both words, once both are there and the round is not over.
        IdempotencyConflict where it said something else before.
        """
        with self._writing() as connection:
            if turn != _due(connection) or not _chosen(connection, turn):
                return None
            key = (aggregator, turn)
            stored = connection.execute("SELECT envelope FROM said WHERE aggregator = ? AND round = ?", key).fetchone()
            if stored is not None and bytes(stored[0]) != envelope:
                raise IdempotencyConflict(f"aggregator {aggregator + 1}: has said something else of round {turn}")
            connection.execute("INSERT OR REPLACE INTO said VALUES (?, ?, ?)", (*key, envelope))
            rows = connection.execute(
                "SELECT envelope FROM said WHERE round = ? ORDER BY aggregator", (turn,)
            ).fetchall()
            return [bytes(word) for (word,) in rows] if len(rows) > 1 else None

    def owners_of(self, turn: int) -> list[int]:
        """Return whose shares are in the sum of a round."""
        with self._writing() as connection:
            return sorted(_chosen(connection, turn))

    def answer(self, turn: int, total: bytes) -> None:
        """Keep the noisy sum of the round that is asked: it is over, and its shares are removed."""
        with self._writing() as connection:
            if turn == _due(connection):
                connection.execute("INSERT INTO answer VALUES (?, ?, ?)", (turn, time.time(), total))
                connection.execute("DELETE FROM part WHERE round <= ?", (turn,))

    def answers(self, after: int = -1, most: int = -1) -> list[bytes]:
        """Return the noisy sums of the rounds beyond this one, in order; `most` of them."""
        query = "SELECT total FROM answer WHERE round > ? ORDER BY round LIMIT ?"
        with self._writing() as connection:
            return [bytes(total) for (total,) in connection.execute(query, (after, most))]

    def where(self) -> tuple[int, int]:
        """Return the round that is asked, and how many have sent their shares of it."""
        with self._writing() as connection:
            due = _due(connection)
            return due, len(_sent(connection, due))

    def end(self) -> None:
        """Empty what the file system may hold of shares: the campaign is over."""
        with self._writing() as connection:
            connection.execute("DELETE FROM part")
        self._empty_log()

    def _close(self, connection: sqlite3.Connection, turn: int) -> None:
        """Close a round once nobody is waited for: the first one for all; a later one for those who were in the one
        before, and no longer than `patience`.
        """
        sent = _sent(connection, turn)
        if len(sent) < self._rule.least or _chosen(connection, turn):
            return
        if turn == 0:
            due = len(sent) == self._rule.owners
        else:
            (since,) = connection.execute("SELECT at FROM answer WHERE round = ?", (turn - 1,)).fetchone()
            due = _chosen(connection, turn - 1) <= set(sent) or time.time() - since >= self._rule.patience
        if due:
            _choose(connection, turn, sent)


def _due(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(round), -1) + 1 FROM answer").fetchone()[0])


def _sent(connection: sqlite3.Connection, turn: int) -> list[int]:
    return [owner for (owner,) in connection.execute("SELECT owner FROM part WHERE round = ?", (turn,))]


def _chosen(connection: sqlite3.Connection, turn: int) -> set[int]:
    return {owner for (owner,) in connection.execute("SELECT owner FROM chosen WHERE round = ?", (turn,))}


def _choose(connection: sqlite3.Connection, turn: int, owners: Sequence[int]) -> None:
    connection.executemany("INSERT INTO chosen VALUES (?, ?)", [(turn, owner) for owner in owners])

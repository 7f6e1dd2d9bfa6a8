"""An aggregator's ledger: one SQLite file. A sum is charged, drawn, signed and stored in ONE transaction, and only then
sent.

So a crash at any moment leaves nothing that anybody saw, or an answer that is sent with the same bytes: what leaves is
drawn at most once. Shares that opened lie here until the answer was taken, and are then overwritten. An older copy of
the file would draw again: a note beside it, and an entry in the platform's log, say what was answered.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accountant.errors import IdempotencyConflict, WrongState
from accountant.noise import shares
from accountant.noise.shares import Share
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.system.files import sync_directory
from local.reports.shared import ForAggregators, SharedDefinition
from local.reports.sqlite_file import SqliteFile

_TABLES = """
CREATE TABLE IF NOT EXISTS campaign (
    definition TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, epsilon TEXT NOT NULL, delta TEXT NOT NULL,
    begun TEXT NOT NULL DEFAULT (datetime('now')), held BLOB, charged TEXT, owners INTEGER, answer BLOB, sent TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS share (
    definition TEXT NOT NULL, owner INTEGER NOT NULL, share BLOB NOT NULL, PRIMARY KEY (definition, owner)
) STRICT;
"""
_COLUMNS = "name, definition, epsilon, delta, held, charged, owners, answer, sent"
Owners = NDArray[np.bool_]


@dataclass(frozen=True)
class Line:
    """A campaign in the ledger. `held`: its signed word on whose shares opened; `charged`: when its one sum was;
    `answer`: the exact bytes of that; `owners`: of how many; `sent`: when the platform confirmed it.
    """

    name: str
    definition: str
    epsilon: str
    delta: str
    held: bytes | None
    charged: str | None
    owners: int | None
    answer: bytes | None
    sent: str | None


class AggregatorStore(SqliteFile):
    """Safe to use from any number of processes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _TABLES, f"ledger={path}")
        self._noted = path.with_name(f"{path.name}.answered")

    def begin(self, definition: ForAggregators) -> Line:
        """Return the campaign's line, a new one where there is none; WrongState where another campaign had this
        name.
        """
        about = (definition.digest, definition.campaign, *map(decimal_string, (definition.epsilon, definition.delta)))
        with self._writing() as connection:
            for line in _lines(connection):
                if line.name == definition.campaign and line.definition != definition.digest:
                    raise WrongState(f"campaign={line.name}: asks something else than when you began with it")
            connection.execute(
                "INSERT OR IGNORE INTO campaign (definition, name, epsilon, delta) VALUES (?, ?, ?, ?)", about
            )
            return _line(connection, definition)

    def add(self, definition: SharedDefinition, found: Sequence[tuple[int, bytes]]) -> None:
        """Keep opened shares (owner, bytes). IdempotencyConflict where an owner's is another than before, WrongState
        once it was said whose opened.
        """
        with self._writing() as connection:
            if _line(connection, definition).held is not None:
                raise WrongState(f"campaign={definition.campaign}: it was said whose shares opened; none is added")
            for owner, share in found:
                key = (definition.digest, owner)
                stored = connection.execute(
                    "SELECT share FROM share WHERE definition = ? AND owner = ?", key
                ).fetchone()
                if stored is not None and stored[0] != share:
                    raise IdempotencyConflict(f"owner {owner}: a second share of one owner; one counts")
                if stored is None:
                    connection.execute("INSERT INTO share VALUES (?, ?, ?)", (*key, share))

    def owners(self, definition: SharedDefinition) -> Owners:
        """Return whose shares are here (owners,)."""
        mask = np.zeros(definition.owners, bool)
        with self._writing() as connection:
            for (owner,) in connection.execute("SELECT owner FROM share WHERE definition = ?", (definition.digest,)):
                mask[owner] = True
        return mask

    def hold(self, definition: SharedDefinition, sign: Callable[[], bytes]) -> bytes:
        """Return the word on whose shares opened: the stored one, else what `sign` gives."""
        with self._writing() as connection:
            known = _line(connection, definition).held
            word = sign() if known is None else known
            connection.execute("UPDATE campaign SET held = ? WHERE definition = ?", (word, definition.digest))
            return word

    def answer(self, definition: SharedDefinition, owners: Owners, draw: Callable[[Share], bytes]) -> bytes:
        """Return the stored answer; else charge, draw and store. `draw` is given the sum of these owners' shares."""
        with self._writing() as connection:
            known = _line(connection, definition).answer
            if known is not None:
                return known
            opened = (int(owners.sum()), definition.digest)
            connection.execute("UPDATE campaign SET charged = datetime('now'), owners = ? WHERE definition = ?", opened)
            total = np.zeros(definition.layout.numbers, np.uint64)
            for owner in np.flatnonzero(owners):
                key = (definition.digest, int(owner))
                row = connection.execute("SELECT share FROM share WHERE definition = ? AND owner = ?", key).fetchone()
                if row is None:
                    raise WrongState(f"owner {owner}: no share of this owner opened")
                total += shares.from_bytes(row[0])
            answer = draw(total)
            connection.execute("UPDATE campaign SET answer = ? WHERE definition = ?", (answer, definition.digest))
            return answer

    def begin_rounds(self, definition: ForAggregators, word: bytes) -> bytes:
        """Charge a campaign of rounds, and keep the word by which this process begins; return it. WrongState where
        another process has begun.
        """
        with self._writing() as connection:
            if _line(connection, definition).answer is not None:
                raise WrongState(f"campaign={definition.campaign}: another process of yours has begun with it")
            connection.execute(
                "UPDATE campaign SET charged = datetime('now'), owners = ?, answer = ? WHERE definition = ?",
                (definition.owners, word, definition.digest),
            )
            return word

    def mark(self, definition: ForAggregators) -> str:
        """Note beside the ledger which answer is about to be told of; its sha256 in hex. To be called before anybody
        hears of it, and before the campaign is begun with again: WrongState where the note is of another answer.
        """
        answer = next((line.answer for line in self.lines() if line.definition == definition.digest), None)
        digest = "" if answer is None else hashlib.sha256(answer).hexdigest()
        noted = dict(line.split() for line in self._notes())
        check_restored(definition, digest, noted.get(definition.digest))
        if digest and definition.digest not in noted:
            with os.fdopen(os.open(self._noted, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
                file.write(f"{definition.digest} {digest}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            sync_directory(self._noted.parent)
        return digest

    def _notes(self) -> list[str]:
        """Read the whole lines of the notes, without one that a crash cut short: nobody has heard of its answer."""
        try:
            lines = self._noted.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        return [line.decode("ascii") for line in lines if len(line) == 129]

    def confirm(self, definition: ForAggregators) -> None:
        """Note that the platform has the answer; shares are needed no more. They are overwritten in the file, and the
        log of what was written to it before is emptied.
        """
        with self._writing() as connection:
            connection.execute("UPDATE campaign SET sent = datetime('now') WHERE definition = ?", (definition.digest,))
            connection.execute("DELETE FROM share WHERE definition = ?", (definition.digest,))
        self._empty_log()

    def lines(self) -> list[Line]:
        """Return every campaign, the oldest first."""
        with self._writing() as connection:
            return _lines(connection)


def check_restored(definition: ForAggregators, own: str, known: str | None) -> None:
    """Raise WrongState where an answer other than this ledger's `own` (its sha256 in hex, "" where it holds none) is
    `known` to have been made: the ledger is older than that answer, and would draw noise a second time.
    """
    if known is not None and known != own:
        raise WrongState(
            f"campaign={definition.campaign}: you have answered it with {known}, which this ledger does not hold: it "
            "was restored from a backup. Nothing was sent; bring back the newer ledger, or have the campaign given up"
        )


def _lines(connection: sqlite3.Connection) -> list[Line]:
    return [Line(*row) for row in connection.execute(f"SELECT {_COLUMNS} FROM campaign ORDER BY rowid")]


def _line(connection: sqlite3.Connection, definition: ForAggregators) -> Line:
    return next(line for line in _lines(connection) if line.definition == definition.digest)

"""The owner's ledger: one SQLite file. A report is charged, drawn and stored in ONE transaction, and only then sent.

So a crash at any moment leaves nothing, or a report that is sent with the same bytes: it is drawn at most once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from accountant.errors import WrongState
from dpserve_verify.errors import BudgetRefused, OtherHistory
from dpserve_verify.formats.canonical import decimal_string
from local.reports.question import Question
from local.reports.sqlite_file import SqliteFile

_TABLES = """
CREATE TABLE IF NOT EXISTS report (
    campaign TEXT PRIMARY KEY, definition TEXT NOT NULL UNIQUE, epsilon TEXT NOT NULL, learner TEXT NOT NULL,
    drawn TEXT NOT NULL DEFAULT (datetime('now')), body BLOB NOT NULL, sent TEXT, delta TEXT NOT NULL DEFAULT '0'
) STRICT;
CREATE TABLE IF NOT EXISTS served (
    origin TEXT NOT NULL, campaign TEXT NOT NULL, definition TEXT NOT NULL, PRIMARY KEY (origin, campaign)
) STRICT;
"""


@dataclass(frozen=True)
class Sent:
    """A line of the ledger. `body`: the exact bytes; `sent`: when the service confirmed them, if it did. `delta`: above
    0 where shares were sent.
    """

    campaign: str
    definition: str
    epsilon: Decimal
    learner: str
    drawn: str
    body: bytes
    sent: str | None
    delta: Decimal


class OwnLedger(SqliteFile):
    """Safe to use from any number of processes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _TABLES, f"ledger={path}")

    def serve(self, origin: str, definition: Question) -> None:
        """Remember what a campaign's name stands for in this log. OtherHistory where it stood for something else, also
        where that was never answered.
        """
        with self._writing() as connection:
            key = (origin, definition.campaign)
            connection.execute("INSERT OR IGNORE INTO served VALUES (?, ?, ?)", (*key, definition.digest))
            rows = connection.execute("SELECT definition FROM served WHERE origin = ? AND campaign = ?", key)
            first = rows.fetchone()[0]
        if first != definition.digest:
            raise OtherHistory(
                f"campaign={definition.campaign}: asks something else (definition {definition.digest}) than when you "
                f"were shown it first (definition {first}); nothing was drawn or sent. Tell the other owners, and who "
                "audits the platform"
            )

    def report(
        self, definition: Question, total: Decimal, draw: Callable[[], bytes], total_delta: Decimal = Decimal(0)
    ) -> Sent:
        """Return the stored report of this campaign; else check, draw and store.

        BudgetRefused where all reports together would cost more than `total` and `total_delta`; WrongState where a
        campaign of this name asked something else before.
        """
        with self._writing() as connection:
            lines = _lines(connection)
            for line in lines:
                if line.campaign == definition.campaign:
                    if line.definition != definition.digest:
                        raise WrongState(f"campaign={line.campaign}: asks something else than when you answered it")
                    return line
            for name, most in (("epsilon", total), ("delta", total_delta)):
                price, spent = getattr(definition, name), sum((getattr(line, name) for line in lines), Decimal(0))
                if spent + price > most:
                    raise BudgetRefused(
                        f"{name}={price}: you have spent {spent} of {most}; nothing was drawn or sent",
                        asked=decimal_string(price), spent=decimal_string(spent), total=decimal_string(most),
                    )  # fmt: skip
            about = (definition.campaign, definition.digest, decimal_string(definition.epsilon), definition.learner)
            connection.execute(
                "INSERT INTO report (campaign, definition, epsilon, learner, delta, body) VALUES (?, ?, ?, ?, ?, ?)",
                (*about, decimal_string(definition.delta), draw()),
            )
            return next(line for line in _lines(connection) if line.campaign == definition.campaign)

    def confirm(self, campaign: str) -> None:
        """Note that the service has it."""
        with self._writing() as connection:
            connection.execute("UPDATE report SET sent = datetime('now') WHERE campaign = ?", (campaign,))

    def lines(self) -> list[Sent]:
        """Return every report that was ever drawn, the oldest first."""
        with self._writing() as connection:
            return _lines(connection)


def _lines(connection: sqlite3.Connection) -> list[Sent]:
    columns = "campaign, definition, epsilon, learner, drawn, body, sent, delta"
    rows = connection.execute(f"SELECT {columns} FROM report ORDER BY rowid").fetchall()
    return [
        Sent(name, digest, Decimal(epsilon), learner, drawn, body, sent, Decimal(delta))
        for name, digest, epsilon, learner, drawn, body, sent, delta in rows
    ]

"""A SQLite file that one program keeps to itself: every step is one transaction, and durable when it is over."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dpserve_verify.errors import LedgerUnavailable


@contextmanager
def writing(path: Path, tables: str, what: str) -> Iterator[sqlite3.Connection]:
    """Run one transaction, alone: committed at the end, and nothing of it where anything is raised. The file is made
    where it is not there, for its owner alone.

    Args:
        tables: SQL that is run first; it must leave what is there as it is.
        what: the file in an error's words. LedgerUnavailable where it cannot be used.
    """
    try:
        with closing(sqlite3.connect(path, timeout=10, isolation_level=None)) as connection:
            path.chmod(0o600)
            connection.executescript(
                f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA secure_delete=ON; {tables}"
            )
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"{what}: cannot be used now ({type(error).__name__})") from None


def empty_log(path: Path, what: str) -> None:
    """Bring into the file what its write-ahead log holds, and cut that to nothing. LedgerUnavailable where somebody is
    reading it for long.
    """
    try:
        with closing(sqlite3.connect(path, timeout=10, isolation_level=None)) as connection:
            connection.execute("PRAGMA secure_delete=ON")
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"{what}: cannot be used now ({type(error).__name__})") from None
    if busy:
        raise LedgerUnavailable(f"{what}: is being read, and what was deleted is still in its log; try again")

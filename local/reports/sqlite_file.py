"""A SQLite file that one program keeps to itself: every step is one transaction, and durable when it is over."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dpserve_verify.errors import LedgerUnavailable


class SqliteFile:
    """Safe to use from any number of processes of one host. LedgerUnavailable where it cannot be used.

    Args:
        path: Where it is; it is made where it is not there, for its owner alone.
        tables: SQL that is run first; it must leave what is there as it is.
        what: The file in an error's words.
    """

    def __init__(self, path: Path, tables: str, what: str) -> None:
        self._path, self._tables, self._what = path, tables, what

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=10, isolation_level=None)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"{self._what}: cannot be used now ({type(error).__name__})") from None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction, alone: committed at the end, and nothing of it where anything is raised."""
        with self._open() as connection:
            self._path.chmod(0o600)
            connection.executescript(
                f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA secure_delete=ON; {self._tables}"
            )
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def create(self) -> None:
        """Create the empty file, unless it is there."""
        with self._writing():
            pass

    def _empty_log(self) -> None:
        """Bring into the file what its write-ahead log holds, and cut that to nothing. LedgerUnavailable where somebody
        is reading it for long.
        """
        with self._open() as connection:
            connection.execute("PRAGMA secure_delete=ON")
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise LedgerUnavailable(f"{self._what}: is being read, and what was deleted is still in its log; try again")

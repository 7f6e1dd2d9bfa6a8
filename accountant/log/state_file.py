"""What the auditor's reader keeps of a ledger, in a file beside the keys: by part and key, so that what a rule asks is
read, and nothing else, however long the ledger is.

The file is a cache of the entries up to its head, a (size, root) of the tree: where it is gone, of another ledger or of
other rules, the entries give it again. It belongs to one transaction at a time, and is written after that one: a reader
finds what an earlier one left, never half of it, as SQLite's rollback journal has the rest of a write that was cut off
(nothing else would tell a file that is half written).
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, MutableMapping, MutableSet
from functools import lru_cache
from pathlib import Path
from typing import Any

import dpserve_verify
from accountant.log import state_text
from dpserve_verify import audit, entries
from dpserve_verify.errors import LedgerUnavailable
from dpserve_verify.system.files import PRIVATE

Head = tuple[int, bytes]  # size and root of a tree
Change = tuple[str, str, str | None]  # part, key, and the value as text; None: it is gone
NAME = "judge.db"
BEGINNING: Head = (0, b"")
_TABLES = """
CREATE TABLE IF NOT EXISTS head (one INTEGER PRIMARY KEY CHECK (one = 0), rules TEXT, size INTEGER, root BLOB);
CREATE TABLE IF NOT EXISTS state (part TEXT, key TEXT, value TEXT, UNIQUE (part, key));
"""
_PUT = (
    "INSERT INTO state (part, key, value) VALUES (?, ?, ?) ON CONFLICT (part, key) DO UPDATE SET value = excluded.value"
)
_OPEN: dict[tuple[int, int, str], sqlite3.Connection] = {}  # by process, thread and path: none is used in a fork
_SECONDS = 5.0  # for which another process may be writing


@lru_cache(maxsize=1)
def rules() -> str:
    """Return the digest of the verifier's sources and of this form: where either changes, entries are read anew."""
    texts = sorted(Path(next(iter(dpserve_verify.__path__))).rglob("*.py"))
    texts += [Path(__file__), Path(state_text.__file__)]
    return hashlib.sha256(b"".join(text.read_bytes() for text in texts)).hexdigest()


class Moved(Exception):
    """Another process has written to the file: who reads it begins again."""


class StateFile:
    """The file at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def head(self) -> Head:
        """Return the tree that the file is the state of; BEGINNING where it is to be made anew."""
        row = self._ask("SELECT rules, size, root FROM head")
        return (row[0][1], bytes(row[0][2])) if row and row[0][0] == rules() else BEGINNING

    def get(self, head: Head, part: str, key: str) -> str | None:
        """Return a value as text; None where there is none. Moved where the file is not at this tree (any more)."""
        rows = self._at(head, "state.part = ? AND state.key = ?", part, key)
        return rows[0][1] if rows else None

    def all(self, head: Head, part: str) -> list[tuple[str, str]]:
        """Return every key and value of a part, in the order in which they came. Moved as `get`."""
        return self._at(head, "state.part = ?", part)

    def _at(self, head: Head, where: str, *values: str) -> list[tuple[str, str]]:
        """Read keys and values, in one question with the tree that they are of."""
        if head == BEGINNING:
            return []
        (first, *rows) = self._ask(
            "SELECT size, root, 0 AS place FROM head UNION ALL "
            f"SELECT key, value, rowid FROM state WHERE {where} ORDER BY place",
            *values,
        )
        if (first[0], bytes(first[1])) != head:
            raise Moved
        return [(key, value) for key, value, _ in rows]

    def move(self, before: Head, after: Head, changes: Iterable[Change]) -> bool:
        """Bring the file from one tree to another. False, and nothing is written, where it is at neither."""
        try:
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                if self.head() != before:
                    connection.execute("ROLLBACK")
                    return False
                if before == BEGINNING:
                    connection.execute("DELETE FROM state")
                for part, key, value in changes:
                    if value is None:
                        connection.execute("DELETE FROM state WHERE part = ? AND key = ?", (part, key))
                    else:
                        connection.execute(_PUT, (part, key, value))
                connection.execute("INSERT OR REPLACE INTO head VALUES (0, ?, ?, ?)", (rules(), *after))
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                return False
            raise self._broken(error) from error
        return True

    def forget(self) -> None:
        """Let the file be made anew from the entries."""
        self._ask("DELETE FROM head")

    def _ask(self, query: str, *values: Any) -> list[Any]:
        try:
            return self._connection().execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._broken(error) from error

    def _connection(self) -> sqlite3.Connection:
        """Return this thread's connection. A file that is damaged, or none, is made anew."""
        place = os.getpid(), threading.get_ident(), str(self.path)
        if place in _OPEN and self.path.exists():
            return _OPEN[place]
        for again in (True, False):
            try:
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
                connection = sqlite3.connect(
                    self.path, timeout=_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=32
                )
                connection.execute("PRAGMA journal_mode = TRUNCATE")  # hosts may share the file: no shared memory
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
            except sqlite3.DatabaseError as error:
                if not again or "locked" in str(error):
                    raise self._broken(error) from error
                for ending in ("", "-journal"):
                    self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
            except OSError as error:
                raise self._broken(error) from error
            else:
                _OPEN[place] = connection
                return connection
        raise AssertionError("the second time raises")

    def _broken(self, error: Exception) -> LedgerUnavailable:
        return LedgerUnavailable(f"{self.path}: cannot be used ({error}); without it, it is made anew")


class Values:
    """What one reader of entries has read of a file at one tree, `head`, and changed of it, by part and key. Nothing of
    it is written before `keep`.
    """

    def __init__(self, file: StateFile, head: Head) -> None:
        self._file, self.head = file, head
        self._parts: dict[str, dict[Any, Any]] = defaultdict(dict)  # a key that is not there has _GONE
        self._texts: dict[tuple[str, Any], str] = {}
        self._touched: dict[tuple[str, Any], None] = {}
        self._whole: set[str] = set()

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))

    def get(self, part: str, key: Any) -> Any:
        """Return a live value, or _GONE. One that can be changed counts as changed from here on."""
        values = self._parts[part]
        if key not in values:
            text = None if part in self._whole else self._file.get(self.head, part, state_text.write(key))
            values[key] = _GONE if text is None else self._take(part, key, text)
        value = values[key]
        if type(value) not in _STEADY:
            self._touched[part, key] = None
        return value

    def put(self, part: str, key: Any, value: Any) -> None:
        """Set a value, or take it out with _GONE."""
        self._parts[part][key] = value
        self._touched[part, key] = None

    def keys(self, part: str) -> list[Any]:
        """Return every key of a part, in the order in which they came; all of it is read."""
        if part not in self._whole:
            ours = self._parts[part]
            self._parts[part] = whole = {}
            for name, text in self._file.all(self.head, part):
                key = state_text.read(name)
                whole[key] = ours.pop(key) if key in ours else self._take(part, key, text)
            whole |= ours
            self._whole.add(part)
        return [key for key, value in self._parts[part].items() if value is not _GONE]

    def keep(self, head: Head) -> bool:
        """Write what was changed, as the state of this tree. False where the file is at another by now."""
        before, self.head = self.head, head
        changes: list[Change] = []
        for part, key in self._touched:
            value = self._parts[part][key]
            text = None if value is _GONE else state_text.write(value)
            if text != self._texts.get((part, key)):
                changes.append((part, state_text.write(key), text))
            if text is None:
                self._texts.pop((part, key), None)
            else:
                self._texts[part, key] = text
        self._touched.clear()
        return self._file.move(before, head, changes)

    def _take(self, part: str, key: Any, text: str) -> Any:
        self._texts[part, key] = text
        return state_text.read(text)


class _Gone:
    """Stands for a key that is not there."""


_GONE = _Gone()
_STEADY = frozenset({_Gone, bool, int, str, bytes, tuple, type(None)})


class StoredMap(MutableMapping[Any, Any]):
    """A dictionary that is a part of `Values`."""

    def __init__(self, values: Values, part: str) -> None:
        self._of, self._part = values, part

    def __getitem__(self, key: Any) -> Any:
        value = self._of.get(self._part, key)
        if value is _GONE:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._of.put(self._part, key, value)

    def __delitem__(self, key: Any) -> None:
        self[key]
        self._of.put(self._part, key, _GONE)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._of.keys(self._part))

    def __len__(self) -> int:
        return len(self._of.keys(self._part))

    def __ior__(self, other: Any) -> StoredMap:
        self.update(other)
        return self


class StoredSet(MutableSet[Any]):
    """A set that is a part of `Values`."""

    def __init__(self, values: Values, part: str) -> None:
        self._of, self._part = values, part

    def __contains__(self, key: object) -> bool:
        return self._of.get(self._part, key) is not _GONE

    def __iter__(self) -> Iterator[Any]:
        return iter(self._of.keys(self._part))

    def __len__(self) -> int:
        return len(self._of.keys(self._part))

    def add(self, key: Any) -> None:
        """Put a key in."""
        if key not in self:
            self._of.put(self._part, key, True)

    def update(self, keys: Iterable[Any]) -> None:
        """Put keys in."""
        self |= set(keys)

    def discard(self, key: Any) -> None:
        """Take a key out where it is in."""
        if key in self:
            self._of.put(self._part, key, _GONE)


def attach(replay: Any, values: Values) -> None:
    """Let every dictionary and set of a new reader of entries, and of its parts, be a part of `values`. Lists, of notes
    for who reads an audit, stay its own. TypeError where it keeps something else.
    """
    _attach(replay, values, "")


def _attach(owner: Any, values: Values, path: str) -> None:
    for name, value in vars(owner).items():
        part = f"{path}{name}"
        if type(value) is dict:
            setattr(owner, name, StoredMap(values, part))
        elif type(value) is set:
            setattr(owner, name, StoredSet(values, part))
        elif type(value).__module__.startswith((f"{audit.__name__}.", f"{entries.__name__}.")):
            _attach(value, values, f"{part}.")
        elif type(value) is not list and name != "trust":
            raise TypeError(f"{part}: a reader of entries keeps dictionaries and sets, and no {type(value).__name__}")

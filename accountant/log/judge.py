"""The auditor's own rule reads every entry before it is committed, in the writer's transaction and from its exact
bytes: what an audit would refuse is not written.

Its state between entries is `state_file`'s, at the tree that was written last. What others wrote since is read first;
a transaction that ends otherwise than by its commit leaves no trace in it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Lock

from sqlalchemy import Connection

from accountant.errors import EntryRefused, Forbidden, NameTaken, UnknownName, WrongState
from accountant.log.newest import signed_entries
from accountant.log.state_file import BEGINNING, NAME, Head, Moved, StateFile, Values, attach
from accountant.store.store import body_at, node_reader
from dpserve_verify.audit.replay import Replay
from dpserve_verify.errors import DpserveError, InputError, LedgerInvalid, LedgerUnavailable
from dpserve_verify.formats import merkle
from dpserve_verify.keys.trust import IssuerKey, LogKey, PublicKeys
from dpserve_verify.log.entry import read_entry

AT_ONCE = 4_096  # entries that are read before the file takes their state
NEAR = 64  # so few entries are read while others wait to write
MOST_KEPT = 20_000  # values that a process keeps for its next entry
MOST_TRIES = 20  # of reading a file that others write to
_ERRORS: dict[str, type[DpserveError]] = {each.code: each for each in (Forbidden, NameTaken, UnknownName, WrongState)}


class Reader:
    """The auditor's reader, with its state at one tree."""

    def __init__(self, file: StateFile, head: Head, trust: PublicKeys) -> None:
        self.values = Values(file, head)
        self.replay = Replay(trust)
        attach(self.replay, self.values)


class Judge:
    """Of one ledger: its state is kept beside `mark`."""

    def __init__(self, mark: Path) -> None:
        self._file = StateFile(mark.with_name(NAME))
        self._lock = Lock()
        self._warm: Reader | None = None

    def behind(self, size: int) -> bool:
        """Return whether more entries than `NEAR` are to be read before one of a tree of this size is judged."""
        warm = self._warm
        at = 0 if warm is None else warm.values.head[0]
        return size - at > NEAR and size - self._file.head()[0] > NEAR

    def prepare(self, connection: Connection, head: Head) -> None:
        """Read what was signed up to a tree, while nobody waits; nothing where others have read further."""
        with suppress(Moved):
            if self._file.head()[0] <= head[0]:
                self.keep_warm(self._read_up_to(connection, head, self._stored(connection, head)))

    def catch_up(self, connection: Connection, head: Head) -> Reader:
        """Return a reader whose state is that of the signed tree `head`, in a transaction that keeps others from
        appending. LedgerInvalid where the entries do not give it.
        """
        with self._lock:
            reader, self._warm = self._warm, None
        for _ in range(MOST_TRIES):
            try:
                if reader is None or reader.values.head != head:
                    reader = self._stored(connection, head)
                return self._read_up_to(connection, head, reader)
            except Moved:
                reader = None
        raise LedgerUnavailable("ledger: others keep writing what the judge of its entries knows; ask again")

    def first(self, genesis: bytes) -> Reader:
        """Return a reader that has read nothing, of a ledger that begins with this entry."""
        self._file.forget()
        return Reader(self._file, BEGINNING, _first_keys(genesis))

    def keep_warm(self, reader: Reader) -> None:
        """Keep a reader for the next entry of this process."""
        if len(reader.values) <= MOST_KEPT:
            with self._lock:
                self._warm = reader

    def _read_up_to(self, connection: Connection, head: Head, reader: Reader) -> Reader:
        """Let the reader read the entries up to a tree, and the file take its state. Moved where others were faster."""
        while (start := reader.values.head[0]) < head[0]:
            end = min(start + AT_ONCE, head[0])
            root = head[1] if end == head[0] else merkle.root(end, node_reader(connection))
            for seq, body in signed_entries(connection, start, end, root, end):
                with suppress(LedgerInvalid):  # an audit goes on, too, and says it
                    reader.replay.read(seq, body)
            if not reader.values.keep((end, root)):
                raise Moved
            if len(reader.values) > MOST_KEPT:
                reader = Reader(self._file, (end, root), reader.replay.trust)
        return reader

    def _stored(self, connection: Connection, head: Head) -> Reader:
        """Return a reader with the state of the file, which is made anew where it is of no tree that `head` goes on
        from.
        """
        size, root = stored = self._file.head()
        if size and not (size <= head[0] and merkle.root(size, node_reader(connection)) == root):
            self._file.forget()
            stored = BEGINNING
        return Reader(self._file, stored, _first_keys(body_at(connection, 0)))


class Sitting:
    """Judges the entries of one transaction, in order. `head`: the tree before it."""

    def __init__(self, judge: Judge, connection: Connection, head: Head) -> None:
        self._judge, self._connection, self._head = judge, connection, head
        self._reader: Reader | None = None
        self._entries: list[tuple[int, bytes]] = []

    def read(self, seq: int, body: bytes) -> None:
        """Judge an entry by those before it. Where an audit would find it wrong: the InputError or Forbidden by which
        its rule says that it cannot be asked for, else EntryRefused.
        """
        for again in (True, False):
            try:
                return self._read(seq, body)
            except Moved:
                self._reader = None
                if not again:
                    raise LedgerUnavailable("ledger: what the judge of its entries knows was taken away") from None

    def keep(self, size: int, root: bytes) -> None:
        """Take the state of what was committed for that of the ledger."""
        reader, self._reader = self._reader, None
        if reader is not None and reader.values.keep((size, root)):
            self._judge.keep_warm(reader)

    def _read(self, seq: int, body: bytes) -> None:
        reader = self._reader
        if reader is None:
            begun = bool(self._head[0])
            first = self._entries[0][1] if self._entries else body
            reader = self._judge.catch_up(self._connection, self._head) if begun else self._judge.first(first)
            for before in self._entries:
                reader.replay.read(*before)
        self._reader = None  # what an entry has changed of it before it is refused is dropped
        try:
            reader.replay.read(seq, body)
        except LedgerInvalid as error:
            if isinstance(cause := error.__cause__, InputError):
                raise _ERRORS.get(cause.code, InputError)(cause.message, **cause.details) from None
            raise EntryRefused(
                f"ledger: not written, as an audit would refuse it: {error.message}; nothing was changed or charged",
                entry=seq,
            ) from error
        self._reader = reader
        self._entries.append((seq, body))


def _first_keys(genesis: bytes) -> PublicKeys:
    """Return the keys that a ledger began with, for a reader who pins no others: what followed, the entries say."""
    value = read_entry(0, genesis).value
    issuer, log = IssuerKey(value["issuer"]), LogKey(value["log"])
    return PublicKeys.of(value["origin"], (issuer,), (log,), frozenset())

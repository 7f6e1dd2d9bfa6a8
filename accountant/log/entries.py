"""The transparency log over a store: entries in, signed checkpoints and proofs out (RFC 6962, C2SP tlog-checkpoint).

Check, append and checkpoint are one transaction under one lock. The signer compares with a high-water mark kept outside
the database, so a database that was rolled back or rewritten is found before anything new is signed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from securesystemslib.signer import Signer
from sqlalchemy import Connection, insert, select

from accountant import canonical, merkle
from accountant.canonical import Encodable
from accountant.errors import LedgerInvalid
from accountant.keys import key_rows
from accountant.keys.private_keys import KeyStore
from accountant.log import notes, proofs
from accountant.log.last_seen import HighWater
from accountant.store import store
from accountant.store.store import Store
from accountant.store.tables import checkpoint_table, entry_table

_NEW_CHECKPOINT = insert(checkpoint_table)  # building a statement costs more than running it


@dataclass(frozen=True)
class Entry:
    """One leaf: its index, its exact bytes, and what they say."""

    seq: int
    body: bytes
    value: dict[str, Any]


def read_entry(seq: int, body: bytes) -> Entry:
    """Exact bytes -> Entry; LedgerInvalid where they are not canonical JSON of an object with a type."""
    try:
        value = canonical.decode_canonical(body)
    except canonical.CanonicalError as error:
        raise LedgerInvalid(f"entry {seq}: {error.message}", entry=seq) from error
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise LedgerInvalid(f"entry {seq}: must be an object with a type", entry=seq)
    return Entry(seq, body, value)


@dataclass
class Writer:
    """What a writing transaction may do: read on its connection, and append. `successor`: the key that will sign alone
    after this transaction, whose checkpoint it signs too.
    """

    connection: Connection
    tree: store.Tree
    appended: int = 0
    successor: Signer | None = None

    def append(self, kind: str, **fields: Encodable) -> int:
        """Append an entry of this type; `time` is our clock's word and proves nothing."""
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.appended += 1
        return self.tree.append(canonical.encode({"type": kind, "time": time, **fields}))


class TransparencyLog:
    """Entries of one `origin` in one store, signed by the log key of these keys."""

    def __init__(self, database: Store, keys: KeyStore, origin: str, mark: HighWater) -> None:
        self.database, self.origin, self._keys, self._mark = database, origin, keys, mark

    @classmethod
    def open(cls, database: Store, keys: KeyStore, mark: HighWater) -> TransparencyLog:
        """The log in this database. LedgerInvalid where it is not these keys', or is not a continuation of what they
        signed.
        """
        with database.reading() as connection:
            genesis = read_entry(0, store.body_at(connection, 0)).value
            signed_by = key_rows.good(connection)["log"]
        if genesis["type"] != "genesis" or keys.key("log").keyid not in signed_by:
            raise LedgerInvalid(f"entry 0: the ledger is signed by another log key, {sorted(signed_by)}")
        log = cls(database, keys, str(genesis["origin"]), mark)
        log.check_mark()
        return log

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Lock, compare with the mark, let the caller check and append, sign the new tree, commit, raise the mark.

        An exception in the block leaves the ledger as it was.
        """
        with self._mark.locked() as mark:
            signed: tuple[int, bytes] | None = None
            with self.database.writing() as connection:
                tree = store.Tree(connection)
                if tree.size and mark.value is None:
                    raise LedgerInvalid(
                        f"ledger: has {tree.size} entries, but the high-water mark beside the keys is gone"
                    )
                mark.check(tree.size, tree.read)
                if tree.size:
                    self._keys.keep_up(key_rows.good(connection))
                writer = Writer(connection, tree)
                yield writer
                if writer.appended:
                    if writer.appended == tree.size:
                        key_rows.begin(connection, self._keys)
                    signed = tree.size, tree.root()
                    note = self._signed(*signed, writer.successor)
                    connection.execute(_NEW_CHECKPOINT, {"size": signed[0], "note": note})
            if signed:
                mark.advance(*signed)

    def _signed(self, size: int, root: bytes, successor: Signer | None) -> str:
        """The checkpoint's note. Whoever pinned the old key alone can follow to a new one: both sign."""
        note = notes.sign_checkpoint(self.origin, size, root, self._keys.signer("log"))
        if successor is None:
            return note
        return note + notes.sign_checkpoint(self.origin, size, root, successor).rpartition("\n\n")[2]

    def check_mark(self) -> None:
        """Raise LedgerInvalid where the database is not a continuation of what was signed before."""
        with self._mark.locked() as mark, self.database.reading() as connection:
            if store.size(connection) and mark.value is None:
                raise LedgerInvalid("ledger: has entries, but the high-water mark beside the keys is gone")
            mark.check(store.size(connection), store.node_reader(connection))

    def size(self) -> int:
        """How many entries there are now."""
        with self.database.reading() as connection:
            return store.size(connection)

    def entries(self, after: int = 0, limit: int = 1000) -> list[Entry]:
        """Entries with index >= `after`, at most `limit`."""
        query = select(entry_table).where(entry_table.c.seq >= after).order_by(entry_table.c.seq).limit(limit)
        with self.database.reading() as connection:
            return [read_entry(seq, bytes(body)) for seq, body in connection.execute(query)]

    def entry(self, seq: int) -> Entry:
        """The entry at an index. LedgerInvalid where there is none or it is not canonical."""
        with self.database.reading() as connection:
            return read_entry(seq, store.body_at(connection, seq))

    def checkpoint(self) -> str:
        """The newest signed checkpoint."""
        with self.database.reading() as connection:
            return latest_checkpoint(connection)

    def proof(self, seq: int) -> str:
        """The `.tlog-proof` of entry `seq` against the newest checkpoint, with the entry's bytes in it."""
        with self.database.reading() as connection:
            note = latest_checkpoint(connection)
            read = store.Tree(connection).beside(seq)
            path = merkle.inclusion_proof(seq, notes.parse_checkpoint(note).size, read)
            return proofs.write_proof(seq, path, note, store.body_at(connection, seq))

    def inclusion(self, seq: int, size: int) -> list[bytes]:
        """The hashes, 32 bytes each, that prove entry `seq` in the tree of the first `size` entries (RFC 6962 section
        2.1.1). LedgerInvalid unless 0 <= seq < size <= entries."""
        with self.database.reading() as connection:
            if not 0 <= seq < size <= store.size(connection):
                raise LedgerInvalid(f"leaf={seq}, size={size}: must be leaf < size <= {store.size(connection)}")
            return merkle.inclusion_proof(seq, size, store.Tree(connection).beside(seq))


def latest_checkpoint(connection: Connection) -> str:
    """The newest signed note. LedgerInvalid where there is none."""
    query = select(checkpoint_table.c.note).order_by(checkpoint_table.c.size.desc()).limit(1)
    note = connection.execute(query).scalar()
    if note is None:
        raise LedgerInvalid("checkpoint: the ledger has none; run dpserve init")
    return str(note)


def dumps(value: Any) -> str:
    """JSON text of an index column (derived, never signed)."""
    return json.dumps(value, sort_keys=True)

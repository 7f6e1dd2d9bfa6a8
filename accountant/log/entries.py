"""The transparency log over a store: entries in, signed checkpoints and proofs out (RFC 6962, C2SP tlog-checkpoint).

Check, append and checkpoint are one transaction under the database's lock. The signer compares with a high-water mark
kept outside the database, so a database that was rolled back or rewritten is found before anything new is signed.

No lock of this host is held while the database is asked, so a connection that hangs, or a process that stands still,
keeps no other from its own. The mark is read before a snapshot is taken, again before a tree is signed, and raised
after it is committed: a writer whose tree is not of one history with the mark by then, because it wrote to a copy of
the database, gets LedgerInvalid and not what it asked for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import Connection, insert, select

from accountant.keys import key_rows
from accountant.keys.key_rows import KeyRow
from accountant.keys.private_keys import KeyStore
from accountant.log.judge import Judge, Sitting
from accountant.log.last_seen import RAISE_SECONDS, HighWater, Mark
from accountant.log.newest import Newest, accounts_of, after_of
from accountant.log.rare_entries import Rare
from accountant.store import engines, store, version_fence
from accountant.store.queries import LATER, MEMORY, Queries, remembering, rows_of
from accountant.store.store import Store
from accountant.store.tables import checkpoint_table, entry_table
from dpserve_verify.entries.kinds import FORMS
from dpserve_verify.errors import LedgerInvalid, LedgerUnavailable
from dpserve_verify.formats import canonical, merkle
from dpserve_verify.formats.canonical import Encodable
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log import notes, proofs
from dpserve_verify.log.entry import Entry, read_entry

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

NEWEST = "newest.bin"  # beside the mark
MARK = "mark"  # in what is remembered, beside answers, whose texts are statements
MAX_LEAVES, MAX_ENTRIES = 65_536, 4096
_COLUMN = json.JSONEncoder(sort_keys=True)
# Built once: building a statement costs more than running it.
_NEW_CHECKPOINT = insert(checkpoint_table).execution_options(**LATER)
NEWEST_CHECKPOINT = select(checkpoint_table.c.note).order_by(checkpoint_table.c.size.desc()).limit(1), dict[str, Any]()


@dataclass
class Writer:
    """What a writing transaction may do: read on its connection, and append. `signed`: reads what was signed before it.
    `successor`: the key that will sign alone after this transaction, whose checkpoint it signs too. `kinds`: the
    newest generation of kinds of entries. `judge`: the auditor's rule, which reads every entry before it is appended.
    """

    connection: Connection
    tree: store.Tree
    signed: Signed
    judge: Sitting
    appended: list[tuple[int, bytes]] = field(default_factory=list)
    said: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    successor: Signer | None = None
    kinds: int = 0

    def append(self, kind: str, **fields: Encodable) -> int:
        """Append an entry of this type; `time` is our clock's word and proves nothing. What its rule says of it
        (`dpserve_verify.entries`), else EntryRefused, where an audit would find it wrong: nothing of the transaction is
        written then.
        """
        time = f"{datetime.now(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
        body = canonical.encode({"type": kind, "time": time, **fields})
        self.kinds = max(self.kinds, FORMS[kind].generation)
        seq = self.tree.append(body, self.judge.read)
        self.appended.append((seq, body))
        self.said[seq] = fields.get("after", [])  # type: ignore[assignment]
        return seq


class Known:
    """Cache of what this process has proven of signed entries, or written itself. Entries never change.

    Attributes:
        leaves: leaf hashes, by entry.
        after: the balances that an entry records.
        read: entries that were read.
        lines: the balances that an entry records, by account number.
        versions: versions of datasets, by their entries.
        blocks: index rows of blocks that were found to equal their entries, and what was read from them.
        rare: entries about keys, revocations and quotas.
    """

    def __init__(self) -> None:
        self.leaves: dict[int, bytes] = {}
        self.after: dict[int, list[dict[str, Any]]] = {}
        self.read: dict[int, Entry] = {}
        self.lines: dict[int, dict[int, dict[str, Any]]] = {}
        self.versions: dict[int, int] = {}
        self.blocks: dict[int, tuple[tuple[Any, ...], Any]] = {}
        self.rare = Rare()

    def take(self, seq: int, leaf: bytes, after: list[dict[str, Any]]) -> None:
        """Keep what was proven of an entry."""
        if len(self.leaves) >= MAX_LEAVES:
            self.leaves.clear()
            self.after.clear()
        self.leaves[seq] = leaf
        if after:
            self.after[seq] = after


@dataclass
class Signed:
    """Entries of a tree that was signed, and nothing else of the database: each is proven to stand in it."""

    connection: Connection
    tree: store.Tree
    size: int
    root: bytes
    newest: Newest
    known: Known
    _rare: Rare | None = None

    def body(self, seq: int) -> bytes:
        """Return the exact bytes of an entry. LedgerInvalid where it is not the one that was signed, or there is
        none.
        """
        body = store.body_at(self.connection, seq)
        self.check(seq, body)
        return body

    def entry(self, seq: int, body: bytes | None = None) -> Entry:
        """Return the entry that was signed as `seq`, compared with `body` where that was read. LedgerInvalid as
        `body`.
        """
        cached = self.known.read.get(seq)
        if cached is not None and body in (None, cached.body):
            return cached
        if body is None:
            body = self.body(seq)
        else:
            self.check(seq, body)
        if len(self.known.read) >= MAX_ENTRIES:
            self.known.read.clear()
        entry = self.known.read[seq] = read_entry(seq, body)
        return entry

    def check(self, seq: int, body: bytes) -> None:
        """Raise LedgerInvalid unless these are the bytes of the entry `seq` that was signed."""
        leaf = merkle.leaf_hash(body)
        if self.known.leaves.get(seq) != leaf:
            path = store.at_once(self.connection, partial(merkle.inclusion_proof, seq, self.size))
            merkle.verify_inclusion(seq, self.size, leaf, path, self.root)
            self.known.take(seq, leaf, after_of(body))

    def after(self, number: int) -> int:
        """Return the latest entry about the subject of this slot number (`newest.account_number`); 0 where none was
        written since.
        """
        return self.latest([number])[0]

    def latest(self, numbers: Sequence[int]) -> list[int]:
        """Return `after` of each. What was written after this tree is not of it."""
        return [seq if seq < self.size else 0 for seq in self.newest.of(numbers)]

    def rare(self) -> Rare:
        """Return what the entries about keys, revocations and quotas say."""
        if self._rare is not None:
            return self._rare
        cached, now = self.known.rare, self.newest.newest_rare(self.size)
        if cached.newest != now:
            cached = cached if cached.newest < now else Rare()
            new = [self.entry(seq) for seq in self.newest.rare(now, cached.newest)]
            before = cached.entries if cached.newest >= 0 else (self.entry(0),)
            self.known.rare = cached = Rare(now, (*before, *new))
        self._rare = cached
        return cached

    def keys(self) -> list[KeyRow]:
        """Return every key there ever was. LedgerInvalid where the rows are not what the entries say."""
        return key_rows.check_keys(key_rows.rows(self.connection), self.rare().keys)

    def revoked(self) -> frozenset[int]:
        """Return the indices of `issued` entries whose certificates were revoked. LedgerInvalid as `keys`."""
        return key_rows.check_revoked(key_rows.revocations(self.connection), self.rare().revoked)

    def trust(self, origin: str) -> PublicKeys:
        """Return what the ledger says an auditor should pin. LedgerInvalid as `keys`."""
        return key_rows.trust(origin, self.keys(), self.revoked())

    def balance_of(self, seq: int, number: int) -> dict[str, Any] | None:
        """Return the balance that the entry `seq` records of the account of this number; None where it records none."""
        lines = self.known.lines.get(seq)
        if lines is None:
            balances = self.known.after.get(seq)
            balances = after_of(self.body(seq)) if balances is None else balances
            if len(self.known.lines) >= MAX_ENTRIES:
                self.known.lines.clear()
            self.known.lines[seq] = lines = {account: line for line in balances for account in accounts_of(line)}
        return lines.get(number)


class TransparencyLog:
    """Entries of one `origin` in one store, signed by the log key of these keys. `behind`: why this version may not
    write, as the last `signed` found it; "" where it may.
    """

    def __init__(self, database: Store, keys: KeyStore, origin: str, mark: HighWater) -> None:
        self.database, self.origin, self._keys, self._mark = database, origin, keys, mark
        self._newest, self._known, self._judge = Newest(mark.path.with_name(NEWEST)), Known(), Judge(mark.path)
        self.behind, self._own = "", threading.local()

    @classmethod
    def open(cls, database: Store, keys: KeyStore, mark: HighWater) -> TransparencyLog:
        """Open the log in this database. LedgerInvalid where it is not these keys', or is not a continuation of what
        they signed.
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
    def writing(self, finishes: bool = False, first: Queries = ()) -> Iterator[Writer]:
        """Lock the database, compare with the mark, let the caller check and append, sign the new tree, commit, raise
        the mark.

        An exception in the block leaves the ledger as it was. VersionBehind where a newer version has written what this
        one does not know; `finishes`: as for `version_fence.require`; `first`: as for `Store.reading`.
        """
        with self._mark.locked():  # what keeps the mark from being raised is found before anything is written
            mark = self._mark.look()
        if self._judge.behind(mark.size):  # nobody waits meanwhile
            with self.signed() as before:
                self._judge.prepare(before.connection, (before.size, before.root))
        signed: tuple[int, bytes] | None = None
        with self.database.writing([store.edge(mark.size), *key_rows.QUESTIONS, *first]) as connection:
            tree = store.Tree(connection, mark.size)
            version_fence.require(connection, tree.kinds, finishes)
            mark = self._mark.look()
            if tree.size and mark.value is None:
                raise LedgerInvalid(f"ledger: has {tree.size} entries, but the high-water mark beside the keys is gone")
            mark.check(tree.size, tree.read)
            keys = key_rows.rows(connection) if tree.size else []
            if tree.size:
                self._keys.keep_up(key_rows.good_of(keys))
            head = self._head(connection, tree.size, tree.read, mark)
            self._newest.catch_up(connection, *head, self._mark.locked, writes=True)
            now_signed = Signed(connection, tree, *head, self._newest, self._known)
            writer = Writer(connection, tree, now_signed, Sitting(self._judge, connection, head))
            writer.kinds = tree.kinds or 0
            if tree.size:
                key_rows.check_keys(keys, writer.signed.rare().keys)
            yield writer
            if writer.appended:
                if len(writer.appended) == tree.size:
                    key_rows.begin(connection, self._keys)
                signed = tree.size, tree.root()
                if (now := self._mark.look()).value not in (mark.value, head):
                    now.check(head[0], tree.read)
                note = self._signed(*signed, writer.successor)
                connection.execute(_NEW_CHECKPOINT, {"size": signed[0], "note": note, "kinds": writer.kinds})
        if signed:
            writer.judge.keep(*signed)
            self.raise_mark(mark, head, writer, *signed)

    def raise_mark(self, mark: Mark, head: tuple[int, bytes], writer: Writer, size: int, root: bytes) -> None:
        """Raise the mark to the tree (size, root) that was committed, and note what is newest. `mark` and `head`: what
        that tree was shown to continue.
        """
        continued = {mark.value, head, (size, root)}
        rare = writer.signed.rare().newest if head[0] else 0
        try:
            while True:
                with self._mark.locked(RAISE_SECONDS) as now:
                    if now.value in continued:
                        if now.size <= size:
                            now.advance(size, root)
                        self._newest.note(head, writer.appended, writer.said, size, root, rare)
                        break
                with self.database.reading() as connection:  # another was faster: are both trees of one history?
                    tree = store.Tree(connection, now.size)
                    for each in (now, Mark((size, root))):
                        each.check(tree.size, tree.read)
                continued.add(now.value)
        except LedgerUnavailable as error:
            raise LedgerUnavailable(
                f"{error.message}; what the mark is raised for is written: look before asking again", written="unknown"
            ) from error
        for seq in writer.said:
            self._known.take(seq, writer.tree.read(0, seq), writer.said[seq])

    def _head(self, connection: Connection, size: int, read: merkle.NodeReader, mark: Mark) -> tuple[int, bytes]:
        """Return (size, root) of the tree of all entries, signed by our key: LedgerInvalid where the last of them were
        written by somebody else. What is no continuation of the mark was refused before.
        """
        if mark.value is not None and mark.value[0] == size:
            return mark.value
        root = merkle.root(size, read)
        if size:
            note = latest_checkpoint(connection)
            key = self._keys.public_key("log")
            assert isinstance(key, Ed25519PublicKey)  # the log's are: `notes.sign_note`
            head = notes.verify_checkpoint(note, self.origin, key)
            if (head.size, head.root) != (size, root):
                raise LedgerInvalid(
                    f"entry {min(head.size, size - 1)}: no checkpoint of the ledger's key covers the entries from here "
                    f"to {size - 1}: they were written by somebody else",
                    entry=min(head.size, size - 1),
                )
        return size, root

    @contextmanager
    def signed(self, first: Queries = ()) -> Iterator[Signed]:
        """Open a snapshot of what was signed, or the one that this thread shares. LedgerInvalid as `check_mark`;
        `first`: as for `Store.reading`.
        """
        mark: Mark | None = getattr(self._own, "mark", None)
        is_shared = mark is not None
        if mark is None:
            mark = self._look()  # before the snapshot, or others may have raised it above that
        questions = [store.edge(mark.size), *key_rows.QUESTIONS, *first]
        with self.database.reading(questions, alone=not is_shared) as connection:
            signed = (self._own.signed if is_shared else None) or self._compared(connection, mark)
            self._own.signed = signed if is_shared else None
            yield signed

    @contextmanager
    def sharing(self, first: Queries = ()) -> Iterator[None]:
        """Let all that this thread asks in the block, signed or not, be of one snapshot; as `Store.sharing`. What most
        readers ask comes with its beginning: what was signed, how much that is, and the newest entry.
        """
        if self.database.is_shared:
            self.database.ask(first)
            yield
            return
        mark = self._look()
        self._own.mark, self._own.signed = mark, None
        try:
            with self.database.sharing([*_usual(mark), *first]):
                yield
        finally:
            self._own.mark = self._own.signed = None

    @contextmanager
    def remembering(self, queries: Queries) -> Iterator[None]:
        """Ask at once what is asked within the block, with what most readers ask, and nothing twice there, but in a
        transaction that writes. What was signed is compared with the mark as it was then.
        """
        with remembering():
            self.database.ask([*_usual(self._look()), *queries])
            yield

    def _look(self) -> Mark:
        """Look at the mark; within `remembering` once: what is remembered was asked then."""
        memory = MEMORY.get()
        if memory is None:
            return self._mark.look()
        mark: Mark | None = memory.get(MARK)
        if mark is None:
            mark = memory[MARK] = self._mark.look()
        return mark

    def _compared(self, connection: Connection, mark: Mark) -> Signed:
        """Return what was signed, as this snapshot has it, which was begun after this look at the mark."""
        tree = store.Tree(connection, mark.size)
        size, read = tree.size, tree.read
        self.behind = version_fence.problem(connection, tree.kinds)
        if size and mark.value is None:
            raise LedgerInvalid("ledger: has entries, but the high-water mark beside the keys is gone")
        mark.check(size, read)
        if mark.value is None or mark.value[0] != size:
            self._keys.keep_up(key_rows.good(connection), ("log",))
        head = self._head(connection, size, read, mark)
        self._newest.catch_up(connection, *head, self._mark.locked)
        signed = Signed(connection, tree, *head, self._newest, self._known)
        if size:
            signed.keys()
            signed.revoked()
        return signed

    def _signed(self, size: int, root: bytes, successor: Signer | None) -> str:
        """Return the checkpoint's note. Old and new key both sign, so that a reader who pinned the old one can
        follow.
        """
        note = notes.sign_checkpoint(self.origin, size, root, self._keys.signer("log"))
        if successor is None:
            return note
        return note + notes.sign_checkpoint(self.origin, size, root, successor).rpartition("\n\n")[2]

    def stands_at(self, size: int, root: bytes) -> float | None:
        """Return the time by the database's clock, in seconds since 1970, where the ledger and its mark are exactly at
        this tree; None where they are not, which is `signed` to judge. One question, whatever the distance.
        """
        if self._mark.look().value != (size, root):
            return None
        with remembering():
            self.database.ask([store.edge(size), engines.CLOCK])
            with self.database.reading() as connection:
                tree, now = store.Tree(connection, size), engines.clock(connection)
                self.behind = version_fence.problem(connection, tree.kinds)
                return now if (tree.size, tree.root()) == (size, root) else None

    def check_mark(self) -> None:
        """Raise LedgerInvalid where the database is not a continuation of what was signed before."""
        with self.signed():
            pass

    def size(self) -> int:
        """Return how many entries there are now."""
        with self.database.reading() as connection:
            return store.size(connection)

    def entries(self, after: int = 0, limit: int = 1000) -> list[Entry]:
        """Return entries with index >= `after`, at most `limit`."""
        query = select(entry_table).where(entry_table.c.seq >= after).order_by(entry_table.c.seq).limit(limit)
        with self.database.reading() as connection:
            return [read_entry(seq, bytes(body)) for seq, body in connection.execute(query)]

    def entry(self, seq: int) -> Entry:
        """Return the entry at an index. LedgerInvalid where there is none or it is not canonical."""
        with self.database.reading([store.question_of_body(seq)]) as connection:
            return read_entry(seq, store.body_at(connection, seq))

    def checkpoint(self) -> str:
        """Return the newest signed checkpoint."""
        with self.database.reading() as connection:
            return latest_checkpoint(connection)

    def proof(self, seq: int) -> str:
        """Return the `.tlog-proof` of entry `seq` against the newest checkpoint, with the entry's bytes in it."""
        with self.database.reading() as connection:
            note = latest_checkpoint(connection)
            path = store.at_once(connection, partial(merkle.inclusion_proof, seq, notes.parse_checkpoint(note).size))
            return proofs.write_proof(seq, path, note, store.body_at(connection, seq))


def _usual(mark: Mark) -> Queries:
    """List what most readers ask, where nothing was written since this look at the mark: what was signed, how many
    entries there are, and the newest.
    """
    about = store.question_of_size(), store.question_of_body(mark.size - 1)
    return [store.edge(mark.size), *key_rows.QUESTIONS, *about]


def latest_checkpoint(connection: Connection) -> str:
    """Return the newest signed note. LedgerInvalid where there is none."""
    rows = rows_of(connection, *NEWEST_CHECKPOINT)
    if not rows:
        raise LedgerInvalid("checkpoint: the ledger has none; run dpserve init")
    return str(rows[0][0])


def dumps(value: Any) -> str:
    """Write the JSON text of an index column (derived, never signed)."""
    return _COLUMN.encode(value)

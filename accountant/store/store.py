"""The ledger's database and its transactions. One transaction holds check and append; nothing else writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import (
    CompoundSelect,
    Connection,
    Select,
    and_,
    bindparam,
    cast,
    false,
    func,
    insert,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.exc import SQLAlchemyError

from accountant.errors import LedgerReplaced
from accountant.store import engines, migrations, version_fence
from accountant.store.queries import LATER, MEMORY, Queries, at_hand, remember_rows, rows_of
from accountant.store.tables import checkpoint_table, entry_table, job_table, node_table
from dpserve_verify.errors import DpserveError, LedgerInvalid, LedgerUnavailable
from dpserve_verify.formats import merkle

# Built once: building a statement costs more than running it.
_SIZE = select(func.max(entry_table.c.seq))
_LARGEST = 1 << 62  # of which both databases can be asked
BODY = select(entry_table.c.body).where(entry_table.c.seq == bindparam("at"))
_BODIES = select(entry_table.c.seq, entry_table.c.body).where(entry_table.c.seq.in_(bindparam("seqs", expanding=True)))
_NODE = select(node_table.c.hash).where(node_table.c.level == bindparam("level"), node_table.c.idx == bindparam("idx"))
_NEW_ENTRY, _NEW_NODE = (insert(each).execution_options(**LATER) for each in (entry_table, node_table))


Place: TypeAlias = tuple[int, int]  # (level, index)
T = TypeVar("T")


class Tables(Enum):
    """What tables somebody needs who opens a ledger. `CURRENT`: those of this version. `KNOWN`: of this or an earlier
    one, which are left as they are. `MIGRATE`: earlier ones are brought to this version.
    """

    CURRENT = "current"
    KNOWN = "known"
    MIGRATE = "migrate"


class Store:
    """A database URL, opened: `sqlite:///...` or `postgresql+psycopg://...` (see `engines`). `revision`: what its
    tables were of before `create` brought them to `newest_revision`; None where there were none.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = engines.open_engine(url)
        self._checked, self._suspect = engines.state_of_file(self.engine), False
        self._was_there = not engines.is_gone(self.engine)
        self.revision: str | None = None
        self._own = threading.local()

    @property
    def newest_revision(self) -> str:
        """Return the revision to which this version brings the tables."""
        return migrations.HEAD

    def require_tables(self, tables: Tables) -> None:
        """Make the tables where there are none. InputError where they are not as readers need them."""
        require = migrations.require_current if tables is Tables.CURRENT else migrations.require_known
        with self.reading() as connection:
            self.revision = require(connection)
        if self.revision is None:
            self.create()
        self._was_there = True

    def create(self, keep: Callable[[Connection, str], object] | None = None, to: str | None = None) -> None:
        """Create the tables and triggers, or bring them to the newest revision: one process at a time, in one
        transaction. LedgerUnavailable while a job runs that an earlier version has started: it could not end it.
        `keep`: copies older ones first, of the revision that it is told. `to`: the revision, where it is an older one.
        """
        to = to or migrations.HEAD
        with self.reading() as connection:
            self.revision = migrations.revision(connection)
            if self.revision == to:
                self._was_there = True
                return
        with self.writing() as connection:
            self.revision = migrations.revision(connection)
            engines.disable_timeout(connection)
            if self.revision in migrations.KNOWN[:-1]:
                require_idle(connection, self.revision)
                if keep is not None:
                    keep(connection, self.revision)
            migrations.upgrade(connection, to)
        self._was_there = True

    @contextmanager
    def writing(self, first: Queries = ()) -> Iterator[Connection]:
        """Open a transaction that holds the write lock from its first statement on: nobody else checks or appends
        meanwhile. It commits at the end of the block, or not at all. `first`: as for `reading`.
        """
        if self.is_shared:
            raise DpserveError("ledger: what is written would not be seen in the snapshot that is read; write outside")
        with self._connection(engines.begin_writing, first) as connection:
            yield connection
            engines.check_file(connection)
            _commit(connection)

    @contextmanager
    def reading(self, first: Queries = (), alone: bool = False) -> Iterator[Connection]:
        """Open one consistent snapshot, or the one that this thread shares, unless it must be a new one, `alone`.
        `first`: what will be asked in it; a server that is far answers all of that with the beginning, or with the next
        statement of a shared one.
        """
        scope: ExitStack | None = getattr(self._own, "scope", None)
        if scope is None or alone:
            with self._connection(engines.begin_reading, first) as connection:
                yield connection
            return
        if self._own.connection is None:
            asked = [*self._own.first, *first]
            self._own.connection = scope.enter_context(self._connection(engines.begin_sharing, asked))
            remember_rows(self._own.connection)
        else:
            engines.ask_with_next(self._own.connection, first)
        with self._meaning():
            yield self._own.connection

    @contextmanager
    def sharing(self, first: Queries = ()) -> Iterator[None]:
        """Let all that this thread reads in the block be of one snapshot, from the first time on that it reads, and ask
        nothing twice (`queries.rows_of`). Nobody writes in it, or waits for anything else. `first`: as for `reading`.
        """
        if self.is_shared:
            yield
            return
        with ExitStack() as scope:
            self._own.scope, self._own.connection, self._own.first = scope, None, first
            try:
                yield
            finally:
                self._own.scope = self._own.connection = None

    @property
    def is_shared(self) -> bool:
        """Return whether this thread is within `sharing`."""
        return getattr(self._own, "scope", None) is not None

    def ask(self, queries: Queries) -> None:
        """Ask what will be asked within `remembering` at once, and within `sharing` with the next statement; nothing of
        a database that is not far.
        """
        if self.is_shared:
            with self.reading(queries):
                pass
        elif MEMORY.get() is not None:
            with self._connection(engines.ask_at_once, queries):
                pass

    @contextmanager
    def auditing(self) -> Iterator[Connection]:
        """Open a snapshot as `reading` does, for readers that do not even create tables. InputError where another
        version made them.
        """
        with self.reading() as connection:
            migrations.require_current(connection)
            yield connection

    @contextmanager
    def _connection(self, begin: engines.Begin, first: Queries) -> Iterator[Connection]:
        if self._was_there and engines.is_gone(self.engine):  # connecting would begin another
            self.close()
            raise LedgerReplaced("ledger database: its file is gone; restore a copy")
        with self._meaning(), engines.open_transaction(self.engine, begin, first) as connection:
            yield connection

    @contextmanager
    def _meaning(self) -> Iterator[None]:
        """Raise what an error of the database means."""
        try:
            yield
        except SQLAlchemyError as error:
            problem = engines.meaning(error)
            if isinstance(problem, LedgerReplaced):  # whoever has it open has pages of before
                self._suspect = True
                self.close()
            raise problem from error

    def check_file(self) -> None:
        """Raise LedgerReplaced where a file that was changed, or of which somebody met a wrong page, is damaged. It is
        read as a whole then, so this is for who has the time.
        """
        state = engines.state_of_file(self.engine)
        if self._suspect or state != self._checked:
            self.close()  # a new connection has no pages of before
            with self.reading() as connection:
                engines.check_pages(connection)
            self._suspect, self._checked = False, state

    def settled(self) -> tuple[tuple[int, int, int], ...] | None:
        """Return what every commit changes (`engines.last_written`), if the last one is a second past: clocks of files
        tick, and what is written within the same tick would look the same. None else, and of a server.
        """
        written = engines.last_written(self.engine)
        newest = max((changed for _, changed, _ in written or ()), default=0)
        return written if written and time.time_ns() - newest > 10**9 else None

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()


def require_idle(connection: Connection, revision: str) -> None:
    """Raise LedgerUnavailable while somebody holds a job that has started and lives, by its lease."""
    running = (job_table.c.state == "started") & (job_table.c.expires > engines.clock(connection))
    seqs = connection.execute(select(job_table.c.seq).where(running).order_by(job_table.c.seq)).scalars().all()
    if seqs:
        raise LedgerUnavailable(
            f"ledger: job {', '.join(map(str, seqs))} runs by a version whose tables are of revision {revision}, and "
            f"could not be ended in tables of {migrations.HEAD}: stop the workers, which end their jobs, and ask again "
            "(a minute later, where one was killed); nothing was changed"
        )


def _commit(connection: Connection) -> None:
    try:
        connection.commit()
    except SQLAlchemyError as error:
        problem = engines.meaning(error)
        if not connection.invalidated or not isinstance(problem, LedgerUnavailable):
            raise
        raise LedgerUnavailable(
            f"{problem.message}; whether it was written is not known: look before asking again", written="unknown"
        ) from error


def size(connection: Connection) -> int:
    """Return the number of entries."""
    ((last,),) = rows_of(connection, _SIZE, {})
    return 0 if last is None else int(last) + 1


class Tree:
    """The stored tree in one transaction. Its right edge is read at once, anything else as it is asked for; inside
    `writing` nobody else writes, so nothing is read twice.
    """

    def __init__(self, connection: Connection, likely: int = 0) -> None:
        """Read the size and the right edge. `likely`: its size, where nobody else has written: one question then tells
        that and the right edge. Any other number costs a second question, and nothing else.
        """
        self._connection = connection
        self._nodes: dict[Place, bytes] = {}
        self.kinds: int | None = None  # as `version_fence.row` says it
        self.size, last_size = min(likely, _LARGEST), -1
        while last_size != self.size:
            last_size = self.size
            self.size = self._fetch(_edge(last_size))

    def _fetch(self, places: Sequence[Place]) -> int:
        """Read these subtrees, as far as they are there, and the number of entries."""
        count = 0
        for level, index, digest in self._connection.execute(*_nodes_at(places)):
            if level == version_fence.LEVEL:
                self.kinds = int(index)
            elif level is not None:
                self._nodes[level, index] = bytes(digest)
            elif index is not None:
                count = int(index) + 1
        return count

    def read(self, level: int, index: int) -> bytes:
        """Return a complete subtree's hash; LedgerInvalid where it is missing."""
        place = level, index
        if place not in self._nodes:
            self._nodes[place] = node_reader(self._connection)(level, index)
        return self._nodes[place]

    def append(self, body: bytes, judge: Callable[[int, bytes], None]) -> int:
        """Append one leaf and the subtrees it completes; return its index. Only inside `writing`. `judge`: reads index
        and bytes first; where it raises, nothing is appended.
        """
        judge(self.size, body)
        seq, nodes = self.size, merkle.new_nodes(self.size, merkle.leaf_hash(body), self.read)
        self._connection.execute(_NEW_ENTRY, {"seq": seq, "body": body})
        rows = [{"level": level, "idx": index, "hash": digest} for level, index, digest in nodes]
        self._connection.execute(_NEW_NODE, rows)
        self._nodes |= {(level, index): digest for level, index, digest in nodes}
        self.size += 1
        return seq

    def root(self) -> bytes:
        """Return the root hash, 32 bytes."""
        return merkle.root(self.size, self.read)


def _edge(size: int) -> list[Place]:
    """List the complete subtrees that a tree of this size is joined from: one for every bit of it."""
    return [(level, (size >> level) - 1) for level in range(size.bit_length()) if size >> level & 1]


def edge(likely: int) -> tuple[CompoundSelect[Any], dict[str, Any]]:
    """Return the query of `Tree`, and its values."""
    return _nodes_at(_edge(min(likely, _LARGEST)))


def _nodes_at(places: Sequence[Place]) -> tuple[CompoundSelect[Any], dict[str, Any]]:
    values: dict[str, Any] = {f"level{at}": level for at, (level, _) in enumerate(places)}
    values |= {f"idx{at}": index for at, (_, index) in enumerate(places)}
    return _nodes(len(places)), values | {"head": migrations.HEAD}


@lru_cache
def _nodes(count: int) -> CompoundSelect[Any]:
    """Build the query of so many nodes at once, each found by the table's key: SQLite would read the whole table for
    `(level, idx) IN`. And the last entry's index, in a row that has no level, and how new the ledger is.
    """
    level, idx, digest = node_table.c
    last = select(cast(null(), level.type), func.max(entry_table.c.seq), cast(null(), digest.type))
    places = [and_(level == bindparam(f"level{at}"), idx == bindparam(f"idx{at}")) for at in range(count)]
    return union_all(last, version_fence.row(), select(node_table).where(or_(false(), *places)))


def node_reader(connection: Connection) -> merkle.NodeReader:
    """Return a reader of subtrees' hashes; it raises LedgerInvalid where one is missing."""

    def read(level: int, index: int) -> bytes:
        found = connection.execute(_NODE, {"level": level, "idx": index}).scalar()
        if found is None:
            raise LedgerInvalid(f"node ({level}, {index}): missing from the tree")
        return bytes(found)

    return read


def at_once(connection: Connection, work: Callable[[merkle.NodeReader], T]) -> T:
    """Return what `work` makes of the subtrees that it reads: which these are, does not depend on what they hold, so
    they are asked for together.
    """
    places: dict[Place, None] = {}
    nodes: dict[Place, bytes] = {}

    def note(level: int, index: int) -> bytes:
        places[level, index] = None
        return merkle.EMPTY_ROOT

    def read(level: int, index: int) -> bytes:
        if (level, index) not in nodes:
            raise LedgerInvalid(f"node ({level}, {index}): missing from the tree")
        return nodes[level, index]

    work(note)
    for level, index, digest in connection.execute(*_nodes_at([*places])) if places else ():
        if digest is not None:
            nodes[level, index] = bytes(digest)
    return work(read)


def stream(connection: Connection, query: Select[Any]) -> Iterator[Any]:
    """Yield rows as they come, a thousand at a time: never all at once, and faster than one by one."""
    for rows in connection.execute(query, execution_options={"yield_per": 1000}).partitions():
        yield from rows


def leaves(connection: Connection) -> Iterator[tuple[int, bytes]]:
    """Yield every entry's index and exact bytes, unchecked."""
    for row in stream(connection, select(entry_table).order_by(entry_table.c.seq)):
        yield row[0], bytes(row[1])


def checkpoints(connection: Connection) -> Iterator[tuple[int, str]]:
    """Yield all signed checkpoints and the size each is filed under, whatever size somebody gave it."""
    for row in stream(connection, select(checkpoint_table).order_by(checkpoint_table.c.size)):
        yield row[0], str(row[1])


def page_of_checkpoints(connection: Connection, after: int, most: int) -> list[tuple[int, str]]:
    """Return at most so many signed checkpoints from the size `after` on, as `checkpoints` yields them."""
    query = select(checkpoint_table).where(checkpoint_table.c.size >= after).order_by(checkpoint_table.c.size)
    return [(row[0], str(row[1])) for row in connection.execute(query.limit(most))]


def question_of_body(seq: int) -> tuple[Select[Any], dict[str, Any]]:
    """Return the query of `body_at`, and its values."""
    return BODY, {"at": seq}


def question_of_size() -> tuple[Select[Any], dict[str, Any]]:
    """Return the query of `size`, and its values."""
    return _SIZE, {}


def body_at(connection: Connection, seq: int) -> bytes:
    """Return the bytes of the entry at an index. LedgerInvalid where there is none."""
    rows = rows_of(connection, BODY, {"at": seq})
    if not rows:
        raise LedgerInvalid(f"entry {seq}: not in the ledger")
    return bytes(rows[0][0])


def question_of_bodies(seqs: Iterable[int]) -> tuple[Select[Any], dict[str, Any]]:
    """Return the query of `read_bodies`, and its values."""
    return _BODIES, {"seqs": sorted(set(seqs))}


def read_bodies(connection: Connection, seqs: Iterable[int]) -> None:
    """Read these entries in one statement, for `body_at` in a snapshot that is shared."""
    known = at_hand(connection)
    if known is None:
        return
    for part in _unread(known, seqs):
        bodies = {seq: [(body,)] for seq, body in connection.execute(*question_of_bodies(part))}
        known |= {(BODY, seq): bodies.get(seq, []) for seq in part}


def questions_of_bodies(connection: Connection, seqs: Iterable[int]) -> Queries:
    """List what `read_bodies` will ask."""
    return [question_of_bodies(part) for part in _unread(at_hand(connection) or {}, seqs)]


def _unread(known: Container[Any], seqs: Iterable[int]) -> Iterator[Sequence[int]]:
    return batched(sorted({seq for seq in seqs if (BODY, seq) not in known}))


def batched(items: Sequence[Any], size: int = 10_000) -> Iterator[Sequence[Any]]:
    """Yield the items in parts that one statement takes."""
    for start in range(0, len(items), size):
        yield items[start : start + size]

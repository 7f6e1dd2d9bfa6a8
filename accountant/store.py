"""The ledger's database and its transactions. One transaction holds check and append; nothing else writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, create_engine, event, func, insert, select
from sqlalchemy.exc import DBAPIError

from accountant import merkle
from accountant.errors import InputError, LedgerInvalid
from accountant.tables import EVIDENCE, META, checkpoint_table, entry_table, node_table

class Store:
    """A database URL, opened. SQLite: WAL, synchronous=FULL, every writing transaction BEGIN IMMEDIATE."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = _engine(url)

    def create(self) -> None:
        """Tables and triggers, where they are not there yet."""
        with self.writing() as connection:
            META.create_all(connection)
            for table in EVIDENCE:
                for verb in ("UPDATE", "DELETE"):
                    connection.exec_driver_sql(
                        f"CREATE TRIGGER IF NOT EXISTS {table.name}_no_{verb.lower()} BEFORE {verb} ON {table.name} "
                        f"BEGIN SELECT RAISE(ABORT, '{table.name}: append only'); END"
                    )

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that holds the write lock from its first statement on: nobody else checks or appends
        meanwhile.
        """
        with self._connection() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent snapshot."""
        with self._connection() as connection:
            connection.exec_driver_sql("BEGIN")
            yield connection

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            with self.engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise LedgerInvalid(f"ledger database: {error.orig}") from error

    def close(self) -> None:
        self.engine.dispose()


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite:///"):
        raise InputError(f"ledger={url.split(':')[0]}: only sqlite:/// is supported by this version")
    engine = create_engine(url, connect_args={"timeout": 30.0})

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    return engine


def size(connection: Connection) -> int:
    """Number of entries."""
    last = connection.execute(select(func.max(entry_table.c.seq))).scalar()
    return 0 if last is None else int(last) + 1


def node_reader(connection: Connection) -> merkle.NodeReader:
    def read(level: int, index: int) -> bytes:
        found = connection.execute(
            select(node_table.c.hash).where(node_table.c.level == level, node_table.c.idx == index)
        ).scalar()
        if found is None:
            raise LedgerInvalid(f"node ({level}, {index}): missing from the tree")
        return bytes(found)

    return read


def append(connection: Connection, body: bytes) -> int:
    """One leaf with the subtrees it completes; returns its index. Only inside `writing`."""
    seq = size(connection)
    nodes = merkle.new_nodes(seq, merkle.leaf_hash(body), node_reader(connection))
    connection.execute(insert(entry_table).values(seq=seq, body=body))
    connection.execute(
        insert(node_table), [{"level": level, "idx": index, "hash": digest} for level, index, digest in nodes]
    )
    return seq


def stream(connection: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
    """Rows as they come, never all at once."""
    yield from connection.execute(query, execution_options={"yield_per": 1000})


def leaves(connection: Connection) -> Iterator[tuple[int, bytes]]:
    """Every entry's index and exact bytes, as they stand."""
    for row in stream(connection, select(entry_table).order_by(entry_table.c.seq)):
        yield row.seq, bytes(row.body)


def checkpoints(connection: Connection) -> Iterator[tuple[int, str]]:
    """Every signed checkpoint and the size it is filed under."""
    for row in stream(connection, select(checkpoint_table).order_by(checkpoint_table.c.size)):
        yield row.size, str(row.note)


def body_at(connection: Connection, seq: int) -> bytes:
    found = connection.execute(select(entry_table.c.body).where(entry_table.c.seq == seq)).scalar()
    if found is None:
        raise LedgerInvalid(f"entry {seq}: not in the ledger")
    return bytes(found)

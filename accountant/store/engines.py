"""The two databases that a ledger may live in, and what their errors mean.

SQLite: WAL, synchronous=FULL, a writing transaction is BEGIN IMMEDIATE. PostgreSQL: a writing transaction first takes
one advisory lock, so each statement after it sees all that was committed (READ COMMITTED does that), and nobody else
writes before its own commit is seen; a reading one is REPEATABLE READ READ ONLY.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from sqlalchemy import URL, Connection, Engine, MetaData, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from accountant.errors import LedgerReplaced
from accountant.store.queries import AHEAD, LATER, MEMORY, Queries, at_hand, key_of
from dpserve_verify.errors import DpserveError, InputError, LedgerInvalid, LedgerUnavailable

FORMS = "must be sqlite:///<file> or postgresql+psycopg://<user>:<password>@<host>/<database>"
LOCK = int.from_bytes(b"dpserve\0")
WAIT_SECONDS = 30.0  # for another writer
IDLE_SECONDS = 3.0  # between two statements of a writer, until PostgreSQL ends its session and lets the next one write
CHANNEL = "dpserve_queue"
_UNUSABLE_SQLITE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
# Connection, authorisation, read-only server, catalogue name, rollback, resources, locks, intervention, system.
_UNUSABLE_SQLSTATE = ("08", "28", "25006", "3D", "40", "53", "55", "57", "58")
Begin: TypeAlias = Callable[[Connection, Queries], None]
_ANNOUNCE = text(f"SELECT pg_notify('{CHANNEL}', '')").execution_options(**LATER)
CLOCK = text("SELECT extract(epoch FROM clock_timestamp())"), dict[str, Any]()  # of PostgreSQL: the question of `clock`
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

HIDDEN = "***"
MAX_CHECKED_BYTES = 64 << 20
OVERWRITTEN = (
    ": it was written over while it was open, or is damaged. Stop every dpserve of this home, delete ledger.db-wal and "
    "ledger.db-shm, put the newest copy at the place of ledger.db, and start again"
)


def open_engine(url: str) -> Engine:
    """Open the database's engine. InputError for any other database, and where the driver is not installed. No message
    holds the URL: it may hold a password.
    """
    parsed = _parse(url)
    if parsed.drivername == "sqlite":
        engine = create_engine(parsed, connect_args={"timeout": WAIT_SECONDS})
        event.listen(engine, "do_connect", lambda _dialect, _record, at, _how: _make_private(str(at[0])))
        event.listen(engine, "connect", _configure_sqlite)
        return engine
    try:
        from accountant.store.postgres_batches import BatchConnection, postpone  # the driver, which few have
        from accountant.store.postgres_timeout import REACHED

        reached = {name: value for name, value in REACHED.items() if name not in parsed.query}
        # As for SQLite: we say when a transaction begins.
        engine = create_engine(parsed, isolation_level="AUTOCOMMIT", connect_args=reached)
    except ImportError:
        raise InputError(
            "ledger=postgresql+psycopg: needs its driver: pip install 'psycopg[binary]' (the extra postgres)"
        ) from None
    event.listen(engine, "do_connect", lambda _dialect, _record, at, how: BatchConnection.connect(*at, **how))
    for name in ("do_execute", "do_executemany"):
        event.listen(engine, name, postpone)
    event.listen(engine, "connect", _configure_postgres)
    return engine


def without_secrets(url: str) -> str:
    """Return the URL as it may be shown: no password, nor any value of its query, which may be one."""
    try:
        parsed = make_url(url)
    except (SQLAlchemyError, ValueError):
        return HIDDEN
    return parsed.set(query=dict.fromkeys(parsed.query, HIDDEN)).render_as_string(hide_password=True)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (SQLAlchemyError, ValueError):
        raise InputError(f"ledger: {FORMS}") from None
    in_file = parsed.drivername == "sqlite" and parsed.host is None and parsed.database not in (None, "", ":memory:")
    if not in_file and parsed.drivername != "postgresql+psycopg":
        raise InputError(f"ledger={parsed.drivername}: {FORMS}")
    return parsed


def _make_private(path: str) -> None:
    """Begin the file that is not there yet, and take from others what an older one gave them, in any folder and under
    any umask: it names tokens, grants and people who asked. SQLite gives what it puts beside it the same mode.
    """
    if path.startswith("file:"):  # a URI of SQLite's
        return
    with suppress(OSError):  # it is there; or SQLite says what is wrong with the folder
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(OSError):  # another user's, or a disk that is only read
            mode = os.stat(name).st_mode & 0o7777
            if mode & 0o077:
                os.chmod(name, mode & 0o700)


def _configure_sqlite(connection: Any, record: Any) -> None:
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    record.info["file"] = path, _identity(path)
    connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
    _keep_log(connection)
    # recursive_triggers: without it REPLACE deletes behind the triggers' back
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "recursive_triggers=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _keep_log(connection: Any) -> None:
    """Set journal_mode=WAL, which a file keeps. SQLite does not wait for another writer while it changes it, whatever
    the timeout says: of two who begin a file at once the second would be refused.
    """
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return connection.execute("PRAGMA journal_mode=WAL").close()  # type: ignore[no-any-return]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


def state_of_file(engine: Engine) -> tuple[int, int] | None:
    """Return size and time of change of the ledger's file, which a checkpoint of its log changes, and somebody who
    writes over it; None where it is no file, or one that is too large to be checked whenever that happens.
    """
    if engine.dialect.name != "sqlite":
        return None
    with suppress(OSError):
        status = os.stat(engine.url.database or "")
        return (status.st_size, status.st_mtime_ns) if status.st_size <= MAX_CHECKED_BYTES else None
    return None


def last_written(engine: Engine) -> tuple[tuple[int, int, int], ...] | None:
    """Return what every commit changes: size, time of change in nanoseconds and number of the ledger's file and of its
    log. None where it is no file: a server is asked.
    """
    if engine.dialect.name != "sqlite":
        return None
    found = []
    for end in ("", "-wal"):
        with suppress(OSError):
            status = os.stat(f"{engine.url.database}{end}")
            found.append((status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(found)


def check_pages(connection: Connection) -> None:
    """Raise LedgerReplaced unless the pages of a file and of its log belong together; a server has its own care."""
    if connection.dialect.name != "sqlite":
        return
    if connection.exec_driver_sql("PRAGMA quick_check(1)").scalar() != "ok":
        raise LedgerReplaced(f"ledger database: its pages do not belong together{OVERWRITTEN}")


def _identity(path: str) -> tuple[int, int] | None:
    """Return the identity of the file at `path`; None where there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def is_gone(engine: Engine) -> bool:
    """Return whether the ledger's file is missing or empty: connecting would begin another."""
    name = engine.url.database or ""
    if engine.dialect.name != "sqlite" or name.startswith("file:"):
        return False
    return not os.path.exists(name) or os.path.getsize(name) == 0


def check_file(connection: Connection) -> None:
    """Raise LedgerReplaced unless the file at the ledger's place is the one that was opened, and its log the one that
    was there with it: SQLite would go on with files that nobody else sees any more.
    """
    path, opened = connection.info.get("file", ("", None))  # PostgreSQL has none
    if not path:
        return
    log = _identity(f"{path}-wal")  # it is made with the first transaction, and stays while anybody has the file open
    known = connection.info["log"] = connection.info.get("log") or log
    if _identity(path) != opened or known != log:
        raise LedgerReplaced(
            "ledger: its file was deleted or replaced while it was open; put it back, or the newest copy, which is "
            "compared with what these keys signed"
        )


def _configure_postgres(connection: Any, _record: Any) -> None:
    """Set what a server may have been told to relax; what it was told to tighten stays."""
    connection.autocommit = True
    connection.execute(
        "SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' "
        "THEN 'remote_apply' ELSE 'on' END, false), set_config('lock_timeout', %s, false)",
        (f"{WAIT_SECONDS * 1000:.0f}ms",),
    ).close()


def begin_writing(connection: Connection, first: Queries = ()) -> None:
    """Begin a transaction, and hold the write lock from here to its end. `first`: as for `begin_reading`."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:  # a writer that stands still would keep everybody waiting: the server ends its session, and so its lock
        idle = f"set_config('idle_in_transaction_session_timeout', '{IDLE_SECONDS * 1000:.0f}ms', true)"
        driver = _driver(connection)
        driver.waiting.append("BEGIN ISOLATION LEVEL READ COMMITTED")
        driver.writes = True
        ask_ahead(connection, first)
        connection.exec_driver_sql(f"SELECT {idle}, pg_advisory_xact_lock({LOCK})")


def begin_reading(connection: Connection, first: Queries = ()) -> None:
    """Begin a transaction that sees one state of the database from its first statement on. `first`: what will be asked
    in it, and comes with the beginning from a server that is far. Within `remembering` it begins where something is
    asked that is not remembered.
    """
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN")
        return
    if MEMORY.get() is None:
        ask_ahead(connection, first)
        connection.exec_driver_sql(_READING)
    else:
        _begin_lazily(connection)


def begin_sharing(connection: Connection, first: Queries = ()) -> None:
    """Begin as `begin_reading` does, with the first statement: of a server that is far, no message of its own."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN")
        return
    is_new = MEMORY.get() is None
    _begin_lazily(connection)
    if is_new:
        ask_ahead(connection, first)


def ask_with_next(connection: Connection, queries: Queries) -> None:
    """Ask with the next statement of a shared snapshot what is not at hand there, as `ask_ahead`."""
    known = at_hand(connection)
    if known is not None and MEMORY.get() is None:
        ask_ahead(connection, [query for query in queries if key_of(*query) not in known])


def _begin_lazily(connection: Connection) -> None:
    driver, memory = _driver(connection), MEMORY.get()
    driver.memory, driver.remembers = {} if memory is None else memory, True
    driver.waiting.append(_READING)


def ask_at_once(connection: Connection, first: Queries = ()) -> None:
    """Ask all of `first` in a transaction that is over then. Within `remembering`, and of PostgreSQL alone."""
    if connection.dialect.name == "postgresql":
        _begin_lazily(connection)
        ask_ahead(connection, first)
        connection.exec_driver_sql("COMMIT")


def ask_ahead(connection: Connection, queries: Queries) -> None:
    """Ask with the next statement what will be asked soon: the answers are remembered until something is written."""
    if connection.dialect.name == "postgresql":
        for statement, values in queries:
            connection.execute(statement, values, execution_options=AHEAD)


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


def disable_timeout(connection: Connection) -> None:
    """Wait for each statement of this connection as long as it takes; it does not return to the pool."""
    if connection.dialect.name == "postgresql":
        connection.connection.driver_connection.no_timeout = True  # type: ignore[union-attr]
        connection.detach()


def drop_tables(connection: Connection) -> None:
    """Drop every table, and what protects the evidence. Only inside `Store.writing`."""
    tables = MetaData()
    tables.reflect(connection)
    tables.drop_all(connection)
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("DROP FUNCTION append_only()")


def clock(connection: Connection) -> float:
    """Return seconds since 1970 by the database's clock, one for all who share a ledger. SQLite runs in this process:
    there it is this machine's.
    """
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.execute(*CLOCK).scalar_one())


def has_own_clock(connection: Connection) -> bool:
    """Return whether `clock` is a server's, which no host that asks can set back."""
    return connection.dialect.name != "sqlite"


def announce(connection: Connection) -> None:
    """Tell who listens that a job was queued, as soon as this transaction is committed; only PostgreSQL can."""
    if connection.dialect.name == "postgresql":
        connection.execute(_ANNOUNCE)


def listen(engine: Engine) -> Any:
    """Open a driver's connection that receives what is announced from now on; None where the database cannot notify."""
    if engine.dialect.name != "postgresql":
        return None
    pooled = engine.raw_connection()
    line: Any = pooled.driver_connection
    pooled.detach()  # the pool never sees it again
    try:
        line.execute(f"LISTEN {CHANNEL}")
    except BaseException:
        line.close()
        raise
    return line


def open_transaction(engine: Engine, begin: Begin, first: Queries = (), again: bool = True) -> Connection:
    """Open a connection and begin its transaction. A connection that died in the pool is replaced once: nothing was
    done on it.
    """
    connection = engine.connect()
    try:
        begin(connection, first)
        check_file(connection)
    except BaseException as error:
        connection.close()
        if again and isinstance(error, DBAPIError) and error.connection_invalidated:
            return open_transaction(engine, begin, first, again=False)
        raise
    return connection


def meaning(error: SQLAlchemyError) -> DpserveError:
    """Return LedgerUnavailable where the database cannot be used for now, LedgerInvalid where it holds what it must
    not.
    """
    orig = error.orig if isinstance(error, DBAPIError) else error
    text = f"ledger database: {str(orig).strip().splitlines()[0] if str(orig).strip() else type(orig).__name__}"
    if (getattr(orig, "sqlite_errorcode", None) or 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return LedgerReplaced(f"{text}{OVERWRITTEN}")
    return LedgerUnavailable(text) if _unusable(error, orig) else LedgerInvalid(text)


def _unusable(error: SQLAlchemyError, orig: BaseException | None) -> bool:
    if not isinstance(error, DBAPIError):
        return True  # the pool: no connection came free
    if isinstance(orig, sqlite3.Error):
        return (getattr(orig, "sqlite_errorcode", 0) & 0xFF) in _UNUSABLE_SQLITE
    state = getattr(orig, "sqlstate", None)
    if error.connection_invalidated or (state is None and isinstance(error, OperationalError | InterfaceError)):
        return True
    return state is not None and state.startswith(_UNUSABLE_SQLSTATE)

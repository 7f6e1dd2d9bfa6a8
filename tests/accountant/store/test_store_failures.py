"""When the database cannot be used: full, locked, gone. Said so, and the ledger is as it was."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from decimal import Decimal
from threading import Timer
from types import SimpleNamespace

import pytest
from faulty_wire import SilentWire
from ledgers import ROOT, append_unsigned, place, plan, registration, request, reserve
from postgres import server
from sqlalchemy import event, make_url, text
from stores import at, kind, snapshot

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger import family_changes
from accountant.store import engines, postgres_timeout
from accountant.store.store import Store
from dpserve_verify.errors import LedgerUnavailable


@pytest.fixture
def home(ledger_url, tmp_path):
    opened = Home.init(at(tmp_path / "home", ledger_url))
    opened.ledger.register(registration())
    yield opened
    opened.ledger.log.database.close()


@pytest.mark.slow
@pytest.mark.parametrize("room", range(5))
def test_a_full_disk_changes_nothing(home, room):
    """Wherever in a transaction the disk is first found full, the ledger stays as it was."""
    database = home.ledger.log.database
    undo = FILL[kind(database)](database, room)
    error, before = None, None
    while error is None:
        before, error = snapshot(home), failure(lambda: reserve(home.ledger, request(epsilon="0.1"), plan(count=1)))
    assert "disk is full" in error.message or "No space left" in error.message
    assert snapshot(home) == before
    undo()
    reserve(home.ledger)
    assert audit_home(home).problems == ()


def failure(action) -> LedgerUnavailable | None:
    try:
        action()
    except LedgerUnavailable as error:
        return error
    return None


def allow_pages(database: Store, room: int):
    """SQLite gets so many more pages; returns what takes that back."""
    with database.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar() + room

    def limit(connection, _record):
        connection.execute(f"PRAGMA max_page_count = {pages}").close()

    def lift():
        event.remove(database.engine, "connect", limit)
        database.close()

    database.close()
    event.listen(database.engine, "connect", limit)
    return lift


FULL = "$$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$"


def refuse_table(database: Store, number: int):
    """PostgreSQL says that the disk is full when this table grows; returns what takes that back."""
    table = ("entry", "node", "job", "family", "checkpoint")[number]

    def run(*statements):
        with database.writing() as connection:
            for statement in statements:
                connection.execute(text(statement))

    function = f"CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS {FULL}"
    run(function, f"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION full_disk()")
    return lambda: run(f"DROP TRIGGER full_disk ON {table}")


FILL = {"sqlite": allow_pages, "postgresql": refuse_table}


LIMITED = """
import resource, sys
from ledgers import place, reserve
from pathlib import Path
from accountant.errors import LedgerUnavailable
from accountant.home import Home
from accountant.ledger import family_changes
home = Home.open(place(Path(sys.argv[1])))
reserve(home.ledger)
size = (home.path / "ledger.db-wal").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5000, size + 5000))
try:
    for _ in range(20):
        reserve(home.ledger)
except LedgerUnavailable as error:
    print(error.message)
"""


@pytest.mark.slow
def test_a_file_that_cannot_grow_changes_nothing(tmp_path):
    """The operating system refuses the write itself."""
    home = Home.init(place(tmp_path / "home"))
    home.ledger.register(registration())
    paths = [str(ROOT), str(ROOT / "tests" / "helpers")]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths}\n{LIMITED}", str(home.path)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "disk" in done.stdout
    reserve(home.ledger)
    assert audit_home(home).problems == ()


def test_a_locked_database_is_waited_for_and_no_longer(home, ledger_url, monkeypatch):
    monkeypatch.setattr(engines, "WAIT_SECONDS", 0.2)
    hasty, before = Home.open(at(home.path, ledger_url)), snapshot(home)
    with home.ledger.log.database.writing(), pytest.raises(LedgerUnavailable, match="lock"):
        hasty.ledger.log.database.writing().__enter__()
    assert snapshot(home) == before
    monkeypatch.undo()  # a busy machine may take a while between two statements
    assert reserve(hasty.ledger).seq == 2
    hasty.ledger.log.database.close()


def test_a_file_that_another_begins_is_waited_for(tmp_path):
    """SQLite itself waits for no writer where a new file is told to keep its log."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, check_same_thread=False) as other:
        other.execute("BEGIN IMMEDIATE")
        Timer(0.2, other.rollback).start()
        Store(url).create()
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()


def test_a_mark_that_cannot_be_written_is_found_before_anything_is_signed(home):
    mark = home.ledger.log._mark
    path, before = mark.path, snapshot(home)
    (path.parent / (path.name + ".lock")).unlink()
    (path.parent / (path.name + ".lock")).mkdir()
    with pytest.raises(LedgerUnavailable, match="cannot be opened"):
        reserve(home.ledger)
    assert snapshot(home) == before


# PostgreSQL alone: a server at the other end of a wire.


@pytest.fixture
def remote(tmp_path):
    url = server().fresh()
    home = Home.init(at(tmp_path / "home", url))
    home.ledger.register(registration())
    yield SimpleNamespace(home=home, name=make_url(url).database)
    home.ledger.log.database.close()


def cut(name: str) -> None:
    """End every session in the database."""
    server().execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


@pytest.mark.slow
def test_connections_that_died_in_the_pool_are_replaced(remote):
    ledger = remote.home.ledger
    for write in (True, False):
        cut(remote.name)
        assert reserve(ledger).seq if write else ledger.jobs()


def cut_between(ledger, name: str) -> None:
    with ledger.log.database.writing() as connection:
        append_unsigned(connection, b"x")
        cut(name)
        append_unsigned(connection, b"y")


def cut_at_commit(ledger, name: str) -> None:
    with ledger.log.writing() as writer:
        family_changes.set_quota(writer, "adult", "alice", Decimal("0.5"), "a test", "steward")
        commit = writer.connection.commit
        writer.connection.commit = lambda: (cut(name), commit())


CUTS = [(cut_between, "terminat"), (cut_at_commit, "whether it was written is not known: look before asking again")]


@pytest.mark.slow
@pytest.mark.parametrize(("attempt", "words"), CUTS)
def test_a_connection_that_breaks_in_a_transaction(remote, attempt, words):
    before = snapshot(remote.home)
    with pytest.raises(LedgerUnavailable, match=words):
        attempt(remote.home.ledger, remote.name)
    assert snapshot(remote.home) == before
    reserve(remote.home.ledger)
    assert audit_home(remote.home).problems == ()


def test_a_database_that_lets_nobody_in(remote):
    database = remote.home.ledger.log.database
    database.close()
    server().execute(f"ALTER DATABASE {remote.name} ALLOW_CONNECTIONS false")
    with pytest.raises(LedgerUnavailable, match="not currently accepting connections"):
        reserve(remote.home.ledger)
    server().execute(f"ALTER DATABASE {remote.name} ALLOW_CONNECTIONS true")
    reserve(remote.home.ledger)


@pytest.fixture
def silent(remote, monkeypatch):
    """The same home behind a wire that can fall silent, and patience for a second."""
    monkeypatch.setattr(postgres_timeout, "ANSWER_SECONDS", 1.0)
    monkeypatch.setitem(postgres_timeout.REACHED, "connect_timeout", 2)
    wire = SilentWire(server().folder)
    home = Home.open(at(remote.home.path, wire.url(remote.name)))
    yield SimpleNamespace(home=home, wire=wire, direct=remote.home)
    home.ledger.log.database.close()
    wire.close()


def commit_in_silence(silent) -> None:
    with silent.home.ledger.log.writing() as writer:
        family_changes.set_quota(writer, "adult", "alice", Decimal("0.5"), "a test", "steward")
        commit = writer.connection.commit
        writer.connection.commit = lambda: (silent.wire.silent.set(), commit())


SILENCES = {
    "read": lambda silent: silent.home.ledger.jobs(),
    "write": lambda silent: reserve(silent.home.ledger),
    "connect": lambda silent: (silent.home.ledger.log.database.close(), silent.home.ledger.jobs()),
    "open": lambda silent: Home.open(at(silent.home.path, silent.home.ledger.log.database.url)),
}


@pytest.mark.slow
@pytest.mark.parametrize("attempt", SILENCES)
def test_nobody_waits_for_ever_for_a_database_that_never_answers(silent, attempt):
    """And when it answers again all is as before."""
    before, began = snapshot(silent.direct), time.monotonic()
    silent.wire.silent.set()
    with pytest.raises(LedgerUnavailable, match="no answer within 1 seconds|timeout"):
        SILENCES[attempt](silent)
    assert time.monotonic() - began < 20
    assert snapshot(silent.direct) == before
    silent.wire.silent.clear()
    assert reserve(silent.home.ledger).seq == 2
    assert audit_home(silent.home).problems == ()


@pytest.mark.slow
def test_a_commit_that_is_not_answered_is_said_to_be_unknown_and_nothing_is_lost(silent):
    with pytest.raises(LedgerUnavailable, match="no answer within 1 seconds.* whether it was written is not known"):
        commit_in_silence(silent)
    assert silent.direct.ledger.log.size() == 3
    silent.wire.silent.clear()
    assert reserve(silent.home.ledger, key="once").seq == 3
    silent.wire.silent.set()
    with pytest.raises(LedgerUnavailable):
        reserve(silent.home.ledger, key="once")
    silent.wire.silent.clear()
    assert reserve(silent.home.ledger, key="once").seq == 3


@pytest.mark.slow
def test_what_takes_its_time_is_waited_for_where_that_is_said(silent):
    database = silent.home.ledger.log.database
    with database.writing() as connection:
        engines.disable_timeout(connection)
        connection.exec_driver_sql("SELECT pg_sleep(1.5)")
    with pytest.raises(LedgerUnavailable, match="no answer"), database.writing() as connection:
        connection.exec_driver_sql("SELECT pg_sleep(1.5)")
    with database.reading() as connection:
        known = connection.connection.driver_connection.info.get_parameters()
    assert (known["tcp_user_timeout"], known["keepalives_idle"], known["connect_timeout"]) == ("15000", "10", "2")


def test_a_relaxed_server_is_tightened(remote):
    server().execute(f"ALTER DATABASE {remote.name} SET synchronous_commit = off")
    server().execute(f"ALTER DATABASE {remote.name} SET default_transaction_isolation = serializable")
    database = remote.home.ledger.log.database
    database.close()
    with database.writing() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
        assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar() == "3s"
    server().execute(f"ALTER DATABASE {remote.name} SET synchronous_commit = remote_apply")
    database.close()
    with database.reading() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "remote_apply"
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "repeatable read"

"""The two databases: transactions that are whole or nothing, evidence that stays, and clear words when they fail."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from ledgers import advance, append_unsigned, registration, request, reserve
from postgres import server
from sqlalchemy import event, make_url, text
from stores import at, kind, rows, snapshot

from accountant.audit.audit import audit_home
from accountant.errors import NameTaken
from accountant.home import Home
from accountant.store import store
from accountant.store.store import Store, Tree
from accountant.store.tables import EVIDENCE, entry_table
from dpserve_verify.errors import DpserveError, InputError, LedgerInvalid, LedgerUnavailable
from dpserve_verify.formats import merkle

SECRET = "hunter2hunter2"


@pytest.fixture
def database(ledger_url):
    opened = Store(ledger_url)
    opened.create()
    yield opened
    opened.close()


@pytest.fixture
def environment(ledger_url, tmp_path) -> dict[str, str]:
    return at(tmp_path / "home", ledger_url)


@pytest.fixture
def home(environment):
    opened = Home.init(environment)
    opened.ledger.register(registration())
    yield opened
    opened.ledger.log.database.close()


def test_a_ledger_is_its_owners_alone_in_any_folder_and_under_any_umask(tmp_path):
    """The file and what SQLite puts beside it; of an older one, others lose what they had."""
    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        for round_ in range(2):
            opened = Store(f"sqlite:///{tmp_path / 'ledger.db'}")
            if not round_:
                opened.create()
            with opened.reading():
                files = sorted(tmp_path.glob("ledger.db*"))
                assert len(files) == 3
                assert {oct(file.stat().st_mode & 0o7777) for file in files} == {"0o600"}
            opened.close()
            (tmp_path / "ledger.db").chmod(0o644)
    finally:
        os.umask(before)


# Which database.

REFUSED = [
    "", "nonsense", "postgresql", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite+pysqlite:////tmp/x.db",
    f"postgresql://u:{SECRET}@h/d", f"postgresql+psycopg2://u:{SECRET}@h/d", f"mysql://u:{SECRET}@h/d",
    f"postgresql+psycopg://u:{SECRET}@h:port/d", f"://u:{SECRET}@h/d", f"u:{SECRET}@h",
    f"postgresql+psycopg:u:{SECRET}",
]  # fmt: skip


@pytest.mark.parametrize("url", REFUSED)
def test_any_other_url_is_refused_and_no_password_is_shown(url):
    with pytest.raises(InputError, match=r"must be sqlite:///<file> or postgresql\+psycopg://") as caught:
        Store(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_missing_driver_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InputError, match=r"pip install \'psycopg\[binary\]\' \(the extra postgres\)") as caught:
        Store(f"postgresql+psycopg://u:{SECRET}@h/d")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url", [f"postgresql+psycopg://u:{SECRET}@127.0.0.1:1/d", "sqlite:////nowhere/at/all.db"], ids=["port", "folder"]
)
def test_what_cannot_be_reached_is_said_so(url):
    if url.startswith("postgresql"):
        pytest.importorskip("psycopg")
    with pytest.raises(LedgerUnavailable, match="ledger database: ") as caught, Store(url).writing():
        pass
    assert SECRET not in str(caught.value)
    assert caught.value.exit_code == 1


def test_what_is_no_database_is_refused(tmp_path):
    (tmp_path / "x.db").write_bytes(b"not a database, and long enough to be looked at " * 100)
    with pytest.raises(LedgerInvalid, match="file is not a database"):
        Store(f"sqlite:///{tmp_path / 'x.db'}").create()


# Evidence stays.

CHANGES = ["UPDATE {0} SET {1} = {1}", "DELETE FROM {0}", "DELETE FROM {0} WHERE {1} = 0"]
BEHIND = {
    "sqlite": ["INSERT OR REPLACE INTO {0} SELECT * FROM {0}", "REPLACE INTO {0} SELECT * FROM {0}"],
    "postgresql": ["TRUNCATE {0}", "TRUNCATE {0} CASCADE"],
}


@pytest.mark.parametrize("table", [table.name for table in EVIDENCE])
def test_evidence_cannot_be_changed(home, table):
    database = home.ledger.log.database
    column = {"entry": "seq", "node": "level", "checkpoint": "size"}[table]
    with database.writing() as connection:  # so that every statement finds a row
        if table == "checkpoint":
            connection.execute(text("INSERT INTO checkpoint VALUES (0, '', 0)"))
    before = snapshot(home)
    for change in (*CHANGES, *BEHIND[kind(database)]):
        with pytest.raises(LedgerInvalid, match=f"{table}: append only"), database.writing() as connection:
            connection.execute(text(change.format(table, column)))
    assert snapshot(home) == before


def test_bytes_come_back_as_bytes(database):
    body = bytes(range(256)) * 8
    with database.writing() as connection:
        assert append_unsigned(connection, body) == 0
    with database.reading() as connection:
        assert list(store.leaves(connection)) == [(0, body)]
        assert type(connection.execute(entry_table.select()).one().body) is bytes
        assert type(store.node_reader(connection)(0, 0)) is bytes


# Whole or nothing, and one state.


class Stop(Exception):
    pass


def append_and_stop(home):
    with home.ledger.log.writing() as writer:
        writer.append("dataset-archived", dataset="adult", reason="a test", by="test")
        raise Stop


def append_and_delete(home):
    with home.ledger.log.database.writing() as connection:
        append_unsigned(connection, b"first")
        connection.execute(text("DELETE FROM entry"))


def append_twice(home):
    with home.ledger.log.database.writing() as connection:
        append_unsigned(connection, b"first")
        connection.execute(entry_table.insert().values(seq=0, body=b"again"))


@pytest.mark.parametrize(
    ("attempt", "error"), [(append_and_stop, Stop), (append_and_delete, LedgerInvalid), (append_twice, LedgerInvalid)]
)
def test_a_transaction_is_whole_or_nothing(home, attempt, error):
    before = snapshot(home)
    with pytest.raises(error):
        attempt(home)
    assert snapshot(home) == before
    assert reserve(home.ledger).seq == 2


def test_a_snapshot_does_not_move(database):
    with database.writing() as connection:
        append_unsigned(connection, b"before")
    with database.reading() as reader:
        assert store.size(reader) == 1
        with database.writing() as connection:
            append_unsigned(connection, b"meanwhile")
        assert store.size(reader) == 1
        assert [body for _, body in store.leaves(reader)] == [b"before"]
    with database.reading() as reader:
        assert store.size(reader) == 2


def test_nobody_writes_into_the_snapshot_that_is_shared(database):
    with database.sharing():
        with pytest.raises(DpserveError, match="write outside") as refused, database.writing():
            pass
        assert (refused.value.code, refused.value.exit_code) == ("internal", 1)
    with database.writing() as connection:
        append_unsigned(connection, b"after it")


def test_a_reading_transaction_writes_nothing_on_postgresql(database):
    if kind(database) == "sqlite":
        with database.reading() as connection:
            append_unsigned(connection, b"never committed")
    else:
        with pytest.raises(LedgerUnavailable, match="read-only"), database.reading() as connection:
            append_unsigned(connection, b"x")
    with database.reading() as connection:
        assert store.size(connection) == 0


def test_writers_take_turns(database):
    """Eight threads read the size, wait for each other to be in the way, and append: no number comes twice."""

    def write():
        for _ in range(10):
            with database.writing() as connection:
                append_unsigned(connection, threading.current_thread().name.encode())

    threads = [threading.Thread(target=write, name=f"writer {number}") for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.reading() as connection:
        found = [body for _, body in store.leaves(connection)]
    assert sorted(found) == sorted(f"writer {number}".encode() for number in range(8) for _ in range(10))


def naive_root(bodies: list[bytes]) -> bytes:
    """RFC 6962, 2.1, word for word."""
    if len(bodies) < 2:
        return hashlib.sha256(b"\0" + bodies[0] if bodies else b"").digest()
    split = 1 << (len(bodies) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + naive_root(bodies[:split]) + naive_root(bodies[split:])).digest()


def test_the_tree_in_memory_is_the_tree_in_the_table(database):
    """Appended one by one and by the handful, the roots are those of the naive definition."""
    bodies = [b"%d" % number for number in range(70)]
    for low, high in [(0, 1), (1, 2), (2, 9), (9, 9), (9, 33), (33, 70)]:
        with database.writing() as connection:
            tree = Tree(connection)
            assert tree.size == low
            assert [tree.append(body, lambda seq, entry: None) for body in bodies[low:high]] == list(range(low, high))
            assert tree.root() == naive_root(bodies[:high])
        with database.reading() as connection:
            assert Tree(connection).root() == naive_root(bodies[:high])


def test_a_proof_asks_the_database_a_few_times(database):
    """Every inclusion proof of every size by one question."""
    asked = []
    event.listen(database.engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
    bodies = [b"%d" % number for number in range(40)]
    for count in range(1, 41):
        with database.writing() as connection:
            append_unsigned(connection, bodies[count - 1])
        for index in {0, count // 3, count // 2, count - 1}:
            with database.reading() as connection:
                before = len(asked)
                path = store.at_once(connection, partial(merkle.inclusion_proof, index, count))
                assert len(asked) == before + (count > 1)
            root = naive_root(bodies[:count])
            merkle.verify_inclusion(index, count, merkle.leaf_hash(bodies[index]), path, root)


def test_a_tree_of_another_size_than_was_likely_is_the_tree(database):
    """Whatever a mark says; where it is right, the database is asked once."""
    asked = []
    event.listen(database.engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
    for count in (0, 1, 2, 7, 8, 21):
        bodies = [b"%d" % number for number in range(count)]
        with database.writing() as connection:
            for body in bodies[store.size(connection) :]:
                append_unsigned(connection, body)
        for likely in (*range(25), 2**53, 2**62, 10**19 - 1):
            with database.reading() as connection:
                before = len(asked)
                tree = Tree(connection, likely)
                assert len(asked) == before + (1 if likely == count else 2)
                assert (tree.size, tree.root()) == (count, naive_root(bodies))
                assert len(asked) == before + (1 if likely == count else 2)  # its right edge is there
                for index in {0, count // 2, count - 1} if count else ():
                    path = merkle.inclusion_proof(index, count, tree.read)
                    merkle.verify_inclusion(index, count, merkle.leaf_hash(bodies[index]), path, naive_root(bodies))


def test_a_missing_subtree_is_named(database):
    with database.writing() as connection:
        connection.execute(entry_table.insert().values(seq=0, body=b"no node for it"))
    with database.reading() as connection, pytest.raises(LedgerInvalid, match=r"node \(0, 0\): missing"):
        Tree(connection).root()
    with database.reading() as connection, pytest.raises(LedgerInvalid, match=r"node \(0, 0\): missing"):
        store.at_once(connection, partial(merkle.root, 1))


def test_every_error_of_a_store_is_ours(database):
    with pytest.raises(DpserveError, match="ledger database: "), database.reading() as connection:
        connection.execute(text("SELECT nonsense FROM nowhere"))


# Two accountants on one database, and yesterday's database.


def elsewhere(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """The same keys on another host: a home with its own high-water mark, over the same database."""
    keys = Path(environment["DPSERVE_HOME"]) / "keys"
    shutil.copytree(keys, folder / "keys")
    return at(folder, environment["DPSERVE_LEDGER_URL"])


def test_two_accountants_on_one_database(home, environment, tmp_path):
    other = Home.open(elsewhere(environment, tmp_path / "other"))
    seen = []
    for turn in range(6):
        ledger = (home, other)[turn % 2].ledger
        seen.append(reserve(ledger, request(turn=turn)).seq)
        advance((other, home)[turn % 2].ledger, seen[-1], "started")
    assert seen == list(range(2, 14, 2))
    with pytest.raises(NameTaken):
        other.ledger.register(registration())
    assert home.ledger.jobs() == other.ledger.jobs()
    assert home.ledger.log.checkpoint() == other.ledger.log.checkpoint()
    assert audit_home(home).problems == ()
    other.ledger.log.database.close()


def copy_of(home: Home, folder: Path) -> str:
    """The URL of a copy of the database as it stands."""
    database = home.ledger.log.database
    database.close()
    url = make_url(database.url)
    if url.drivername != "sqlite":
        return server().copy(url.database)
    with sqlite3.connect(url.database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(url.database, folder / "yesterday.db")
    return f"sqlite:///{folder / 'yesterday.db'}"


def test_yesterdays_database_is_found(home, environment, tmp_path):
    reserve(home.ledger)
    yesterday = environment | {"DPSERVE_LEDGER_URL": copy_of(home, tmp_path)}
    Home.open(yesterday).ledger.log.database.close()  # today it is the same
    advance(home.ledger, 2, "started")
    with pytest.raises(LedgerInvalid, match="rolled back"):
        Home.open(yesterday)


def test_yesterdays_database_that_went_on_is_found(home, environment, tmp_path):
    """Restored behind the back of a running accountant, and grown past its mark by another one."""
    reserve(home.ledger)
    yesterday = environment | {"DPSERVE_LEDGER_URL": copy_of(home, tmp_path)}
    fork = Home.open(elsewhere(yesterday, tmp_path / "fork"))
    advance(home.ledger, 2, "started")
    for _ in range(2):
        reserve(fork.ledger)
    with pytest.raises(LedgerInvalid, match="rewritten"):
        Home.open(yesterday)
    home.ledger.log.database.close()
    home.ledger.log.database = fork.ledger.log.database
    before = rows(fork.ledger.log.database)
    with pytest.raises(LedgerInvalid, match="rewritten"):
        reserve(home.ledger)
    assert rows(fork.ledger.log.database) == before

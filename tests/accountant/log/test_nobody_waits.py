"""No lock of this host is held while a database is asked: who stands still keeps no other from the ledger.

The mark catches what it caught before: a writer on another history than the mark's gets no answer that it could act on.
"""

from __future__ import annotations

import sqlite3
import threading

import pytest
from ledgers import place, registration, reserve
from postgres import server
from sqlalchemy import make_url
from stores import at, snapshot

from accountant.access import tokens
from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.log import last_seen
from accountant.log.last_seen import HighWater
from accountant.store import engines
from dpserve_verify.errors import LedgerInvalid, LedgerUnavailable
from serving.process.tokens import rights


@pytest.fixture
def home(begun):
    opened = begun(registration())
    opened.ledger.register(registration("spare"))
    tokens.create(opened.ledger, "shop", ["predict"], "ab" * 32)
    yield opened
    opened.ledger.log.database.close()


def mark_of(home: Home) -> HighWater:
    return HighWater(home.path / "keys" / "high-water.json")


def other(home: Home) -> Home:
    """The same home, as another process has it open."""
    return Home.open(place(home.path))


def write_one(writer, kind: str = "dataset-archived") -> None:
    """Append an entry that an audit accepts, and that no other of these tests is about."""
    writer.append(kind, dataset="spare", reason="a test", by="steward")


def after_commit(writer, then) -> None:
    """Let `then` happen between the commit of this transaction and what follows it."""
    commit = writer.connection.commit
    writer.connection.commit = lambda: (commit(), then())


def test_who_holds_the_mark_keeps_no_reader_waiting_and_a_writer_for_a_stated_time(home, monkeypatch):
    monkeypatch.setattr(last_seen, "WAIT_SECONDS", 0.1)
    before = snapshot(home)
    with mark_of(home).locked():
        assert [each.token.name for each in rights(home).bearers.values()] == ["shop"]
        home.ledger.log.check_mark()
        assert other(home).trust == home.trust
        with pytest.raises(LedgerUnavailable, match="it stands still: let it go on, or end it"):
            reserve(home.ledger)
    assert snapshot(home) == before
    assert reserve(home.ledger).seq == len(before[0]["entry"])


def test_a_writer_that_stands_still_keeps_no_reader_waiting(home):
    with home.ledger.log.writing() as writer:
        write_one(writer)
        reader = other(home)
        assert [each.token.name for each in rights(reader).bearers.values()] == ["shop"]
        assert reader.ledger.log.size() == writer.tree.size - 1
    assert reader.ledger.log.size() == writer.tree.size


@pytest.mark.parametrize("begun", ["postgresql"], indirect=True)
def test_a_writer_that_stands_still_is_ended_by_the_server(home, monkeypatch):
    """On PostgreSQL, whose server knows: the next writer's turn comes, and what the first was about to write is not."""
    monkeypatch.setattr(engines, "IDLE_SECONDS", 0.5)
    second, size = other(home), home.ledger.log.size()

    def stand_still() -> None:
        with home.ledger.log.writing() as writer:
            monkeypatch.undo()
            write_one(writer)
            assert reserve(second.ledger).seq == size  # it waits, and no longer than that

    with pytest.raises(LedgerUnavailable):
        stand_still()
    assert home.ledger.log.entry(size).value["type"] == "reserved"


def test_who_commits_first_may_raise_the_mark_last(home):
    with home.ledger.log.writing() as writer:
        write_one(writer)
        after_commit(writer, lambda: reserve(other(home).ledger))
    assert mark_of(home).read() == (home.ledger.log.size(), mark_of(home).read()[1])
    assert home.ledger.log.size() == writer.tree.size + 1
    reserve(home.ledger)
    home.ledger.log.check_mark()
    assert [each.token.name for each in rights(home).bearers.values()] == ["shop"]


def test_a_reader_takes_no_notice_of_what_was_written_after_its_snapshot(home):
    """The token is ended while a snapshot of before is read: it was good then, and nothing is wrong with its row."""
    with home.ledger.log.signed() as signed:
        tokens.revoke(other(home).ledger, "shop")
        good, wrong = tokens.sound_tokens(signed)
        assert ([each.name for each in good], wrong) == (["shop"], [])
        assert signed.keys()
    assert (rights(home).bearers, rights(home).wrong) == ({}, [])


@pytest.fixture
def forked(home, tmp_path):
    """The same keys and mark on a copy of the database: what was swapped under a home."""
    url = make_url(home.ledger.log.database.url)
    home.ledger.log.database.close()
    if url.drivername == "sqlite":
        with sqlite3.connect(url.database) as source:
            source.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
        source.close()
        copied = f"sqlite:///{tmp_path / 'copy.db'}"
    else:
        copied = server().copy(url.database)
    return Home.open(at(home.path, copied))


@pytest.mark.parametrize(("committed", "ours", "theirs"), [(False, 1, 1), (True, 1, 1), (True, 1, 2), (True, 2, 1)])
def test_of_two_histories_one_is_refused(home, forked, committed, ours, theirs):
    """A copy is written to while a transaction runs: before its commit nothing is written; after it, nobody is told
    that it was, and the database is refused from then on."""
    before = snapshot(home)

    def write_there() -> None:
        for _ in range(theirs):
            reserve(forked.ledger)

    def write() -> None:
        with home.ledger.log.writing() as writer:
            for kind in ("dataset-archived", "dataset-unarchived")[:ours]:
                write_one(writer, kind)
            if committed:
                after_commit(writer, write_there)
            else:
                write_there()

    with pytest.raises(LedgerInvalid, match="rolled back|rewritten"):
        write()
    assert (snapshot(home)[0] == before[0]) is not committed
    with pytest.raises(LedgerInvalid):
        reserve(home.ledger)
    reserve(forked.ledger)
    assert audit_home(forked).problems == ()


def test_writers_of_one_process_take_turns(home):
    """Eight threads, each with a token of its own: none is lost, and the caches that they share mix nothing up."""
    failures = []

    def write(number: int) -> None:
        try:
            for each in range(4):
                tokens.create(home.ledger, f"t{number}-{each}", ["predict"], f"{number:x}{each:x}" * 32)
                assert rights(home).wrong == []
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(rights(home).bearers) == 33
    assert audit_home(home).problems == ()

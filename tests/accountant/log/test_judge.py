"""The auditor's rule reads every entry before it is committed, by the state of the entries before it."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import suppress
from decimal import Decimal

import pytest
from ledgers import advance, hexes, place, plan, registration, request, reserve, unjudged
from vector_stories import STORIES

from accountant.audit.audit import audit_home
from accountant.errors import EntryRefused, UnknownName, WrongState
from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families.records import Why
from accountant.log import judge, state_file
from accountant.log.judge import Judge
from accountant.log.state_file import NAME, StateFile, Values, attach
from accountant.store.store import Tree
from dpserve_verify.audit.replay import Replay
from dpserve_verify.entries.entry import EntryForm
from dpserve_verify.entries.kinds import FORMS, NEWEST
from dpserve_verify.errors import DpserveError, InputError, LedgerInvalid
from dpserve_verify.privacy.events import PureDp

SMALL = plan(PureDp(Decimal("0.001")), 10)
WHY = {"reason": "a test", "by": "steward"}


@pytest.fixture
def home(tmp_path, ledger_url) -> Home:
    home = Home.init(place(tmp_path / "home") | {"DPSERVE_LEDGER_URL": ledger_url})
    home.ledger.register(registration())
    return home


def state_of(reader: object) -> dict[str, object]:
    """Everything that a reader of entries keeps, as plain values, whatever holds it."""
    found: dict[str, object] = {}
    for name, value in vars(reader).items():
        if name in ("trust", "notes"):
            continue
        if isinstance(value, dict | state_file.StoredMap):
            found[name] = {key: repr(value[key]) for key in value}
        elif isinstance(value, set | state_file.StoredSet):
            found[name] = sorted(map(repr, value))
        elif type(value) is not list:
            found[name] = state_of(value)
    return found


def replayed(home: Home) -> Replay:
    """What an audit has after the last entry."""
    replay = Replay(home.trust)
    for entry in home.ledger.log.entries(limit=10**6):
        with suppress(LedgerInvalid):
            replay.read(entry.seq, entry.body)
    return replay


def stored(home: Home) -> Replay:
    """What the judge has, as another process finds it."""
    with home.ledger.log.signed() as signed:
        return Judge(home.path / "keys" / "mark").catch_up(signed.connection, (signed.size, signed.root)).replay


def require_same(home: Home) -> None:
    assert state_of(stored(home)) == state_of(replayed(home))


def small(home: Home, **more) -> int:
    return reserve(home.ledger, request(epsilon="0.1"), SMALL, **more).seq


def wrong(home: Home, kind: str, **fields) -> None:
    """Append an entry that no part of dpserve would."""
    with home.ledger.log.writing() as writer:
        writer.append(kind, **fields)


def test_what_an_audit_refuses_is_not_written_and_the_next_entry_stands(home):
    job, size = small(home), home.ledger.log.size()
    for kind, error, fields in (
        ("committed", WrongState, {"reservation": job, "released": hexes("x")}),  # has not begun
        ("dataset-unarchived", WrongState, {"dataset": "adult", **WHY}),
        ("dataset-archived", UnknownName, {"dataset": "absent", **WHY}),
        ("dataset-archived", InputError, {"dataset": "adult", **WHY, "reason": " "}),
        ("revoked", UnknownName, {"issued": job, **WHY}),
        ("schedule-stopped", EntryRefused, {"schedule": job, "reason": "a test"}),
        ("started", EntryRefused, {"reservation": job, "after": []}),
    ):
        with pytest.raises(error) as refused:
            wrong(home, kind, **fields)
        assert type(refused.value) is error
        if error is EntryRefused:
            assert f"entry {size}: " in refused.value.message
            assert (refused.value.exit_code, refused.value.details) == (4, {"entry": size})
    assert home.ledger.log.size() == size
    advance(home.ledger, job, "issued")
    assert audit_home(home).ok
    require_same(home)


def test_no_append_goes_round_the_rule(home):
    """The lowest function takes the rule, and has no other way to a leaf."""
    with pytest.raises(TypeError), home.ledger.log.database.writing() as connection:
        Tree(connection).append(b"{}")  # type: ignore[call-arg]
    asked = []

    def refuse(seq: int, body: bytes) -> None:
        asked.append((seq, body))
        raise LedgerInvalid("no")

    with pytest.raises(LedgerInvalid), home.ledger.log.database.writing() as connection:
        Tree(connection).append(b"{}", refuse)
    assert asked == [(home.ledger.log.size(), b"{}")]
    assert audit_home(home).ok


def test_a_transaction_that_ends_otherwise_leaves_no_trace(home):
    """One that is rehearsed, one that raises after it appended, and one that goes on behind a refusal."""
    home.ledger.check_registration(registration("other"))
    with suppress(ZeroDivisionError), home.ledger.log.writing() as writer:
        writer.append("dataset-archived", dataset="adult", **WHY)
        raise ZeroDivisionError
    require_same(home)
    with home.ledger.log.writing() as writer:
        writer.append("dataset-archived", dataset="adult", **WHY)
        for _ in range(2):
            with pytest.raises(WrongState):
                writer.append("dataset-archived", dataset="adult", **WHY)
        writer.append("dataset-unarchived", dataset="adult", **WHY)
    small(home)
    assert audit_home(home).ok
    require_same(home)


def test_processes_that_write_in_turns_judge_by_what_the_others_wrote(home):
    other = Home.open(place(home.path) | {"DPSERVE_LEDGER_URL": home.ledger.log.database.url})
    for _ in range(3):
        for each in (home, other, home):
            advance(each.ledger, small(each), "issued")
    child = os.fork()
    if not child:
        small(home)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    small(home)
    other.ledger.log.database.close()
    assert audit_home(home).ok
    require_same(home)


@pytest.mark.parametrize("damage", ["gone", "garbage", "older", "of another ledger", "of other rules"])
def test_a_file_that_cannot_be_used_is_made_anew(home, tmp_path, damage, monkeypatch):
    small(home)
    path = home.path / "keys" / NAME
    connections = [state_file._OPEN.pop(each) for each in [*state_file._OPEN]]
    home.ledger.log._judge = Judge(home.path / "keys" / "mark")  # a process that begins
    if damage in ("gone", "garbage"):
        for each in path.parent.glob(f"{NAME}*"):
            each.unlink()
        if damage == "garbage":
            path.write_bytes(b"x" * 9_000)
    elif damage == "older":
        with unjudged():
            advance(home.ledger, small(home), "issued")
    elif damage == "of another ledger":
        another = Home.init(place(tmp_path / "another"))
        for name in ("first", "second", "third"):
            another.ledger.register(registration(name))
        with sqlite3.connect(path) as ours, sqlite3.connect(another.path / "keys" / NAME) as theirs:
            ours.execute("DELETE FROM state")
            ours.execute("UPDATE head SET size = ?, root = ?", theirs.execute("SELECT size, root FROM head").fetchone())
            ours.executemany("INSERT INTO state VALUES (?, ?, ?)", theirs.execute("SELECT * FROM state").fetchall())
    else:
        with sqlite3.connect(path) as ours:
            ours.execute("UPDATE head SET rules = 'others'")
            ours.execute("DELETE FROM state WHERE part = 'jobs'")
    advance(home.ledger, small(home), "started")
    del connections
    require_same(home)
    assert audit_home(home).ok


def test_a_write_that_was_cut_off_is_taken_back_by_who_reads_next(home):
    """By a file beside it alone, which hosts can share: a killed process wrote thousands of its pages."""
    small(home)
    file, before = StateFile(home.path / "keys" / NAME), state_of(stored(home))
    child = os.fork()
    if not child:

        def changes():
            for number in range(6_000):  # more than SQLite keeps before it writes
                yield "jobs", repr(number), "x" * 1_000
            os.kill(os.getpid(), signal.SIGKILL)

        file.move(file.head(), (10**6, b"x"), changes())
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert {each.name for each in file.path.parent.glob(f"{NAME}*")} == {NAME, f"{NAME}-journal"}
    assert file.path.stat().st_size > 3 * 10**6  # torn, as it lies there
    assert state_of(stored(home)) == before
    advance(home.ledger, small(home), "issued")
    require_same(home)


@pytest.mark.parametrize("name", [*STORIES])
def test_its_state_is_the_auditors_after_entries_of_every_kind(tmp_path, name, monkeypatch):
    """Read from the file in steps as small as may be, so that nothing stays in memory from one to the next."""
    home = Home.init(place(tmp_path / "home"))
    STORIES[name](home)
    require_same(home)
    with home.ledger.log.signed() as signed:
        monkeypatch.setattr(judge, "AT_ONCE", 1)
        monkeypatch.setattr(judge, "MOST_KEPT", -1)
        anew = Judge(tmp_path / "mark").catch_up(signed.connection, (signed.size, signed.root)).replay
    assert state_of(anew) == state_of(replayed(home))


def test_all_kinds_are_told_in_these_stories(tmp_path):
    told = set()
    for name, tell in STORIES.items():
        home = Home.init(place(tmp_path / name))
        tell(home)
        told |= {entry.value["type"] for entry in home.ledger.log.entries(limit=10**6)}
    assert told == {*FORMS}


def test_what_an_entry_asks_does_not_grow_with_the_ledger(home, monkeypatch):
    """Counted: questions to the file, and values written, for the four entries of a job, in a process that begins."""
    asked: list[str] = []
    get, move = StateFile.get, StateFile.move
    monkeypatch.setattr(StateFile, "get", lambda *about: asked.append("get") or get(*about))
    monkeypatch.setattr(StateFile, "move", lambda *about: asked.extend(["put"] * len(about[3])) or move(*about))

    def count() -> int:
        asked.clear()
        home.ledger.log._judge = Judge(home.path / "keys" / "mark")
        advance(home.ledger, small(home, by="ann"), "issued")
        return len(asked)

    few = [count() for _ in range(3)][-1]
    for number in range(60):
        advance(home.ledger, small(home, key=f"{number}"), ("issued", "burned", "released")[number % 3])
    assert count() == few < 80


def test_a_job_ends_beside_entries_of_a_newer_version(home):
    """They say what this version cannot read: it may end what it runs, and begins nothing."""
    job = small(home)
    home.ledger.start(job, "me:1:1", 60.0)
    with pytest.MonkeyPatch.context() as newer:
        newer.setitem(FORMS, "of-tomorrow", type("OfTomorrow", (EntryForm,), {"generation": NEWEST + 1}))
        with unjudged():
            wrong(home, "of-tomorrow", what="is that")
    home.ledger.commit(job, hexes("released"), "me:1:1")
    with pytest.raises(DpserveError, match="a newer dpserve"):
        small(home)
    assert [entry.value["type"] for entry in home.ledger.log.entries()][-2:] == ["of-tomorrow", "committed"]


def test_a_reader_that_keeps_something_else_is_no_reader(tmp_path):
    replay = Replay(Home.init(place(tmp_path / "home")).trust)
    replay.names.count = 3  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="names.count"):
        attach(replay, Values(StateFile(tmp_path / NAME), state_file.BEGINNING))


def test_one_block_more_is_judged_by_the_blocks_there_are(home):
    for number in range(2, 5):
        block_appending.append(home.ledger.log, NewBlock("adult", hexes(f"{number}"), 1000, "steward"), number)
    block_appending.drop(home.ledger.log, "adult", 2, Why("steward", "old"))
    with pytest.raises(EntryRefused, match="block"):
        wrong(home, "dataset-appended", dataset="adult", block=6, commitment=hexes("six"), records=9, by="steward")
    require_same(home)

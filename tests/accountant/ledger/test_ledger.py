"""The ledger: what is admitted, what is charged, what is refused, and that nothing is charged twice or forgotten."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import threading
from decimal import Decimal
from pathlib import Path

import ledgers
import pytest
import warm
from ledgers import ROOT, STATES, advance, place, plan, registration, request, reserve
from sqlalchemy import event, select

from accountant.audit.audit import audit_home
from accountant.errors import IdempotencyConflict, NameTaken, UnknownName, WrongState
from accountant.home import Home
from accountant.ledger.families.left import describe_budget
from accountant.privacy.claims import price
from accountant.store.tables import dataset_table
from dpserve_verify.errors import BudgetRefused, InputError, LedgerInvalid, LedgerUnavailable
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import BoundedRange, Gaussian, PureDp
from dpserve_verify.privacy.filter import Filter, Price


@pytest.fixture
def home(begun) -> Home:
    return begun(registration())


@pytest.fixture
def file_home(tmp_path) -> Home:
    """With its ledger in a file of its own, where other ways lead to it."""
    return ledgers.begun(tmp_path / "home", registration())


def snapshot(home: Home):
    """All that a refusal must leave as it was."""
    ledger = home.ledger
    row = select(dataset_table)
    with ledger.log.database.reading() as connection:
        index = [tuple(each) for each in connection.execute(row)]
    return ledger.log.size(), ledger.log.checkpoint(), index, ledger.jobs()


ACTIONS = {
    "start": lambda ledger, seq: ledger.start(seq, "owner:1:1", 60.0),
    "commit": lambda ledger, seq: ledger.commit(seq, ledgers.hexes("r")),
    "burn": lambda ledger, seq: ledger.burn(seq, "failed"),
    "release": lambda ledger, seq: ledger.release(seq),
    "issue": lambda ledger, seq: ledger.issue(seq, ledgers.hexes("s"), ledgers.hexes("m")),
}
LEGAL = {
    ("reserved", "start"): "started",
    ("reserved", "release"): "released",
    ("started", "commit"): "committed",
    ("started", "burn"): "burned",
    ("committed", "issue"): "committed",
}


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("state", STATES)
def test_every_transition(home, state, action):
    seq = reserve(home.ledger).seq
    advance(home.ledger, seq, state)
    before = snapshot(home)
    if (state, action) in LEGAL:
        ACTIONS[action](home.ledger, seq)
        assert home.ledger.job(seq).state == LEGAL[state, action]
        assert home.ledger.log.size() == before[0] + 1
    else:
        with pytest.raises(WrongState, match=f"job {seq}"):
            ACTIONS[action](home.ledger, seq)
        assert snapshot(home) == before
    assert audit_home(home).problems == ()


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("seq", [0, 1, 99, -1])
def test_what_is_no_job_cannot_be_moved(home, seq, action):
    before = snapshot(home)
    with pytest.raises(UnknownName):
        ACTIONS[action](home.ledger, seq)
    assert snapshot(home) == before


def figures(home: Home, name: str = "adult") -> tuple[Price, Price]:
    dataset = home.ledger.dataset(name)
    return dataset.most_used.used, dataset.most_used.reserved


def test_sums_follow_the_states(home):
    nothing = Filter.design(ledgers.TOTAL).nothing()
    cost = price(plan(), home.ledger.dataset("adult").most_used.filter.orders)
    assert figures(home) == (nothing, nothing)
    first, second, third = (reserve(home.ledger).seq for _ in range(3))
    assert figures(home) == (cost + cost + cost, cost + cost + cost)
    home.ledger.start(first, "owner:1:1", 60.0)
    assert figures(home) == (cost + cost + cost, cost + cost)
    home.ledger.burn(first, "failed")  # a burned job stays charged
    home.ledger.start(second, "owner:1:1", 60.0)
    home.ledger.commit(second, ledgers.hexes("released"))
    assert figures(home) == (cost + cost + cost, cost)
    home.ledger.release(third)  # only what never started is given back
    assert figures(home) == (cost + cost, nothing)
    summary = describe_budget(home.ledger.dataset("adult"))
    assert summary["spent"]["pure"] == "1"
    assert summary["reserved"]["pure"] == "0"


def test_what_was_released_can_be_spent_again(home):
    home.ledger.register(registration("pure", Budget.of("1")))
    asked, what = request("pure", "1", "0"), plan(PureDp(Decimal("0.1")), 10)
    seq = reserve(home.ledger, asked, what).seq
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, asked, what)
    home.ledger.release(seq)
    again = reserve(home.ledger, asked, what).seq
    advance(home.ledger, again, "burned")
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, asked, what)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "count", "fit"),
    [
        (PureDp(Decimal("0.5")), 1, 6),
        (BoundedRange(Decimal("0.02")), 25, 146),
        (Gaussian(Decimal("8.9957")), 1, 29),
    ],
)
def test_reference_numbers_of_jobs(home, event, count, fit):
    """How many equal jobs a budget of (3, 1e-6) admits; the Gaussian has no pure price and lives on Renyi alone."""
    asked, what = request(epsilon="3"), plan(event, count)
    for _ in range(fit):
        reserve(home.ledger, asked, what)
    before = snapshot(home)
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, asked, what)
    assert snapshot(home) == before
    unbounded = fit if isinstance(event, Gaussian) else 0
    assert figures(home)[0].unbounded == unbounded
    assert audit_home(home).problems == ()


def test_after_a_gaussian_the_pure_sum_admits_nothing_until_it_is_released(home):
    gaussian = reserve(home.ledger, request(epsilon="3"), plan(Gaussian(Decimal("2.1")), 1))
    wide = plan(PureDp(Decimal("1.5")), 1)  # fits the pure sum, not the Renyi caps beside the Gaussian
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, request(epsilon="3"), wide)
    home.ledger.release(gaussian.seq)
    assert figures(home)[0].unbounded == 0
    reserve(home.ledger, request(epsilon="3"), wide)


def test_a_refusal_says_what_was_asked_spent_and_left(home):
    advance(home.ledger, reserve(home.ledger).seq, "committed")
    before = snapshot(home)
    with pytest.raises(BudgetRefused) as refused:
        reserve(home.ledger, request(epsilon="3"), plan(PureDp(Decimal("3")), 1))
    details = refused.value.details
    assert {"asked", "spent", "left", "reserved", "would_fit"} <= set(details)
    assert details["asked"]["price"]["pure"] == "3"
    assert details["spent"]["pure"] == "0.5"
    assert snapshot(home) == before


def test_one_key_reserves_once(home):
    first = reserve(home.ledger, key="k")
    before = snapshot(home)
    assert reserve(home.ledger, key="k") == first
    assert home.ledger.find("test", "k", request()) == first
    assert home.ledger.find("test", "other", request()) is None
    for other in (request(epsilon="0.6"), request(rounds=26)):
        with pytest.raises(IdempotencyConflict, match=f"job {first.seq}"):
            reserve(home.ledger, other, key="k")
        with pytest.raises(IdempotencyConflict):
            home.ledger.find("test", "k", other)
    assert snapshot(home) == before
    other = reserve(home.ledger, request(epsilon="0.6"), key="k", by="somebody else")  # a key belongs to who gave it
    assert other.seq != first.seq
    assert reserve(home.ledger, request(epsilon="0.6"), key="k", by="somebody else").seq == other.seq
    assert home.ledger.find("test", "k", request()) == first
    assert audit_home(home).ok
    assert reserve(home.ledger).seq != reserve(home.ledger).seq  # without a key, twice is twice
    for key in ("", "x" * 201):
        with pytest.raises(InputError, match="idempotency_key"):
            reserve(home.ledger, key=key)


def test_a_key_still_answers_when_the_budget_is_gone(home):
    home.ledger.register(registration("pure", Budget.of("1")))
    asked, what = request("pure", "1", "0"), plan(PureDp(Decimal("1")), 1)
    job = reserve(home.ledger, asked, what, key="k")
    assert reserve(home.ledger, asked, what, key="k") == job
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, asked, what)


def test_a_dataset_is_registered_once(home):
    before = snapshot(home)
    with pytest.raises(NameTaken, match="adult"):
        home.ledger.register(registration(commitment=ledgers.hexes("other rows")))
    with pytest.raises(NameTaken, match="registered already, as adult"):
        home.ledger.register(registration("second", commitment=ledgers.hexes("adult")))
    with pytest.raises(InputError, match="delta"):
        home.ledger.register(registration("third", Budget.of("1", "0.001"), records=1000))
    for name in ("", "../up", "UPPER", "a b", "x" * 65):
        with pytest.raises(InputError, match="dataset="):
            home.ledger.register(registration(name))
    assert snapshot(home) == before
    with pytest.raises(UnknownName):
        reserve(home.ledger, request("absent"))


def test_the_queue_gives_the_oldest_that_nobody_holds(home):
    held = reserve(home.ledger, owner="owner:1:1").seq
    first, second = reserve(home.ledger).seq, reserve(home.ledger).seq
    assert home.ledger.next_queued() == first
    started = home.ledger.start(first, "owner:2:2", 60.0)
    assert (started.seq, started.plan, started.request) == (first, plan(), request())
    assert home.ledger.next_queued() == second
    home.ledger.heartbeat(first, "owner:2:2", 60.0, 7)
    home.ledger.heartbeat(first, "somebody else", 60.0, 9)
    assert home.ledger.job(first).done == 7
    assert [holding.seq for holding in home.ledger.leases()] == [held, first]
    home.ledger.burn(first, "failed")
    assert [holding.seq for holding in home.ledger.leases()] == [held]


RACE = """
import sys, time
from pathlib import Path
import ledgers
from dpserve_verify.errors import BudgetRefused
from accountant.home import Home
home = Home.open(ledgers.place(Path(sys.argv[1])) | {"DPSERVE_LEDGER_URL": sys.argv[2]})
asked, what = ledgers.request("pure", "1", "0"), ledgers.plan(ledgers.PureDp(ledgers.Decimal("0.005")), 10)
admitted = 0
print("ready", flush=True)
sys.stdin.readline()
for _ in range(6):
    try:
        ledgers.reserve(home.ledger, asked, what)
        admitted += 1
    except BudgetRefused:
        pass
print(admitted, flush=True)
"""


def race(folders: list[Path], url: str) -> int:
    """Processes that all begin at once, one for each home; how many reservations they got in all."""
    command = [*warm.python(), "-c", RACE]
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'helpers'}"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    racers = [subprocess.Popen([*command, folder, url], **pipes) for folder in folders]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return sum(int(racer.communicate()[0]) for racer in racers)


@pytest.mark.slow
def test_eight_processes_race_for_the_last_of_a_budget(file_home, tmp_path):
    """48 jobs of 0.05 ask for a budget of 1 at once: exactly 20 are admitted.

    Half of them run from a copy of the home: its high-water mark has a lock of its own, so the database alone decides.
    """
    file_home.ledger.register(registration("pure", Budget.of("1")))
    shutil.copytree(file_home.path / "keys", tmp_path / "second" / "keys")
    assert race([file_home.path, tmp_path / "second"] * 4, f"sqlite:///{file_home.path / 'ledger.db'}") == 20
    assert len(file_home.ledger.jobs()) == 20
    assert figures(file_home, "pure")[0].pure == 10**9
    assert audit_home(file_home).problems == ()


def test_threads_share_a_ledger(home):
    home.ledger.register(registration("pure", Budget.of("1")))
    asked, what, admitted = request("pure", "1", "0"), plan(PureDp(Decimal("0.05")), 1), []

    def ask():
        for _ in range(6):
            try:
                admitted.append(reserve(home.ledger, asked, what).seq)
            except BudgetRefused:
                continue

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == len(set(admitted)) == 20
    assert audit_home(home).problems == ()


def test_two_accountants_on_one_database(file_home, tmp_path):
    """Copies of a home with the same keys share a database and its budget; other keys are turned away."""
    file_home.ledger.register(registration("pure", Budget.of("1")))
    url = f"sqlite:///{file_home.path / 'ledger.db'}"
    shutil.copytree(file_home.path / "keys", tmp_path / "second" / "keys")
    second = Home.open(place(tmp_path / "second") | {"DPSERVE_LEDGER_URL": url})
    asked, what = request("pure", "1", "0"), plan(PureDp(Decimal("0.25")), 1)
    for each in (file_home, second, file_home, second):
        reserve(each.ledger, asked, what)
    for each in (file_home, second):
        with pytest.raises(BudgetRefused):
            reserve(each.ledger, asked, what)
        assert audit_home(each).problems == ()
    with pytest.raises(LedgerInvalid, match="has entries"):
        Home.init(place(tmp_path / "third") | {"DPSERVE_LEDGER_URL": url})
    Home.init(place(tmp_path / "fourth"))
    with pytest.raises(LedgerInvalid, match="another log key"):
        Home.open(place(tmp_path / "fourth") | {"DPSERVE_LEDGER_URL": url})


def test_two_histories_under_one_key_are_told_apart(file_home, tmp_path):
    """A copied home goes its own way; neither takes the other's database for its own."""
    file_home.ledger.log.database.close()
    other = Home.open(place(ledgers.copy(file_home.path, tmp_path / "other")))
    for each, name in ((file_home, "here"), (other, "there")):
        each.ledger.register(registration(name))
        each.ledger.log.database.close()
    url = f"sqlite:///{other.path / 'ledger.db'}"
    with pytest.raises(LedgerInvalid, match="rewritten"):
        Home.open(place(file_home.path) | {"DPSERVE_LEDGER_URL": url})


def test_a_database_of_yesterday_is_found_at_open_and_before_the_next_write(file_home):
    file_home.ledger.log.database.close()
    yesterday = file_home.path.parent / "yesterday.db"
    shutil.copy(file_home.path / "ledger.db", yesterday)
    advance(file_home.ledger, reserve(file_home.ledger).seq, "committed")
    file_home.ledger.log.database.close()
    for rest in file_home.path.glob("ledger.db*"):
        rest.unlink()
    shutil.copy(yesterday, file_home.path / "ledger.db")
    with pytest.raises(LedgerInvalid, match="rolled back"):
        reserve(file_home.ledger)
    assert len(ledgers.bodies(file_home.path)) == 2  # refused before anything was written or signed
    with pytest.raises(LedgerInvalid, match="rolled back"):
        Home.open(place(file_home.path))


def test_an_empty_database_in_the_place_of_a_used_one_is_refused(home):
    home.ledger.log.database.close()
    for rest in (*home.path.glob("ledger.db*"), *home.path.glob("database.url")):
        rest.unlink()
    with pytest.raises(LedgerInvalid, match="these keys have signed a ledger before"):
        Home.open(place(home.path))


def test_without_its_mark_a_ledger_neither_opens_nor_writes(file_home):
    (file_home.path / "keys" / "high-water.json").unlink()
    for call in (lambda: reserve(file_home.ledger), lambda: Home.open(place(file_home.path))):
        with pytest.raises(LedgerInvalid, match="mark"):
            call()


def test_evidence_cannot_be_updated_or_deleted_by_mistake(file_home):
    connection = sqlite3.connect(file_home.path / "ledger.db")
    for table in ("entry", "node", "checkpoint"):
        for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET rowid = rowid"):
            with pytest.raises(sqlite3.IntegrityError, match="append only"):
                connection.execute(statement)


def test_an_error_inside_a_transaction_leaves_nothing(home):
    before = snapshot(home)

    def fails():
        with home.ledger.log.writing() as writer:
            writer.append("dataset-archived", dataset="adult", reason="a test", by="test")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert snapshot(home) == before
    reserve(home.ledger)


def test_a_full_disk_changes_nothing(file_home):
    """SQLite may take no more pages: the reservation fails whole, and goes through once there is room."""
    engine = file_home.ledger.log.database.engine
    engine.dispose()
    limits = [1, 1 << 30]

    def limit(connection, _record):
        connection.execute(f"PRAGMA max_page_count={limits[0]}").close()

    event.listen(engine, "connect", limit)
    wide = request(note="x" * 30_000)
    before = snapshot(file_home)
    with pytest.raises(LedgerUnavailable, match="full"):
        reserve(file_home.ledger, wide)
    assert snapshot(file_home) == before
    engine.dispose()
    limits.pop(0)
    reserve(file_home.ledger, wide)
    assert audit_home(file_home).problems == ()


def test_an_entry_too_large_is_refused_whole(home):
    before = snapshot(home)
    with pytest.raises(InputError, match="at most 65535 bytes"):
        reserve(home.ledger, request(note="x" * 70_000))
    assert snapshot(home) == before


def test_entries_hold_no_float_and_are_canonical(home):
    advance(home.ledger, reserve(home.ledger).seq, "issued")
    for entry in home.ledger.log.entries():
        assert json.dumps(entry.value, sort_keys=True, separators=(",", ":")).encode() == entry.body
        json.loads(entry.body, parse_float=pytest.fail)

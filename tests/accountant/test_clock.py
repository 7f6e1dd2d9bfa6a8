"""A clock that is set back, or far ahead, changes what entries say of time and nothing else."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import ledgers
import pytest
from ledgers import advance, registration, reserve
from stores import kind

from accountant.access import grants, tokens
from accountant.access.grants import Grant
from accountant.audit.audit import audit_home
from accountant.errors import WrongState
from accountant.home import Home
from accountant.log import entries
from accountant.store import engines
from dpserve_verify.errors import BudgetRefused
from training.finish import lease
from training.jobs import job


@pytest.fixture
def home(begun) -> Home:
    return begun(registration())


def set_clock(monkeypatch, days: int) -> None:
    """Every clock that dpserve reads."""
    shift = timedelta(days=days)

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + shift

    real = time.time
    monkeypatch.setattr(entries, "datetime", Clock)
    monkeypatch.setattr(time, "time", lambda: real() + shift.total_seconds())


@pytest.mark.parametrize("days", [-400, 400])
def test_budgets_and_audit_know_no_clock(home, monkeypatch, days):
    first = reserve(home.ledger)
    set_clock(monkeypatch, days)
    second = reserve(home.ledger)
    times = [home.ledger.log.entry(each.seq).value["time"] for each in (first, second)]
    assert (times[0] > times[1]) == (days < 0)
    assert datetime.fromisoformat(times[1]).replace(tzinfo=UTC).year != datetime.now(UTC).year
    advance(home.ledger, second.seq, "committed")
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, ledgers.request(epsilon="3"), ledgers.plan(ledgers.PureDp(ledgers.Decimal(3)), 1))
    assert audit_home(home).problems == ()


ELSEWHERE = "another machine:1:1.00"


@pytest.fixture
def shift(monkeypatch):
    """Sets the database's clock: `shift[0]` seconds ahead of what it says."""
    ahead, true = [0.0], engines.clock
    monkeypatch.setattr(engines, "clock", lambda connection: true(connection) + ahead[0])
    return ahead


def test_a_lease_that_ran_out_costs_and_never_saves(home, shift):
    """The job is burned; its owner, should it live, cannot renew or commit any more, and the price stays."""
    seq = reserve(home.ledger, owner=ELSEWHERE, lease=60.0).seq
    home.ledger.start(seq, ELSEWHERE, lease.Lease.SECONDS)
    used = home.ledger.dataset("adult").most_used.used
    for shift[0] in (0, 59, 61, 61 + lease.GRACE_SECONDS - 1):  # the third look doubts, the fourth comes too early
        assert job.recover(home)["burned"] == []
    shift[0] = 62 + lease.GRACE_SECONDS
    assert job.recover(home)["burned"] == [seq]
    assert not home.ledger.heartbeat(seq, ELSEWHERE, 60.0, 1)
    with pytest.raises(WrongState):
        home.ledger.commit(seq, ledgers.hexes("released"), ELSEWHERE)
    assert home.ledger.dataset("adult").most_used.used == used
    assert audit_home(home).problems == ()


@pytest.mark.parametrize("jump", [3600, -3600])
def test_an_owner_who_lives_is_not_burned_where_the_databases_clock_is_set(home, shift, jump):
    """It renews its lease every second, and nobody burns what was renewed since the first doubt."""
    seq = reserve(home.ledger, owner=ELSEWHERE, lease=60.0).seq
    home.ledger.start(seq, ELSEWHERE, 60.0)
    shift[0] += jump
    for _ in range(5):
        assert job.recover(home)["burned"] == []
        assert home.ledger.heartbeat(seq, ELSEWHERE, 60.0, 1)
        shift[0] += lease.GRACE_SECONDS + 1
        assert job.recover(home)["burned"] == []
        assert home.ledger.heartbeat(seq, ELSEWHERE, 60.0, 1)
    home.ledger.commit(seq, ledgers.hexes("released"), ELSEWHERE)


def test_a_reservation_elsewhere_is_given_back_when_its_lease_ran_out_and_not_before(home, shift):
    seq = reserve(home.ledger, owner=ELSEWHERE, lease=60.0).seq
    assert job.recover(home)["released"] == []
    for shift[0], released in ((61, []), (62 + lease.GRACE_SECONDS, [seq])):
        assert job.recover(home)["released"] == released


def test_an_owner_of_an_earlier_version_is_judged_by_its_lease(home, shift):
    """It named the machine's start and a process, and no namespace: here a process of that number says nothing."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    owner = f"{boot}:{2**22 - 1}:1.00"  # above every process here
    seq = reserve(home.ledger, owner=owner, lease=60.0).seq
    home.ledger.start(seq, owner, 60.0)
    for shift[0], burned in ((0, []), (61, []), (62 + lease.GRACE_SECONDS, [seq])):
        assert job.recover(home)["burned"] == burned


def test_a_lease_that_was_renewed_after_it_was_looked_at_is_not_taken(home):
    """Between the look at a lease and the burning, its owner said that it lives: the look is out of date."""
    owner = "another machine:1:1.00"
    seq = reserve(home.ledger, owner=owner).seq
    home.ledger.start(seq, owner, 0.0)
    (seen,) = home.ledger.leases()
    home.ledger.heartbeat(seq, owner, 60.0, 1)
    with pytest.raises(WrongState, match="held by another"):
        home.ledger.burn(seq, "interrupted", seen.owner, seen.expires)
    home.ledger.commit(seq, ledgers.hexes("released"), owner)
    with pytest.raises(WrongState):
        home.ledger.commit(seq, ledgers.hexes("released"), owner)


def test_only_the_owner_commits(home):
    seq = reserve(home.ledger, owner="a:1:1").seq
    home.ledger.start(seq, "a:1:1", 60.0)
    for act in (home.ledger.commit, home.ledger.burn):
        with pytest.raises(WrongState, match="held by another"):
            act(seq, ledgers.hexes("x"), "b:1:1")
    home.ledger.commit(seq, ledgers.hexes("x"), "a:1:1")


def test_a_grant_expires_by_the_ledgers_clock_and_by_no_hosts(home, monkeypatch, shift):
    """A host whose clock is ahead ends no grant where the database has a clock of its own; with SQLite it is the clock,
    and setting it back renews nothing."""
    hour, own = time.time() + 3600, kind(home.ledger.log.database) == "postgresql"
    grants.add(home.ledger, [Grant("ann", "train", expires=grants.spell(hour))], "test")

    def holds() -> bool:
        return grants.access_of(home.ledger, "ann").may("train")

    assert holds()
    with monkeypatch.context() as patch:
        set_clock(patch, 1)
        assert holds() is own
        tokens.create(home.ledger, "shop", ["predict"], "ab" * 32)
    assert holds() is own
    tokens.create(home.ledger, "shop2", ["predict"], "cd" * 32)  # its time is that of now
    assert holds()
    shift[0] = 7200
    assert not holds()
    assert audit_home(home).problems == ()

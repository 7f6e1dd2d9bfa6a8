"""A clock that is set back, or far ahead, changes what entries say of time and nothing else."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import ledgers
import pytest
from ledgers import advance, place, registration, reserve

from accountant.audit.audit import audit_home
from accountant.errors import BudgetRefused, WrongState
from accountant.home import Home
from accountant.log import entries
from training import job, lease


@pytest.fixture
def home(tmp_path, ledger_url) -> Home:
    home = Home.init(place(tmp_path / "home") | {"DPSERVE_LEDGER_URL": ledger_url})
    home.ledger.register(registration())
    return home


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


def test_a_lease_of_another_machine_that_a_clock_ends_early_costs_and_never_saves(home, monkeypatch):
    """The job is burned; its owner, who lives, cannot commit any more, and the price stays."""
    owner = "another machine:1:1.00"
    seq = reserve(home.ledger, owner=owner).seq
    home.ledger.start(seq, owner, lease.Lease.SECONDS)
    used = home.ledger.dataset("adult").used
    assert job.recover(home)["burned"] == []
    set_clock(monkeypatch, 1)
    assert job.recover(home)["burned"] == [seq]
    with pytest.raises(WrongState):
        home.ledger.commit(seq, ledgers.hexes("released"), owner)
    assert home.ledger.dataset("adult").used == used
    assert audit_home(home).problems == ()


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

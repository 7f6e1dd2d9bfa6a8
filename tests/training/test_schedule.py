"""Schedules: once a period, whoever looks and whatever the clock does; and for how long, by the budgets alone."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from ledgers import hexes
from small_home import environment, until

from accountant.audit.audit import audit_home
from accountant.errors import BudgetRefused, NameTaken, UnknownName
from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families.records import PUBLIC_STATES
from dpserve_verify.errors import InputError
from training.jobs import queue, schedule
from training.jobs.schedule import add, make_schedule, moment, remove, runs_left, schedules, submit_due

pytestmark = pytest.mark.home("prepared")

OPEN = [state for state, of in PUBLIC_STATES.items() if of.open]
WEEK = schedule.PERIODS["week"]
ASKED = {"dataset": "adult", "learner": "lazybb", "epsilon": "1", "parameters": {"rounds": 8}, "blocks": "last:2"}


def begin(home: Home, *about: object, **more: object) -> schedule.Schedule:
    return add(home, make_schedule(home, *about, **more))


def grow(home: Home, number: int) -> None:
    block_appending.append(home.ledger.log, NewBlock("adult", hexes(f"{number}"), 400, "steward"), number)


def test_a_job_is_asked_once_a_period_by_whatever_clock(home):
    """Back, forth, looked at again, its file set back: the ledger has one job for each period that was met."""
    weekly = begin(home, "weekly", "week", ASKED, "cli:test", since=1000)
    at = lambda now: submit_due(home, lambda: now)  # noqa: E731
    assert at(999) == []
    first = at(1000)
    assert len(first) == 1
    assert at(1000 + WEEK - 1) == []
    second = at(1000 + WEEK)
    assert [at(1000), at(1000 + WEEK - 1), at(1000 + WEEK + 5)] == [[], [], []]  # the clock jumped back
    kept = (home.path / schedule.FILE).read_bytes()
    third = at(1000 + 9 * WEEK)  # and slept through seven periods: they are not made up for
    assert len({*first, *second, *third}) == 3
    (home.path / schedule.FILE).write_bytes(kept)  # as a crash between the ledger's entry and the file leaves it
    grow(home, 2)
    assert at(1000 + 9 * WEEK) == third
    assert [each.seq for each in home.ledger.jobs()] == [*first, *second, *third]
    home.ledger.start(third[0], "owner:1:1", 60.0)
    home.ledger.burn(third[0], "interrupted")
    assert at(1000 + 9 * WEEK) == []
    assert schedules(home)[0].identity == weekly.identity


def test_it_stops_where_a_block_is_exhausted_and_says_so(home):
    grow(home, 2)
    begin(home, "weekly", "week", ASKED, "cli:test", since=0)
    told = runs_left(home, schedules(home)[0])["alone"]
    asked = [submit_due(home, lambda week=week: week * WEEK) for week in range(told + 3)]
    assert [len(each) for each in asked] == [1] * told + [0] * 3
    (stopped,) = schedules(home)
    assert "block" in stopped.stopped
    assert runs_left(home, stopped) == {"alone": 0, "fed": 0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("blocks", "epsilon"), [("last:2", "1"), ("last:2", "0.3"), ("last:3", "2"), ("all", "1"), ("last:9", "1")]
)
def test_how_long_a_rule_can_be_kept_is_how_long_it_is_kept(home, blocks, epsilon):
    """Played with a new block each period: the number that was told before is the number of jobs that were admitted."""
    grow(home, 2)
    begin(home, "weekly", "week", ASKED | {"blocks": blocks, "epsilon": epsilon}, "cli:test", since=0)
    told, made = runs_left(home, schedules(home)[0])["fed"], 0
    for week in range(14):
        made += len(submit_due(home, lambda week=week: week * WEEK))
        grow(home, 3 + week)
    assert made == (14 if told is None else told)


def test_what_is_no_rule(home):
    begin(home, "weekly", "week", ASKED, "cli:test")
    with pytest.raises(NameTaken):
        begin(home, "weekly", "week", ASKED, "cli:test")
    with pytest.raises(InputError, match="must be one of hour, day, week"):
        begin(home, "often", "minute", ASKED, "cli:test")
    with pytest.raises(InputError, match="must be all, last:12"):
        begin(home, "odd", "week", ASKED | {"blocks": "newest"}, "cli:test")
    with pytest.raises(InputError, match="model='': must be 1 to 64"):
        begin(home, "nameless", "week", ASKED | {"model": ""}, "cli:test")
    at_six = moment("2026-01-05T06:00")
    assert [moment(f"2026-01-05T{each}") for each in ("06:00Z", "08:00+02:00", "01:00-05:00")] == [at_six] * 3
    with pytest.raises(BudgetRefused):
        begin(home, "dear", "week", ASKED | {"epsilon": "9"}, "cli:test")
    with pytest.raises(UnknownName):
        begin(home, "nowhere", "week", ASKED | {"dataset": "nowhere"}, "cli:test")
    assert remove(home, "weekly").name == "weekly"
    with pytest.raises(UnknownName):
        remove(home, "weekly")
    assert submit_due(home) == []


def test_a_damaged_file_stops_the_rules_and_not_the_queue(home, caplog):
    begin(home, "weekly", "week", ASKED, "cli:test", since=0)
    good = (home.path / schedule.FILE).read_text()
    for bad in ("", "[]", "{", good.replace("week", "weak"), good.replace('"since"', '"sinse"'), "[" * 100_000):
        (home.path / schedule.FILE).write_text(bad)
        with pytest.raises(InputError, match="damaged"):
            submit_due(home, lambda: 1.0)
        queue._recover(home)
        assert "schedules.json: is damaged" in caplog.text
        caplog.clear()
    assert home.ledger.jobs() == []


@pytest.mark.slow
@pytest.mark.server
def test_two_workers_that_are_killed_while_it_is_due_run_it_once(home, tmp_path):
    """Real processes: two begin at once, both are killed when the job is in the ledger, a third goes on from there."""
    asked = ASKED | {"blocks": None, "parameters": {"rounds": 3}}
    begin(home, "weekly", "week", asked, "cli:test", since=int(time.time()) - 60)
    log = tmp_path / "workers.log"

    def worker() -> subprocess.Popen:
        command = [sys.executable, "-m", "serving.cli", "worker"]
        with log.open("ab") as said:
            return subprocess.Popen(command, env=environment(home.path), stdout=said, stderr=said)

    two = [worker(), worker()]
    try:
        until(lambda: home.ledger.jobs(), "the job is asked for")
    finally:
        for each in two:
            each.kill()
            each.wait()
    third = worker()
    try:
        until(
            lambda: schedules(home)[0].last and not any(each.public_state in OPEN for each in home.ledger.jobs()),
            "the job is over, and the rule knows it",
        )
    finally:
        third.kill()
        third.wait()
    (only,) = home.ledger.jobs()
    assert schedules(home)[0].last == (0, only.seq), log.read_text()
    assert only.by == "cli:test"
    assert audit_home(home).ok

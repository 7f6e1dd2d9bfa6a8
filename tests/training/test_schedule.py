"""Schedules: once a period, whoever looks and whatever the clock does; and for how long, by the budgets alone."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from ledgers import UNJUDGED, hexes
from small_home import environment, until
from sqlalchemy import update

from accountant.access import grants, tokens
from accountant.access.grants import Grant
from accountant.access.token_end import end_token
from accountant.audit.audit import audit_home
from accountant.errors import Forbidden, NameTaken, UnknownName
from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger import schedules as ledger_schedules
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families.records import PUBLIC_STATES, Why
from accountant.ledger.schedules import Period
from accountant.store.tables import schedule_table
from dpserve_verify.errors import BudgetRefused, InputError, LedgerInvalid
from serving.cli.app import run
from serving.process.tokens import new_token
from training.jobs import schedule
from training.jobs.schedule import add, make_schedule, moment, remove, runs_left, schedules, submit_due
from training.kinds.training_steps import TrainingSteps
from training.requests import JobRequest

pytestmark = pytest.mark.home("prepared")

OPEN = [state for state, of in PUBLIC_STATES.items() if of.open]
WEEK = ledger_schedules.PERIODS["week"]
ASKED = {"dataset": "adult", "learner": "lazybb", "epsilon": "1", "parameters": {"rounds": 8}, "blocks": "last:2"}


def begin(home: Home, *about: object, **more: object) -> schedule.Schedule:
    return add(home, make_schedule(home, *about, **{"token": None, **more}))


def grow(home: Home, number: int) -> None:
    block_appending.append(home.ledger.log, NewBlock("adult", hexes(f"{number}"), 400, "steward"), number)


def test_a_job_is_asked_once_a_period_by_whatever_clock(home):
    """Back, forth, looked at again, its row set back: the ledger has one job for each period that was met."""
    weekly = begin(home, "weekly", "week", ASKED, "cli:test", since=1000)
    at = lambda now: submit_due(home, lambda: now)  # noqa: E731
    assert at(999) == []
    first = at(1000)
    assert len(first) == 1
    assert at(1000 + WEEK - 1) == []
    second = at(1000 + WEEK)
    assert [at(1000), at(1000 + WEEK - 1), at(1000 + WEEK + 5)] == [[], [], []]  # the clock jumped back
    third = at(1000 + 9 * WEEK)  # and slept through seven periods: they are not made up for
    assert len({*first, *second, *third}) == 3
    with home.ledger.log.database.writing() as connection:
        connection.execute(update(schedule_table).values(job=second[0]))
    assert at(1000 + 9 * WEEK) == []
    assert any("index: schedule" in problem for problem in audit_home(home).problems)
    with home.ledger.log.database.writing() as connection:
        connection.execute(update(schedule_table).values(job=third[0]))
    grow(home, 2)
    assert at(1000 + 9 * WEEK) == []
    assert [each.seq for each in home.ledger.jobs()] == [*first, *second, *third]
    home.ledger.start(third[0], "owner:1:1", 60.0)
    home.ledger.burn(third[0], "interrupted")
    assert at(1000 + 9 * WEEK) == []
    (now,) = schedules(home)
    assert (now.seq, now.last) == (weekly.seq, (9, third[0]))
    assert [home.ledger.reservation(seq).value["schedule"] for seq in (*first, *third)] == [
        {"entry": weekly.seq, "period": period} for period in (0, 9)
    ]
    assert audit_home(home).ok


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
    with pytest.raises(InputError, match="must be one of hour, day, week, month"):
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
    assert remove(home, "weekly", "cli:test").name == "weekly"
    with pytest.raises(UnknownName):
        remove(home, "weekly", "cli:test")
    assert submit_due(home) == []
    assert audit_home(home).ok


@pytest.mark.parametrize("principal", [None, "cli:ana", "team"])
def test_a_schedule_ends_with_the_token_that_made_it(home, principal):
    """However its principal is spelled, also while another token acts for them, and whatever its row says."""
    scopes = ["train"]
    made = new_token(home, "one", scopes, principal=principal)[1]
    new_token(home, "two", scopes, principal=principal or made.principal)
    asked = ASKED | {"blocks": None, "model": "mine"}
    mine = begin(home, "hourly", "hour", asked, made.principal, since=0, token=made.created)
    (seq,) = submit_due(home, lambda: 0.0)
    assert (home.ledger.job(seq).by, home.ledger.reservation(seq).value["schedule"]["entry"]) == (mine.by, mine.seq)
    ended = end_token(home.ledger, "one")
    assert ended.schedules == ("hourly",)
    assert schedules(home) == []
    assert submit_due(home, lambda: 3600.0) == []
    with home.ledger.log.database.writing() as connection:
        connection.execute(update(schedule_table).values(ended=None))
    assert submit_due(home, lambda: 7200.0) == []
    with pytest.raises(LedgerInvalid, match="revoked its token"), home.ledger.log.writing() as writer:
        ledger_schedules.admit(writer, Period(mine.seq, 5))
    assert [each.seq for each in home.ledger.jobs()] == [seq]
    (problem,) = audit_home(home).problems
    assert problem.startswith(f"index: schedule {mine.seq}: ")
    with home.ledger.log.database.writing() as connection:
        connection.execute(update(schedule_table).values(ended=ended.token.revoked))
    with pytest.raises(Forbidden, match="ended with it"):
        begin(home, "hourly", "hour", asked, made.principal, since=0, token=made.created)
    assert audit_home(home).ok


def test_a_grant_that_ends_while_a_job_is_planned_stops_the_schedule(home, monkeypatch):
    """Rights are read in the transaction that reserves its job, or enters the schedule: before, the audit called such
    an entry false.
    """
    asked = {**ASKED, "epsilon": "0.1"}
    (grant,) = grants.add(home.ledger, [Grant("team-a", "train", "dataset", "adult")], "steward")
    tokens.create(home.ledger, "nightly", [], hexes("token"), principal="team-a")
    token = home.ledger.log.size() - 1
    begin(home, "first", "hour", asked, "team-a", 0, token=token)
    late = make_schedule(home, "second", "hour", asked, "team-a", 0, token=token)
    reserve = home.ledger.reserve

    def slow(*about, **more):
        grants.revoke(home.ledger, grant.index, Why("admin", "left the team"))
        return reserve(*about, **more)

    monkeypatch.setattr(type(home.ledger), "reserve", lambda ledger, *about, **more: slow(*about, **more))
    assert submit_due(home) == []
    assert "takes train or admin on dataset adult" in str(schedules(home)[0].stopped)
    with pytest.raises(Forbidden, match="takes train or admin on dataset adult"):
        add(home, late)
    kinds = [entry.value["type"] for entry in home.ledger.log.entries()]
    assert kinds[-3:] == ["schedule-added", "grant-revoked", "schedule-stopped"]
    assert audit_home(home).ok


def test_a_schedule_ends_where_its_token_loses_the_scope(home):
    """At the next look, though it is not due; what was made at the command line has the right of who holds the keys."""
    made = new_token(home, "one", [], principal="cli:ana")[1]
    new_token(home, "two", ["train"], principal="cli:ana")  # another's scopes are not its own
    with pytest.raises(Forbidden, match="this takes train"):
        begin(home, "hourly", "hour", ASKED, "cli:ana", since=0, token=made.created)
    (given,) = grants.add(home.ledger, [Grant("cli:ana", "train", "dataset", "adult")], "test")
    begin(home, "hourly", "hour", ASKED | {"blocks": None}, "cli:ana", since=0, token=made.created)
    begin(home, "weekly", "week", ASKED | {"blocks": None, "model": "mine"}, "cli:test", since=0)
    assert len(submit_due(home, lambda: 0.0)) == 2
    grants.revoke(home.ledger, given.index, Why("test", "left"))
    assert submit_due(home, lambda: 1.0) == []
    assert {rule.name: rule.stopped is None for rule in schedules(home)} == {"hourly": False, "weekly": True}
    grants.add(home.ledger, [Grant("cli:ana", "train", "dataset", "adult")], "test")
    assert submit_due(home, lambda: 3600.0) == []  # it was stopped for good
    assert audit_home(home).ok


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"entry": 99, "period": 1}, "schedule=99: no such schedule"),
        ({"period": 0}, "period=0: must be after 0"),
        ({"by": "cli:other"}, "by='cli:other': must be cli:test"),
        ({"asked": {"epsilon": "0.5"}}, "asks for another epsilon"),
    ],
)
def test_the_audit_judges_what_is_said_to_come_of_a_schedule(home, monkeypatch, fields, problem):
    """A writer that believes whatever it is told."""
    rule = begin(home, "weekly", "week", ASKED | {"blocks": None}, "cli:test", since=0)
    assert len(submit_due(home, lambda: 0.0)) == 1
    period = Period(fields.get("entry", rule.seq), fields.get("period", 1))
    said = {"entry": period.schedule, "period": period.number}
    monkeypatch.setattr(*UNJUDGED)
    monkeypatch.setattr(ledger_schedules, "admit", lambda *about: said)
    asked = JobRequest.of({**rule.asked, **fields.get("asked", {})})
    about = {"by": fields.get("by", rule.by), "key": None, "queued": True, "promotes": True}
    TrainingSteps.submit(home, asked, **about, scheduled=period)
    assert any(problem in each for each in audit_home(home).problems), audit_home(home).problems


def test_a_worker_that_runs_once_submits_what_is_due_before_it_works(home, monkeypatch, capsys):
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    monkeypatch.setattr("serving.cli.server.give_way", lambda by: None)
    monkeypatch.setattr("serving.cli.server.logs.set_up", lambda: None)  # they are this process's own
    begin(home, "weekly", "week", ASKED | {"blocks": None, "parameters": {"rounds": 3}}, "cli:test", since=0)
    assert run(["worker", "--once", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body == {"job": body["submitted"][0], "state": "committed", "submitted": body["submitted"]}


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

"""The metrics: what the ledger's figures are against counting again, bounded labels, and the last audit's gauges."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from small_home import until
from sqlalchemy import update

from accountant.ledger.archive import archive
from accountant.ledger.families.left import describe_budget
from accountant.ledger.families.records import PUBLIC_STATES, State, Why
from accountant.ledger.job_counts import JobFigures, queue
from accountant.store.tables import job_table
from serving.process.watch import audit_runs
from serving.process.watch.metrics import (
    REQUESTS,
    AuditGauges,
    LedgerGauges,
    ProcessGauges,
    ServingGauges,
    count_request,
    render,
)

pytestmark = pytest.mark.home("filled")


def counted_again(home):
    found = Counter()
    for job in home.ledger.jobs():
        learner = home.ledger.reservation(job.seq).value["learner"]
        states = PUBLIC_STATES[job.state].passed + (("issued",) if job.issued is not None else ())
        found.update((job.dataset, learner, state) for state in states)
    return found


def set_state(home, seq, **values):
    with home.ledger.log.database.writing() as connection:
        connection.execute(update(job_table).where(job_table.c.seq == seq).values(**values))


def samples(*collectors):
    text = render(collectors).decode()
    return {
        (s.name, *sorted(s.labels.items())): s.value for f in text_string_to_metric_families(text) for s in f.samples
    }


def test_jobs_are_counted_as_they_stand(home):
    assert JobFigures().passed(home.ledger.log.database) == counted_again(home)
    assert sum(counted_again(home).values()) > 0


def test_jobs_are_counted_right_while_they_move(home):
    """One that is kept sees every step, in whatever order jobs end, and never counts one twice."""
    kept, database = JobFigures(), home.ledger.log.database
    jobs = [job.seq for job in home.ledger.jobs()]
    for seq in jobs:
        set_state(home, seq, state=State.RESERVED, issued=None)
    steps = [(State.STARTED, None), (State.COMMITTED, None), (State.COMMITTED, 1)]
    for seq in reversed(jobs):
        for state, issued in steps:
            set_state(home, seq, state=state, issued=issued)
            assert kept.passed(database) == counted_again(home) == JobFigures().passed(database)
    set_state(home, jobs[0], state=State.BURNED)  # cannot happen: what has ended was read once, and for good
    assert kept.passed(database) != counted_again(home)


def test_queue_is_as_long_and_as_old_as_its_oldest(home):
    database, now = home.ledger.log.database, datetime.now(UTC)
    jobs = [job.seq for job in home.ledger.jobs()]
    for seq in jobs:
        set_state(home, seq, state=State.COMMITTED)
    assert (queue(database, now).length, queue(database, now).oldest_seconds) == (0, 0.0)
    set_state(home, jobs[0], state=State.STARTED)
    for seq in jobs[1:3]:
        set_state(home, seq, state=State.RESERVED, queued=1)
    reserved = datetime.fromisoformat(home.ledger.reservation(jobs[1]).value["time"])
    found = queue(database, reserved + timedelta(seconds=90))
    assert (found.length, found.oldest_seconds, found.running) == (2, 90.0, 1)
    assert queue(database, reserved - timedelta(seconds=90)).oldest_seconds == 0.0  # a clock that was set back


def test_audit_before_the_first_and_after(home):
    before = samples(AuditGauges(home.path))
    assert (before["dpserve_audit_ok",], before["dpserve_audit_timestamp_seconds",]) == (0.0, 0.0)
    found = audit_runs.audit_at(home.path, home.ledger.log.database.url)
    after = samples(AuditGauges(home.path))
    assert after["dpserve_audit_ok",] == float(found["ok"])
    assert after["dpserve_audit_entries",] == home.ledger.log.size()
    assert abs(after["dpserve_audit_timestamp_seconds",] - datetime.now(UTC).timestamp()) < 3600
    (home.path / "logs" / "audit.json").write_text("{}")
    assert samples(AuditGauges(home.path))["dpserve_audit_ok",] == 0.0


def test_processes_are_counted_by_kind_however_deep(tmp_path):
    def counts():
        return samples(ProcessGauges(os.getpid()))

    def differences():
        return {key[1][1]: count - before[key] for key, count in counts().items() if count != before[key]}

    shutil.copy(shutil.which("sleep"), tmp_path / "dpserve-train")
    before = counts()
    with subprocess.Popen(["sh", "-c", "./dpserve-train 600 & ./dpserve-train 600 & wait"], cwd=tmp_path) as shell:
        until(lambda: differences() == {"train": 2, "other": 1}, "they are counted")
        for each in psutil.Process(shell.pid).children():
            each.kill()
    assert differences() == {}


def test_budgets_are_the_ledgers(home):
    found = samples(LedgerGauges(home, JobFigures()), ServingGauges(3, 1, {"candidate": 2}))
    for dataset in home.ledger.datasets():
        label = ("dataset", dataset.registration.name)
        assert found["dpserve_epsilon", label] == float(dataset.budget.epsilon)
        assert found["dpserve_budget_left_ratio", label] == pytest.approx(
            float(describe_budget(dataset)["left"]["share"]), abs=1e-6
        )
    assert (found["dpserve_models_loaded",], found["dpserve_models_refused",]) == (3, 1)
    assert found["dpserve_model_versions", ("state", "candidate")] == 2
    assert found["dpserve_model_versions", ("state", "champion")] == 0
    assert found["dpserve_ledger_size",] == home.ledger.log.size()


def test_a_retired_dataset_alarms_nobody_until_it_is_taken_up_again(home):
    """Its budget is what it was; a study that has ended is no warning for years."""
    figures = lambda name: {key for key in samples(LedgerGauges(home, JobFigures())) if ("dataset", name) in key}  # noqa: E731
    name, *others = [each.registration.name for each in home.ledger.datasets()]
    before, beside = figures(name), [figures(other) for other in others]
    assert {"dpserve_budget_left_ratio", "dpserve_epsilon"} <= {key[0] for key in before}
    why = Why("test", "the study has ended")
    archive(home.ledger, "dataset", name, why)
    assert {key[0] for key in figures(name)} <= {"dpserve_jobs_total", "dpserve_refusals_total"}  # what was counted
    assert [figures(other) for other in others] == beside
    archive(home.ledger, "dataset", name, why, ends=True)
    assert figures(name) == before


def test_labels_of_requests_are_bounded():
    """Neither a path nor a method of a client's own making becomes a label."""

    class Route:
        path = "/v1/models/{name}"

    def labels():
        return {tuple(s.labels.values()) for metric in REQUESTS.collect() for s in metric.samples}

    before = labels()
    count_request({"method": "GET", "path": "/v1/models/a", "route": Route()}, 200)
    for word in ("one", "two"):
        count_request({"method": word, "path": f"/{word}"}, 404)
    assert labels() - before <= {("GET", Route.path, "200"), ("other", "none", "404")}
    assert not any("one" in each or "/one" in each for each in labels())

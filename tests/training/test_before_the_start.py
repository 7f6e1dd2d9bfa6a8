"""What can be known before a job starts costs nothing: other plans after an upgrade, missing files, a full disk, an
engine that is away. And a start whose answer was lost, or that drew nothing, does not burn the job.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import ledgers
import pytest
from ledgers import copy, copy_on_postgresql, place, prepared, prepared_on_postgresql
from pages_in_process import pages_at, words

from accountant.audit.audit import audit_home
from accountant.errors import PlanMismatch
from accountant.home import Home
from accountant.ledger.families.records import State
from accountant.ledger.job_rows import MAX_RESUMES
from accountant.noise.mechanisms import ExponentialSelection
from accountant.store import store
from dpserve_verify.errors import LedgerUnavailable
from training.jobs import job, queue
from training.kinds import job_steps
from training.learners.boosting.lazybb import LazyBB
from training.planning.job_views import job_to_json
from training.requests import JobRequest

ASKED = JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 3})


@pytest.fixture(params=["sqlite", "postgresql"])
def home(request, tmp_path) -> Iterator[Home]:
    made = {"sqlite": (copy, prepared), "postgresql": (copy_on_postgresql, prepared_on_postgresql)}[request.param]
    opened = Home.open(place(made[0](made[1](), tmp_path / "home")))
    yield opened
    opened.ledger.log.database.close()


def types(home: Home) -> list[str]:
    """Of what was entered since the job was reserved."""
    return [each.value["type"] for each in home.ledger.log.entries(home.ledger.jobs()[0].seq + 1)]


def sound(home: Home) -> bool:
    return audit_home(home, ledgers.bundles(home.path)).problems == ()


def one_more(learn):
    """As a version plans whose learner asks one question more."""

    def asking(self, session):
        session.release(session_query(session), ExponentialSelection(session.unit))
        return learn(self, session)

    return asking


def session_query(session):
    return SimpleNamespace(purpose="vote", norm="range", size=2, sensitivity=lambda relation: 1)


@pytest.mark.parametrize("other", ["another plan", "a parameter that means nothing"])
def test_a_job_whose_plan_is_another_by_now_is_given_back(home, monkeypatch, caplog, other):
    before = home.ledger.dataset("adult").most_used.used
    queued, held = (job.submit(home, ASKED, by="ana") for _ in range(2))
    if other == "another plan":
        monkeypatch.setattr(LazyBB, "learn", one_more(LazyBB.learn))
    else:
        monkeypatch.setattr(LazyBB, "learn", lambda self, session: self.of_an_earlier_version)
    assert queue.work_once(home) == queued.seq
    why = "was reserved by another version, whose plan was another; it was given back and costs nothing: ask again"
    assert job_to_json(home, home.ledger.job(queued.seq))["error"] == why
    assert f"job {queued.seq}: {why}" in caplog.text
    with pytest.raises(PlanMismatch, match="costs nothing: ask again"):
        job.run(home, held.seq)
    assert types(home) == ["reserved", "released", "released"]
    assert home.ledger.dataset("adult").most_used.used == before
    assert sound(home)


def test_a_browser_is_told_why_a_job_was_given_back(tmp_path, monkeypatch):
    opened = Home.open(place(copy(prepared(), tmp_path / "home")))
    given_back, cancelled = (job.submit(opened, ASKED, by="ana").seq for _ in range(2))
    job.cancel(opened, cancelled)
    with monkeypatch.context() as patch:
        patch.setattr(LazyBB, "learn", one_more(LazyBB.learn))
        assert queue.work_once(opened) == given_back
    with pages_at(opened.path) as pages:
        why = "It was reserved by another version, whose plan was another"
        assert [why in words(pages.page(f"/ui/jobs/{seq}")) for seq in (given_back, cancelled)] == [True, False]


def without_schema(home: Home, _monkeypatch) -> None:
    (path,) = home.datasets.glob("*/schema.yaml")
    path.rename(home.path / "kept.yaml")


def without_room(_home: Home, monkeypatch) -> None:
    monkeypatch.setattr(job.shutil, "disk_usage", lambda _: SimpleNamespace(free=job.ROOM_BYTES - 1))


def without_engine(_home: Home, monkeypatch) -> None:
    monkeypatch.setenv("DPSERVE_ENGINE", "dask://127.0.0.1:1")


@pytest.mark.slow
@pytest.mark.parametrize("take", [without_schema, without_room, without_engine])
def test_what_is_missing_is_found_before_the_start(home, monkeypatch, take):
    queued = job.submit(home, ASKED, by="ana")
    with monkeypatch.context() as patch:
        take(home, patch)
        assert queue.work_once(home) is None
        assert types(home) == []
    for path in home.path.glob("kept.yaml"):
        path.rename(next(home.datasets.iterdir()) / "schema.yaml")
    assert queue.work_once(home) == queued.seq
    assert types(home)[:2] == ["started", "committed"]


def lose_an_answer(monkeypatch, which: int, written: bool) -> None:
    """Of the commit of this number: whether it was written is not known."""
    commit, calls = store._commit, []

    def losing(connection) -> None:
        calls.append(connection)
        if len(calls) != which:
            return commit(connection)
        if written:
            commit(connection)
        raise LedgerUnavailable("ledger database: the connection was lost", written="unknown")

    monkeypatch.setattr(store, "_commit", losing)


def test_a_start_whose_answer_was_lost_goes_on(home, monkeypatch):
    queued = job.submit(home, ASKED, by="ana")
    lose_an_answer(monkeypatch, 1, written=True)
    assert queue.work_once(home) == queued.seq
    assert types(home) == ["started", "committed", "issued"]
    assert sound(home)


def test_a_start_that_was_not_written_is_made_again(home, monkeypatch):
    queued = job.submit(home, ASKED, by="ana")
    lose_an_answer(monkeypatch, 1, written=False)
    assert queue.work_once(home) is None
    assert types(home) == []
    assert job.recover(home)["burned"] == []
    assert queue.work_once(home) == queued.seq
    assert types(home) == ["started", "committed", "issued"]


def test_a_start_whose_answer_was_lost_with_the_database_goes_on_when_it_is_back(home, monkeypatch):
    queued = job.submit(home, ASKED, by="ana")
    lose_an_answer(monkeypatch, 1, written=True)
    with monkeypatch.context() as patch:
        patch.setattr(job, "find_started", lambda *_: (_ for _ in ()).throw(LedgerUnavailable("ledger: away")))
        assert queue.work_once(home) is None
    assert home.ledger.job(queued.seq).state is State.STARTED
    assert job.recover(home)["finished"] == [queued.seq]
    assert types(home) == ["started", "resumed", "committed", "issued"]
    assert sound(home)


def break_off(monkeypatch, where: str, problem: Exception, times: int) -> list[str]:
    """Raise `problem` the first `times` that rows are opened, or that something is drawn."""
    calls: list[str] = []
    owner, name = {"rows": (job_steps, "open_rows"), "draw": (ExponentialSelection, "draw")}[where]
    original = getattr(owner, name)

    def breaking(*arguments, **options):
        calls.append(where)
        if len(calls) <= times:
            raise problem
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, breaking)
    return calls


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("keeps", ["0", "1"])
def test_a_job_that_was_stopped_before_it_drew_goes_on(home, monkeypatch, keeps):
    monkeypatch.setenv("DPSERVE_RESUME", keeps)
    queued = job.submit(home, ASKED, by="ana")
    break_off(monkeypatch, "rows", FULL, 1)
    assert queue.work_once(home) == queued.seq
    assert types(home) == ["started"]
    with monkeypatch.context() as patch:  # it waits for what is missing, as long as that takes
        without_room(home, patch)
        for _ in range(MAX_RESUMES + 1):
            assert job.recover(home)["stuck"] == [queued.seq]
    assert job.recover(home)["finished"] == [queued.seq]
    assert types(home) == ["started", "resumed", "committed", "issued"]
    assert sound(home)


def test_a_job_that_is_stopped_again_and_again_is_burned(home, monkeypatch):
    queued = job.submit(home, ASKED, by="ana")
    break_off(monkeypatch, "rows", FULL, 100)
    queue.work_once(home)
    for _ in range(MAX_RESUMES):
        assert job.recover(home)["stuck"] == [queued.seq]
    assert job.recover(home)["burned"] == [queued.seq]
    assert types(home) == ["started", *["resumed"] * MAX_RESUMES, "burned"]
    assert sound(home)


@pytest.mark.parametrize(
    ("where", "problem"), [("draw", FULL), ("draw", LedgerUnavailable("away")), ("rows", ValueError("a fault"))]
)
def test_whatever_may_have_drawn_is_burned(home, monkeypatch, where, problem):
    queued = job.submit(home, ASKED, by="ana")
    break_off(monkeypatch, where, problem, 1)
    assert queue.work_once(home) == queued.seq
    assert types(home) == ["started", "burned"]
    assert not list(Path(home.jobs).glob("*/*"))

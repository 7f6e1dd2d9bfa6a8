"""A worker is woken by the database, goes on by the clock where it is not, and takes the jobs it was started for."""

from __future__ import annotations

import threading
import time

import ledgers
import pytest
from ledgers import place, registration, request, reserve
from small_home import until

from accountant.home import Home
from accountant.store import job_notifications
from training.jobs import queue

NEVER = 1e6  # seconds: what ends before is woken


@pytest.fixture
def home(tmp_path, ledger_url):
    made = Home.init({"DPSERVE_HOME": str(tmp_path / "home"), "DPSERVE_LEDGER_URL": ledger_url})
    for name in ("adult", "other"):
        made.ledger.register(registration(name))
    yield made
    made.ledger.log.database.close()


class Waiting:
    """A thread that waits once."""

    def __init__(self, home: Home) -> None:
        self.bell, self.stop = home.job_notifications(), threading.Event()
        self.thread = threading.Thread(target=self.bell.wait, args=(self.stop,))
        self.thread.start()

    def woken(self) -> bool:
        self.thread.join(0.1)
        return not self.thread.is_alive()

    def end(self) -> None:
        self.stop.set()
        self.thread.join()
        self.bell.close()


def test_whoever_waits_hears_of_a_job(home, monkeypatch):
    """On SQLite by its file; on PostgreSQL by the database. The clock is set beyond the test."""
    monkeypatch.setattr(job_notifications, "HEARD_SECONDS", NEVER)
    waiting = Waiting(home)
    if not home.ledger.log.database.url.startswith("sqlite"):  # a file says of no commit what it is about
        reserve(home.ledger, owner="somebody")  # who runs it themselves
    assert not waiting.woken()
    time.sleep(2 * job_notifications.LOOK_SECONDS)
    assert not waiting.woken()
    seq = reserve(home.ledger).seq
    until(waiting.woken, "the database wakes")
    waiting.end()
    assert home.ledger.next_queued() == seq


def test_what_was_announced_before_is_not_missed(home, monkeypatch):
    monkeypatch.setattr(job_notifications, "HEARD_SECONDS", NEVER)
    heard = home.job_notifications()
    reserve(home.ledger)
    heard.wait(threading.Event())
    heard.close()


def test_a_line_that_breaks_leaves_the_clock_and_is_laid_again(tmp_path, monkeypatch):
    import postgres

    url = postgres.server().fresh()
    home = Home.init({"DPSERVE_HOME": str(tmp_path / "home"), "DPSERVE_LEDGER_URL": url})
    monkeypatch.setattr(job_notifications, "HEARD_SECONDS", NEVER)
    waiting = Waiting(home)
    listens = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    until(lambda: waiting.bell._line is not None, "it listens")
    postgres.server().execute(listens)
    until(waiting.woken, "the break wakes")
    assert waiting.bell._line is None
    waiting.bell.wait(waiting.stop)  # by the clock
    monkeypatch.setattr(waiting.bell, "_due", 0.0)
    waiting.stop.set()
    waiting.bell.wait(waiting.stop)
    assert waiting.bell._line is not None
    waiting.end()
    home.ledger.log.database.close()


def test_worker_takes_only_the_jobs_it_was_started_for(home):
    first, second = reserve(home.ledger).seq, reserve(home.ledger, request("other")).seq
    assert home.ledger.next_queued() == first
    assert home.ledger.next_queued(among=["other"]) == second
    assert home.ledger.next_queued(without=["other"], among=["other"]) is None
    assert home.ledger.next_queued(among=["unknown"]) is None


@pytest.mark.slow
def test_worker_trains_as_soon_as_it_is_told(tmp_path, monkeypatch):
    """Two workers of one PostgreSQL, each for another dataset: the job is done by the one for it, without the clock."""
    from training.jobs import job
    from training.requests import JobRequest

    monkeypatch.setattr(job_notifications, "HEARD_SECONDS", NEVER)
    path = ledgers.copy_on_postgresql(ledgers.prepared_on_postgresql(), tmp_path / "home")
    homes = [Home.open(place(path)) for _ in range(3)]
    stop, took = threading.Event(), []
    monkeypatch.setattr(job, "run", lambda home, seq: took.append(homes.index(home)) or home.ledger.release(seq))
    named = enumerate(("adult", "other"))
    workers = [threading.Thread(target=queue.work, args=(homes[at], stop, [name])) for at, name in named]
    for worker in workers:
        worker.start()
    job.submit(homes[2], JobRequest("adult", "lazybb", "0.25", parameters={"rounds": 4}), by="test")
    until(lambda: took, "the worker is woken")
    stop.set()
    for worker in workers:
        worker.join()
    assert took == [0]
    for each in homes:
        each.ledger.log.database.close()

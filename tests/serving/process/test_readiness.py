"""Readiness: of the door alone, its body names that nobody trains, and what is left running counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import anyio
import ledgers
import pytest
from in_process import Site
from ledgers import place
from small_home import until

from accountant.home import Home
from serving.http import routes
from serving.rest import operations
from serving.wire import work_time
from serving.wire.errors import TakesTooLong
from serving.wire.work_time import LOST_SECONDS, MOST_OVERDUE, WORK_SECONDS, Overdue


@pytest.fixture
def site(tmp_path, monkeypatch):
    for name, value in place(ledgers.copy(ledgers.prepared(), tmp_path / "home")).items():
        monkeypatch.setenv(name, value)
    home = Home.open()
    yield Site(home, operations.DOORS)
    home.ledger.log.database.close()


def test_readiness_names_that_nobody_trains_until_a_worker_is_there(site):
    def ready():
        answer = site.ask("GET", "/readyz")
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert ready() == {"ready": True, "training": operations.NOBODY_TRAINS}
    assert "dpserve worker" in operations.NOBODY_TRAINS
    words = [sys.executable, "-m", "serving.cli.app", "worker"]
    worker = subprocess.Popen(words, env=os.environ | {"DPSERVE_WORKER_PARENT": str(os.getpid())})  # as a server's
    try:
        until(lambda: ready() == {"ready": True}, "a worker beats")
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
    (site.home.path / "run" / "worker").write_bytes(bytes(8))  # as a minute without a beat
    assert "training" in ready()


def test_work_beyond_its_time_counts_until_it_ends(site, monkeypatch):
    monkeypatch.setattr(work_time, "WORK_SECONDS", 0.2)
    ends = threading.Event()

    def leave(count):
        async def ask():
            async with anyio.create_task_group() as tasks:
                for _ in range(count):
                    tasks.start_soon(give_up)

        async def give_up():
            with pytest.raises(TakesTooLong):
                await routes.in_thread(ends.wait, 60)

        anyio.run(ask)

    try:
        leave(MOST_OVERDUE - 1)
        assert site.ask("GET", "/readyz").status_code == 200
        leave(1)
        until(lambda: site.ask("GET", "/readyz").status_code == 503, "one more is over its time")
    finally:
        ends.set()
    until(lambda: site.ask("GET", "/readyz").status_code == 200, "nothing is left")


@pytest.mark.parametrize(
    ("threads", "seconds", "is_lost"),
    [(MOST_OVERDUE, WORK_SECONDS + LOST_SECONDS + 1, True), (MOST_OVERDUE, WORK_SECONDS + LOST_SECONDS - 1, False),
     (MOST_OVERDUE - 1, 1000.0, False)],
)  # fmt: skip
def test_threads_are_lost_that_work_for_long(threads, seconds, is_lost):
    overdue = overdue_by(threads, seconds)
    assert overdue.is_lost == is_lost
    assert bool(overdue.problem) == (threads >= MOST_OVERDUE)
    assert overdue.count(seconds) == 0


def overdue_by(threads, seconds):
    """Return threads that began so many seconds ago, and go on."""
    now, began = [0.0], threading.Barrier(threads + 1)
    overdue = Overdue(lambda: now[0])
    work = partial(overdue.watch, lambda: (began.wait() and None) or time.sleep(60))
    for _ in range(threads):
        threading.Thread(target=work, daemon=True).start()
    began.wait()
    now[0] = seconds
    return overdue

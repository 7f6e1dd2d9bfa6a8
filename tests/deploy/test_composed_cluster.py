"""A cluster by the words of its compose file: its scheduler is killed in the middle of a job, and started afresh."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

import pytest
from composed import Composed
from small_home import ROOT, adult_home, free_port, until

from accountant.audit.audit import audit_home
from training.jobs import job
from training.requests import JobRequest

FILES = [ROOT / "deploy" / name for name in ("compose.yaml", "compose.cluster.yaml")]
ROUNDS = 800  # of some milliseconds each: how many are over is noted once a second


@pytest.fixture
def started(tmp_path):
    """Starts a service; all of them are gone afterwards."""
    home, port, running = tmp_path / "home", free_port(), []
    changed = {
        "DPSERVE_HOME": str(home), "DPSERVE_LEDGER_URL": f"sqlite:///{home}/ledger.db", "DPSERVE_ISSUER_KEY": "",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    moved = {"scheduler:8786": f"127.0.0.1:{port}", "8786": str(port)}
    composed = Composed(FILES, {}, {}, changed, moved)

    def start(name: str, log: str) -> subprocess.Popen[bytes]:
        running.append(composed.start(name, tmp_path / log))
        return running[-1]

    yield start
    for each in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.wait()


@pytest.mark.slow
@pytest.mark.server
def test_a_job_that_loses_its_scheduler_goes_on_with_the_one_that_is_started_afresh(tmp_path, started):
    """Issued, charged once, and no traceback anywhere in what the worker writes."""
    home = adult_home(tmp_path, 3)
    scheduler = started("scheduler", "scheduler.log")
    for at in (1, 2):
        started("asker", f"asker-{at}.log")
    held = job.submit(home, JobRequest("adult", "lazybb", "1", parameters={"rounds": ROUNDS}), by="analyst")
    started("worker", "worker.log")
    until(lambda: home.ledger.job(held.seq).done > 0, "some rounds are over")
    scheduler.kill()
    done = home.ledger.job(held.seq).done
    assert done < ROUNDS
    log = tmp_path / "worker.log"
    until(lambda: "job_failed" in log.read_text(), "the worker has lost its cluster")
    assert home.ledger.job(held.seq).state.value == "started"
    started("scheduler", "scheduler-2.log")  # as `restart: unless-stopped` does
    for at in (3, 4):
        started("asker", f"asker-{at}.log")
    until(lambda: home.ledger.job(held.seq).issued is not None, "it is issued", 300)
    entries = [entry.value["type"] for entry in home.ledger.log.entries()]
    assert (entries.count("reserved"), entries.count("resumed")) == (1, 1)
    assert audit_home(home).ok
    written = log.read_text()
    assert "goes on" in written
    assert "Traceback" not in written

"""Readiness: of the door alone, and its body names that nobody trains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import ledgers
import pytest
from in_process import Site
from ledgers import place
from small_home import until

from accountant.home import Home
from serving.rest import operations


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

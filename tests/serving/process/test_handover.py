"""Serving processes outlive a `dpserve serve` that was killed, until another one has taken over, or none has come."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace

import httpx
import psutil
import pytest
import warm
from small_home import PATIENCE, adult_home, dpserve, environment, free_port, records, running, until

from serving.process.config.startup import Listening
from serving.process.workers.forks import WORKER_PARENT
from serving.process.workers.handover import DOOR, SUCCESSOR, is_relieved, place_of, take_sockets
from training.jobs import job
from training.requests import JobRequest

IN_PLACE = """
import sys
from serving import answering
answering.ORPHAN_SECONDS = {seconds}
from serving.cli.app import main
sys.argv = ["dpserve", *{arguments}]
main()
"""

TOLD_EARLY = """
import os, signal, sys
from serving.cli import app, server
server.check_place = lambda path: os.kill(os.getpid(), signal.SIGTERM)
sys.argv = ["dpserve", "serve", "--port", sys.argv[1]]
app.main()
"""


def command(port: int, seconds: float = 300.0) -> list[str]:
    """`dpserve serve` whose serving processes live on for so many seconds."""
    arguments = ["serve", "--port", str(port), "--workers", "2"]
    return [sys.executable, "-c", IN_PLACE.format(seconds=seconds, arguments=arguments)]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = adult_home(tmp_path_factory.mktemp("handed-over"), 2)
    job.train(made, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 5}, model="adult"), by="test")
    return made.path


class Predictions:
    """Predictions without end, on connections that are kept, and on new ones. What came of each is counted."""

    def __init__(self, server) -> None:
        self.server, self.answers, self.over = server, Counter(), threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(most,)) for most in (0, 0, 1, 1)]

    def _ask(self, kept):
        url = f"http://127.0.0.1:{self.server.port}"
        headers = {"Authorization": f"Bearer {self.server.tokens['predict']}"}
        limits = httpx.Limits(max_keepalive_connections=kept)
        with httpx.Client(base_url=url, headers=headers, limits=limits, timeout=PATIENCE) as client:
            while not self.over.wait(0.01):
                try:
                    status = client.post("/predict", json={"model": "adult", "records": records(1)}).status_code
                except httpx.TransportError as error:
                    status = type(error).__name__
                self.answers[status] += 1

    def more(self, count=50):
        """Wait for so many answers from now on."""
        least = self.answers[200] + count
        until(lambda: self.answers[200] >= least or len(self.answers) > 1, "predictions go on")
        assert self.answers.keys() == {200}, self.answers

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for each in self._threads:
            each.join()


def kill(server):
    """Kill who started the others -> its serving processes, which live on, and the others, which end."""
    serving = server.processes("dpserve-serving")
    others = [each for name in ("dpserve-train", "dpserve-prices") for each in server.processes(name)]
    assert (len(serving), len(others)) == (2, 2)
    server.process.kill()
    server.process.wait(PATIENCE)
    _, alive = psutil.wait_procs(others, timeout=PATIENCE)
    assert alive == []
    assert all(each.is_running() for each in serving)
    return serving


def again(server):
    """`dpserve serve` at the same port of the same home."""
    with server.log.open("ab") as out:
        process = warm.Popen(
            command(server.port), cwd=server.path.parent, env=environment(server.path), stdout=out, stderr=out
        )
    return replace(server, process=process)


@pytest.mark.server
def test_no_prediction_fails_where_dpserve_serve_is_killed_and_started_again(home):
    """Killed twice, the second time before its own serving processes answer; and told to stop before it took over."""
    port = free_port()
    with running(home, command(port), port, home.parent, warm.Popen) as first:
        refused = dpserve(home, "serve", "--port", str(port))
        assert (refused.returncode, f"port={port}" in refused.stderr) == (2, True)  # the one that has it lives
        with Predictions(first) as predictions:
            predictions.more()
            old = kill(first)
            predictions.more()
            early = again(first)
            until(lambda: psutil.Process(early.process.pid).children(), "it starts others")
            early.process.kill()
            predictions.more()
            assert all(each.is_running() for each in old)
            second = again(first)
            _, alive = psutil.wait_procs(old, timeout=PATIENCE)
            assert alive == [], first.log.read_text()
            predictions.more()
        assert predictions.answers.keys() == {200}, predictions.answers
        assert len(second.processes("dpserve-serving")) == 2
        left = kill(second)
        early = subprocess.run([sys.executable, "-c", TOLD_EARLY, str(port)], env=environment(home), timeout=PATIENCE)
        assert early.returncode == 0
        _, alive = psutil.wait_procs(left, timeout=PATIENCE)  # and nobody answers for 300 s
        assert alive == []
    with socket.create_server(("127.0.0.1", port)):
        pass  # nobody has it any more


@pytest.mark.server
def test_serving_processes_that_nobody_takes_over_from_end(home):
    port = free_port()
    with running(home, command(port, 2.0), port, home.parent, warm.Popen) as server:
        _, alive = psutil.wait_procs(kill(server), timeout=PATIENCE)
        assert alive == []
        assert server.log.read_text().count("answering for 2 s unless another one comes") == 2  # each once
        assert server.log.read_text().count("taking no more connections") == 2
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_who_lives_on_is_relieved_by_another_or_where_the_home_is_gone(tmp_path, monkeypatch):
    monkeypatch.setenv(WORKER_PARENT, "7")
    place = place_of(tmp_path / "home", 3000)
    assert is_relieved(place)
    place.mkdir(parents=True)
    assert not is_relieved(place)
    for successor, relieved in (("7", False), ("8", True), ("0", True)):
        (place / SUCCESSOR).write_text(successor)
        assert is_relieved(place) == relieved
    shutil.rmtree(tmp_path / "home")
    assert is_relieved(place)


@pytest.mark.parametrize("remains", [DOOR, SUCCESSOR])
def test_what_a_machine_that_lost_power_left_keeps_nobody_from_starting(tmp_path, remains):
    listening = Listening("127.0.0.1", free_port())
    place = place_of(tmp_path, listening.port)
    place.mkdir(parents=True)
    (place / remains).write_text("1")
    sockets = take_sockets(place, listening)
    assert sockets[0].getsockname() == (listening.host, listening.port)
    assert not (place / SUCCESSOR).exists()
    for each in sockets:
        each.close()


def test_one_port_is_of_one_dpserve_serve(tmp_path):
    """The lock is of the process: another one is refused by it, also while the port itself is free."""
    listening = Listening("127.0.0.1", free_port())
    place = place_of(tmp_path, listening.port)
    place.mkdir(parents=True)
    for each in take_sockets(place, listening):
        each.close()
    code = (
        "from pathlib import Path\nfrom serving.process.config.startup import Listening\n"
        "from serving.process.workers.handover import take_sockets\n"
        f"take_sockets(Path({str(place)!r}), Listening('127.0.0.1', {listening.port}))"
    )
    found = subprocess.run([*warm.python(), "-c", code], capture_output=True, text=True)
    assert "another dpserve serve of this home has it" in found.stderr, found.stderr

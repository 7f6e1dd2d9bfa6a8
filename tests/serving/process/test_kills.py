"""A part of a running server that is killed, or hangs, is replaced, and what it had is not lost."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import warm
from small_home import adult_home, free_port, running, until

from accountant.home import local
from serving.process.config.healthy import WORKER, is_beating

KINDS = {"dpserve-serving": 2, "dpserve-train": 1, "dpserve-prices": 1}
STILL_SECONDS = 4.0
JOB = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "parameters": {"rounds": 3}, "model": "adult"}
PLAN = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1"}
SOON_STILL = f"""
import sys
from serving import launch
launch.STILL_TRAINING_SECONDS = {STILL_SECONDS}
from serving.cli.app import main
sys.argv = ["dpserve", "serve", "--workers", "2", "--port", *sys.argv[1:]]
main()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home, port = adult_home(tmp_path_factory.mktemp("killed"), 4), free_port()
    with running(home.path, [sys.executable, "-c", SOON_STILL, str(port)], port, home.path.parent, warm.Popen) as it:
        yield it


def finished(server, seq):
    def look():
        state = server.ask_again("GET", f"/v1/jobs/{seq}").json()["state"]
        return state if state in ("issued", "burned", "released") else None

    return until(look, f"job {seq} comes to its end")


@pytest.mark.server
def test_each_part_that_is_killed_is_replaced_at_once(server):
    """However soon after the start; each then does its work."""
    before = {name: {each.pid for each in server.processes(name)} for name in KINDS}
    assert {name: len(pids) for name, pids in before.items()} == KINDS
    for name in KINDS:
        for each in server.processes(name):
            each.kill()
    for name, count in KINDS.items():
        until(lambda name=name: not before[name] & {each.pid for each in server.processes(name)}, f"{name} is gone")
        until(lambda name=name, count=count: len(server.processes(name)) == count, f"{name} is there again")
    until(server.ready, "it answers")
    assert server.ask_again("POST", "/v1/plans", json=PLAN).status_code == 200
    assert finished(server, server.post("/v1/jobs", JOB).json()["job"]) == "issued"


@pytest.mark.server
def test_a_training_worker_that_hangs_is_replaced_and_charges_nothing(server):
    """A read that never returns, as of a disk that is gone: here of a pipe that nobody writes to. Its other threads go
    on, and are no sign of life.
    """
    (labels,) = (server.path / "datasets").rglob("labels.npy")
    away = labels.with_name("away")
    labels.rename(away)
    os.mkfifo(labels)
    (hangs,) = server.processes("dpserve-train")
    seq = server.post("/v1/jobs", JOB).json()["job"]
    heart = local(server.path) / WORKER
    until(lambda: not is_beating(heart, STILL_SECONDS / 2), "what the probe reads stands still")
    until(lambda: hangs.pid not in [each.pid for each in server.processes("dpserve-train")], "another is in its place")
    assert "the training worker has stood still for 4 s; ending it" in server.log.read_text()
    assert server.get(f"/v1/jobs/{seq}").json()["state"] == "reserved"
    away.rename(labels)
    assert finished(server, seq) == "issued"
    assert is_beating(heart, STILL_SECONDS)
    assert Path(f"/proc/{server.processes('dpserve-train')[0].pid}/comm").read_text() == "dpserve-train\n"


@pytest.mark.server
def test_who_trains_gives_way_to_who_answers(server):
    """As a process, and as a session, where Linux shares processors among those first."""
    for name, by in (("dpserve-serving", 0), ("dpserve-train", 5)):
        for each in server.processes(name):
            until(lambda each=each, by=by: each.nice() == by, f"{name} gives way")
            group = Path(f"/proc/{each.pid}/autogroup")
            assert not group.exists() or group.read_text().split()[-2:] == ["nice", str(by)]

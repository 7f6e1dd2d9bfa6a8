"""The training worker beside `bentoml serve`: one to a machine, started again where it ends; none where none is wanted.
That it trains: tests/serving/test_service.py."""

from __future__ import annotations

import asyncio
import logging
import sys
from types import SimpleNamespace

import pytest

from serving.process import beside

QUIET = "import time; time.sleep(60)"


@pytest.fixture
def serving(tmp_path, monkeypatch):
    """What a serving process knows of a home, and a worker that only sleeps."""
    started = []

    class Started(beside.subprocess.Popen):
        def __init__(self, command, **more):
            assert command[1:] == ["-m", "serving.cli", "worker"]
            super().__init__([sys.executable, "-c", QUIET], **more)
            started.append(self)

    monkeypatch.setattr(beside.subprocess, "Popen", Started)
    monkeypatch.setattr(beside, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(beside, "RESTART_SECONDS", 0.05)
    return SimpleNamespace(problem="", home=SimpleNamespace(path=tmp_path)), started


async def until(holds):
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


def test_one_worker_runs_however_many_serve_and_another_where_it_ends(serving, monkeypatch):
    state, started = serving

    async def run():
        async with beside.worker_beside(state):
            await until(lambda: len(started) == 1)
            async with beside.worker_beside(state):
                await asyncio.sleep(0.2)
            assert len(started) == 1
            assert started[0].poll() is None  # who left did not have it
            started[0].kill()
            await until(lambda: len(started) == 2)
        await until(lambda: started[1].poll() is not None)

    asyncio.run(run())


def test_whoever_serves_on_takes_it_over_and_nothing_runs_before_there_is_a_home(serving):
    state, started = serving
    state.problem = "no home"

    async def run():
        first, second = beside.worker_beside(state), beside.worker_beside(state)
        await first.__aenter__()
        await asyncio.sleep(0.1)
        assert started == []
        state.problem = ""
        await until(lambda: len(started) == 1)
        await second.__aenter__()
        await first.__aexit__(None, None, None)
        await until(lambda: len(started) == 2)
        await second.__aexit__(None, None, None)

    asyncio.run(run())
    for worker in started:
        worker.wait(60)


@pytest.mark.parametrize(("name", "value"), [("WORKER", "0"), ("JOB_WORKERS", "0"), ("ISSUER_KEY", "none")])
def test_none_runs_where_none_is_wanted_and_the_log_says_so(serving, monkeypatch, caplog, name, value):
    state, started = serving
    monkeypatch.setenv(f"DPSERVE_{name}", value)

    async def run():
        async with beside.worker_beside(state):
            await asyncio.sleep(0.1)

    with caplog.at_level(logging.INFO, "dpserve.serving"):
        asyncio.run(run())
    assert started == []
    assert "queued jobs wait for dpserve worker" in caplog.text

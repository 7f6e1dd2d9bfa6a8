"""The processes of `dpserve serve`: BentoML's server, and beside it one worker that trains. They stop together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from serving.terminal import note

ROOT = Path(__file__).resolve().parents[1]
WORKER_PARENT = "DPSERVE_WORKER_PARENT"
TICK_SECONDS = 0.2
RESTART_SECONDS = 2.0
SERVER_STOP_SECONDS = 15.0


def launch(home: Path, host: str, port: int, workers: int | None) -> int:
    """Run until told to stop (SIGTERM, SIGINT) or until the server ends. Returns the exit code."""
    environment = server_environment(os.environ, home, port, workers)
    stop = _Stop()
    server = _start([sys.executable, "-m", "bentoml", "serve", *_server_arguments(host, port)], environment)
    worker = _start_worker(environment)
    while not stop.asked and server.poll() is None:
        time.sleep(TICK_SECONDS)
        if worker.poll() is not None and not stop.asked:
            note(f"the training worker ended with {worker.returncode}; starting another")
            stop.event.wait(RESTART_SECONDS)
            worker = _start_worker(environment)
    return _end(server, worker, stop)


def server_environment(base: Mapping[str, str], home: Path, port: int, workers: int | None) -> dict[str, str]:
    """Two servers must not share BENTOML_HOME: each would wipe the other's metrics. A port is one server's alone."""
    place = home / "run" / str(port)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = {"BENTOML_HOME": str(place), "BENTOML_DO_NOT_TRACK": "true", "DPSERVE_HOME": str(home.absolute())}
    if workers is not None:
        own["DPSERVE_WORKERS"] = str(workers)
    paths = [str(ROOT), *filter(None, [base.get("PYTHONPATH")])]
    kept = {name: value for name, value in base.items() if name != "PROMETHEUS_MULTIPROC_DIR"}
    return {**kept, **own, "PYTHONPATH": os.pathsep.join(paths), WORKER_PARENT: str(os.getpid())}


def _server_arguments(host: str, port: int) -> list[str]:
    return ["serving.service:DpserveService", "--working-dir", str(ROOT), "--host", host, "--port", str(port)]


def _start_worker(environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return _start([sys.executable, "-m", "serving.cli", "worker"], environment)


def _start(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C comes to us, and we pass it on in order."""
    return subprocess.Popen(command, env=dict(environment), stdout=sys.stderr.fileno(), start_new_session=True)


class _Stop:
    """Whether a signal asked us to stop, and whether one asked twice."""

    def __init__(self) -> None:
        self.event, self.count = threading.Event(), 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signal)

    def _signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.event.set()

    @property
    def asked(self) -> bool:
        return self.event.is_set()


def _end(server: subprocess.Popen[bytes], worker: subprocess.Popen[bytes], stop: _Stop) -> int:
    """Stop both; the worker first finishes the job it runs, whose budget is spent anyway. A second signal kills."""
    for process in (server, worker):
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + SERVER_STOP_SECONDS
    while server.poll() is None or worker.poll() is None:
        if stop.count > 1:
            worker.kill()
        if stop.count > 1 or time.monotonic() > deadline:
            server.kill()
        time.sleep(TICK_SECONDS / 4)
    return 0 if stop.asked else 1

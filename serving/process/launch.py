"""The processes of `dpserve serve`: BentoML's server, beside it workers that train (one, unless told otherwise), one
that works out prices, and now and then one that audits. They stop together, and none outlives the `dpserve serve` that
started it, however that ended: a port that is still held would keep the next one from starting.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from accountant.home import local
from accountant.processors import processors
from serving.process.audit_runs import is_asked
from serving.process.price_desk import SOCKET as PRICES
from serving.process.startup import Listening, announce

LOG = logging.getLogger("dpserve.launch")
ROOT = Path(__file__).resolve().parents[2]
WORKER_PARENT = "DPSERVE_WORKER_PARENT"
STOPPING = "DPSERVE_STOPPING"
TICK_SECONDS = 0.2
RESTART_SECONDS = 2.0
ANSWER_SECONDS = 10  # for requests that are being answered when the server is told to stop
SERVER_STOP_SECONDS = ANSWER_SECONDS + 5.0
FIRST_AUDIT_SECONDS = 3.0  # the server starts first
# Of TLS 1.2, whose default here would be CBC with SHA-1 alone; those of TLS 1.3 are all as good.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
Process = subprocess.Popen[bytes]


def launch(home: Path, listening: Listening, audit_seconds: int, drain_seconds: float, job_workers: int) -> int:
    """Run until told to stop (SIGTERM, SIGINT) or until the server ends. Returns the exit code."""
    environment = server_environment(os.environ, home, listening.port, listening.workers)
    Path(environment[STOPPING]).unlink(missing_ok=True)
    stop = _Stop()
    server = _start([sys.executable, "-m", "bentoml", "serve", *_server_arguments(listening)], environment)
    desk = ["serving.process.price_desk", environment[PRICES], str(os.getpid())]
    worker = [sys.executable, "-m", "serving.cli", "worker"]
    beside = [_Beside("training worker", worker, environment) for _ in range(job_workers)]
    beside.append(_Beside("price desk", [sys.executable, "-m", *desk], environment))
    audits = _Audits(home, environment, audit_seconds)
    announce(listening, stop.event)
    while not stop.asked and server.poll() is None:
        time.sleep(TICK_SECONDS)
        audits.look()
        for each in beside:
            each.look()
    _drain(Path(environment[STOPPING]), drain_seconds, stop)
    return _end(server, [*(each.process for each in beside), *audits.running], stop)


def server_environment(base: Mapping[str, str], home: Path, port: int, workers: int | None) -> dict[str, str]:
    """Two servers must not share BENTOML_HOME: each would wipe the other's metrics. A port is one server's alone."""
    place = local(home) / "run" / str(port)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = {"BENTOML_HOME": str(place), "BENTOML_DO_NOT_TRACK": "true", "DPSERVE_HOME": str(home.absolute())}
    own |= {WORKER_PARENT: str(os.getpid()), STOPPING: str(place / "stopping"), PRICES: str(place / "prices")}
    own["MALLOC_ARENA_MAX"] = base.get("MALLOC_ARENA_MAX", "2")  # or each thread keeps what large bodies took
    own["DPSERVE_WORKERS"] = str(workers or processors())
    paths = [str(ROOT), *filter(None, [base.get("PYTHONPATH")])]
    # With BENTOML_CONTAINERIZED a worker that died would not be replaced while others live.
    theirs = ("PROMETHEUS_MULTIPROC_DIR", "BENTOML_CONTAINERIZED")
    kept = {name: value for name, value in base.items() if name not in theirs}
    return {**kept, **own, "PYTHONPATH": os.pathsep.join(paths)}


def _server_arguments(listening: Listening) -> list[str]:
    place = ["--working-dir", str(ROOT), "--host", listening.host, "--port", str(listening.port)]
    graceful = ["--timeout-graceful-shutdown", str(ANSWER_SECONDS)]
    tls = listening.tls
    files = [] if tls is None else ["--ssl-certfile", str(tls.certificate), "--ssl-keyfile", str(tls.key)]
    return ["serving.service:DpserveService", *place, *graceful, *files, "--ssl-ciphers", CIPHERS]


def _start(command: list[str], environment: Mapping[str, str]) -> Process:
    """In a session of its own: Ctrl-C comes to us, and we pass it on in order."""
    return subprocess.Popen(command, env=dict(environment), stdout=sys.stderr.fileno(), start_new_session=True)


class _Beside:
    """A process beside the server that is started again where it ends."""

    def __init__(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        self._name, self._command, self._environment = name, command, environment
        self.process, self._due = _start(command, environment), 0.0

    def look(self) -> None:
        now = time.monotonic()
        if self.process.poll() is None:
            self._due = 0.0
        elif not self._due:
            LOG.error("the %s ended with %s; starting another", self._name, self.process.returncode)
            self._due = now + RESTART_SECONDS
        elif now >= self._due:
            self.process, self._due = _start(self._command, self._environment), 0.0


class _Audits:
    """Starts an audit at the start, every `seconds` (0: never by itself), and when it was asked for; one at a time."""

    def __init__(self, home: Path, environment: Mapping[str, str], seconds: int) -> None:
        self._home, self._environment, self._seconds = home, environment, seconds
        self._process: Process | None = None
        self._due = time.monotonic() + FIRST_AUDIT_SECONDS
        self._rest = self._due  # until then not even when asked: one that cannot start is not tried without end

    def look(self) -> None:
        if self.running:
            return
        if self._process is not None:
            if self._process.returncode:
                LOG.error("the audit ended with %s; dpserve ledger audit says more", self._process.returncode)
            self._process = None
        now = time.monotonic()
        if (self._seconds and now >= self._due) or (now >= self._rest and is_asked(self._home)):
            self._process = _start([sys.executable, "-m", "serving.cli", "auditor", "--once"], self._environment)
            self._due, self._rest = now + self._seconds, now + RESTART_SECONDS

    @property
    def running(self) -> list[Process]:
        return [] if self._process is None or self._process.poll() is not None else [self._process]


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


def _drain(stopping: Path, seconds: float, stop: _Stop) -> None:
    """Say not ready for so long before anything is closed, so that whoever shares out the requests looks elsewhere; a
    connection that is kept ends with its next answer."""
    if seconds and stop.asked:
        stopping.touch(mode=0o600)
        deadline = time.monotonic() + seconds
        while stop.count < 2 and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)


def _end(server: Process, others: list[Process], stop: _Stop) -> int:
    """Stop all; the worker first finishes the job it runs, whose budget is spent anyway. A second signal kills."""
    if stop.asked:
        LOG.info("stopping: no more requests are taken; a job that runs is finished first")
    else:
        LOG.error("the server ended by itself, with %s", server.returncode)
    for process in (server, *others):
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + SERVER_STOP_SECONDS
    while any(process.poll() is None for process in (server, *others)):
        if stop.count > 1:
            for process in others:
                process.kill()
        if stop.count > 1 or time.monotonic() > deadline:
            server.kill()
        time.sleep(TICK_SECONDS / 4)
    return 0 if stop.asked else 1


def is_orphan() -> bool:
    """Whether `dpserve serve` started this server and is gone."""
    parent = os.environ.get(WORKER_PARENT, "")
    if not parent.isdigit():
        return False
    try:
        os.kill(int(parent), 0)
    except OSError:  # none of this number, or somebody else's that was given it since
        return True
    return False


def stop_server() -> None:
    """End the whole server from a serving process: its supervisor, or where that is gone too, this process."""
    logging.getLogger("dpserve.serving").error("dpserve serve is gone; stopping")
    supervisor = os.getppid()
    os.kill(supervisor if supervisor > 1 else os.getpid(), signal.SIGTERM)

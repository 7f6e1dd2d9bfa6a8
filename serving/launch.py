"""The processes of `dpserve serve`: those that serve, beside them workers that train (one, unless told otherwise), one
that works out prices, and now and then one that audits. What any of them needs is loaded once, in the process that
starts them; they go on from there as its forks, so that one that ended is replaced at once. They stop together. Where
`dpserve serve` itself is killed, those that serve go on until the next one has taken over from them (`handover`), and
no other process outlives it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.context import ForkProcess
from pathlib import Path
from types import FrameType

from accountant.system.life import LIFE
from accountant.system.machine import processors
from serving.process.config.healthy import Heartbeat
from serving.process.config.startup import Listening, log_when_ready
from serving.process.watch.audit_runs import is_asked
from serving.process.watch.witnessing import WITNESS_SECONDS, ask_witnesses, asked_policy
from serving.process.workers import price_desk
from serving.process.workers.forks import WORKER_PARENT, fork
from serving.process.workers.handover import BACKLOG, Sockets, name_successor, place_of, take_sockets
from serving.process.workers.loading import loading
from serving.process.workers.restarted import RESTART_SECONDS, TICK_SECONDS, RestartedProcess

LOG = logging.getLogger("dpserve.launch")
ROOT = Path(__file__).resolve().parents[1]
ANSWERS, ANSWERS_CALLS = "serving.answering", "serving.answering_grpc"
# What the processes import, at once or later.
IMPORTED = (
    "serving.app",
    "serving.http.connections",
    ANSWERS,
    "training.jobs.queue",
    "training.datasets.drafts.steps",
    "uvicorn.lifespan.on",
    "uvloop",
)
STOPPING = "DPSERVE_STOPPING"
COUNTS = "PROMETHEUS_MULTIPROC_DIR"
STILL_TRAINING_SECONDS = 60.0  # as a lease lasts: a job that is ended is burned
SERVER_STOP_SECONDS = 15.0  # which is longer than requests that are being answered may take
FIRST_AUDIT_SECONDS = 3.0  # the server starts first
SWEEP_SECONDS = 3600.0
M_ARENA_MAX, ARENAS = -8, 2  # of <malloc.h>; or each thread keeps what large bodies took


def launch(
    home: Path,
    listening: Listening,
    audit_seconds: int,
    drain_seconds: float,
    job_workers: int,
    when_ready: Callable[[], None],
    command: Callable[[str], None],
) -> None:
    """Run until told to stop (SIGTERM, SIGINT). `command`: runs `dpserve ARGUMENTS`, and ends the process."""
    os.environ |= server_environment(os.environ, home, listening.port, listening.workers)
    stopping, prices = Path(os.environ[STOPPING]), Path(os.environ[price_desk.SOCKET])
    stopping.unlink(missing_ok=True)
    place, stop = place_of(home, listening.port), _Stop()
    sockets = take_sockets(place, listening)
    load()
    sockets[0].listen(BACKLOG)
    serving = [
        RestartedProcess(
            "serving worker", "dpserve-serving", partial(_serve, ANSWERS, sockets, listening, place), outlives=True
        )
        for _ in range(listening.workers or processors())
    ]
    if listening.grpc:
        calls = partial(_run_without_port, sockets, _serve, ANSWERS_CALLS, listening, place)
        serving.append(RestartedProcess("gRPC server", "dpserve-grpc", calls, outlives=True))
    helpers = [
        RestartedProcess("training worker", "dpserve-train", partial(_train, sockets, command), STILL_TRAINING_SECONDS)
        for _ in range(job_workers)
    ]
    desk = partial(_run_without_port, sockets, price_desk.main, prices, os.getpid())
    helpers.append(RestartedProcess("price desk", "dpserve-prices", desk))
    audits = _OnDemand(
        "audit", "dpserve-audit", partial(_run_without_port, sockets, command, "auditor --once"),
        partial(is_asked, home), every=audit_seconds, hint="; dpserve ledger audit says more",
    )  # fmt: skip
    demands = [audits, _drafts(home, sockets), *_witnesses(sockets)]
    ready = False
    while not stop.requested:
        time.sleep(TICK_SECONDS)
        for demand in demands:
            demand.look()
        for kept in (*serving, *helpers):
            kept.look()
        has_begun = any(kept.has_begun for kept in serving) and (not listening.grpc or serving[-1].has_begun)
        if not ready and has_begun and log_when_ready(listening):
            ready = True
            name_successor(place, os.getpid())
            when_ready()
    name_successor(place, 0)
    _drain(stopping, drain_seconds, stop)
    for each in sockets:
        each.close()
    _end(
        [kept.process for kept in serving],
        [*(kept.process for kept in helpers), *(process for demand in demands for process in demand.running)],
        stop,
    )


def load() -> None:
    """Import everything that a process of the server needs, which reads the environment: some seconds, once."""
    if "MALLOC_ARENA_MAX" not in os.environ:  # which is read before a process begins
        with suppress(AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
    with loading():
        for name in IMPORTED:
            import_module(name)
        price_desk.load()


def server_environment(base: Mapping[str, str], home: Path, port: int, workers: int | None) -> dict[str, str]:
    """Return the environment of a server's processes. Each port has a folder of its own, so two servers never share
    counts.
    """
    place = place_of(home, port)
    counts = place / "counts"
    shutil.rmtree(counts, ignore_errors=True)
    counts.mkdir(mode=0o700, parents=True)
    variables = {"DPSERVE_HOME": str(home.absolute())}
    variables |= {WORKER_PARENT: str(os.getpid()), STOPPING: str(place / "stopping"), COUNTS: str(counts)}
    variables |= {price_desk.SOCKET: str(place / "prices"), "DPSERVE_WORKERS": str(workers or processors())}
    paths = [str(ROOT), *filter(None, [base.get("PYTHONPATH")])]
    return {**base, **variables, "PYTHONPATH": os.pathsep.join(paths)}


def _serve(module: str, *arguments: object) -> None:
    import_module(module).answer(*arguments)  # uvicorn or gRPC, which `dpserve --help` does without


def _train(sockets: Sockets, command: Callable[[str], None], heartbeat: Heartbeat) -> None:
    """Run queued jobs, while a thread beats as long as they go on."""
    heartbeat.beat_in_a_thread(LIFE.last)
    _run_without_port(sockets, command, "worker")


def _run_without_port(sockets: Sockets, work: Callable[..., object], *arguments: object) -> None:
    """Do `work` in a fork that does not serve, after closing the port: it must not hold it when all others are gone."""
    for each in sockets:
        each.close()
    work(*arguments)


def _drafts(home: Path, sockets: Sockets) -> _OnDemand:
    from training.datasets.drafts import steps  # which reads rows, and `dpserve --help` does without
    from training.datasets.drafts.drafts import Drafts

    return _OnDemand(
        "work on drafts", "dpserve-drafts", partial(_run_without_port, sockets, steps.work, home),
        Drafts(home).is_asked, every=SWEEP_SECONDS, rest=TICK_SECONDS,
    )  # fmt: skip


def _witnesses(sockets: Sockets) -> list[_OnDemand]:
    """Return who asks the witnesses, where the setting names any that can be asked."""
    if asked_policy() is None:
        return []
    asks = partial(_run_without_port, sockets, ask_witnesses)
    return [_OnDemand("asking of witnesses", "dpserve-witness", asks, lambda: False, every=WITNESS_SECONDS)]


class _OnDemand:
    """Starts what it says at the start, every `every` seconds (0: never by itself), and when it is `asked` for; one at
    a time.
    """

    def __init__(
        self, what: str, name: str, work: Callable[[], None], asked: Callable[[], bool], every: float,
        hint: str = "", rest: float = RESTART_SECONDS,
    ) -> None:  # fmt: skip
        self._what, self._name, self._work, self._asked, self._every = what, name, work, asked, every
        self._hint, self._pause = hint, rest
        self._process: ForkProcess | None = None
        self._due = time.monotonic() + FIRST_AUDIT_SECONDS
        self._rest = self._due  # until then not even when asked: one that cannot start is not tried without end

    def look(self) -> None:
        now = time.monotonic()
        if self.running:
            return
        if self._process is not None:
            if self._process.exitcode:
                LOG.error("the %s ended with %s%s", self._what, self._process.exitcode, self._hint)
            self._process = None
        if (self._every and now >= self._due) or (now >= self._rest and self._asked()):
            self._process = fork(self._name, self._work)
            self._due, self._rest = now + self._every, now + self._pause

    @property
    def running(self) -> list[ForkProcess]:
        return [] if self._process is None or self._process.exitcode is not None else [self._process]


class _Stop:
    """Signals to stop: whether one came, and whether a second one did."""

    def __init__(self) -> None:
        self.event, self.count = threading.Event(), 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signal)

    def _signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.event.set()

    @property
    def requested(self) -> bool:
        return self.event.is_set()


def _drain(stopping: Path, seconds: float, stop: _Stop) -> None:
    """Say not ready for so long before anything is closed, so that whoever shares out the requests looks elsewhere; a
    connection that is kept ends with its next answer."""
    if seconds and stop.requested:
        stopping.touch(mode=0o600)
        deadline = time.monotonic() + seconds
        while stop.count < 2 and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)


def _end(serving: list[ForkProcess], beside: list[ForkProcess], stop: _Stop) -> None:
    """Stop all; the worker first finishes the job it runs, whose budget is spent anyway. A second signal kills."""
    LOG.info("stopping: no more requests are taken; a job that runs is finished first")
    for process in (*serving, *beside):
        process.terminate()
    deadline = time.monotonic() + SERVER_STOP_SECONDS
    while any(process.exitcode is None for process in (*serving, *beside)):
        overdue = time.monotonic() > deadline
        for process in (*serving, *beside) if stop.count > 1 else serving if overdue else ():
            process.kill()
        time.sleep(TICK_SECONDS / 4)

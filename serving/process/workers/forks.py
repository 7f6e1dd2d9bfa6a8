"""Processes that go on from what this one has loaded: forks, each in a session of its own, with a name of its own and
signals as they are by default.

What is loaded once is there at once, and takes memory once. It is sound as long as this process has one thread of
Python, holds no connection and draws nothing: who draws noise takes it from the operating system, which knows a fork
from its parent. Threads below Python are OpenBLAS's and jemalloc's, which prepare themselves for a fork.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path

from accountant.system.confined import end_with_parent

WORKER_PARENT = "DPSERVE_WORKER_PARENT"
STOPS = (signal.SIGTERM, signal.SIGINT)
NAME = Path("/proc/self/comm")  # what `ps` and `top` call a process, in at most 15 characters


def fork(name: str, work: Callable[[], object], outlives: bool = False) -> ForkProcess:
    """Fork a process that does `work` and ends; what it prints goes to stderr. It is stopped where this one ends by an
    exception, and where it is killed, unless the fork `outlives` it. Raises RuntimeError where this process has several
    threads: a lock that another thread holds would stay locked in the fork.
    """
    if threading.active_count() > 1:
        raise RuntimeError(f"{name}: cannot be forked from a process of {threading.active_count()} threads")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # or one that comes now would be taken for this process's
    try:
        begun = (name, work, before, 0 if outlives else os.getpid())
        process = get_context("fork").Process(target=_begin, args=begun, daemon=True)
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _begin(name: str, work: Callable[[], object], signals: set[signal.Signals], parent: int) -> None:
    os.setsid()  # Ctrl-C comes to who started us, and is passed on in order
    if parent:  # else it outlives that
        end_with_parent(parent, signal.SIGTERM)
    os.dup2(2, 1)
    with suppress(OSError):
        NAME.write_text(name)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)
    work()


def is_orphan() -> bool:
    """Return whether `dpserve serve` started this process and is gone."""
    launcher = os.environ.get(WORKER_PARENT, "")
    return launcher.isdigit() and os.getppid() != int(launcher)

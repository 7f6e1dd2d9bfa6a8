"""The training worker beside `bentoml serve`: BentoML starts serving processes alone, and a job would wait for somebody
to start `dpserve worker`. The first serving process of this machine that takes a lock starts one, and another where it
ended; where that process is gone, the next one does.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from accountant.home import local
from accountant.keys.key_files import is_absent
from serving.process.config.settings import ServerSettings
from serving.process.state import ServingState
from serving.process.workers.forks import WORKER_PARENT
from serving.process.workers.restarted import RESTART_SECONDS

LOG = logging.getLogger("dpserve.serving")
ROOT = Path(__file__).resolve().parents[2]
LOOK_SECONDS = 1.0


@asynccontextmanager
async def worker_beside(serving: ServingState) -> AsyncIterator[None]:
    """Keep one training worker for as long as this process serves, unless the settings say none, or no key is here that
    could sign what it trains.
    """
    settings = ServerSettings()
    if not settings.worker or not settings.job_workers or is_absent(os.environ.get("DPSERVE_ISSUER_KEY", "")):
        LOG.info("no training worker is started here: queued jobs wait for dpserve worker")
        yield
        return
    beside = _Beside()
    task = asyncio.create_task(beside.keep(serving))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        beside.stop()


class _Beside:
    """A worker, where this process holds the lock."""

    def __init__(self) -> None:
        self._lock: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._began = float("-inf")

    async def keep(self, serving: ServingState) -> None:
        """Look after the worker, from when there is a home on."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if not serving.problem:
                    self._look(serving.home.path)
            except OSError as error:
                LOG.error("no training worker could be started: %s", error.strerror)

    def _look(self, home: Path) -> None:
        if self._lock is None and not self._take(home):
            return
        code = None if self._process is None else self._process.poll()
        if self._process is not None and code is None:
            return
        if time.monotonic() < self._began + RESTART_SECONDS:
            return
        if code is not None:
            LOG.error("the training worker ended with %s; starting another", code)
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "DPSERVE_HOME": str(home), "PYTHONPATH": paths, WORKER_PARENT: str(os.getpid())}
        command = [sys.executable, "-m", "serving.cli", "worker"]
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
        )  # in a session of its own: Ctrl-C ends who serves, and this one once its job is done
        LOG.info("a training worker runs beside: process %d", self._process.pid)

    def _take(self, home: Path) -> bool:
        """Take the lock of this machine, which the end of this process gives back."""
        folder = local(home) / "run"
        folder.mkdir(mode=0o700, exist_ok=True)
        file = (folder / "worker-beside.lock").open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._lock = file
        return True

    def stop(self) -> None:
        """Tell the worker to stop: it ends what it runs first, and takes no other job."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        if self._lock is not None:
            self._lock.close()

"""Who runs a job: a lease in the ledger's index, kept alive while the process lives. It decides who cleans up, never
what is charged.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar

import psutil

from accountant.ledger.ledger import Ledger


def this_process() -> str:
    """Names this process for ever: machine start, process number, process start."""
    return f"{_boot()}:{psutil.Process().pid}:{psutil.Process().create_time():.2f}"


def dead(owner: str, expires: float) -> bool:
    """Whether the owner is gone: at once where it ran on this machine, else when its lease has run out."""
    boot, pid, started = owner.rsplit(":", 2)
    if boot != _boot():
        return time.time() > expires
    try:
        return f"{psutil.Process(int(pid)).create_time():.2f}" != started
    except psutil.NoSuchProcess:
        return True


def _boot() -> str:
    """This start of this machine."""
    identity = Path("/proc/sys/kernel/random/boot_id")
    return identity.read_text().strip() if identity.exists() else f"boot-{psutil.boot_time():.0f}"


class Lease:
    """Within the block, a thread tells the ledger every few seconds that the job's owner lives and how far the plan
    is played.
    """

    SECONDS: ClassVar[float] = 60.0

    def __init__(self, ledger: Ledger, seq: int) -> None:
        self._ledger, self._seq, self._done = ledger, seq, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def progress(self, done: int) -> None:
        """How many releases of the plan are done: the ledger is told with the next heartbeat."""
        self._done = done

    def _beat(self) -> None:
        owner = this_process()
        while not self._over.wait(min(1.0, self.SECONDS / 4)):
            self._ledger.heartbeat(self._seq, owner, self.SECONDS, self._done)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

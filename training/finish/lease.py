"""Who runs a job: its owner, and a lease in the ledger's index that is renewed while the owner lives. It decides who
cleans up, never what is charged (docs/reference/failures.md).
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from accountant.errors import WrongState
from accountant.ledger.families.records import Holding
from accountant.ledger.ledger import Ledger
from accountant.system.life import LIFE
from dpserve_verify.errors import DpserveError, LedgerUnavailable

PROC = Path("/proc")
GRACE_SECONDS = 20.0  # from the first look that finds a lease run out to the burning; a living owner renews in between


def this_process() -> str:
    """Return a name of this process that no other ever has: `host:namespaces:process:start:word`. `host` is this start
    of the machine, `start` clock ticks after that, and `word` is random: nothing of it moves when a clock is set.
    """
    parts = (*_place(), str(os.getpid()), _start_ticks("self"))
    return ":".join((*parts, _word(parts)))


def lives(owner: str) -> bool | None:
    """Return whether the owner's process lives. None where that cannot be told from here: another host or process
    namespace, or a process that may not be looked at.
    """
    place = _place()
    match owner.split(":"):
        case [*there, pid, start, _] if tuple(there) == place and "" not in (*place, start):
            pass
        case _:
            return None
    try:
        os.kill(int(pid), 0)  # asks the kernel, in this namespace, whatever is mounted at /proc
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    ours = (PROC / "self").readlink().name == str(os.getpid())  # else /proc counts by another namespace's numbers
    ticks = _start_ticks(pid) if ours else ""
    return None if not ticks else ticks == start


def is_dead(ledger: Ledger, holding: Holding) -> bool:
    """Return whether who holds a job is gone: the process where it can be looked at, else the lease by the database's
    clock.

    A lease that has run out is doubted first, and dead if it is not renewed for GRACE_SECONDS: so an owner who lives is
    heard when the database's clock was set, or when the database was away.
    """
    if holding.owner == this_process() and (ledger.log.database.url, holding.seq) in Lease.over:
        return True  # this process lives, and does not run it any more: the database was away when it ended
    alive = lives(holding.owner)
    if alive is not None:
        return not alive
    if holding.left > 0:
        return False
    if holding.doubted is None:
        ledger.doubt(holding)
        return False
    return holding.doubted >= GRACE_SECONDS


def _place() -> tuple[str, str]:
    """Return the boot id of this machine and its namespaces of processes and of time; "" where the system does not
    say.
    """
    try:
        spaces = [(PROC / "self" / "ns" / kind).stat().st_ino for kind in ("pid", "time")]
        return (PROC / "sys/kernel/random/boot_id").read_text().strip(), "-".join(map(str, spaces))
    except OSError:
        return "", ""


def _start_ticks(process: str) -> str:
    """Return when the process started, in clock ticks of the machine; "" where that cannot be read."""
    try:
        return (PROC / process / "stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


@lru_cache
def _word(_process: tuple[str, ...]) -> str:
    """Return a random word for each process; a fork is another process."""
    return uuid.uuid4().hex[:16]


def _boot_seconds() -> float:
    """Return seconds since the machine started, sleep included, by a clock that nobody sets."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """Within the block, a thread tells the ledger every BEAT seconds that the job's owner lives and how far the plan is
    played, as long as the job shows signs of life. A moment without the database is waited out.
    """

    SECONDS: ClassVar[float] = 60.0
    BEAT: ClassVar[float] = 1.0  # between two heartbeats, where that is no more than a quarter of a lease
    FRESH: ClassVar[float] = 5.0  # well below GRACE_SECONDS: nobody burned what was renewed so lately
    over: ClassVar[set[tuple[str, int]]] = set()  # ledgers and jobs whose lease ended in this process

    def __init__(self, ledger: Ledger, seq: int) -> None:
        self._ledger, self._seq, self._done = ledger, seq, 0
        self._over, self._lost, self._renewed = threading.Event(), threading.Event(), _boot_seconds()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def progress(self, done: int) -> None:
        """Set how many releases of the plan are done; the next heartbeat tells the ledger."""
        self._done = done
        LIFE.show()

    def check(self) -> None:
        """Check, before every draw, that this process still holds the job. Returns at once where the lease was renewed
        just now; a process that stood still waits until it is renewed.

        Raises:
            WrongState: the job is another's by now: it was burned.
            LedgerUnavailable: the ledger could not be asked for as long as a lease lasts.
        """
        LIFE.show()
        since = _boot_seconds()
        while _boot_seconds() - self._renewed > self.FRESH and not self._lost.is_set():
            if _boot_seconds() - since > self.SECONDS:
                raise LedgerUnavailable(f"job {self._seq}: the ledger cannot be asked who holds it")
            self._lost.wait(0.05)
        if self._lost.is_set():
            raise WrongState(f"job {self._seq}: is not held by this process any more", job=self._seq)

    def _beat(self) -> None:
        owner = this_process()
        while not self._over.wait(min(self.BEAT, self.SECONDS / 4)):
            if LIFE.stands_still:  # whoever else looks may take it for gone
                continue
            sent_at = _boot_seconds()
            try:
                if not self._ledger.heartbeat(self._seq, owner, self.SECONDS, self._done):
                    return self._lost.set()
            except DpserveError:
                continue
            self._renewed = sent_at

    def __enter__(self) -> Lease:
        Lease.over.discard((self._ledger.log.database.url, self._seq))  # it may be resumed where it ended
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        Lease.over.add((self._ledger.log.database.url, self._seq))

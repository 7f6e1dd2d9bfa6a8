"""Work on what strangers sent, whose bytes decide what they stand for: by a process to which the operating system gives
no more memory and processor time than it may take, whatever its decoders are made to do.

The one place that says how a process is bounded. `confine` bounds this process for good; a `ConfinedFork` does some
work. Programs of their own import it too, so it imports little.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

from accountant.system.machine import memory
from dpserve_verify.errors import TooMuch

LEAST = 512 << 20  # bytes
PARENT_DEATH_SIGNAL = 1  # of Linux's prctl


@dataclass(frozen=True)
class Bounds:
    """What a process may take beside what it has taken so far.

    Attributes:
        memory: Bytes.
        seconds: Of a processor.
        writes: Whether it may write files.
        maps: Whether it may map files besides, whose pages are the system's to give and take.
    """

    memory: int
    seconds: int
    writes: bool = True
    maps: bool = False


def confine(bounds: Bounds) -> None:
    """Bound this process from here on. Its memory ends in MemoryError, its time in TooMuch or, where a decoder goes on,
    in its end a second later. No core file is written, for rows would lie in it.
    """
    with open("/proc/self/statm") as status:
        size = int(status.read().split()[5 if bounds.maps else 0]) * resource.getpagesize()
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + bounds.seconds
    signal.signal(signal.SIGXCPU, _refuse)
    _limit(resource.RLIMIT_DATA if bounds.maps else resource.RLIMIT_AS, size + bounds.memory)
    _limit(resource.RLIMIT_CPU, seconds, seconds + 1)
    _limit(resource.RLIMIT_CORE, 0)
    if not bounds.writes:
        _limit(resource.RLIMIT_FSIZE, 0)


def memory_of_one() -> int:
    """Return the bytes that one process may take: half of what its machine or control group has. LEAST of them in any
    case, for libraries reserve that many before they use any.
    """
    return max(LEAST, memory() // 2)


def bound_memory(most: int) -> None:
    """Let this process have at most so many bytes of memory, mapped files apart; beyond is MemoryError."""
    _limit(resource.RLIMIT_DATA, most)


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, below what this process was given: nobody may raise that."""
    given = resource.getrlimit(kind)[1]
    most = soft if hard is None else hard
    most = most if given == resource.RLIM_INFINITY else min(most, given)
    resource.setrlimit(kind, (min(soft, most), most))


def _refuse(number: int, frame: object) -> NoReturn:
    raise TooMuch("it takes more time to read than it may")


class ConfinedFork:
    """A fork that does some work within its bounds. It ends with this process, which must have one thread of Python,
    and whose connections it must not use.
    """

    def __init__(self, bounds: Bounds, deadline: float, work: Callable[[], object]) -> None:
        """Begin. `deadline`: after so many seconds it is killed, whatever it waits for."""
        parent, self._end, self._status = os.getpid(), time.monotonic() + deadline, -1
        self.process = os.fork()
        if not self.process:
            _do(parent, bounds, work)

    def has_ended(self) -> bool:
        """Return whether it has ended; kill it after its deadline."""
        if self._status < 0 and time.monotonic() > self._end:
            os.kill(self.process, signal.SIGKILL)
            self._status = os.waitpid(self.process, 0)[1]
        elif self._status < 0:
            ended, status = os.waitpid(self.process, os.WNOHANG)
            self._status = status if ended else -1
        return self._status >= 0

    @property
    def is_done(self) -> bool:
        """Return whether it has come to its own end, within its bounds."""
        return self._status == 0


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Let this process get a signal when the thread that forked it is gone, however that ended; end it here where
    process `parent` is gone already. On systems other than Linux a process must look for itself.
    """
    with suppress(AttributeError):
        c_library().prctl(PARENT_DEATH_SIGNAL, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


@cache
def c_library() -> ctypes.PyDLL:
    """Return the system's library, for calls that take no time: Python's own lock is held meanwhile."""
    return ctypes.PyDLL(None)


def _do(parent: int, bounds: Bounds, work: Callable[[], object]) -> NoReturn:
    status = 1
    try:
        end_with_parent(parent)
        confine(bounds)
        work()
        status = 0
    except (MemoryError, TooMuch):
        pass
    finally:
        os._exit(status)

"""Time limit of a request's work. Large bodies are read by one thread at a time, so that a process needs the memory of
one; the thread checks the time itself, so that work which is given up stops. Callers take turns, as at the price desk:
who sends many waits for its own.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar, cast

import anyio

from dpserve_verify.errors import DpserveError
from serving.wire.errors import TakesTooLong

MOST_OVERDUE = 4  # threads of a process whose work is over its time: with six, requests of others are late
LOST_SECONDS = 30.0  # beyond it: twice as long as a database is waited for
PRICES_SECONDS = 1.5  # a list works prices out for so long; the rest are told as not worked out yet
TICK_SECONDS = 0.25  # between two looks at how late the event loop is
WORK_SECONDS = 4.5  # below the service's own timeout, whose answer has another shape
T = TypeVar("T")

_END: ContextVar[float] = ContextVar("dpserve.end", default=math.inf)


class Overdue:
    """Counts the threads of this process whose work has had its time and goes on: nothing ends a thread, so each takes
    a share of this process until its work is done, and requests of others are late for it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, dict[object, float]()

    def watch(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do work in this thread, and know since when it goes on."""
        mark = object()
        self._began[mark] = self._clock()
        try:
            return work(*arguments)
        finally:
            del self._began[mark]

    def count(self, seconds: float = 0.0) -> int:
        """Count those that are over their time by more than so many seconds."""
        end = self._clock() - WORK_SECONDS - seconds
        return sum(began < end for began in list(self._began.values()))

    @property
    def problem(self) -> str:
        """Return why requests are answered too late here; empty where they are not."""
        late = self.count()
        return f"{late} threads work on what nobody waits for any more" if late >= MOST_OVERDUE else ""

    @property
    def is_lost(self) -> bool:
        """Return whether that has lasted for so long that this process must be replaced."""
        return self.count(LOST_SECONDS) >= MOST_OVERDUE


OVERDUE = Overdue()


class Lateness:
    """How late the event loop of this process is: what came meanwhile waits, and nothing else here could say so.

    It has itself woken every TICK_SECONDS; how much later it wakes is what whatever it does then waited.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._due = clock, math.inf
        self._seen: deque[tuple[float, float]] = deque(maxlen=64)  # when it woke, and how late

    async def watch(self, note: Callable[[float], object]) -> None:
        """Tell `note` the seconds that each waking was late, again and again."""
        while True:
            self._due = self._clock() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            late = max(0.0, self._clock() - self._due)
            self._seen.append((self._due, late))
            note(late)

    def most(self, since: float) -> float:
        """Return the seconds by which it was late at most, of what was due from `since` on (`time.monotonic`); what is
        due now counts as late as it is.
        """
        late = [seconds for due, seconds in self._seen if due + seconds >= since]
        return max(0.0, self._clock() - self._due, *late)


LATE = Lateness()


class Turns:
    """One turn at a time, of the callers who wait for one: of each its first, one caller after the other."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # who had a turn last stands last

    async def acquire(self, caller: str) -> None:
        """Wait for a turn."""
        if not self._taken:
            self._taken = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it came as the wait was given up
                self.release()
            raise

    def release(self) -> None:
        """Give the turn to the next one."""
        while self._waiting:
            caller = next(iter(self._waiting))
            queue = self._waiting.pop(caller)
            turn = queue.popleft()
            if queue:
                self._waiting[caller] = queue
            if not turn.done():  # given up meanwhile
                turn.set_result(None)
                return
        self._taken = False


_TURNS, _THREAD = Turns(), anyio.CapacityLimiter(1)  # a thread of its own, whoever has the others


def check_time() -> None:
    """Raise TakesTooLong where the request that this thread works for has had its time. Called wherever work may be
    long.
    """
    if time.monotonic() > _END.get():
        raise TakesTooLong(f"not done within {WORK_SECONDS:g} seconds, and given up; send fewer records")


def seconds_left() -> float:
    """Return the seconds that are left of this thread's request; WORK_SECONDS where no limit was set."""
    return max(0.0, min(WORK_SECONDS, _END.get() - time.monotonic()))


async def in_turn(caller: str, work: Callable[..., T], *arguments: Any) -> T:
    """Run blocking work in a thread, one at a time, callers in turns. It must call `check_time`: it is waited for until
    it ends.
    """
    _END.set(time.monotonic() + WORK_SECONDS)
    try:
        async with asyncio.timeout(WORK_SECONDS):
            await _TURNS.acquire(caller)
    except TimeoutError:
        raise TakesTooLong(f"others took {WORK_SECONDS:g} seconds; ask again") from None
    try:  # shielded: the turn ends with the thread
        result, refusal = await anyio.to_thread.run_sync(
            partial(OVERDUE.watch, _result_or_refusal, work, *arguments), limiter=_THREAD
        )
    finally:
        _TURNS.release()
    if refusal is None:
        return cast(T, result)
    try:
        raise refusal
    finally:
        del refusal


def _result_or_refusal(work: Callable[..., T], *arguments: Any) -> tuple[T | None, DpserveError | None]:
    """Return the result or the refusal of work. A refusal is stripped of its frames: they hold all that was read until
    the garbage collector runs, for a future and what it raises hold each other.
    """
    try:
        return work(*arguments), None
    except DpserveError as error:
        error.__context__ = None
        return None, error.with_traceback(None)

"""Time limit of a request's work. Large bodies are read by one thread at a time, so that a process needs the memory of
one; the thread checks the time itself, so that work which is given up stops.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar, cast

import anyio

from dpserve_verify.errors import DpserveError
from serving.wire.errors import TakesTooLong

WORK_SECONDS = 4.5  # below the service's own timeout, whose answer has another shape
T = TypeVar("T")

_END: ContextVar[float] = ContextVar("dpserve.end", default=math.inf)
_TURN, _THREAD = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)  # a thread of its own, whoever has the others


def check_time() -> None:
    """Raise TakesTooLong where the request that this thread works for has had its time. Called wherever work may be
    long.
    """
    if time.monotonic() > _END.get():
        raise TakesTooLong(f"not done within {WORK_SECONDS:g} seconds, and given up; send fewer records")


def seconds_left() -> float:
    """Return the seconds that are left of this thread's request; WORK_SECONDS where no limit was set."""
    return max(0.0, min(WORK_SECONDS, _END.get() - time.monotonic()))


async def in_turn(work: Callable[..., T], *arguments: Any) -> T:
    """Run blocking work in a thread, one at a time. It must call `check_time`: it is waited for until it ends."""
    _END.set(time.monotonic() + WORK_SECONDS)
    try:
        async with asyncio.timeout(WORK_SECONDS):
            await _TURN.acquire()
    except TimeoutError:
        raise TakesTooLong(f"others took {WORK_SECONDS:g} seconds; ask again") from None
    try:  # shielded: the turn ends with the thread
        result, refusal = await anyio.to_thread.run_sync(partial(_result_or_refusal, work, *arguments), limiter=_THREAD)
    finally:
        _TURN.release()
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

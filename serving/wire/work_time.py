"""How long a request may be worked on. What is large is read by one thread at a time, so that a process has the memory
of one, and the thread looks at the time itself: what is given up stops, and nothing goes on behind an answer.
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
    """TakesTooLong where the request that this thread works for has had its time. Called wherever work may be long."""
    if time.monotonic() > _END.get():
        raise TakesTooLong(f"not done within {WORK_SECONDS:g} seconds, and given up; send fewer records")


def seconds_left() -> float:
    """Of the time that the request which this thread works for has; WORK_SECONDS where nothing was said."""
    return max(0.0, min(WORK_SECONDS, _END.get() - time.monotonic()))


async def in_turn(work: Callable[..., T], *arguments: Any) -> T:
    """Blocking work off the loop, when it is its turn. It must call `check_time`: it is waited for until it ends."""
    _END.set(time.monotonic() + WORK_SECONDS)
    try:
        async with asyncio.timeout(WORK_SECONDS):
            await _TURN.acquire()
    except TimeoutError:
        raise TakesTooLong(f"others took {WORK_SECONDS:g} seconds; ask again") from None
    try:  # shielded: the turn ends with the thread
        found, refusal = await anyio.to_thread.run_sync(partial(_refused, work, *arguments), limiter=_THREAD)
    finally:
        _TURN.release()
    if refusal is None:
        return cast(T, found)
    try:
        raise refusal
    finally:
        del refusal


def _refused(work: Callable[..., T], *arguments: Any) -> tuple[T | None, DpserveError | None]:
    """What came of it. A refusal without its frames: they hold all that was read, and would until the collector comes,
    for a future and what it raises hold each other."""
    try:
        return work(*arguments), None
    except DpserveError as error:
        error.__context__ = None
        return None, error.with_traceback(None)

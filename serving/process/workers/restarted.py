"""A process of a server that is started again where it ends, and ended where it stands still: stopped, or hung."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from serving.process.config.healthy import Heartbeat
from serving.process.workers.forks import fork

LOG = logging.getLogger("dpserve.launch")
TICK_SECONDS = 0.2  # between two looks
RESTART_SECONDS = 2.0  # in which one that ends is started again at most twice
STILL_SECONDS = 30.0  # without a heartbeat
START_SECONDS = 120.0  # until the first one


class RestartedProcess:
    """Runs `work`, which beats the heart that it is given, in a fork. `still_seconds`: without a beat for so long it is
    ended; they are counted in looks, so that it may live where whoever looks stood still as well. `outlives`: as `fork`
    has it.
    """

    def __init__(
        self, what: str, name: str, work: Callable[[Heartbeat], None], still_seconds: float = STILL_SECONDS,
        outlives: bool = False,
    ) -> None:  # fmt: skip
        self._what, self._name, self._work, self._still_seconds = what, name, work, still_seconds
        self._outlives, self._began = outlives, float("-inf")
        self._start()

    def _start(self) -> None:
        self._heartbeat, self._last, self._looks = Heartbeat(), 0, 0
        self.process = fork(self._name, partial(self._work, self._heartbeat), self._outlives)
        self._before, self._began = self._began, time.monotonic()

    @property
    def has_begun(self) -> bool:
        """Return whether it has ever beaten its heart."""
        return self._heartbeat.last > 0

    def look(self) -> None:
        """Start it again where it ended; end it where it stands still. To be called every TICK_SECONDS."""
        code = self.process.exitcode
        if code is None:
            self._end_if_still()
        elif time.monotonic() >= self._before + RESTART_SECONDS:
            LOG.error("the %s ended with %s; starting another", self._what, code)
            self._start()

    def _end_if_still(self) -> None:
        last = self._heartbeat.last
        self._last, self._looks = last, self._looks + 1 if last == self._last else 0
        seconds = self._still_seconds if last else max(START_SECONDS, self._still_seconds)
        if self._looks * TICK_SECONDS > seconds:
            LOG.error("the %s has stood still for %.0f s; ending it", self._what, seconds)
            self._looks = 0
            self.process.kill()

"""Notifications of queued jobs: from the database where it can send them, from the file where it is one, and in any
case by polling.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from accountant.store import engines
from accountant.store.store import Store

LOG = logging.getLogger("dpserve.worker")
LOOK_SECONDS = 0.25  # between two looks at a queue that does not ring, or at its file, and at whether to stop
HEARD_SECONDS = 5.0  # between two looks at one that rings: nothing announces that rows can be read now
FAILED_SECONDS = 30.0  # without a line, until another is tried


class JobNotifications:
    """Notifications for one waiting thread. One that came since the last `wait` ends the next at once. Check the queue
    once before the first `wait`, then after each.
    """

    def __init__(self, store: Store) -> None:
        self._engine, self._due = store.engine, 0.0
        self._line: Any = None
        self._written = engines.last_written(self._engine)
        self._listen()

    def wait(self, stop: threading.Event) -> None:
        """Wait until a job may have been queued, or `stop` is set."""
        end = time.monotonic() + HEARD_SECONDS
        if self._written is not None:
            while engines.last_written(self._engine) == self._written and time.monotonic() < end:
                if stop.wait(LOOK_SECONDS):
                    return
            self._written = engines.last_written(self._engine)
            return
        if self._line is None:
            self._listen()
        if self._line is None:
            stop.wait(LOOK_SECONDS)
            return
        try:
            while not stop.is_set() and time.monotonic() < end:
                if list(self._line.notifies(timeout=LOOK_SECONDS, stop_after=1)):
                    return
        except Exception as error:  # the driver's own tree, which another database does not have
            self._lost(error)

    def close(self) -> None:
        """Close the connection."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _listen(self) -> None:
        if time.monotonic() < self._due:
            return
        try:
            self._line = engines.listen(self._engine)
        except Exception as error:  # as above; the queue is looked at all the same
            self._lost(error)

    def _lost(self, error: Exception) -> None:
        self.close()
        self._due = time.monotonic() + FAILED_SECONDS
        LOG.warning(
            "the database announces no jobs now (%s): the queue is looked at by the clock", type(error).__name__
        )

"""Signs of life of this process: its own work says that it goes on, or it takes a processor. One that waits for what
does not come shows neither, whatever its other threads do.
"""

from __future__ import annotations

import time

COMPUTES_SECONDS = 1.0  # of a processor, which threads that only renew and beat do not take within STILL_SECONDS
STILL_SECONDS = 60.0  # without a sign


class Life:
    """When this process last gave a sign, in seconds of the steady clock."""

    def __init__(self) -> None:
        self._at, self._taken = time.monotonic(), time.process_time()

    def show(self) -> None:
        """Give a sign: to be called where work goes on, at least every STILL_SECONDS of waiting."""
        self._at = time.monotonic()

    def last(self) -> float:
        """Return when there was a sign last; what it has computed since the last look counts as one."""
        taken = time.process_time()
        if taken - self._taken >= COMPUTES_SECONDS:
            self._taken = taken
            self.show()
        return self._at

    @property
    def stands_still(self) -> bool:
        """Return whether there was no sign for STILL_SECONDS."""
        return time.monotonic() - self.last() > STILL_SECONDS


LIFE = Life()

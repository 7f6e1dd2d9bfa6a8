"""Signs of life of this process: its own work says that it goes on, or it takes a processor, or a disk gives it what it
reads, however slowly. One that waits for what does not come shows none of them, whatever its other threads do.
"""

from __future__ import annotations

import resource
import time

COMPUTES_SECONDS = 1.0  # of a processor, which threads that only renew and beat do not take within STILL_SECONDS
READS_BLOCKS = 128  # of 512 bytes, from a disk or over a network; what is in memory already counts as none
STILL_SECONDS = 60.0  # without a sign


class Life:
    """When this process last gave a sign, in seconds of the steady clock."""

    def __init__(self) -> None:
        self._at, self._taken, self._read = time.monotonic(), time.process_time(), blocks_read()

    def show(self) -> None:
        """Give a sign: to be called where work goes on, at least every STILL_SECONDS of waiting."""
        self._at = time.monotonic()

    def last(self) -> float:
        """Return when there was a sign last; what it has computed or read since the last look counts as one."""
        taken, read = time.process_time(), blocks_read()
        if taken - self._taken >= COMPUTES_SECONDS:
            self._taken = taken
            self.show()
        if read - self._read >= READS_BLOCKS:
            self._read = read
            self.show()
        return self._at

    @property
    def stands_still(self) -> bool:
        """Return whether there was no sign for STILL_SECONDS."""
        return time.monotonic() - self.last() > STILL_SECONDS


def blocks_read() -> int:
    """Return the blocks of 512 bytes that a disk has given this process, also where it maps the file."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock


LIFE = Life()

"""How often a token may ask: counted exactly over all workers and servers of a home on this machine, in one file.

A slot of 32 bytes for each token: the second and the day (UTC) it last asked in, and how many of its requests were let
through in each. Read and written under a lock of that slot alone, which costs microseconds, and the operating system
gives the lock back where a worker is killed. Requests that are refused do not count.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from struct import Struct

from accountant.access.tokens import Limits, Token
from accountant.home import local
from serving.wire.errors import NotReady, TooManyRequests

LOG = logging.getLogger("dpserve.serving")
DAY = 86_400
SLOT = Struct("<qqqq")  # second, count in it, day, count in it
EMPTY = bytes(SLOT.size)
SIGN_INS = Token(
    "sign-in", (), "", 0, limits=Limits(per_second=10)
)  # by a provider; in the slot of entry 0, no token's


class Meter:
    """The file of counts. One object a process: the system takes all of a process's locks on a file to be one."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file, self._clock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), clock

    def admit(self, token: Token) -> None:
        """Count one request. TooManyRequests where the token may not ask now; NotReady where it cannot be counted."""
        place = token.created * SLOT.size  # an entry's index is no other token's
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX, SLOT.size, place)
            try:
                self._count(token, place)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, SLOT.size, place)
        except OSError as error:
            LOG.error("requests cannot be counted: %s", errno.errorcode.get(error.errno or 0, "OSError"))
            raise NotReady("requests cannot be counted; the server's log says why") from None

    def _count(self, token: Token, place: int) -> None:
        """Count one request at `place`. The clock is read under the lock, or a worker that waited would begin a second
        that is over.
        """
        now = int(self._clock())
        second, in_second, day, in_day = SLOT.unpack(os.pread(self._file, SLOT.size, place) or EMPTY)
        in_second, in_day = in_second if second == now else 0, in_day if day == now // DAY else 0
        limits = token.limits
        if limits.per_day is not None and in_day >= limits.per_day:
            raise _refusal(token, "day", limits.per_day, DAY - now % DAY)
        if limits.per_second is not None and in_second >= limits.per_second:
            raise _refusal(token, "second", limits.per_second, 1)
        os.pwrite(self._file, SLOT.pack(now, in_second + 1, now // DAY, in_day + 1), place)


def _refusal(token: Token, span: str, most: int, wait: int) -> TooManyRequests:
    who = token.name if token is SIGN_INS else f"token {token.name!r}"
    return TooManyRequests(
        f"{who} may make {most} requests a {span}; ask again in {wait} s", limit=most, per=span, retry_after=wait
    )


@lru_cache(maxsize=1)
def meter(home: Path) -> Meter:
    """Return the meter of this process."""
    return Meter(local(home) / "run" / "limits")

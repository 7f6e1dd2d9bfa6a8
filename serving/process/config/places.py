"""Places that last as long as a connection: so many at a time of one caller, and of all, over all workers and servers
of a home on this machine.

A place is a lock on a numbered file, in which its caller stands. The operating system gives it back where a worker is
killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from dpserve_verify.system.files import locked
from serving.wire.errors import TooManyRequests


class Place:
    """A place for one connection, taken until it is closed or collected."""

    def __init__(self, file: int) -> None:
        self.file = file

    def close(self) -> None:
        """Give it back; once is enough."""
        file, self.file = self.file, -1
        if file >= 0:
            os.close(file)

    __del__ = close


def take_place(folder: Path, caller: str, what: str, most_of_one: int, most: int) -> Place:
    """Take one of `most` places. Raises TooManyRequests where the caller has `most_of_one` already, or all are
    taken.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name, taken, place = hashlib.sha256(caller.encode()).digest(), 0, None
    with locked(folder / "lock"):
        for number in range(most):
            file = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                taken += os.pread(file, len(name), 0) == name
                os.close(file)
                continue
            if place is None:
                place = Place(file)
            else:
                os.close(file)
        if place is None or taken >= most_of_one:
            if place is not None:
                place.close()
            limit = most if taken < most_of_one else most_of_one
            message = f"{limit} {what} are open, and no more may be at a time; ask again in 5 s"
            raise TooManyRequests(message, limit=limit, per="moment", retry_after=5)
        os.pwrite(place.file, name, 0)
    return place

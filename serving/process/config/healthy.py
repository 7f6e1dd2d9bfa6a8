"""Whether what runs in this container is well: `python -m serving.process.config.healthy`, exit code 0 or 1, asks the
server whether it is ready; `... healthy worker` looks whether the worker's heart beats.

What a container's health check runs every few seconds, so it brings nothing but Python's own library.
"""

from __future__ import annotations

import mmap
import os
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

WAIT_SECONDS = 5.0
BEAT_SECONDS = 1.0
STILL_SECONDS = 60.0  # without a beat, a worker stands still
WORKER = "run/worker"  # below what is this machine's own: the heartbeat of workers
_FORM = struct.Struct("=q")


class Heartbeat:
    """Memory in which a process leaves the time again and again, for others to see that it does not stand still. It is
    shared with forks, and with whoever reads the file, where there is one.
    """

    def __init__(self, file: Path | None = None) -> None:
        if file is None:
            self._memory = mmap.mmap(-1, _FORM.size)
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _FORM.size)  # a disk that is full is told of now
            self._memory = mmap.mmap(descriptor, _FORM.size)
        finally:
            os.close(descriptor)

    def beat(self) -> None:
        """Leave the time."""
        _FORM.pack_into(self._memory, 0, time.monotonic_ns())

    @property
    def last(self) -> int:
        """Return the time of the last beat, in nanoseconds of this machine's steady clock; 0 before the first."""
        return int(_FORM.unpack_from(self._memory)[0])

    def beat_in_a_thread(self, last: Callable[[], float]) -> None:
        """Start a thread that beats every BEAT_SECONDS in which the process gave a sign of life: `last` is when."""

        def go_on() -> None:
            seen = float("-inf")
            while True:
                before, seen = seen, last()
                if seen > before:
                    self.beat()
                time.sleep(BEAT_SECONDS)

        threading.Thread(target=go_on, daemon=True, name="heartbeat").start()


def is_beating(file: Path, seconds: float = STILL_SECONDS) -> bool:
    """Return whether a heartbeat was left in the file in the last `seconds`."""
    try:
        (last,) = _FORM.unpack(file.read_bytes())
    except (OSError, struct.error):
        return False
    return 0 <= time.monotonic_ns() - int(last) < seconds * 1e9


def is_ready(host: str, port: int, tls: bool, seconds: float = WAIT_SECONDS) -> bool:
    """Ask the server on this machine whether it is ready. Its certificate is not checked: it names another host."""
    connection = (
        HTTPSConnection(host, port, timeout=seconds, context=ssl._create_unverified_context())
        if tls
        else HTTPConnection(host, port, timeout=seconds)
    )
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        PLACE = os.environ.get("DPSERVE_LOCAL") or os.environ.get("DPSERVE_HOME") or "~/.local/share/dpserve"
        sys.exit(not is_beating(Path(PLACE).expanduser() / WORKER))
    PORT, TLS = int(os.environ.get("DPSERVE_PORT") or 3000), bool(os.environ.get("DPSERVE_TLS_CERT"))
    sys.exit(not is_ready("127.0.0.1", PORT, TLS))

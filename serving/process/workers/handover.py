"""The port of a server passes from one `dpserve serve` to the next one on this machine.

Serving processes outlive a `dpserve serve` that was killed, and go on answering. The next one asks them for the socket
that they listen on, so no connection is refused in between, starts its own, and leaves its number once one of those
answers: then the old ones take no more connections, and end. Where none comes, they end after ORPHAN_SECONDS, and at
once where the home is gone.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from accountant.home import local
from dpserve_verify.errors import InputError
from serving.process.config.startup import Listening, bind_socket
from serving.process.workers.forks import STOPS, WORKER_PARENT, is_orphan
from serving.process.workers.price_desk import socket_address
from serving.process.workers.rescue import SENT

ORPHAN_SECONDS = 300.0  # that serving processes answer without a `dpserve serve`
BACKLOG = 2048  # connections that wait to be taken
WAIT_SECONDS = 5.0  # until one of them has given its sockets
LOCK, DOOR, SUCCESSOR = "launcher.lock", "handover", "successor"
Sockets = tuple[socket.socket, ...]  # of the port, and the one at which both are given away; or none
_LOCKS: list[int] = []  # what this process holds: its end gives them back, and no fork has them


def place_of(home: Path, port: int) -> Path:
    """Return the folder of what is a running server's own."""
    return local(home) / "run" / str(port)


def is_left(home: Path, listening: Listening) -> bool:
    """Return whether serving processes answer there whose `dpserve serve` is gone."""
    sockets = ask_for_sockets(place_of(home, listening.port), listening)
    for each in sockets:
        each.close()
    return bool(sockets)


@contextmanager
def stopping_early(home: Path, listening: Listening) -> Iterator[None]:
    """Where this `dpserve serve` is told to stop (SIGTERM, SIGINT) before it looks for that itself, exit with 0; and
    tell serving processes that it was to take over from that nobody is to answer.
    """

    def stop(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    for number in STOPS:
        signal.signal(number, stop)
    try:
        yield
    except KeyboardInterrupt:
        if is_left(home, listening):
            name_successor(place_of(home, listening.port), 0)
        sys.exit(0)


def take_sockets(place: Path, listening: Listening) -> Sockets:
    """Return the sockets of serving processes that live on, or new ones. InputError where the port cannot be had."""
    file = os.open(place / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise InputError(f"port={listening.port}: another dpserve serve of this home has it; stop that one") from None
    _LOCKS.append(file)
    sockets = ask_for_sockets(place, listening)
    if sockets:
        return sockets
    listener, door = bind_socket(listening), socket.socket(socket.AF_UNIX)
    for name in (DOOR, SUCCESSOR):
        (place / name).unlink(missing_ok=True)
    with socket_address(place / DOOR) as address:
        door.bind(address)
    os.chmod(place / DOOR, 0o600)
    door.listen()
    return listener, door


def ask_for_sockets(place: Path, listening: Listening) -> Sockets:
    """Ask serving processes whose `dpserve serve` is gone for their sockets; none where there are no such processes,
    or they listen elsewhere.
    """
    with suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(WAIT_SECONDS)
        with socket_address(place / DOOR) as address:
            line.connect(address)
        line.shutdown(socket.SHUT_WR)  # who says nothing asks for the sockets
        _, files, *_ = socket.recv_fds(line, 1, 2)
        sockets = tuple(socket.socket(fileno=file) for file in files)
        if len(sockets) == 2 and sockets[0].getsockname()[:2] == (listening.host, listening.port):
            return sockets
        for each in sockets:
            each.close()
    return ()


class Visitor:
    """Who came in by the door: a `dpserve serve` that asks for the sockets, and gets them where this process has
    outlived who started it, or a keeper with a connection (`rescue`).
    """

    def __init__(self, sockets: Sockets, go_on: Callable[[socket.socket, bytes], None]) -> None:
        """Let in who waits at the door. OSError where nobody does. `go_on`: takes over a connection, and what it asks
        for so far.
        """
        self._sockets, self._go_on = sockets, go_on
        self.line, _ = sockets[1].accept()
        self.line.setblocking(False)
        self._files, self._sent = list[int](), b""

    def hear(self) -> bool:
        """Hear what is said now; return whether that is all, and was done."""
        try:
            data, files, *_ = socket.recv_fds(self.line, 1 << 16, 1)
        except BlockingIOError:
            return False
        except OSError:
            data, files = b"", []
        self._files += files
        self._sent += data
        if data:
            return False
        with self.line, suppress(OSError):
            if self._files:
                self._go_on(socket.socket(fileno=self._files[0]), self._sent[len(SENT) :])
            elif is_orphan():
                socket.send_fds(self.line, [b"."], [each.fileno() for each in self._sockets])
        return True


def is_relieved(place: Path) -> bool:
    """Return whether serving processes of another `dpserve serve` than this one's answer at the port, or none can come:
    the home is gone.
    """
    try:
        return (place / SUCCESSOR).read_text() != os.environ.get(WORKER_PARENT, "")
    except FileNotFoundError:
        return not os.path.lexists(place)
    except OSError:  # it cannot be looked at now
        return False


def name_successor(place: Path, process: int) -> None:
    """Tell serving processes that live on that this `dpserve serve` has taken over; 0: that nobody is to answer."""
    (place / SUCCESSOR).write_text(str(process))

"""Connections outlive the serving process that was killed while it answered there.

Beside each serving process waits a keeper, which has the same open files: the system closes none of them before both
are gone. What each connection has asked for lies in memory that both have. Where the serving process ends, its keeper
sends the connections through the door of the port (`handover`) to another one, which goes on there. What must not be
done twice, or was answered in part, ends with the process; a prediction is worked out again, once.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from accountant.system.confined import c_library, end_with_parent
from serving.process.config.slots import Slots
from serving.process.workers.forks import NAME
from serving.process.workers.price_desk import socket_address

SEND_SECONDS = 30
SENT = b"c"  # before a request
GONE = signal.SIGALRM
CLONE = {"x86_64": 56, "aarch64": 220}  # the number of the call that forks, by machine
SHARES_FILES = 0x400  # of its flags


class Keeper:
    """The process beside a serving process that has its open files. To be made before that has a second thread."""

    def __init__(self, door: Path) -> None:
        self.slots, self._door = Slots(), door
        self._process = self._begin()

    @property
    def is_gone(self) -> bool:
        """Return whether it was, and is no more."""
        return self._process > 0 and os.waitpid(self._process, os.WNOHANG)[0] != 0

    def end(self) -> None:
        """End it: this process is about to end, with nothing left to answer."""
        if self._process > 0:
            with suppress(OSError):
                os.kill(self._process, signal.SIGKILL)
                os.waitpid(self._process, 0)

    def _begin(self) -> int:
        """Fork it -> its number; -1 where the system cannot fork so. Before this process has ended it closes nothing:
        that would be closed here.
        """
        parent, collects = os.getpid(), gc.isenabled()
        gc.disable()
        child = _fork_with_files()
        if child:
            if collects:
                gc.enable()
            return child
        try:
            with suppress(OSError):
                NAME.write_text("dpserve-keeper")
            signal.pthread_sigmask(signal.SIG_BLOCK, {GONE})
            end_with_parent(parent, GONE)
            signal.sigwait({GONE})
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {GONE})
            signal.alarm(SEND_SECONDS)  # its end
            for file, asked in self.slots.rescue():
                send_connection(self._door, file, asked)
        finally:
            os._exit(0)


def send_connection(door: Path, file: int, asked: bytes) -> None:
    """Send a connection through a door, and what it asks for so far. Nothing where nobody can come to it."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        with socket_address(door) as address:
            line.connect(address)
        socket.send_fds(line, [SENT, asked], [file])


def _fork_with_files() -> int:
    """Fork a process that has this one's open files, those of later as well -> its number, 0 in itself; -1 where the
    system does not.
    """
    call = CLONE.get(os.uname().machine)
    if call is None or os.uname().sysname != "Linux":
        return -1
    arguments = (call, SHARES_FILES | signal.SIGCHLD, 0, 0, 0, 0)
    return int(c_library().syscall(*map(ctypes.c_long, arguments)))

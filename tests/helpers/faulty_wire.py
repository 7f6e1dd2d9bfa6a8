"""A PostgreSQL that is reached by a bad wire: what passes is late, torn, or closed in one direction, at random.

A fault strikes a connection after a random number of bytes, whichever way they go.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from pathlib import Path

NAME = ".s.PGSQL.5432"
FAULTS = ("cut", "half", "late", "late")
MOST_BYTES = 30_000  # of a connection before its next fault: from the greeting to some transactions
MOST_SECONDS = 0.5


class FaultyWire:
    """Listens in `folder` for what listens in `server`, folders of sockets both. `struck`: how often each fault was."""

    def __init__(self, folder: Path, server: Path, seed: int) -> None:
        self.folder, self._server, self._dice = folder, server, random.Random(seed)
        self.struck = dict.fromkeys(FAULTS, 0)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / NAME))
        self._listener.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self.folder}"

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self._server / NAME))
                room = [self._dice.randrange(MOST_BYTES)]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other, room), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, room: list[int]) -> None:
        fault = "none"
        with contextlib.suppress(OSError):
            while data := one.recv(4096):
                room[0] -= len(data)
                if room[0] < 0:
                    room[0] = self._dice.randrange(MOST_BYTES)
                    fault = self._dice.choice(FAULTS)
                    self.struck[fault] += 1
                    if fault != "late":
                        other.sendall(data[: len(data) // 2])
                        break
                    time.sleep(self._dice.uniform(0, MOST_SECONDS))
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)
        if fault != "half":  # else the other direction goes on until somebody hangs up
            for each in (one, other):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

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
FAULTS = ("cut", "half", "late", "late", "silent")
MOST_BYTES = 30_000  # of a connection before its next fault: from the greeting to some transactions
MOST_SECONDS = 0.5


class SilentWire:
    """Listens on a port for what listens in `server`, a folder of sockets. While `silent` is set, all that is asked
    goes through and nothing that is answered; connections stand, and new ones are taken.

    Attributes:
        messages: how often a client has sent something after an answer: round trips, in however many pieces each came.
        delay: seconds that each of these takes.
        hangs: what is swallowed, once, with all that its connection says after it.
    """

    def __init__(self, server: Path) -> None:
        self.silent, self._server = threading.Event(), server
        self.messages, self.delay, self.hangs = 0, 0.0, b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self._listener.getsockname()[1]}/{database}"

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self._server / NAME))
                answered = threading.Event()
                answered.set()
                for one, other, answers in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._pass, args=(one, other, answers, answered), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, answers: bool, answered: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                if answers:
                    answered.set()
                else:
                    if answered.is_set():
                        answered.clear()
                        self.messages += 1
                        time.sleep(self.delay)
                    if self.hangs and self.hangs in data:
                        self.hangs = b""
                        while one.recv(1 << 16):
                            pass
                        break
                if not (answers and self.silent.is_set()):
                    other.sendall(data)
            other.shutdown(socket.SHUT_WR)


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
                    if fault == "silent":  # to its end, whatever it goes on to say
                        while one.recv(4096):
                            pass
                        break
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

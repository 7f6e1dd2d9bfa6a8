"""A sealed process that somebody else's text runs in (`outside.child`), and the lines to and from it."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accountant.system.life import LIFE
from accountant.system.seal import NO_THREADS
from dpserve_verify.errors import InputError
from training.rows.partitions.rows import Rows

CHILD = Path(__file__).parent / "child.py"
LONGEST = 1 << 22  # bytes of one line
MEMORY, PROCESSOR_SECONDS = 1 << 30, 120
WAIT_SECONDS = 5.0  # between two signs of life of who waits
SECONDS = 600.0  # by the clock, of one run


class OutsideFailed(InputError):
    """Somebody else's learner failed, or sent what it may not. Its message is made of what it sent: it has no rows."""


class SealedProcess:
    """A sealed process, and the lines to and from it."""

    def __init__(
        self,
        modules: Sequence[str] = (),
        memory: int = MEMORY,
        seconds: int = PROCESSOR_SECONDS,
        answers: bool = False,
    ) -> None:
        """Start it. `modules`: of installed packages, loaded before the seal since nothing can be opened behind it, and
        what stands behind a colon called; `memory` (bytes) and `seconds` of a processor: what it may take; `answers`:
        queries, each in a sealed fork.
        """
        self._end, self._rest = time.monotonic() + SECONDS, b""
        self._limits = {"modules": [*modules], "memory": memory, "seconds": seconds, "answers": answers}
        self._limits |= {"clock": int(SECONDS) + 1}  # it ends by itself where nobody reads it any more
        self._child = subprocess.Popen(
            [sys.executable, "-I", str(CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, cwd="/", close_fds=True,
            env=NO_THREADS,
        )  # fmt: skip

    def __enter__(self) -> SealedProcess:
        try:
            self.send(self._limits)
            first = self.read()
            if "unloaded" in first:
                raise InputError(
                    f"learner: a module of it cannot be loaded ({first['unloaded']!r:.200}); install its package"
                )
            if first != {"sealed": True}:
                raise InputError(
                    f"learner: this system cannot seal a process ({first.get('unsealed')!r:.200}); learners of others "
                    "run on Linux, x86-64 or ARM, with seccomp"
                )
        except InputError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._child.kill()
        self._child.communicate()

    def send(self, body: dict[str, Any], rows: Rows | None = None) -> None:
        """Write a line, and where there are `rows` their codes and targets behind it, for whom they are meant alone.
        OutsideFailed where nobody reads it.
        """
        assert self._child.stdin is not None
        blocks = list[bytes]()
        if rows is not None:
            body = {**body, "rows": {"features": len(rows.widths), "rows": rows.size}}
            target = rows.labels if rows.classes else rows.targets
            blocks = [rows.bins.astype("<u2").tobytes(), target.astype("<i4").tobytes()]
        try:
            self._child.stdin.write(json.dumps(body).encode() + b"\n")
            for block in blocks:
                self._child.stdin.write(block)
            self._child.stdin.flush()
        except OSError:
            raise OutsideFailed("learner: its process ended") from None

    def read(self, end: float | None = None) -> dict[str, Any]:
        """Read a line: a JSON object of at most LONGEST bytes. OutsideFailed where it is not, or none comes in time, or
        before `end` by the monotonic clock.
        """
        end = self._end if end is None else end
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if len(self._rest) > LONGEST:
                    raise OutsideFailed(f"learner: it sent more than {LONGEST} bytes at once")
                while not selector.select(min(WAIT_SECONDS, max(0.0, end - time.monotonic()))):
                    LIFE.show()  # it waits, and knows how long
                    if time.monotonic() >= end:
                        raise OutsideFailed("learner: it did not end in time")
                more = os.read(self._child.stdout.fileno(), 1 << 16)
                if not more:
                    raise OutsideFailed("learner: its process ended; it took more memory or time than it may")
                self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise OutsideFailed("learner: it sent what is no JSON object")
        return said

"""A program on a terminal of its own: what it writes there, and what a person types."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

PATIENCE = 280.0  # seconds: a way out and not a claim
AS_SEEN = {"TERM": "dumb", "COLUMNS": "200"}


def talk(
    command: list[str],
    cwd: Path,
    env: dict[str, str],
    answers: Sequence[tuple[str, str]] = (),
    seconds: float = PATIENCE,
    code: int = 0,
) -> str:
    """All that it wrote until it ended, as it must with exit code `code`. Each of `answers` is typed as soon as a
    line that waits ends as its pattern says; all must have been asked for.
    """
    ours, theirs = pty.openpty()
    waiting = select.poll()  # select() itself ends at the thousandth open file
    waiting.register(ours, select.POLLIN | select.POLLHUP)
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(command, cwd=cwd, env={**env, **AS_SEEN}, start_new_session=True, **streams)
    os.close(theirs)
    seen, at, left, end = "", 0, [*answers], time.monotonic() + seconds
    while time.monotonic() < end:
        if waiting.poll(200):
            try:
                said = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            seen += said.decode("utf-8", "replace")
        if left and re.search(left[0][0] + r"[^\n]*: $", seen[at:], re.S):
            at = len(seen)
            os.write(ours, left.pop(0)[1].encode() + b"\n")
    else:
        os.killpg(process.pid, signal.SIGKILL)
    os.close(ours)
    assert (process.wait(timeout=60), left) == (code, []), seen[-3000:]
    return seen

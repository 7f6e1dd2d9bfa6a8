"""Record a program on a terminal of its own, as asciinema's players show it: `make recording` records the demo.

    python examples/record.py OUT.cast [PROGRAM ...]

Every byte is what the program wrote, when it wrote it; a pause of more than eight seconds is shown as eight. Names of
folders and machines that are this one's are not shown. Exits as the program does, and writes nothing where that failed.
"""

from __future__ import annotations

import codecs
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 110, 32
MOST_PAUSE = 8.0  # seconds
SHOWN = {str(ROOT): "dpserve", str(Path.home()): "~"}


def record(command: list[str], environment: dict[str, str]) -> tuple[int, list[tuple[float, str]]]:
    """Run a command on a terminal; return its exit code and what it wrote, each with its time in seconds."""
    ours, theirs = pty.openpty()
    more = {"TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": str(HEIGHT)}
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(command, env={**environment, **more}, start_new_session=True, **streams)
    os.close(theirs)
    decode, events, shown, last = codecs.getincrementaldecoder("utf-8")("replace").decode, [], 0.0, time.monotonic()
    while True:
        select.select([ours], [], [])
        try:
            text = decode(os.read(ours, 1 << 16))
        except OSError:  # the other end is closed
            break
        shown += min(MOST_PAUSE, time.monotonic() - last)
        last = time.monotonic()
        for here, named in SHOWN.items():
            text = text.replace(here, named)
        if text:
            events.append((round(shown, 3), text))
    os.close(ours)
    return process.wait(), events


def to_cast(events: list[tuple[float, str]], title: str) -> str:
    """Write events in version 2 of asciinema's format: a header, and a line for each."""
    header = {"version": 2, "width": WIDTH, "height": HEIGHT, "title": title}
    lines = [json.dumps(header), *(json.dumps([at, "o", text], ensure_ascii=False) for at, text in events)]
    return "\n".join(lines) + "\n"


def main() -> None:
    out, *command = sys.argv[1:]
    command = command or [sys.executable, "-u", str(ROOT / "examples" / "demo.py")]
    code, events = record(command, dict(os.environ))
    if code == 0:
        Path(out).write_text(to_cast(events, "dpserve: from rows to a served, certified model"), "utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()

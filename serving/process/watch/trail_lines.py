"""Reading the audit trail: the lines of `logs/access.jsonl` and of the numbered files before it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from accountant.home import local

BLOCK = 1 << 16


def path_of(folder: Path, number: int) -> Path:
    """Return the path of a file of the trail: 0 is the file that is written to, 1 the one before it, and so on."""
    return folder / (f"access.{number}.jsonl" if number else "access.jsonl")


def lines(home: Path) -> Iterator[dict[str, Any]]:
    """Yield every line, the newest first. A line that was cut off is left out."""
    for path in (path_of(local(home) / "logs", number) for number in count()):
        if not path.exists():
            return
        for text in _from_the_end(path):
            line = _line(text)
            if line is not None:
                yield line


def _from_the_end(path: Path) -> Iterator[bytes]:
    """Yield a file's lines, the last first, without reading more of it than is asked for."""
    with path.open("rb") as file:
        place, rest = file.seek(0, os.SEEK_END), b""
        while place:
            size = min(BLOCK, place)
            place -= size
            file.seek(place)
            first, *later_lines = (file.read(size) + rest).split(b"\n")
            yield from filter(None, reversed(later_lines))
            rest = first
        if rest:
            yield rest


def _line(text: bytes) -> dict[str, Any] | None:
    try:
        line = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return line if isinstance(line, dict) else None

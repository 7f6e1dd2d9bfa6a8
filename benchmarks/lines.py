"""Read and write results: files of one JSON object a line, gzipped where the name ends in `.gz`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

Line = dict[str, Any]


def read_lines(path: Path) -> list[Line]:
    """Return the objects of a file; none where there is no file."""
    if not path.exists():
        return []
    with _open(path, "rt") as file:
        return [json.loads(text) for text in file if text.strip()]


def append_lines(path: Path, *lines: Line) -> None:
    """Add objects at the end of a file, so that a run that is stopped goes on from there."""
    with _open(path, "at") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    """Replace a file by these objects."""
    with _open(path, "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def _open(path: Path, mode: str) -> IO[str]:
    return gzip.open(path, mode, encoding="utf-8") if path.suffix == ".gz" else path.open(mode[0], encoding="utf-8")  # type: ignore[return-value]

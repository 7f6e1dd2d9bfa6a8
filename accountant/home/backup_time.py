"""When the home was last backed up whole: a time, in a file of the home that no backup holds."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from dpserve_verify.system.files import PRIVATE, replace_file

BACKED_UP = "backed-up.json"


def note_backup(home: Path, at: float) -> None:
    """Note that there is a whole copy of the home as it was `at` this time, in seconds since 1970."""
    replace_file(home / BACKED_UP, json.dumps({"at": at}).encode(), PRIVATE)


def last_backup(home: Path) -> float | None:
    """Return when that was noted last, in seconds since 1970; None before the first, and where the file is damaged."""
    with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
        return float(json.loads((home / BACKED_UP).read_bytes())["at"])
    return None

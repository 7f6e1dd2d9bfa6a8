"""Working folders, in which rows are packed until they are put in place; those that a crash left are removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpserve_verify.system.files import holding, open_directory

ENDING = ".partial"
FETCHED, KEPT_FOR = ".fetched", 86_400  # pieces of a remote source that was cut; seconds until they go


@contextmanager
def working_folder(place: Path) -> Iterator[Path]:
    """Make a folder in `place`, and remove it at the end unless it was renamed. Others there that no process holds any
    more are removed first: the system frees what a killed process held.
    """
    with holding(open_directory(place)):  # until the new one is held, nobody looks for what was left
        for leftover in place.glob(f"*{ENDING}"):
            if leftover.is_dir():
                _remove_if_left(leftover)
        for leftover in place.glob(f"*{FETCHED}"):
            with suppress(FileNotFoundError):  # it was just used up
                if time.time() - max(path.stat().st_mtime for path in (leftover, *leftover.iterdir())) > KEPT_FOR:
                    _remove_if_left(leftover)
        folder = place / f"{uuid.uuid4()}{ENDING}"
        folder.mkdir(mode=0o700)
        descriptor = open_directory(folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_left(folder: Path) -> None:
    try:
        descriptor = open_directory(folder)
    except OSError:  # it was just put in its place
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)

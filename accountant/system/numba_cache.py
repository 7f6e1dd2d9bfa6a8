"""Compile with numba, into a cache that serves no stale code.

numba's own cache looks at the source of a function, not at those of the functions it calls; and two processes that
save at one time may name one file for two types. So all that is compiled here is kept in a folder named by every source
it is made of (numba's setting CACHE_DIR), and whoever compiles or loads holds that folder's lock, by numba's event
for its compiler lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numba
from numba import config
from numba.core import event

CONFIG: Any = config  # numba makes its settings as it loads
ROOT = Path(__file__).parents[2]
Function = TypeVar("Function", bound=Callable[..., Any])
COMPILED = ("accountant/noise/compiled_weights.py", "training/rows/kernels/*.py")
NUMBERS = ("accountant/noise/exact_weights.py",)  # of which compiled functions take numbers
LOCK = "lock"


def folder_name(root: Path) -> str:
    """Name the folder for the sources below `root`: the place they are at, and a digest of what they say."""
    sources = [path.read_bytes() for pattern in COMPILED + NUMBERS for path in sorted(root.glob(pattern))]
    place, content = hashlib.sha256(bytes(root)), hashlib.sha256(b"".join(sources))
    return f"numba-{place.hexdigest()[:12]}-{content.hexdigest()[:16]}"


def make_folder(root: Path, *bases: Path) -> Path | None:
    """Make the folder in the first of `bases` that may be written to; what earlier sources left there goes.

    Returns: None where there is no such base, and nothing is kept.
    """
    name = folder_name(root)
    for base in bases:
        with suppress(OSError):
            (base / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(base / name, os.W_OK):
                for folder in base.glob(f"{name.rpartition('-')[0]}-*"):
                    if folder.name != name:
                        shutil.rmtree(folder, ignore_errors=True)
                return base / name
    return None


class FolderLock(event.Listener):
    """Hold a folder against other processes while this one holds numba's compiler lock."""

    def __init__(self, folder: Path) -> None:
        self._path, self._file = folder / LOCK, -1
        self._threads, self._holders = Lock(), 0
        os.register_at_fork(after_in_child=self._begin_anew)

    def on_start(self, event: Any) -> None:
        """Wait for the lock, unless another thread of this process holds it."""
        with self._threads:
            if not self._holders:
                with suppress(OSError):  # a folder that is gone keeps nobody from compiling
                    self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                    fcntl.lockf(self._file, fcntl.LOCK_EX)
            self._holders += 1

    def on_end(self, event: Any) -> None:
        """Release it when no thread holds it any more."""
        with self._threads:
            self._holders = max(0, self._holders - 1)
            if not self._holders:
                self._release()

    def _release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin_anew(self) -> None:
        """Start anew in a fork: the lock stays the parent's."""
        self._release()
        self._threads, self._holders = Lock(), 0


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpserve"


_OWN = [Path(CONFIG.CACHE_DIR)] if CONFIG.CACHE_DIR else [Path(__file__).parent / "__pycache__"]
FOLDER = make_folder(ROOT, *_OWN, _cache_home())
if FOLDER is not None:
    event.register("numba:compiler_lock", FolderLock(FOLDER))  # type: ignore[no-untyped-call]


def njit(**options: Any) -> Callable[[Function], Function]:
    """Return `numba.njit`: it compiles at the first call, without the interpreter's lock, and keeps the code."""

    def decorate(function: Function) -> Function:
        before = CONFIG.CACHE_DIR
        CONFIG.CACHE_DIR = "" if FOLDER is None else str(FOLDER)  # is looked at here, and never again
        try:
            compiled: Function = numba.njit(nogil=True, cache=FOLDER is not None, **options)(function)
        finally:
            CONFIG.CACHE_DIR = before
        return compiled

    return decorate

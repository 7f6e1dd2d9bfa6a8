"""Compile with numba, into a cache that serves no stale code.

numba's own cache looks at the source of a function, not at those of the functions it calls; and two processes that
save at one time may name one file for two types. So all that is compiled here is kept in a folder named by every source
it is made of (numba's setting CACHE_DIR), and whoever compiles or loads holds that folder's lock, by numba's event
for its compiler lock.

numba unpickles what lies there, so the folder and the one it is in must be ours, and nobody else's to write to. And
numba takes settings from a file in the current folder, at its import and at each compilation: here it has no such file,
and all of numba that we need is imported from this module.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from threading import Lock
from types import CodeType
from typing import Any, TypeVar

SETTINGS, SETTINGS_FILE = "numba.core.config", ".numba_config.yaml"


class _NoFile(SourceFileLoader):
    """Loads numba's settings without the name of the file that they would be read from."""

    def get_code(self, fullname: str) -> CodeType:
        code = super().get_code(fullname)
        if code is None or SETTINGS_FILE not in code.co_consts:
            raise ImportError(f"numba: {SETTINGS} does not name {SETTINGS_FILE}; install the version of the lock file")
        return code.replace(co_consts=tuple("" if part == SETTINGS_FILE else part for part in code.co_consts))


class _SettingsFinder(MetaPathFinder):
    """Finds numba's settings, for `_NoFile`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == SETTINGS else None
        if spec is not None and spec.origin is not None:
            spec.loader = _NoFile(name, spec.origin)
        return spec


sys.meta_path.insert(0, _SettingsFinder())

import numba  # noqa: E402
from numba import config, types  # noqa: E402
from numba.core import event  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

__all__ = ["intrinsic", "njit", "types"]

CONFIG: Any = config  # numba makes its settings as it loads
CONFIG._config_fname = ""  # where numba was imported before this module
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
    """Make the folder in the first of `bases` that we may write to, and nobody else; what earlier sources left there
    goes.

    Returns: None where there is no such base, and nothing is kept.
    """
    name = folder_name(root)
    for base in bases:
        with suppress(OSError):
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = base.resolve() / name
            folder.mkdir(mode=0o700, exist_ok=True)
            if is_ours(folder.parent) and is_ours(folder) and os.access(folder, os.W_OK):
                for earlier in folder.parent.glob(f"{name.rpartition('-')[0]}-*"):
                    if earlier.name != name:
                        shutil.rmtree(earlier, ignore_errors=True)
                return folder
    return None


def is_ours(folder: Path) -> bool:
    """Return whether a folder is no link, belongs to the user who runs this, and nobody else may write to it."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


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
    """Name the folder in the user's cache: not `dpserve`, which earlier versions made as the umask said."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpserve-compiled"


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

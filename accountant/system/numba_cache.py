"""Compile with numba, into a cache that serves no stale code.

numba's own cache looks at the source of a function, not at those of the functions it calls; and two processes that
save at one time may name one file for two types. So all that is compiled here is kept in a folder named by every source
it is made of, and whoever compiles or loads holds that folder's lock, by numba's event for its compiler lock. A folder
of that name that came with the package, compiled when it was installed (`training.jobs.compile_ahead`), is read too.

numba unpickles what lies there, so the folder and the one it is in must be ours, or of the user whose code we are, and
nobody else's to write to. And numba takes settings from a file in the current folder, at its import and at each
compilation: here it has no such file, and all of numba that we need is imported from this module.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from threading import Lock
from types import CodeType
from typing import Any, TypeVar

from dpserve_verify.errors import InputError
from dpserve_verify.system.user_folder import user_folder

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
from numba.core.caching import (  # noqa: E402
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    UserProvidedCacheLocator,
)
from numba.core.environment import Environment, _rebuild_env, lookup_environment  # noqa: E402
from numba.core.runtime.nrt import rtsys  # noqa: E402
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
            if is_of(folder, os.geteuid()) and os.access(folder, os.W_OK):
                for earlier in folder.parent.glob(f"{name.rpartition('-')[0]}-*"):
                    if earlier.name != name:
                        shutil.rmtree(earlier, ignore_errors=True)
                return folder
    return None


def shipped_folder(root: Path, base: Path) -> Path | None:
    """Return the folder in `base` that was compiled with the package below `root`, if only its owner may write there:
    whoever owns the sources could say what we run in any case.
    """
    folder = base.resolve() / folder_name(root)
    with suppress(OSError):
        owner = (root / COMPILED[0]).stat().st_uid
        return folder if is_of(folder, owner) and os.access(folder, os.R_OK | os.X_OK) else None
    return None


def is_of(folder: Path, user: int) -> bool:
    """Return whether a folder and the one it is in are no links, belong to a user, and nobody else may write to
    them.
    """
    return all(
        stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o022
        for status in (folder.lstat(), folder.parent.lstat())
    )


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


def _bases() -> Iterator[Path]:
    """Name the folders that may keep it: the one of numba's setting or beside us, then the user's cache, where there is
    one.
    """
    yield Path(CONFIG.CACHE_DIR) if CONFIG.CACHE_DIR else _PACKAGE
    with suppress(InputError):
        yield user_folder("XDG_CACHE_HOME", ".cache") / "dpserve-compiled"


_PACKAGE = Path(__file__).parent / "__pycache__"
FOLDER = make_folder(ROOT, *_bases())
SHIPPED = shipped_folder(ROOT, _PACKAGE)
if FOLDER is not None:
    event.register("numba:compiler_lock", FolderLock(FOLDER))


class _Place(UserProvidedCacheLocator):
    """Says where the code of a function's file is kept: numba's setting, which threads would share, has no say."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file, self._lineno = py_file, py_func.__code__.co_firstlineno
        self._cache_path = str((FOLDER or SHIPPED or ROOT) / self.get_suitable_cache_subpath(py_file))

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Place:
        return cls(py_func, py_file)


class _Placed(CompileResultCacheImpl):
    def __init__(self, py_func: Any) -> None:
        self._locator_classes = [_Place]
        super().__init__(py_func)


class _Reader(pickle.Unpickler):
    """Reads code as numba does, but loads none of the modules whose functions went into it: compiled code asks for no
    name in them, and one of them loads scipy.
    """

    def find_class(self, module: str, name: str, /) -> Any:
        found = super().find_class(module, name)
        return _make_environment if found is _rebuild_env else found


def _make_environment(module: str, constants: Any, name: str) -> Any:
    environment = lookup_environment(name)
    if environment is None:
        environment = Environment({"__name__": module})
        environment.consts[:], environment.env_name = constants, name
        Environment._memo[name] = environment
    return environment


class _Files(IndexDataCacheFile):
    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:
            return _Reader(file).load()


class Kept(FunctionCache):
    """The code of one function: what was compiled here, or ahead of time, for this processor or a simpler one."""

    _impl_class = _Placed

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        self._cache_file = self._files_in(Path(self._cache_path).parent)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load the code for these types, with no more of numba than code needs to run: it learns what it can compile
        when it must.
        """
        rtsys.initialize(target_context)
        found = self._load_overload(sig, target_context)
        return found if found is not None or SHIPPED in (None, FOLDER) else self._load_shipped(sig, target_context)

    def _files_in(self, folder: Path) -> Any:
        path = folder / Path(self._cache_path).name
        return _Files(str(path), self._impl.filename_base, self._impl.locator.get_source_stamp())

    def _load_shipped(self, sig: Any, target_context: Any) -> Any:
        files = self._files_in(SHIPPED or ROOT)
        types_here, (triple, _, features), code_here = self._index_key(sig, target_context.codegen())
        for key in files._load_index():
            types_there, (triple_there, _, needed), code_there = key
            same = (types_there, triple_there, code_there) == (types_here, triple, code_here)
            if same and runs_on(needed, features):
                return self._impl.rebuild(target_context, files.load(key))
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep it where there is a place for it, and this process may write: one that reads what strangers sent may
        not, and computes all the same.
        """
        if FOLDER is not None:
            with suppress(OSError):
                super().save_overload(sig, data)


def runs_on(needed: str, there: str) -> bool:
    """Return whether a processor with the features `there`, as "+avx2,-sse4a", runs code that was compiled for those
    `needed`.
    """
    return {name for name in needed.split(",") if name.startswith("+")} <= set(there.split(","))


def njit(**options: Any) -> Callable[[Function], Function]:
    """Return `numba.njit`: it compiles at the first call, without the interpreter's lock, and keeps the code."""

    def decorate(function: Function) -> Function:
        compiled: Any = numba.njit(nogil=True, **options)(function)
        compiled._cache = Kept(function)
        return compiled  # type: ignore[no-any-return]

    return decorate

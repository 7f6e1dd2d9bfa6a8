"""What numba compiles, kept beside the sources by a cache that holds what it says.

numba's own says that its index is of the newest sources before the code that it names is written: who reads in
between, or ever after a kill there, runs the code of an earlier release. Two processes that compile for other types at
one time may name the same file. And it looks at the file of a function alone, not at those of the functions that it
calls. Here code is written first, into a file that is named by all that it was made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numba
from numba.core import caching

ROOT = Path(__file__).parents[2]
Function = TypeVar("Function", bound=Callable[..., Any])
COMPILED = (
    "accountant/privacy/adaptive_compiled.py",
    "accountant/noise/compiled_weights.py",
    "training/rows/kernels/*.py",
)
NUMBERS = (
    "accountant/privacy/adaptive_rules.py",
    "accountant/noise/exact_weights.py",
)  # of which compiled functions take numbers


_SOURCES = hashlib.sha256(
    b"".join(path.read_bytes() for pattern in COMPILED + NUMBERS for path in sorted(ROOT.glob(pattern)))
).hexdigest()
_FILES: Any = caching.IndexDataCacheFile  # which numba tells no types of


class CodeFiles(_FILES):  # type: ignore[misc]
    """The files of one function: an index of types, and code for each."""

    def __init__(self, cache_path: str, filename_base: str, source_stamp: Any) -> None:
        super().__init__(cache_path, filename_base, (source_stamp, _SOURCES))
        self._base = filename_base

    loaded: ClassVar[bool] = False  # by this process, something: all else then loads in a twentieth of the time

    def load(self, key: Any) -> Any:
        """None where it is not kept."""
        CodeFiles.loaded = True
        return super().load(key)

    def save(self, key: Any, data: Any) -> None:
        """Of two processes that save at one time, one index counts: what it lacks is compiled once more."""
        made_of = self._dump((self._source_stamp, key))
        name = f"{self._base}.{hashlib.sha256(made_of).hexdigest()[:16]}.nbc"
        self._save_data(name, data)
        self._save_index(self._load_index() | {key: name})


caching.IndexDataCacheFile = CodeFiles  # type: ignore[misc]


def njit(**options: Any) -> Callable[[Function], Function]:
    """As `numba.njit`: compiled when first called, without the interpreter's lock, and kept."""
    compiled: Callable[[Function], Function] = numba.njit(nogil=True, cache=True, **options)
    return compiled

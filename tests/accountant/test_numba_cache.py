"""Compiled code that is kept: never that of other sources, never another function's or other types'."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import numba
import numpy as np
import pytest
from numba.core import caching, event

from accountant.system import numba_cache
from accountant.system.numba_cache import COMPILED, FOLDER, LOCK, NUMBERS, ROOT, FolderLock, folder_name, make_folder
from training.rows import kernels

TRY_LOCK = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def is_free(folder: Path) -> bool:
    """Whether another process may compile into it now."""
    done = subprocess.run([sys.executable, "-c", TRY_LOCK, folder / LOCK], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "BlockingIOError" in done.stderr
    return done.returncode == 0


@pytest.fixture
def sources(tmp_path):
    """The sources of what is compiled, at another place."""
    for pattern in COMPILED + NUMBERS:
        for path in ROOT.glob(pattern):
            copy = tmp_path / "sources" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    return tmp_path / "sources"


def test_a_change_of_any_source_gives_another_folder(sources):
    names = {folder_name(sources)}
    paths = sorted(path for path in sources.rglob("*.py"))
    assert len(paths) > 8
    for path in paths:
        path.write_text(path.read_text("utf-8") + "#")
        names.add(folder_name(sources))
    assert len(names) == len(paths) + 1
    assert folder_name(ROOT) not in names


def test_what_earlier_sources_left_goes_and_nothing_else(sources, tmp_path):
    base = tmp_path / "cache"
    first = make_folder(sources, base)
    elsewhere = make_folder(ROOT, base)
    (first / "code").write_text("old")
    assert make_folder(sources, base) == first
    assert (first / "code").exists()
    (sources / NUMBERS[0]).write_text("")
    second = make_folder(sources, base)
    assert sorted(base.iterdir()) == sorted([elsewhere, second])


def test_without_a_place_to_write_nothing_is_kept(sources, tmp_path):
    (tmp_path / "file").write_text("")
    assert make_folder(sources, tmp_path / "file", tmp_path / "cache").parent == tmp_path / "cache"
    assert make_folder(sources, tmp_path / "file") is None


def test_what_others_may_write_to_is_never_unpickled(tmp_path, monkeypatch):
    """Neither the folder nor the one that it is in: passed over, and left as it is."""
    base, cache = tmp_path / "open", tmp_path / "cache"
    for mode in (0o777, 0o720, 0o702):
        base.mkdir(exist_ok=True)
        base.chmod(mode)
        assert make_folder(ROOT, base, cache).parent == cache
        base.chmod(0o700)
        folder = make_folder(ROOT, base)
        folder.chmod(mode)
        assert make_folder(ROOT, base) is None
        folder.rmdir()
        folder.symlink_to(cache)
        assert make_folder(ROOT, base) is None
        folder.unlink()
    before = os.umask(0)
    try:
        made = make_folder(ROOT, tmp_path / "new" / "cache")
    finally:
        os.umask(before)
    assert made is not None
    assert {made.stat().st_mode & 0o777, made.parent.stat().st_mode & 0o777} == {0o700}
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert make_folder(ROOT, base, cache) is None


@pytest.fixture
def doubling(tmp_path, monkeypatch):
    """Returns a function that makes a compiled one, anew each time. Its module is its own, or an earlier run would have
    left the code in the cache and nothing would be compiled.
    """
    name = f"doubling_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("def doubled(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    return lambda: numba_cache.njit()(import_module(name).doubled)


@pytest.fixture
def compiled():
    """What was compiled, and not loaded."""
    found = []

    class Look(event.Listener):
        def on_start(self, event):
            found.append(event.data["dispatcher"].py_func.__name__)

        def on_end(self, event):
            pass

    with event.install_listener("numba:compile", Look()):
        yield found


def test_what_was_compiled_with_the_package_is_read_and_never_written(doubling, compiled, tmp_path, monkeypatch):
    """By a user who cannot write there, for a processor that has what the code needs; else it is compiled."""
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    shipped.mkdir()
    own.mkdir()
    monkeypatch.setattr(numba_cache, "FOLDER", shipped)
    assert doubling()(2) == 4
    before = {path: path.read_bytes() for path in shipped.rglob("*") if path.is_file()}
    assert (len(before), compiled) == (2, ["doubled"])
    monkeypatch.setattr(numba_cache, "SHIPPED", shipped)
    for folder in (own, None):
        monkeypatch.setattr(numba_cache, "FOLDER", folder)
        assert doubling()(2) == 4
        assert len(compiled) == 1
    assert doubling()(0.5) == 1  # of types that are not there: compiled, and kept nowhere
    assert list(own.iterdir()) == []
    monkeypatch.setattr(numba_cache, "FOLDER", own)
    monkeypatch.setattr(numba_cache, "runs_on", lambda needed, there: False)
    assert doubling()(2) == 4
    assert (len(compiled), len(list(own.iterdir()))) == (3, 1)
    assert {path: path.read_bytes() for path in shipped.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("needed", "there", "runs"),
    [
        ("+avx,-sse4a", "+avx,+avx2,+sse4a", True),
        ("+avx,+avx2", "+avx,-avx2", False),
        ("", "+avx", True),
        ("+avx", "", False),
    ],
)
def test_code_runs_where_its_instructions_are(needed, there, runs):
    assert numba_cache.runs_on(needed, there) == runs


def test_a_shipped_folder_is_its_packages_owners_alone(sources, tmp_path, monkeypatch):
    base = tmp_path / "base"
    assert numba_cache.shipped_folder(sources, base) is None
    folder = make_folder(sources, base)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)  # another user reads it, as in an image
    assert make_folder(sources, base) is None
    assert numba_cache.shipped_folder(sources, base) == folder
    for path in (folder, base):
        path.chmod(0o770)
        assert numba_cache.shipped_folder(sources, base) is None
        path.chmod(0o700)
    code, of = sources / COMPILED[0], Path.stat
    another = SimpleNamespace(st_uid=of(code).st_uid + 1)
    monkeypatch.setattr(Path, "stat", lambda path, **how: another if path == code else of(path, **how))
    assert numba_cache.shipped_folder(sources, base) is None


def test_another_threads_setting_of_the_folder_has_no_say(doubling, tmp_path, monkeypatch):
    """numba's setting is the whole process's: between the look whether there is one and the look at it, another thread
    may take it back, and code would go to the current folder.
    """
    init = caching.UserProvidedCacheLocator.__init__

    def taken_back(*arguments):
        numba.config.CACHE_DIR = ""
        init(*arguments)

    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(caching.UserProvidedCacheLocator, "__init__", taken_back)
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    assert doubling()(2) == 4
    assert {path.name for path in set(tmp_path.iterdir()) - before} <= {"__pycache__"}


def test_whoever_compiles_holds_the_folder_against_other_processes(doubling):
    """From before the index is read until code and index are written; and it is free before and afterwards."""
    seen, doubled = [], doubling()

    class Look(event.Listener):
        def on_start(self, event):
            seen.append(is_free(FOLDER))

        on_end = on_start

    assert is_free(FOLDER)
    with event.install_listener("numba:compile", Look()):
        assert doubled(2) == 4
        assert doubled(np.float64(0.5)) == 1
    assert seen == [False] * 4
    assert is_free(FOLDER)


def test_threads_of_a_process_hold_it_together(tmp_path):
    lock = FolderLock(tmp_path)
    for step, free in ((lock.on_start, False), (lock.on_start, False), (lock.on_end, False), (lock.on_end, True)):
        step(None)
        assert is_free(tmp_path) == free


def test_only_what_is_ours_is_kept_there():
    assert Path(kernels.trees.descend.stats.cache_path).parent == FOLDER
    assert str(FOLDER) != numba.config.CACHE_DIR


def test_everything_that_is_compiled_is_kept_so():
    """A compiled function in another file, or one that takes numbers from another, is found here."""
    files = [path for room in ("accountant", "training", "models", "serving") for path in (ROOT / room).rglob("*.py")]
    compiled = {path for path in files if re.search("^@njit|^@numba", path.read_text("utf-8"), re.M)}
    numba_itself = [path.name for path in files if re.search(r"^\s*(import|from) numba", path.read_text("utf-8"), re.M)]
    assert numba_itself == ["numba_cache.py"]  # or its settings would be those of a file in the current folder
    assert compiled == {path for pattern in COMPILED for path in ROOT.glob(pattern)} - {Path(kernels.__file__)}
    asked = {
        name
        for path in compiled
        for name in re.findall(r"^from ((?:accountant|training)[.\w]*)", path.read_text(), re.M)
    }
    known = {
        ROOT / f"{name.replace('.', '/')}.py" for name in asked - {"accountant.system.numba_cache", kernels.__name__}
    }
    assert known <= {ROOT / path for path in NUMBERS}

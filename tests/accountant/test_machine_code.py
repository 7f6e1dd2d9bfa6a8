"""Compiled code that is kept: never another release's, never another function's or other types', whoever is killed."""

from __future__ import annotations

import itertools
import re
from functools import partial
from pathlib import Path
from threading import Condition, Thread

import pytest

from accountant.system import numba_cache
from accountant.system.numba_cache import COMPILED, NUMBERS, ROOT, CodeFiles
from training.rows import kernels

NUMBAS = CodeFiles.__base__


class Killed(BaseException):
    pass


def save_until(files, key, code, steps):
    """`save` by a process that is killed after so many of its two writes."""
    left = [*range(steps)]

    def write(real, *told):
        if not left:
            raise Killed
        left.pop()
        real(*told)

    files._save_index = partial(write, files._save_index)
    files._save_data = partial(write, files._save_data)
    with pytest.raises(Killed):
        files.save(key, code)


@pytest.mark.parametrize("kind", [CodeFiles, NUMBAS])
def test_after_a_kill_nobody_runs_the_code_of_an_earlier_release(tmp_path, kind):
    kind(str(tmp_path), "sum", "older").save("int", "older code")
    found = set()
    for steps in (0, 1):
        save_until(kind(str(tmp_path), "sum", "newer"), "int", "newer code", steps)
        found.add(kind(str(tmp_path), "sum", "newer").load("int"))
    assert found == ({None} if kind is CodeFiles else {None, "older code"})
    kind(str(tmp_path), "sum", "newer").save("int", "newer code")
    assert kind(str(tmp_path), "sum", "newer").load("int") == "newer code"


@pytest.mark.parametrize("kind", [CodeFiles, NUMBAS])
def test_two_that_save_at_one_time_never_take_each_others_code(tmp_path, kind):
    """Every order of the three steps of each: the index is read, and both are written."""
    orders = sorted(set(itertools.permutations("aaabbb")))
    wrong = 0
    for number, order in enumerate(orders):
        (folder := tmp_path / str(number)).mkdir()
        turn = Turns(order)
        threads = [Thread(target=save_by_turns, args=(kind(str(folder), "sum", "now"), who, turn)) for who in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert turn.left == []
        wrong += any(kind(str(folder), "sum", "now").load(who) not in (None, f"code of {who}") for who in "ab")
    assert len(orders) == 20
    assert (wrong > 0) == (kind is NUMBAS)


class Turns:
    def __init__(self, order):
        self.left, self.changed = list(order), Condition()

    def take(self, who, step, *told):
        with self.changed:
            assert self.changed.wait_for(lambda: self.left[0] == who, timeout=60)
            answer = step(*told)
            self.left.pop(0)
            self.changed.notify_all()
            return answer


def save_by_turns(files, who, turn):
    for step in ("_load_index", "_save_index", "_save_data"):
        setattr(files, step, partial(turn.take, who, getattr(files, step)))
    files.save(who, f"code of {who}")


def test_a_function_that_is_called_is_looked_at_wherever_it_stands(tmp_path, monkeypatch):
    CodeFiles(str(tmp_path), "sum", "now").save("int", "code")
    assert CodeFiles(str(tmp_path), "sum", "now").load("int") == "code"
    monkeypatch.setattr(numba_cache, "_SOURCES", "another file was edited")
    assert CodeFiles(str(tmp_path), "sum", "now").load("int") is None


def test_everything_that_is_compiled_is_kept_so():
    """A raised numba that names its files otherwise is found here; so is a compiled function in another file."""
    files = [path for room in ("accountant", "training", "models", "serving") for path in (ROOT / room).rglob("*.py")]
    compiled = {path for path in files if re.search("^@njit|^@numba", path.read_text("utf-8"), re.M)}
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
    assert isinstance(kernels.trees.descend._cache._cache_file, CodeFiles)

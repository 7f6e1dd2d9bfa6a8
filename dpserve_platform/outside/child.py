"""The process that somebody else's text runs in: after `seal` it can ask for nothing but bytes of its two pipes and
memory. It has no rows, unless they are sent to it. Where it answers queries it stays unsealed and runs nothing of the
text itself: a fork of it does, for each query, behind the seal. A script that `outside.process` runs; it imports the
standard library, numpy, the seal, and the modules it is told, of which it calls what stands behind a colon.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.util import spec_from_loader
from operator import attrgetter
from types import ModuleType, SimpleNamespace
from typing import Any, BinaryIO

import numpy as np

from accountant.system.confined import end_with_parent
from accountant.system.seal import check_alone, seal

# What a learner may import: it is loaded before the seal, since no file can be opened behind it.
LOADED = (
    "abc", "bisect", "collections", "copy", "dataclasses", "decimal", "enum", "fractions", "functools", "heapq",
    "itertools", "math", "operator", "random", "re", "string", "typing", "numpy", "numpy.linalg",
)  # fmt: skip
GREATEST = 1 << 40  # of a query's answers, in size


class Session:
    """What a learner of somebody else's is given: `public` facts, `epsilon` as text, and releases. `rows`: None, but in
    a process that they are sent to: `codes` (features, rows) and `target` (rows,), a class's place or a scaled number.
    """

    def __init__(self, public: dict[str, Any], ask: Callable[[dict[str, Any]], Any], rows: Any = None) -> None:
        self.rows = rows
        self.public = SimpleNamespace(
            **{**public, "features": [SimpleNamespace(**feature) for feature in public["features"]]}
        )
        self._ask = ask

    def histogram(
        self, features: list[int], by_class: bool = False, share: str = "1", noise: str = "laplace", total: bool = False
    ) -> Any:
        """Return noisy counts of rows: (bins of each of one or two features...), or (classes, ...) of them by class; or
        the total of a number, in steps of `public.step` from the middle of its range. `share`: of the budget's unit;
        `noise`: laplace or gaussian.
        """
        answer = self._ask({
            "ask": "histogram", "features": list(features), "of": _of(by_class, total), "share": share, "noise": noise,
        })  # fmt: skip
        sizes = [self.public.features[at].bins for at in features]
        return np.array(answer, np.int64).reshape(([len(self.public.classes)] if by_class else []) + sizes)

    def leaves(
        self, trees: list[Any], by_class: bool = False, share: str = "1", noise: str = "laplace", total: bool = False
    ) -> list[Any]:
        """Return for each tree noisy counts of rows per leaf, or (classes, leaves), or totals, as of a histogram. A
        tree is its leaf's number, from 0, or [test, feature, code, tree where it holds, tree where not], test "above"
        or "is".
        """
        answer = self._ask({
            "ask": "leaves", "trees": trees, "of": _of(by_class, total), "share": share, "noise": noise,
        })  # fmt: skip
        groups = len(self.public.classes) if by_class else 1
        ends = np.cumsum([groups * (_last_leaf(tree) + 1) for tree in trees])
        parts = np.split(np.array(answer, np.int64), ends[:-1])
        return [part.reshape(groups, -1) if by_class else part for part in parts]

    def furthest(self, histograms: list[tuple[list[int], Any]], by_class: bool = False, share: str = "1") -> int:
        """Choose privately the histogram that is furthest, all cells together, from the numbers given: its place. Each
        is the one or two features, and numbers as `histogram` answers.
        """
        listed = [
            {"features": list(features), "given": np.rint(given).astype(int).ravel().tolist()}
            for features, given in histograms
        ]
        return int(self._ask({"ask": "furthest", "histograms": listed, "by_class": bool(by_class), "share": share}))

    def sums(self, tables: list[tuple[int, Any]], share: str = "1", noise: str = "laplace") -> Any:
        """Return noisy sums over rows: of each table (a feature, and whole numbers (classes, bins)) one."""
        return np.array(self._ask({"ask": "sums", "tables": _plain(tables), "share": share, "noise": noise}), np.int64)

    def select(self, tables: list[tuple[int, Any]], share: str = "1") -> int:
        """Choose privately the table whose sum over rows is nearly the largest: its place."""
        return int(self._ask({"ask": "select", "tables": _plain(tables), "share": share}))

    def ask(
        self,
        kind: str,
        arguments: dict[str, Any],
        size: int,
        sensitivity: int,
        share: str = "1",
        noise: str = "laplace",
        seconds: int = 1,
    ) -> Any:
        """Return the noisy answer of a query of your own: `size` whole numbers that `answer(rows)` of the class `kind`
        of this file, made with `arguments`, returns within `seconds`, after which it is here. `sensitivity`: how far
        they move with one row more or less, in L1 (laplace) or L2 (gaussian): your word.
        """
        body = {"kind": kind, "arguments": arguments, "size": size, "sensitivity": sensitivity, "seconds": seconds}
        return np.array(self._ask({"ask": "own", **body, "share": share, "noise": noise}), np.int64)


def _of(by_class: bool, total: bool) -> str:
    """Return what is added up in each cell."""
    return "total" if total else "classes" if by_class else "rows"


def _last_leaf(tree: Any) -> int:
    """Return the largest number of a tree's leaves."""
    return max(map(_last_leaf, tree[3:])) if isinstance(tree, list) else int(tree)


def _plain(tables: list[tuple[int, Any]]) -> list[dict[str, Any]]:
    """Return tables as JSON has them."""
    return [{"feature": int(at), "values": np.asarray(values).astype(int).tolist()} for at, values in tables]


def _read_rows(into: BinaryIO, features: int, rows: int) -> SimpleNamespace:
    """Read the rows that follow a line, as `SealedProcess.send` writes them."""
    codes = np.frombuffer(into.read(2 * features * rows), "<u2").reshape(features, rows)
    return SimpleNamespace(codes=codes, target=np.frombuffer(into.read(4 * rows), "<i4"))


def answer_queries(into: BinaryIO, write: Callable[[dict[str, Any]], None], limits: tuple[int, int]) -> None:
    """Read a text and rows, then query after query, and write the whole numbers that each answers, or None."""
    given = json.loads(into.readline())
    rows = _read_rows(into, **given["rows"])
    for line in into:
        query = json.loads(line)
        data = _fork(partial(_answer, given["source"], query, rows), limits, query)
        write({"answer": np.frombuffer(data, "<i8").tolist() if len(data) == 8 * query["size"] else None})


def _answer(source: str, query: dict[str, Any], rows: Any, send: int) -> None:
    """Run the text, make the query, and send what it answers, where that is so many whole numbers."""
    values = np.asarray(getattr(_module_of(source), query["kind"])(**query["arguments"]).answer(rows))
    if values.shape != (query["size"],) or values.dtype.kind not in "iu":
        return
    if max(map(abs, values.tolist())) <= GREATEST:
        _send(values.astype("<i8").tobytes(), send)


def _send(data: bytes, send: int) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(send, left) :]


def _fork(run: Callable[[int], None], limits: tuple[int, int], query: dict[str, Any]) -> bytes:
    """Run in a sealed fork, and return what it sends until it ends, or its time does; one byte more than it may send
    at most. What it kept is gone with it.
    """
    end, most = time.monotonic() + query["seconds"], 8 * query["size"] + 1
    receive, send = os.pipe()
    parent, fork = os.getpid(), os.fork()
    if not fork:
        try:
            end_with_parent(parent)
            os.dup2(send, 3)
            os.closerange(4, 1 << 12)
            seal(*limits)
            run(3)
        finally:
            os._exit(0)
    os.close(send)
    data = b""
    while len(data) < most and select.select([receive], [], [], max(0.0, end - time.monotonic()))[0]:
        more = os.read(receive, most - len(data))
        if not more:
            break
        data += more
    else:
        data = b""
    os.close(receive)
    os.kill(fork, signal.SIGKILL)
    os.waitpid(fork, 0)
    return data


class _Package(MetaPathFinder, Loader):
    """Loads modules from texts, by their place: `package/part.py`."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return how a module of the texts is loaded, or None."""
        place = name.replace(".", "/")
        own = [each for each in (f"{place}/__init__.py", f"{place}.py") if each in self._files]
        return spec_from_loader(name, self, origin=own[0], is_package=own[0].endswith("__init__.py")) if own else None

    def create_module(self, spec: Any) -> None:
        """Let a module be made as others are."""

    def exec_module(self, module: ModuleType) -> None:
        """Run a module's text."""
        place = module.__spec__.origin if module.__spec__ else None
        exec(compile(self._files[str(place)], str(place), "exec"), module.__dict__)


def _module_of(source: str) -> ModuleType:
    """Run a text, as the module `learner`; of the texts of a package the module that has the class."""
    if source.startswith('{"files": '):
        given = json.loads(source)
        sys.meta_path.insert(0, _Package(given["files"]))
        return import_module(given["module"])
    module = sys.modules["learner"] = ModuleType("learner")
    exec(compile(source, "learner.py", "exec"), module.__dict__)
    return module


def main() -> None:
    """Read what to load, load it, seal, read what to run, run it, and write what it makes. It ends with the
    thread that started it (where that is gone by now, its input has ended), and after so many seconds by the clock.
    """
    end_with_parent(os.getppid())
    into, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    quiet = os.open(os.devnull, os.O_RDWR)
    for place in (0, 1, 2):
        os.dup2(quiet, place)
    os.closerange(5, 1 << 12)

    def write(body: dict[str, Any]) -> None:
        out.write(json.dumps(body).encode() + b"\n")
        out.flush()

    given = json.loads(into.readline())
    signal.alarm(given["clock"])
    try:
        for each in (*LOADED, *given["modules"]):
            name, _, call = each.partition(":")
            found = import_module(name)
            if call:
                attrgetter(call)(found)()
    except Exception as error:
        write({"unloaded": f"{each}: {error}"})
        return
    try:
        limits = given["memory"], given["seconds"]
        if given["answers"]:
            check_alone()
            if _fork(partial(_send, b"sealed"), limits, {"seconds": 60, "size": 1}) != b"sealed":
                raise OSError("the system does not seal processes")
        else:
            seal(*limits)
    except OSError as error:
        write({"unsealed": str(error)})
        return
    write({"sealed": True})
    if given["answers"]:
        answer_queries(into, write, limits)
        return
    given = json.loads(into.readline())
    rows = _read_rows(into, **given["rows"]) if "rows" in given else None

    def ask(body: dict[str, Any]) -> Any:
        write(body)
        return json.loads(into.readline())["answer"]

    try:
        kind = getattr(_module_of(given["source"]), given["kind"])
        write({"model": kind(**given["parameters"]).learn(Session(given["public"], ask, rows))})
    except Exception as error:
        write({"failed": f"{type(error).__name__}: {error}"[:500]})


if __name__ == "__main__":
    main()

"""What the ledger costs: an append, an admission, a proof; how it grows, and what eight processes get through.

    python benchmarks/ledger.py [--quick] [--entries 1000000] [--only append ...]

Prints one JSON line for every figure and then a table. Every figure is a median over single calls, each of them synced
to the disk; a signed checkpoint and the raised high-water mark are part of each append. A ratio compares calls made in
turn on two ledgers in one process. Needs the packages of the tests: PostgreSQL is the one that they start.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = 8
PATIENCE = 120.0  # seconds, for processes that start and end
FILLER = b'{"body":"%d ' + b"x" * 480 + b'"}'  # about as long as the entries of a job are on average


@dataclass(frozen=True)
class Figure:
    """A measured figure and the bound that it has to keep, where there is one."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    at_least: bool = False

    @property
    def holds(self) -> bool:
        if self.bound is None:
            return True
        return self.value >= self.bound if self.at_least else self.value < self.bound

    def line(self) -> str:
        figure = f"{self.name:<46}{self.value:10.3f} {self.unit:<5}"
        if self.bound is None:
            return figure.rstrip()
        return f"{figure}{'>=' if self.at_least else '<'} {self.bound:<6g}{'holds' if self.holds else 'MISSED'}"


# Homes to measure on.


def new_home(folder: Path, url: str) -> Any:
    """A ledger with one dataset that a great many small jobs fit into."""
    import ledgers

    from accountant.home import Home
    from dpserve_verify.privacy.budget import Budget

    home = Home.init(ledgers.place(folder) | {"DPSERVE_LEDGER_URL": url})
    home.ledger.register(ledgers.registration(budget=Budget.of("100", "0.000001")))
    return home


def reopened(home: Any) -> Any:
    from accountant.home import Home

    home.ledger.log.database.close()
    return Home.open({"DPSERVE_HOME": str(home.path), "DPSERVE_LEDGER_URL": home.ledger.log.database.url})


def urls(folder: Path, names: list[str]) -> Iterator[tuple[str, str]]:
    """An empty database of every kind. The server syncs as it does by default."""
    yield "SQLite", f"sqlite:///{folder / 'ledger.db'}"
    if "postgresql" in names:
        from postgres import Server

        yield "PostgreSQL", Server(settings=()).fresh()


def reserve(home: Any, number: int) -> None:
    import ledgers

    from dpserve_verify.privacy.events import PureDp

    plan = ledgers.plan(PureDp(Decimal("0.0005")), 3)
    ledgers.reserve(home.ledger, ledgers.request(epsilon="0.01", number=number), plan, key=f"{os.getpid()} {number}")


def fill(home: Any, entries: int) -> None:
    """Bring a SQLite ledger to so many entries that its key signed, with their subtrees and a job for every four: bytes
    that no admission reads, in a tree that is right.
    """
    from dpserve_verify.formats import merkle
    from dpserve_verify.formats.merkle import leaf_hash, new_nodes
    from dpserve_verify.log import notes

    with closing(sqlite3.connect(home.path / "ledger.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        last = dict(connection.execute("SELECT level, hash FROM node GROUP BY level HAVING idx = max(idx)"))
        (size,) = connection.execute("SELECT count(*) FROM entry").fetchone()

        def rows() -> Iterator[tuple[int, bytes, list[tuple[int, int, bytes]]]]:
            for seq in range(size, entries):
                body = FILLER % seq
                nodes = new_nodes(seq, leaf_hash(body), lambda level, _index: last[level])
                last.update((level, digest) for level, _, digest in nodes)
                yield seq, body, nodes

        connection.execute("BEGIN")
        for seq, body, nodes in rows():
            connection.execute("INSERT INTO entry VALUES (?, ?)", (seq, body))
            connection.executemany("INSERT INTO node VALUES (?, ?, ?)", nodes)
            if seq % 4 == 0:
                values = {"seq": seq, "dataset": "other", "state": "committed", "model": "m", "analyst": "ana"}
                values |= {"idempotency_key": f"key {seq}", "request": "0" * 64, "queued": 0, "done": 1, "total": 1}
                names = ", ".join(values)
                marks = ", ".join("?" * len(values))
                connection.execute(f"INSERT INTO job ({names}) VALUES ({marks})", tuple(values.values()))
        root = merkle.root(entries, lambda level, _index: last[level])
        note = notes.sign_checkpoint(home.ledger.log.origin, entries, root, home.keys.signer("log"))
        connection.execute("INSERT INTO checkpoint VALUES (?, ?, 0)", (entries, note))
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


# Figures.


def timed(call: Callable[[int], Any], count: int, warm: int = 30) -> float:
    """Median milliseconds of one call."""
    return statistics.median(each_timed([call], count, warm)[0])


def each_timed(calls: list[Callable[[int], Any]], count: int, warm: int = 30) -> list[list[float]]:
    """Milliseconds of every call, made in turn."""
    found: list[list[float]] = [[] for _ in calls]
    for number in range(warm + count):
        for call, times in zip(calls, found, strict=True):
            began = time.perf_counter()
            call(number)
            times.append((time.perf_counter() - began) * 1000)
    return [times[warm:] for times in found]


def appends(folder: Path, asked: argparse.Namespace) -> Iterator[Figure]:
    """An entry as long as a reservation's, with its checkpoint; and the whole of an admission."""
    for name, url in urls(folder, asked.databases):
        home = new_home(folder / name, url)
        text = "x" * 1000

        def append(number: int, home: Any = home, text: str = text) -> None:
            with home.ledger.log.writing() as writer:
                writer.append("measured", text=text, number=number)

        bound = 1.0 if name == "SQLite" else None
        yield Figure(f"append with checkpoint, {name}", timed(append, asked.calls), "ms", bound)
        yield Figure(f"admission, {name}", timed(partial(reserve, home), asked.calls), "ms")


def crowd(folder: Path, asked: argparse.Namespace) -> Iterator[Figure]:
    """Admissions a second that eight processes get between them."""
    for name, url in urls(folder, asked.databases):
        home = new_home(folder / name, url)
        home.ledger.log.database.close()
        context = get_context("spawn")
        gate, counted = context.Barrier(PROCESSES + 1), context.Queue()
        rest = (str(home.path), url, gate, counted, asked.seconds)
        workers = [context.Process(target=reserve_for, args=rest) for _ in range(PROCESSES)]
        for worker in workers:
            worker.start()
        gate.wait(PATIENCE)
        began = time.perf_counter()
        done = sum(counted.get(timeout=PATIENCE) for _ in workers)
        seconds = time.perf_counter() - began
        for worker in workers:
            worker.join()
        yield Figure(f"admissions, {PROCESSES} processes, {name}", done / seconds, "/s", 200.0, at_least=True)


def reserve_for(path: str, url: str, gate: Any, counted: Any, seconds: float) -> None:
    """One of the eight."""
    from accountant.home import Home

    home = Home.open({"DPSERVE_HOME": path, "DPSERVE_LEDGER_URL": url})
    reserve(home, -1)  # loads what a claim is computed with
    gate.wait(PATIENCE)
    end, done = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        reserve(home, done)
        done += 1
    counted.put(done)


def growth(folder: Path, asked: argparse.Namespace) -> Iterator[Figure]:
    """An admission in a long ledger against one in a short ledger; and proofs from the long one."""
    sizes = (1000, asked.entries)
    homes = []
    for size in sizes:
        path = folder / str(size)
        home = new_home(path, f"sqlite:///{path / 'ledger.db'}")
        home.ledger.log.database.close()
        fill(home, size)
        homes.append(reopened(home))
    short, long = homes
    for home in homes:
        reserve(home, -1)  # signs the filled tree
    times = each_timed([partial(reserve, short), partial(reserve, long)], asked.calls)
    medians = [statistics.median(each) for each in times]
    named = f"{sizes[1]:,} entries against {sizes[0]:,}"
    yield Figure(f"admission, {named}", medians[1] / medians[0], "x", 2.0)
    step = asked.entries // 7919 + 1
    prove = timed(lambda n: long.ledger.log.proof(n * 7919 % (7919 * step) % asked.entries), asked.calls)
    yield Figure(f"proof at {sizes[1]:,} entries", prove, "ms", 1.0)


MEASURES = {"append": appends, "crowd": crowd, "growth": growth}


def machine() -> str:
    models = [line for line in _cpuinfo() if line.startswith("model name")]
    cpu = models[0].partition(":")[2].strip() if models else platform.processor()
    python = platform.python_version()
    return f"{cpu}, {os.cpu_count()} cores; Python {python}, SQLite {sqlite3.sqlite_version}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer calls, and a long ledger of 20,000 entries")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--only", choices=MEASURES, nargs="+", default=list(MEASURES))
    parser.add_argument("--databases", choices=["sqlite", "postgresql"], nargs="+", default=["sqlite", "postgresql"])
    asked = parser.parse_args()
    asked.calls, asked.seconds = (100, 2.0) if asked.quick else (500, 5.0)
    asked.entries = min(asked.entries, 20_000) if asked.quick else asked.entries
    print(machine())
    found = []
    for name in asked.only:
        with tempfile.TemporaryDirectory(prefix="dpserve-bench-") as folder:
            for figure in MEASURES[name](Path(folder), asked):
                found.append(figure)
                print(json.dumps(asdict(figure) | {"holds": figure.holds}), flush=True)
    print("\n".join(["", *(figure.line() for figure in found)]))


sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]
if __name__ == "__main__":
    main()

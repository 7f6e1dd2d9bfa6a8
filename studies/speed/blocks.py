"""What a dataset of many blocks costs: admission of a window of 52, and to list, audit and draw a thousand.

    python -m studies.speed.blocks --report studies/speed/blocks.md

An admission is processor time of one thread, the least median of five rounds, checked, appended, signed and handed to
the disk: of a dataset without blocks, of 52 blocks that stand alike, and of 52 of which each stands elsewhere than all
others. Commands are new processes, in processor time, the least of five; a page is by the clock over the loopback
interface, the median of nine. Bounds are those of a dataset without blocks. Needs the packages of the tests.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from benchmarks import cli, dashboard
from benchmarks.ledger import Figure  # which finds the tests' helpers, too
from dpserve_verify.privacy.budget import Budget

NAME, PLAIN, WINDOW = "visits", "plain", 52
BOUND = 3.0  # ms, of a window's admission
SCHEMA = b"target: {name: y, classes: [0, 1]}\nrecords: 1000\nfeatures: {x: {type: numeric, range: [0, 1]}}\n"
COMMANDS = 0.6  # s
FIRST = ", ahead of all else"


def grown(folder: Path, blocks: int) -> Home:
    """A home with one dataset of so many blocks, and one that has not grown: their accounts, and no rows."""
    import ledgers

    home = Home.init(ledgers.place(folder))
    for name in (NAME, PLAIN):
        schema = hashlib.sha256(SCHEMA).hexdigest()
        about = ledgers.registration(name, Budget.of("50", "0.000001"), schema=schema)
        home.ledger.register(about)
        (home.datasets / about.commitment).mkdir(parents=True)
        (home.datasets / about.commitment / "schema.yaml").write_bytes(SCHEMA)
    for block in range(2, blocks + 1):
        block_appending.append(home.ledger.log, NewBlock(NAME, ledgers.hexes(f"block {block}"), 1000, "steward"), block)
    return home


def asker(home: Home, name: str) -> Callable[[str | None], None]:
    """Reserves a job on a window of a dataset."""
    import ledgers

    plan = ledgers.plan(count=1)

    def ask(window: str | None) -> None:
        request = ledgers.request(name, "0.5", "0.0000001")
        ledgers.reserve(home.ledger, request if window is None else replace(request, blocks=window), plan)

    return ask


def milliseconds(ask: Callable[[], Any], calls: int) -> float:
    """Of a processor, the median call; of five rounds of calls, the least."""
    rounds = []
    for _ in range(5):
        found = []
        for _ in range(calls):
            began = time.process_time()
            ask()
            found.append(1000 * (time.process_time() - began))
        rounds.append(statistics.median(found))
    return min(rounds)


def admissions(home: Home, blocks: int, calls: int) -> Iterator[Figure]:
    """Of a plain dataset, of a window whose blocks stand alike, and of one of which each stands elsewhere."""
    ask, newest = asker(home, NAME), f"last:{WINDOW}"
    yield Figure("admission, no blocks", milliseconds(lambda: asker(home, PLAIN)(None), calls), "ms")
    yield Figure(f"admission, {WINDOW} blocks that stand alike", milliseconds(lambda: ask(newest), calls), "ms", BOUND)
    for first in range(blocks - WINDOW, blocks + 1):
        ask(f"{first}-{blocks}")
    figure = milliseconds(lambda: ask(newest), calls)
    yield Figure(f"admission, {WINDOW} blocks that all stand differently", figure, "ms", BOUND)


def commands(home: Home) -> Iterator[Figure]:
    """What the command line takes to show, plan and audit them."""
    for words, bound in ((f"dataset show {NAME}", COMMANDS), ("ledger audit", None)):
        command = [sys.executable, "-m", "serving.cli.app", *words.split()]
        seconds = min(cli.ran(home.path, command, 0)[0] for _ in range(5))
        yield Figure(f"dpserve {words}", seconds, "s", bound)


def pages(home: Home) -> Iterator[Figure]:
    """What a browser waits for."""
    with dashboard.served(home, dashboard.free_port()) as client:
        for path in ("/ui/datasets", f"/ui/datasets/{NAME}", f"/ui/jobs/blocks?dataset={NAME}", "/ui/ledger"):
            times = []
            for _ in range(dashboard.REPEATS):
                began = time.perf_counter()
                client.get(path).raise_for_status()
                times.append(1000 * (time.perf_counter() - began))
            yield Figure(path, statistics.median(times), "ms", dashboard.BOUND)


def report(figures: Sequence[Figure], blocks: int, load: float) -> str:
    """The page."""
    lines = "".join(
        f"| {each.name} | {each.value:.2f} {each.unit} | {f'{each.bound:g} {each.unit}' if each.bound else ''} |\n"
        for each in figures
    )
    return f"""# What blocks cost

Made by `python -m studies.speed.blocks` on a dataset of {blocks:,} blocks in memory, {platform.machine()}, Python
{platform.python_version()}, load of the machine up to {load:.1f}{FIRST * (os.sched_getscheduler(0) != os.SCHED_OTHER)}.
An admission is processor time of one thread, checked and signed; commands are processor time of new processes; a page
is by the clock. Bounds of commands and pages are those of a dataset without blocks. The audit judges every block's
entry, and of each of hundreds of jobs on {WINDOW} blocks what each block has used after it.

| | | at most |
|---|---:|---:|
{lines}"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--place", type=Path, help="where the home lies meanwhile")
    parser.add_argument("--report", type=Path, help="write the page")
    asked = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="dpserve-bench-", dir=asked.place) as folder:
        home = grown(Path(folder) / "home", asked.blocks)
        figures = [*admissions(home, asked.blocks, asked.calls), *commands(home), *pages(home)]
    for each in figures:
        print(each.line())
    if asked.report:
        asked.report.write_text(report(figures, asked.blocks, max(load, os.getloadavg()[0])))


if __name__ == "__main__":
    main()

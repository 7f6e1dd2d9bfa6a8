"""Rows asked by a cluster of two workers, beside two threads of one process: rounds of LazyBB, the empty question, and
the round in which a worker is killed.

    python -m benchmarks.cluster --rows 1000000 10000000 100000000 --out benchmarks/results/cluster.jsonl \
        --report benchmarks/results/cluster.md

Scheduler, workers and driver are processes of this machine, so what a network costs is not in it. Rows are made, and
packed as registration packs them; the same questions are asked of both, in turns, and their answers compared bit by
bit. A worker is killed as a question begins, and again once another one has its share. Clock time: work and waiting of
several processes; `--first`, as root, puts all of them ahead of what else the machine does. 1e8 rows need 2.1 GB of
disk.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from dpserve_cluster import answering, driver
from models.parts.votes import Vote
from training.rows.partitions import threads
from training.rows.partitions.rows import Rows, row_bound
from training.rows.schema.schema import parse_schema
from training.rows.tables.partition_source import Source

sys.path.append(str(Path(__file__).parent.parent / "tests" / "helpers"))
from dask_cluster import DaskCluster, until

FEATURES, BINS, ROUNDS, EMPTY, BATCH, KILLS = 20, 32, 30, 200, 5, 5
HERE, THERE, NOTHING, KILLED = "a round, 2 threads", "a round, 2 workers", "empty question", "the round of a kill"
WHOLE = "from a kill until all workers have their share"
Line = dict[str, Any]


def write(folder: Path, rows: int) -> Source:
    """Packed rows: uniform bins, and a label that depends on one of them."""
    random = np.random.default_rng(rows)
    shape = (FEATURES, rows)
    bins = np.lib.format.open_memmap(folder / "bins.npy", "w+", np.uint8, shape)
    for column in bins:
        column[:] = random.integers(0, BINS, rows, np.uint8)
    np.save(folder / "labels.npy", (bins[0] + random.integers(0, BINS, rows, np.uint8) > BINS).astype(np.uint8))
    bins.flush()
    features = "".join(f"  x{f}: {{type: numeric, range: [0, 1], bins: {BINS - 1}}}\n" for f in range(FEATURES))
    text = f"target: {{name: y, classes: [0, 1]}}\nrecords: {rows}\nfeatures:\n{features}"
    (folder / "schema.yaml").write_text(text)
    return Source(folder, parse_schema(text.encode()), None)


def here(source: Source) -> Rows:
    """By the threads of this process."""
    places = threads.cuts(source.size, FEATURES)
    return Rows.over(threads.Threads([source.partition(low, high, source.folder) for low, high in places]))


def there(source: Source, cluster: DaskCluster) -> Rows:
    """By the workers."""

    def check(source: Source, read: Callable[[str], Any]) -> None:
        for name in source.files:
            for _ in read(name):
                pass

    schema, bound = source.folder / "schema.yaml", row_bound(source.schema.records)
    return Rows.over(driver.open_cluster(cluster.contact, [source], schema, [bound], check))


class Rounds:
    """The same rounds of votes, each with what it took and what it came to."""

    def __init__(self, rows: Rows) -> None:
        self._rows, self._random, self._votes = rows, np.random.default_rng(3), list[Vote]()
        self.took: list[float] = []
        self.answers = hashlib.sha256()

    def more(self, count: int) -> None:
        """So many rounds more."""
        for _ in range(count):
            feature, code, weight = (int(self._random.integers(0, most)) for most in (FEATURES, BINS - 2, 3))
            self._votes.append(Vote("above", feature, code, weight - 1 or 1))
            bound = sum(abs(vote.weight) for vote in self._votes)
            weights = 1 + (self._random.random(2 * bound + 1) * (1 << 20)).astype(np.int64)
            since = time.perf_counter()
            found = self._rows.signed_sums(tuple(self._votes), weights, bound)
            self.took.append(1000 * (time.perf_counter() - since))
            self.answers.update(found.tobytes())


def first(*processes: psutil.Process) -> None:
    """Put processes ahead of what else the machine does: the kernel shares processors among sessions."""
    for process in processes:
        Path(f"/proc/{process.pid}/autogroup").write_text("-15")


def measure(rows: int, place: Path | None, ahead: bool = False) -> list[Line]:
    """Of so many rows."""
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        (folder / "packed").mkdir()
        source = write(folder / "packed", rows)
        with DaskCluster(folder, 2) as cluster, closing(there(source, cluster)) as far:
            if ahead:
                first(psutil.Process(), *cluster.processes)
            near = Rounds(here(source))
            remote = Rounds(far)
            for _ in range(ROUNDS // BATCH):  # in turns: the load of the machine moves
                near.more(BATCH)
                remote.more(BATCH)
            found = {HERE: median(near.took[BATCH:]), THERE: median(remote.took[BATCH:])}
            empty = []
            for _ in range(EMPTY):
                since = time.perf_counter()
                far.ask(answering.CountRows())
                empty.append(1000 * (time.perf_counter() - since))
            killed, whole = [], []
            for _ in range(KILLS):
                since = time.perf_counter()
                os.kill(cluster.workers()[0], signal.SIGKILL)
                remote.more(1)
                killed.append(remote.took[-1])
                until(lambda: len(far._engine._desk._workers.threads) == 2, "another has its share", cluster)
                whole.append(1000 * (time.perf_counter() - since))
                remote.more(1)
            near.more(2 * KILLS)
            found |= {NOTHING: median(empty), KILLED: median(killed), WHOLE: median(whole)}
            if near.answers.digest() != remote.answers.digest():
                raise SystemExit("the answers are other bits")
    load = os.getloadavg()[0]
    return [{"rows": rows, "what": what, "ms": ms, "load": load, "first": ahead} for what, ms in found.items()]


def report(lines: Sequence[Line]) -> str:
    """The page, from the lines alone. Of two lines about the same thing the later one counts."""
    at = {(line["rows"], line["what"]): line for line in lines}
    sizes = sorted({rows for rows, _ in at})
    load = max(line["load"] for line in lines)
    told = {key: f"{line['ms']:,.1f}" for key, line in at.items()}
    table = "".join(
        f"| {what} | {' | '.join(told.get((rows, what), '') for rows in sizes)} |\n"
        for what in (HERE, THERE, NOTHING, KILLED, WHOLE)
    )
    ratio = " | ".join(f"{at[rows, THERE]['ms'] / at[rows, HERE]['ms']:.2f}" for rows in sizes)
    killed = " | ".join(f"{at[rows, KILLED]['ms'] / at[rows, THERE]['ms'] - 1:.1f}" for rows in sizes)
    ahead = "ahead of what else the machine did" if all(line.get("first") for line in lines) else "beside other work"
    machine = f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}"
    return f"""# Rows asked by a cluster

Written by `benchmarks/cluster.py` on {machine}; load of the machine
up to {load:.1f}, these processes {ahead}. {FEATURES} numbers in {BINS} bins. Scheduler, two workers of
one thread and the driver are processes of this machine: no network is in it. A round of LazyBB, asked of both in
turns; clock time, medians. The answers were the same bits, also in the rounds in which a worker was killed.

In such a round the other worker answers for all rows: its own, and, once the scheduler saw the connection end, those
of the lost one, which it opens, and whose scores it makes again from all votes. It reads them for their digest
only where no worker of its host did before. Until a new worker has its share, rounds take up to twice as long.
[How a cluster is run](../../docs/reference/sources.md).

| ms | {" | ".join(f"{rows:,}" for rows in sizes)} |
|---|{"---:|" * len(sizes)}
{table}| 2 workers, times 2 threads | {ratio} |
| what a kill costs, in rounds | {killed} |
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000])
    parser.add_argument("--out", type=Path, help="lines of JSON are added to it")
    parser.add_argument("--report", type=Path, help="write the page from all lines of --out")
    parser.add_argument("--first", action="store_true", help="ahead of what else the machine does (needs root)")
    parser.add_argument("--place", type=Path, default=None, help="where rows lie meanwhile")
    asked = parser.parse_args(arguments)
    known = (
        [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out and asked.out.exists() else []
    )
    for rows in asked.rows:
        found = measure(rows, asked.place, asked.first)
        known += found
        for line in found:
            print(json.dumps(line), flush=True)
        if asked.out:
            with asked.out.open("a") as file:
                file.writelines(f"{json.dumps(line)}\n" for line in found)
    if asked.report:
        asked.report.write_text(report(known))


if __name__ == "__main__":
    main()

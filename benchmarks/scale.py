"""Time and memory against rows: registration of a folder of Parquet files, and a job of every kind on what it packed.

    nice python -m benchmarks.scale --rows 10000 100000 1000000 10000000 --out docs/results/scale.jsonl \
        --report docs/results/scale.md

Every figure comes from a process of its own on one processor: processor seconds, and the most anonymous memory (what
cannot be dropped and read again from a file), looked at a hundred times a second. A round or a release is what stands
between two draws, the median of the last of a job. 1e8 rows of 20 features need 26 GB of disk. `--peers` asks others
on the same rows, in the environment of benchmarks/requirements.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.plots import OURS, Spec, draw
from benchmarks.scale_peers import PEERS

ROOT = Path(__file__).parent.parent
FEATURES, BINS, FILE_ROWS = 20, 32, 1_000_000
LAST = 30  # steps of a job whose median is told: where bins are found, the counts come first
REGISTER = "register"
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "lazybb, a round": ("lazybb", {"rounds": 40, "cuts": "declared"}),
    "lazybb, bins found": ("lazybb", {"rounds": 40, "cuts": "found"}),
    "lazybb-tree, a level by Gini": ("lazybb-tree", {"rounds": 3, "criterion": "gini", "cuts": "declared"}),
    "ebm, a release": ("ebm", {"epochs": 2, "cuts": "declared"}),
}
BOUNDS = {"register": 600, "train": 800}  # MB of anonymous memory
Line = dict[str, Any]


def write(folder: Path, rows: int) -> None:
    """Made numbers in [0, 1), a label that depends on three of them, in files of FILE_ROWS and two Hive partitions."""
    random, done = np.random.default_rng(rows), 0
    while done < rows:
        size = min(FILE_ROWS, rows - done)
        cells = random.random((FEATURES, size))
        labels = (cells[:3].sum(axis=0) + 0.4 * random.standard_normal(size) > 1.5).astype(np.int8)
        half = folder / "rows" / f"half={2 * done // rows}"
        half.mkdir(parents=True, exist_ok=True)
        columns = {f"x{f}": cells[f] for f in range(FEATURES)}
        pq.write_table(pa.table({**columns, "y": labels}), half / f"{done:012}.parquet", compression="zstd")
        done += size
    features = "".join(f"  x{f}: {{type: numeric, range: [0, 1], bins: {BINS}}}\n" for f in range(FEATURES))
    head = f"target: {{name: y, classes: [0, 1]}}\nrecords: {rows}\nignore: [half]\n"
    (folder / "schema.yaml").write_text(f"{head}features:\n{features}")


class Anonymous:
    """The most anonymous memory of this process meanwhile, in MB."""

    def __enter__(self) -> Anonymous:
        self.most, self._ended = self.now(), threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._ended.wait(0.01):
            self.most = max(self.most, self.now())

    @staticmethod
    def now() -> float:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) / 1000 for line in file if line.startswith("RssAnon:"))


def one_peer(folder: Path, what: str) -> Line:
    """In a process of its own, on the rows that were packed below `folder`."""
    clock, processor = time.perf_counter(), time.process_time()
    with Anonymous() as memory:
        times = PEERS[what][0](folder)
    found: Line = {"cpu": time.process_time() - processor, "seconds": time.perf_counter() - clock}
    steps = [1000 * (after - before) for before, after in pairwise(times)]
    return found | {"anonymous_mb": memory.most, "ms": median(steps)}


def one(folder: Path, what: str) -> Line:
    """In a process of its own, whose home is below `folder`."""
    from accountant.budget import Budget, Relation
    from accountant.home import Home
    from training import job, session
    from training.plans import Asked
    from training.rows.datasets import register

    os.environ["DPSERVE_HOME"] = str(folder / "home")
    home = Home.init() if what == REGISTER else Home.open()
    times: list[float] = []

    def held(self: Any, query: Any, mechanism: Any) -> Any:
        times.append(time.process_time())
        return release(self, query, mechanism)

    release, session.Session.release = session.Session.release, held  # type: ignore[method-assign]
    clock, processor = time.perf_counter(), time.process_time()
    with Anonymous() as memory:
        if what == REGISTER:
            how = Budget.of("90", "0.000000001"), Relation.ADD_REMOVE, "record"
            register(home, "d", folder / "rows", folder / "schema.yaml", *how)
        else:
            learner, parameters = JOBS[what]
            job.train(home, Asked("d", learner, "2", parameters=parameters), by="benchmark")
    found: Line = {"cpu": time.process_time() - processor, "seconds": time.perf_counter() - clock}
    steps = [1000 * (after - before) for before, after in pairwise(times)][-LAST:]
    return found | {"anonymous_mb": memory.most} | ({"ms": median(steps)} if steps else {})


def measure(rows: int, place: Path | None, peers: bool = False) -> list[Line]:
    """Register so many rows, then every job on them, and every other learner."""
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        write(folder, rows)
        size = sum(path.stat().st_size for path in (folder / "rows").rglob("*.parquet"))
        lines = []
        others = [what for what, (_, most) in PEERS.items() if peers and rows <= most]
        for what in (REGISTER, *JOBS, *others):
            command = [sys.executable, "-m", "benchmarks.scale", "--one", name, what]
            done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE)
            found = json.loads(done.stdout.splitlines()[-1])
            lines.append({"rows": rows, "what": what, "load": os.getloadavg()[0], "source_mb": size / 1e6, **found})
            print(json.dumps(lines[-1]), flush=True)
            if what == REGISTER:
                shutil.rmtree(folder / "rows")
        return lines


def report(lines: Sequence[Line]) -> str:
    """The page, from the lines alone. Of two lines about the same thing the later one counts."""
    latest = {(line["rows"], line["what"]): line for line in lines}
    sizes = sorted({rows for rows, _ in latest})

    def row(what: str, figure: str, scale: float = 1, digits: int = 2) -> str:
        told = [f"{scale * latest[rows, what][figure]:,.{digits}f}" if (rows, what) in latest else "" for rows in sizes]
        return f"| {what} | {' | '.join(told)} |\n"

    def table(head: str, body: str) -> str:
        return f"| {head} | {' | '.join(f'{rows:,}' for rows in sizes)} |\n|---{'|---:' * len(sizes)}|\n{body}"

    per_row = "".join(
        f"| {what} | {' | '.join(_per_row(latest.get((rows, what))) for rows in sizes)} |\n"
        for what in (REGISTER, *JOBS)
    )
    others = [what for what in PEERS if any(told == what for _, told in latest)]
    others = ["lazybb, a round", "ebm, a release", *others] if others else []
    beside = f"""
## Beside others, on the same rows in the same run

The same codes, one thread each. **LightGBM and XGBoost are not private**; XGBoost reads its rows from files (external
memory), as we do. A stump is one cut of one feature, as a round of lazybb is; a term is one feature of DP-EBM once, as
a release of ebm is, from the difference of two fits: DP-EBM holds its rows in memory. At 1e8 rows nobody else was
asked.

{table("ms", "".join(row(what, "ms") for what in others))}
{table("MB", "".join(row(what, "anonymous_mb", digits=0) for what in others))}"""
    load, python = max(line["load"] for line in lines), platform.python_version()
    return f"""# Time and memory against rows

Written by `benchmarks/scale.py` on {platform.machine()}, one processor of {os.cpu_count()}, Python {python}; load of
the machine up to {load:.1f}. {FEATURES} numbers in {BINS} bins each, made, all digits random, in zstd Parquet files of
{FILE_ROWS:,} rows in two Hive partitions. Processor time of one thread; anonymous memory is what cannot be dropped and
read again from a file.

![Time and memory against rows](scale.svg)

## A round, a level, a release: ms

{table("ms", "".join(row(what, "ms") for what in JOBS))}
## Nanoseconds a row

Of registration all of it; of a job, one round, level or release.

{table("ns a row", per_row)}
## Anonymous memory: MB

The bounds: {BOUNDS["register"]} for registration at any size, and {BOUNDS["train"]} for a job on 100,000,000 rows.

{table("MB", "".join(row(what, "anonymous_mb", digits=0) for what in (REGISTER, *JOBS)))}
## Processor seconds

{table("s", "".join(row(what, "cpu", digits=1) for what in (REGISTER, *JOBS)))}{beside if others else ""}"""


def _per_row(line: Line | None) -> str:
    if line is None:
        return ""
    seconds = line["cpu"] if line["what"] == REGISTER else line["ms"] / 1000
    return f"{1e9 * seconds / line['rows']:,.1f}"


def plot(lines: Sequence[Line], path: Path) -> None:
    """Time and memory against rows, both axes logarithmic."""
    latest = {(line["rows"], line["what"]): line for line in lines}
    kinds = [REGISTER, *JOBS]
    values = [
        line | {"took": line["cpu"] if what == REGISTER else line["ms"] / 1000}
        for (_, what), line in sorted(latest.items())
        if what in kinds
    ]
    colour = {"domain": kinds, "range": [*OURS[: len(kinds)], "#D55E00"][: len(kinds)]}

    def panel(field: str, title: str, scale: str) -> Spec:
        x = {
            "field": "rows",
            "type": "quantitative",
            "title": "rows",
            "scale": {"type": "log"},
            "axis": {"format": "~e"},
        }
        y = {"field": field, "type": "quantitative", "title": title, "scale": {"type": scale}}
        return {
            "title": title,
            "data": {"values": values},
            "mark": {"type": "line", "point": {"size": 24}, "strokeWidth": 1.8},
            "encoding": {"x": x, "y": y, "color": {"field": "what", "type": "nominal", "scale": colour, "title": None}},
            "width": 330,
            "height": 240,
        }

    draw(
        path, [panel("took", "processor seconds", "log"), panel("anonymous_mb", "MB of anonymous memory", "linear")], 2
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--out", type=Path, help="lines of JSON are added to it")
    parser.add_argument("--report", type=Path, help="write the page and its plot from all lines of --out")
    parser.add_argument("--place", type=Path, default=None, help="where rows and homes lie meanwhile")
    parser.add_argument("--peers", action="store_true", help="others as well")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.one:
        folder, what = asked.one
        print(json.dumps((one_peer if what in PEERS else one)(Path(folder), what)))
        return
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one processor, for what is started as well
    lines = (
        [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out and asked.out.exists() else []
    )
    for rows in asked.rows:
        found = measure(rows, asked.place, asked.peers)
        lines += found
        if asked.out:
            with asked.out.open("a") as file:
                file.writelines(f"{json.dumps(line)}\n" for line in found)
    if asked.report:
        asked.report.write_text(report(lines))
        plot(lines, asked.report.with_suffix(".svg"))


if __name__ == "__main__":
    main()

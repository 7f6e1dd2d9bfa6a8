"""Time and memory against rows: registration of a folder of Parquet files, and a job of every kind on what it packed.

    nice python -m benchmarks.scale --rows 10000 100000 1000000 10000000 --out benchmarks/results/scale.jsonl \
        --report benchmarks/results/scale.md

Every figure comes from a process of its own on one processor: processor seconds, and the most anonymous memory (what
cannot be dropped and read again from a file), looked at a hundred times a second. A round or a release is what stands
between two draws, the median of the last of a job. 1e8 rows of 20 features need 26 GB of disk. `--peers` asks others
on the same rows, in the environment of benchmarks/requirements.txt. `--threads 7` takes seven turns instead, each with
one processor and with two: what a registration and a round of LazyBB then take by the clock. On a machine that does
other things as well, `chrt -r 1` before the command lets it go first.
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
ROUND, PROCESSORS = "lazybb, a round", (1, 2)
LAST = 30  # steps of a job whose median is told: where bins are found, the counts come first
REGISTER = "register"
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    ROUND: ("lazybb", {"rounds": 40, "cuts": "declared"}),
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
    """The most anonymous memory of this process meanwhile, in MB, looked at every so many `seconds`."""

    def __init__(self, seconds: float = 0.01) -> None:
        self._seconds = seconds

    def __enter__(self) -> Anonymous:
        self.most, self._ended = self.now(), threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._ended.wait(self._seconds):
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


def one(folder: Path, what: str, seconds: float = 0.01) -> Line:
    """In a process of its own, whose home is below `folder`."""
    from accountant.home import Home
    from dpserve_verify.privacy.budget import Budget, Relation
    from training.datasets.datasets import register
    from training.jobs import job
    from training.requests import JobRequest
    from training.session import session

    os.environ["DPSERVE_HOME"] = str(folder / "home")
    home = Home.init() if what == REGISTER else Home.open()
    times: list[float] = []
    clocks: list[float] = []

    def held(self: Any, query: Any, mechanism: Any) -> Any:
        times.append(time.process_time())
        clocks.append(time.perf_counter())
        return release(self, query, mechanism)

    release, session.Session.release = session.Session.release, held  # type: ignore[method-assign]
    clock, processor = time.perf_counter(), time.process_time()
    with Anonymous(seconds) as memory:
        if what == REGISTER:
            how = Budget.of("90", "0.000000001"), Relation.ADD_REMOVE, "record"
            register(home, "d", folder / "rows", folder / "schema.yaml", *how)
        else:
            learner, parameters = JOBS[what]
            job.train(home, JobRequest("d", learner, "2", parameters=parameters), by="benchmark")
    found: Line = {"cpu": time.process_time() - processor, "seconds": time.perf_counter() - clock}
    found["first"] = os.sched_getscheduler(0) != os.SCHED_OTHER
    if len(times) > 1:
        for figure, stamps in {"ms": times, "clock_ms": clocks}.items():
            found[figure] = median([1000 * (after - before) for before, after in pairwise(stamps)][-LAST:])
    return found | {"anonymous_mb": memory.most}


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


def turns(rows: int, place: Path | None, count: int, processors: Sequence[int]) -> list[Line]:
    """Registration and a round of LazyBB on one and on two of the `processors`, in turns."""
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder, lines = Path(name), []
        write(folder, rows)
        for turn in range(count):
            for many in PROCESSORS:
                shutil.rmtree(folder / "home", ignore_errors=True)
                for what in (REGISTER, ROUND):
                    command = [sys.executable, "-m", "benchmarks.scale", "--one", name, what, "--on"]
                    command += [str(processor) for processor in processors[:many]]
                    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE)
                    about = {
                        "rows": rows,
                        "what": f"{what}: clock",
                        "turn": turn,
                        "on": many,
                        "load": os.getloadavg()[0],
                    }
                    lines.append({**about, **json.loads(done.stdout.splitlines()[-1])})
                    print(json.dumps(lines[-1]), flush=True)
        return lines


def _second_processor(lines: Sequence[Line]) -> str:
    """What the last turns took by the clock, and the part that is of what one processor took."""
    body = ""
    for what, figure, unit in ((REGISTER, "seconds", "s"), (ROUND, "clock_ms", "ms")):
        found = {(line["turn"], line["on"]): line for line in lines if line["what"] == f"{what}: clock"}
        one, two = ([found[turn, many][figure] for turn, on in sorted(found) if on == many] for many in PROCESSORS)
        shares = [after / before for before, after in zip(one, two, strict=True)]
        told = " ".join(f"{share:.2f}" for share in shares)
        body += f"| {what}, {unit} | {median(one):.1f} | {median(two):.1f} | {median(shares):.2f} | {told} |\n"
    load = f"load up to {max(line['load'] for line in lines):.1f}"
    first = ", ahead of all else" if all(line["first"] for line in lines) else ""
    return f"""
## A second processor

{lines[-1]["rows"]:,} rows by the clock, in turns with one processor and with two ({load}{first}); the bound is .65 of
the time.

| the middle one | one | two | part | turn by turn |
|---|---:|---:|---:|---|
{body}"""


BESIDE = """
## Beside others, on the same rows in the same run

The same codes, one thread each. **LightGBM and XGBoost are not private**; XGBoost reads its rows from files (external
memory), as we do. A stump is one cut of one feature, as a round of lazybb is; a term is one feature of DP-EBM once, as
a release of ebm is, from the difference of two fits: DP-EBM holds its rows in memory. Both do the same for each row:
add what was released last to its score, find the residual by its class, add that to the bin of one feature. DP-EBM
does so in vectors of floats. We look the residual up in a public table of whole numbers and add 64 bits, so that the
sum is exact and the same for any split: of 13.3 ms at 1e7 rows 2.6 are the scores, 7.5 the look-up, 2.8 the sums.

At 1e8 rows nobody else was asked. By what they take at 1e6 and 1e7, LightGBM would hold 8 to 10 GB, XGBoost 4 to 5, and
the four of them would take 20 minutes of a processor, most of it to bin rows; DP-EBM would hold 21 GB, of the 24 that
this machine has.

"""


def report(lines: Sequence[Line]) -> str:
    """The page, from the lines alone. Of two lines about the same thing the later one counts."""
    clocks = [line for line in lines if "turn" in line]
    lines = [line for line in lines if "turn" not in line]
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
    beside = (
        BESIDE
        + table("ms", "".join(row(what, "ms") for what in others))
        + "\n"
        + table("MB", "".join(row(what, "anonymous_mb", digits=0) for what in others))
    )
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

{table("s", "".join(row(what, "cpu", digits=1) for what in (REGISTER, *JOBS)))}\
{_second_processor(clocks) if clocks else ""}{beside if others else ""}"""


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
    parser.add_argument(
        "--threads", type=int, default=0, metavar="TURNS", help="turns of one and of two processors instead"
    )
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--on", type=int, nargs="*", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.one:
        if asked.on:
            os.sched_setaffinity(0, asked.on)
        folder, what = asked.one
        found = one_peer(Path(folder), what) if what in PEERS else one(Path(folder), what, 0.25 if asked.on else 0.01)
        print(json.dumps(found))
        return
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, processors[:1])  # one processor, for what is started as well
    lines = (
        [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out and asked.out.exists() else []
    )
    for rows in asked.rows:
        if asked.threads:
            found = turns(rows, asked.place, asked.threads, processors)
        else:
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

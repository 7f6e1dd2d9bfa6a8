"""Fit time and peak memory of every learner by its defaults beside interpret's DP-EBM as shipped, LightGBM and
HistGradientBoosting, on the same rows in one run; what one boosting round takes; what a fit from a file takes.

    python -m benchmarks.speed                                    # 1e4 and 1e5 made rows, Adult
    python -m benchmarks.speed --rows 10000 100000 1000000 --out benchmarks/results/speed.jsonl --report speed.md

Every figure comes from a process of its own, whose imports and compiled code are warm: seconds by the clock and of all
its threads together, and the largest resident size from the moment its rows stand in memory. The least of `--repeat`
runs counts: other work on the machine only ever adds. Peers that are not installed are left out. Results are lines of
JSON; the report is written from them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from models.features.features import NumericFeature
from training.learners import LEARNERS as OURS
from training.rows.schema.schema import Schema, parse_schema
from training.rows.tables.data import encode_column, encode_labels

ROOT = Path(__file__).parent.parent
ADULT = ROOT / "examples" / "data"
FEATURES, BINS = 20, 32
EPSILON, DELTA = "1", "0.000000001"
DP_EBM, BOUND = "dp-ebm", 0.25
Line = dict[str, Any]
Fit = Callable[[Schema, pa.Table], Callable[[], object]]


def made(rows: int) -> tuple[bytes, pa.Table]:
    """Made rows: 20 numbers in [0, 1), a label that depends on five of them. Not private, so any generator will do."""
    random = np.random.default_rng(rows)
    cells = random.random((FEATURES, rows))
    score = cells[:3].sum(axis=0) - 2 * np.abs(cells[3] - 0.5) * cells[4] - 1.25
    labels = (score + 0.4 * random.standard_normal(rows) > 0).astype(np.int8)
    features = "".join(f"  x{f}: {{type: numeric, range: [0, 1], bins: {BINS}}}\n" for f in range(FEATURES))
    schema = f"target: {{name: y, classes: [0, 1]}}\nrecords: {rows}\nfeatures:\n{features}"
    return schema.encode(), pa.table({**{f"x{f}": cells[f] for f in range(FEATURES)}, "y": labels})


def rows_named(name: str) -> tuple[bytes, pa.Table]:
    if name == "adult":
        return (ADULT / "adult.schema.yaml").read_bytes(), pq.read_table(ADULT / "adult_train.parquet")
    return made(int(name))


def matrix(schema: Schema, table: pa.Table) -> tuple[NDArray[np.float64], NDArray[np.uint8], list[bool]]:
    """For the peers: numbers as they are and categories as codes, (rows, features); labels; which are categories."""
    numeric = [isinstance(feature, NumericFeature) for feature in schema.features]
    columns = [table[feature.name].combine_chunks() for feature in schema.features]
    cells = np.empty((len(columns), len(table)))
    for row, is_number, feature, column in zip(cells, numeric, schema.features, columns, strict=True):
        row[:] = column.to_numpy(zero_copy_only=False) if is_number else encode_column(feature, column)
    labels = encode_labels(schema, table[schema.target].combine_chunks())
    return cells.T, labels, [not number for number in numeric]


def ours(name: str) -> Fit:
    def fit(schema: Schema, table: pa.Table) -> Callable[[], object]:
        rows, labels = table.drop_columns([schema.target]), table[schema.target]
        return lambda: OURS[name](schema=schema, epsilon=EPSILON, delta=DELTA).fit(rows, labels)

    return fit


def dp_ebm(schema: Schema, table: pa.Table) -> Callable[[], object]:
    from interpret.privacy import DPExplainableBoostingClassifier

    cells, labels, categories = matrix(schema, table)
    kinds = ["nominal" if category else "continuous" for category in categories]
    bounds = {
        index: (feature.edges[0], feature.edges[-1])
        for index, feature in enumerate(schema.features)
        if isinstance(feature, NumericFeature)
    }
    asked = {"feature_types": kinds, "privacy_bounds": bounds, "epsilon": float(EPSILON), "delta": float(DELTA)}
    return lambda: DPExplainableBoostingClassifier(**asked).fit(cells, labels)


def lightgbm(schema: Schema, table: pa.Table) -> Callable[[], object]:
    from lightgbm import LGBMClassifier

    cells, labels, categories = matrix(schema, table)
    named = [index for index, category in enumerate(categories) if category]
    return lambda: LGBMClassifier(verbose=-1).fit(cells, labels, categorical_feature=named)


def hist_gradient_boosting(schema: Schema, table: pa.Table) -> Callable[[], object]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    cells, labels, categories = matrix(schema, table)
    return lambda: HistGradientBoostingClassifier(categorical_features=categories).fit(cells, labels)


LEARNERS: dict[str, tuple[Fit, str]] = {
    **{name: (ours(name), "numba") for name in OURS},
    DP_EBM: (dp_ebm, "interpret-core"),
    "lightgbm": (lightgbm, "lightgbm"),
    "hist-gradient-boosting": (hist_gradient_boosting, "scikit-learn"),
}
TITLES = {
    **{name: f"{name}, by its defaults" for name in OURS},
    DP_EBM: "DP-EBM (interpret), as shipped",
    "lightgbm": "LightGBM, not private",
    "hist-gradient-boosting": "HistGradientBoosting, not private",
}


def installed(learner: str) -> bool:
    try:
        return bool(version(LEARNERS[learner][1]))
    except PackageNotFoundError:
        return False


def memory() -> tuple[float, float]:
    """(resident now, most since the last `forget_peak`) in MB."""
    words = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    sizes = {line[0]: int(line[1]) / 1024 for line in words if line and line[-1] == "kB"}
    return sizes["VmRSS:"], sizes["VmHWM:"]


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def timed(work: Callable[[], object]) -> Line:
    forget_peak()
    before = memory()[0]
    clock, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work()
    seconds, cpu = time.perf_counter() - clock, time.process_time() - processor
    return {"seconds": seconds, "cpu": cpu, "before_mb": before, "peak_mb": memory()[1]}


def one_fit(learner: str, name: str) -> Line:
    fit, package = LEARNERS[learner]
    warm, rows = made(10_000), rows_named(name)  # as much as learners ask all they ever ask of: cut points, too
    fit(parse_schema(warm[0]), warm[1])()
    schema, table = parse_schema(rows[0]), rows[1]
    about = {"rows": len(table), "features": len(schema.features), "version": version(package)}
    return {**about, **timed(fit(schema, table))}


def one_file(_: str, name: str) -> Line:
    """Register a Parquet file and train on it by the defaults: all of it in this process, rows on disk."""
    from accountant.home import Home
    from dpserve_verify.privacy.budget import Budget, Relation
    from training.datasets.datasets import register
    from training.jobs import job
    from training.requests import JobRequest

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        command = [sys.executable, "-m", "benchmarks.speed", "--write", folder, "--rows", name]
        subprocess.run(command, check=True, cwd=ROOT)
        os.environ["DPSERVE_HOME"] = str(place / "home")
        home, rows = Home.init(), int(name)

        def work() -> None:
            budget = Budget.of("2", DELTA)  # the job asks for less than all of it
            register(home, "d", place / "rows.parquet", place / "schema.yaml", budget, Relation.ADD_REMOVE, None)
            job.train(home, JobRequest("d", "lazybb", EPSILON), by="benchmark")

        found = timed(work)
    return {"rows": rows, "features": FEATURES, "bins_mb": rows * FEATURES / 2**20, **found}


def one_round(_: str, name: str) -> Line:
    """A boosting round: apply the last vote, then the weighted sum of every feature's codes. Least of many, in ms."""
    from models.parts.votes import Vote
    from training.rows.partitions import threads as engine
    from training.rows.partitions.rows import Rows

    random, rows = np.random.default_rng(0), int(name)
    bins = random.integers(0, BINS, (FEATURES, rows), dtype=np.uint8)
    labels = random.integers(0, 2, rows, dtype=np.uint8)
    found: Line = {"rows": rows, "features": FEATURES}
    for threads in sorted({1, engine.THREADS}):
        engine.PARALLEL_CELLS, engine.THREADS = (1, threads) if threads > 1 else (1 << 62, engine.THREADS)
        held = Rows(bins, labels, [BINS + 1] * FEATURES)
        votes: tuple[Vote, ...] = ()
        best: list[tuple[float, float]] = []
        for turn in range(20):
            votes = (*votes, Vote("above", turn % FEATURES, BINS // 2, 1))
            weights = random.integers(0, 1 << 32, 2 * len(votes) + 1)
            clock, processor = time.perf_counter(), time.process_time()
            held.signed_sums(votes, weights, len(votes))
            best.append((time.perf_counter() - clock, time.process_time() - processor))
        found[f"ms_{threads}"], found[f"cpu_ms_{threads}"] = (1000 * min(column) for column in zip(*best, strict=True))
    return found | {"numpy_ms": 1000 * min(numpy_round(bins, labels) for _ in range(3))}


def numpy_round(bins: NDArray[np.uint8], labels: NDArray[np.uint8]) -> float:
    """The same in NumPy, for scale: seconds of one pass."""
    weights = np.exp(-np.arange(3.0))
    margins = np.zeros(labels.size, np.int64)
    clock = time.perf_counter()
    margins += np.where(bins[0] > BINS // 2, 1, -1)
    signed = np.where(labels > 0, 1, -1) * weights[margins + 1]
    for codes in bins:
        np.bincount(codes, signed, BINS + 1)
    return time.perf_counter() - clock


ONES: dict[str, Callable[[str, str], Line]] = {"fit": one_fit, "file": one_file, "round": one_round}


def measure(what: str, learner: str, name: str, repeat: int, timeout: float) -> Line:
    """Least seconds and largest memory of `repeat` processes. The machine's load is told with them."""
    command = [sys.executable, "-m", "benchmarks.speed", "--one", what, learner, name]
    runs: list[Line] = []
    for _ in range(repeat):
        try:
            done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, timeout=timeout)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            runs.append({"over": timeout})
    best = {
        key: (max if key.endswith("_mb") else min)(run[key] for run in runs) if isinstance(value, float) else value
        for key, value in runs[0].items()
    }
    head = {
        "what": what,
        "learner": learner,
        "data": "adult" if name == "adult" else "made",
        "load": os.getloadavg()[0],
    }
    return {**head, **best}


def table_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] + ["---:"] * (len(head) - 1), *rows))


def report(lines: Sequence[Line]) -> str:
    """The page, from the lines alone. Of two lines about the same thing the later one counts."""
    latest = {(line["what"], line["learner"], line["data"], line["rows"]): line for line in lines if "rows" in line}
    kinds = {what: [line for key, line in latest.items() if key[0] == what] for what in ONES}
    cpus, load = os.cpu_count(), max((line["load"] for line in lines), default=0.0)
    parts = [
        "# Speed and memory\n",
        f"Written by `benchmarks/speed.py` on {platform.machine()} with {cpus} processors, Python "
        f"{platform.python_version()}; load of the machine up to {load:.1f}. Other work adds to clock times: the "
        "processors' seconds (all threads together) and the ratios are what to read.\n",
        *(_fits(kinds["fit"]) if kinds["fit"] else []),
        *(_rounds(kinds["round"]) if kinds["round"] else []),
        *(_files(kinds["file"]) if kinds["file"] else []),
    ]
    return "\n".join(parts)


def _fits(lines: Sequence[Line]) -> list[str]:
    base = {(line["data"], line["rows"]): line for line in lines if line["learner"] == DP_EBM}
    rows = []
    for line in sorted(lines, key=lambda line: (line["data"], line["rows"], list(LEARNERS).index(line["learner"]))):
        peer = base.get((line["data"], line["rows"]))
        ratios = [f"{line[key] / peer[key]:.3f}" if peer else "" for key in ("seconds", "cpu")]
        figures = [f"{line['seconds']:.2f}", f"{line['cpu']:.2f}", *ratios, f"{line['before_mb']:.0f}"]
        name = f"{line['data']}, {line['rows']:,} x {line['features']}"
        rows.append([name, TITLES[line["learner"]], *figures, f"{line['peak_mb']:.0f}"])
    head = [
        "rows",
        "learner",
        "seconds",
        "processor seconds",
        "of DP-EBM's",
        "of its processor's",
        "MB before",
        "MB peak",
    ]
    said = (
        f"A fit from a table in memory to the model, epsilon {EPSILON}, delta {DELTA}. Ours reads the table, bins it, "
        f"calibrates and boosts. The bound is a quarter ({BOUND}) of DP-EBM's time.\n"
    )
    return ["## Fit\n", said, table_of(head, rows)]


def _rounds(lines: Sequence[Line]) -> list[str]:
    most = max(int(key[3:]) for line in lines for key in line if key.startswith("ms_"))
    rows = [
        [
            f"{line['rows']:,} x {line['features']}",
            *(f"{line[key]:.2f}" for key in ("ms_1", "cpu_ms_1", f"ms_{most}", f"cpu_ms_{most}", "numpy_ms")),
            f"{line['numpy_ms'] / line[f'ms_{most}']:.0f}",
        ]
        for line in sorted(lines, key=lambda line: int(line["rows"]))
    ]
    head = ["ms a round", "1 thread", "processor", f"{most} threads", "processor", "NumPy", f"NumPy / {most} threads"]
    return [
        "## A boosting round\n",
        "The last vote applied, and the weighted sums of all candidates.\n",
        table_of(head, rows),
    ]


def _files(lines: Sequence[Line]) -> list[str]:
    rows = [
        [
            f"{line['rows']:,} x {line['features']}",
            *(f"{line[key]:.0f}" for key in ("bins_mb", "before_mb", "peak_mb")),
            f"{(line['peak_mb'] - line['before_mb']) / line['bins_mb']:.2f}",
            f"{line['seconds']:.1f}",
        ]
        for line in sorted(lines, key=lambda line: int(line["rows"]))
    ]
    head = ["rows", "MB of packed bins", "MB before", "MB peak", "(peak - before) / bins", "seconds"]
    said = "A Parquet file is registered, and a model trained on it by the defaults, in one process.\n"
    return ["## From a file to a model\n", said, table_of(head, rows)]


def write_rows(folder: Path, rows: int) -> None:
    schema, table = made(rows)
    (folder / "schema.yaml").write_bytes(schema)
    pq.write_table(table, folder / "rows.parquet")


def plan(asked: argparse.Namespace) -> list[tuple[str, str, str]]:
    names = [str(rows) for rows in asked.rows]
    fits = [("fit", learner, name) for name in ["adult", *names] for learner in asked.learners if installed(learner)]
    return [
        step
        for step in [
            *fits,
            *(("round", "lazybb", name) for name in names),
            *(("file", "lazybb", name) for name in names),
        ]
        if step[0] in asked.what
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    parser.add_argument("--what", nargs="+", choices=ONES, default=list(ONES))
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for one process")
    parser.add_argument("--out", type=Path, help="append the lines of JSON here; the report reads all of them")
    parser.add_argument("--report", type=Path, help="write the page here")
    parser.add_argument("--only-report", action="store_true", help="measure nothing")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(ONES[asked.one[0]](*asked.one[1:])))
    elif asked.write:
        write_rows(asked.write, asked.rows[0])
    else:
        run(asked)


def run(asked: argparse.Namespace) -> None:
    known = asked.out.read_text().splitlines() if asked.out and asked.out.exists() else []
    lines = [json.loads(text) for text in known]
    for step in [] if asked.only_report else plan(asked):
        lines.append(measure(*step, asked.repeat, asked.timeout))
        print(json.dumps(lines[-1]), flush=True)
        if asked.out:
            with asked.out.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    page = report(lines)
    if asked.report:
        asked.report.write_text(page)
    print(page)


if __name__ == "__main__":
    main()

"""How near are synthetic rows, and what is a model of them worth? studies/statements/synthetic.md.

    python -m studies.statements.synthetic --data DIR --out LINES [--sets ..] [--epsilons ..] [--seeds 2]
    python -m studies.statements.synthetic --report

Rows are registered, a profile is paid for and rows are written from it, as by the command line. `--tasks FOLDER`
writes the same splits in bins for `synthetic_peers.py`, whose lines go into the same file.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from accountant.home import Home
from benchmarks import datasets, peers
from benchmarks.lines import append_lines, read_lines
from benchmarks.peers import Task
from benchmarks.utility import Run, judge, task_of
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import NumericFeature
from studies.statements import synthetic_peers
from training.datasets.datasets import register
from training.jobs import job
from training.measuring.profile import synthetic_rows
from training.requests import ProfileRequest
from training.rows.tables.data import columns_of

HERE = Path(__file__).parent
LINES = HERE / "synthetic.jsonl"
DELTA = "0.000001"
SETS = (
    "adult",
    "bank",
    "telco",
    "codrna",
    "abalone",
    "page_blocks",
    "yeast",
    "breast_wisconsin",
    "banknote",
    "transfusion",
)
BESIDE = {"synthetic": "synthesize", "aim-2024": "AIM", "mst-2024": "MST", "sample": "true rows drawn again"}
FIGURES = {"columns": 4, "pairs": 4, "triples": 4, "auroc": 3, "cpu": 1, "mb": 0}


def in_bins(task: Task, table: pa.Table) -> NDArray[np.int64]:
    columns = columns_of(task.schema, table)
    return np.stack([feature.encode(columns[feature.name]) for feature in task.schema.features], 1).astype(np.int64)


def split_in_bins(task: Task) -> dict[str, Any]:
    """What `synthetic_peers` reads."""
    features = task.schema.features
    return {
        "train": in_bins(task, task.train), "labels": task.labels(task.train), "test": in_bins(task, task.test),
        "answers": task.labels(task.test), "widths": [feature.bins for feature in features],
        "named": [not isinstance(feature, NumericFeature) for feature in features], "classes": task.classes,
    }  # fmt: skip


def ours(task: Task, split: dict[str, Any]) -> dict[str, Any]:
    """A profile that is paid for, and rows of it, as a user has them."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        pq.write_table(task.train, place / "rows.parquet")
        (place / "schema.yaml").write_bytes(task.schema_bytes)
        home = Home.init({"DPSERVE_HOME": str(place / "home")})
        budget = Budget.of(task.epsilon, DELTA)
        register(home, "set", place / "rows.parquet", place / "schema.yaml", budget, Relation.ADD_REMOVE, "record")
        clock, processor = time.perf_counter(), time.process_time()
        done = job.measure(home, ProfileRequest("set", task.epsilon, around="auto"), by="study")
        out = place / "set.synthetic.parquet"
        synthetic_rows.from_profile(home, done["job"], out, None, task.seed, "set")
        spent = {"seconds": time.perf_counter() - clock, "cpu": time.process_time() - processor}
        table = pq.read_table(out)
        home.ledger.log.database.close()
    rows = np.column_stack([in_bins(task, table), task.labels(table)])
    return synthetic_peers.judge(split, rows, task.seed) | {name: round(value, 1) for name, value in spent.items()}


def learnt(task: Task, method: str) -> dict[str, Any]:
    answer = peers.METHODS[method].run(task, {})
    return {"auroc": round(judge(task.labels(task.test), answer.probabilities)["auroc"], 5)}


def run(
    sets: Sequence[str], epsilons: Sequence[str], seeds: int, data: str | None, out: Path, tasks: Path | None
) -> None:
    had = {(line["dataset"], line["method"], line["epsilon"], line["seed"]) for line in read_lines(out)}
    for seed in range(seeds):
        for epsilon in epsilons:
            for name in sets:
                task = task_of(datasets.load(name, data), Run(name, "", epsilon, DELTA, seed))
                split = split_in_bins(task)
                if tasks is not None:
                    np.savez(tasks / f"{name}_{seed}.npz", **split)
                for method in ("synthetic", "auto", "open"):
                    key = (name, method, epsilon if method != "open" else None, seed)
                    if key in had:
                        continue
                    had.add(key)
                    known = {"auto": "auto", "open": "hist-gradient-boosting"}
                    found = ours(task, split) if method == "synthetic" else learnt(task, known[method])
                    append_lines(out, dict(zip(("dataset", "method", "epsilon", "seed"), key, strict=True)) | found)


def tables(lines: Sequence[dict[str, Any]]) -> str:
    """Means over the seeds that a cell has, as the page has them."""
    epsilons = sorted({line["epsilon"] for line in lines if line["epsilon"]}, key=float)
    rows = ["| dataset | epsilon | pairs, synthesize | AIM | AUROC, synthesize | AIM | `auto` | not private |"]
    rows.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in [each for each in SETS if any(line["dataset"] == each for line in lines)]:
        for epsilon in epsilons:
            cells = [_mean(lines, name, method, epsilon, "pairs") for method in ("synthetic", "aim")]
            cells += [_mean(lines, name, method, epsilon, "auroc") for method in ("synthetic", "aim", "auto")]
            cells.append(_mean(lines, name, "open", None, "auroc"))
            rows.append(f"| {name} | {epsilon} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def beside(lines: Sequence[dict[str, Any]]) -> str:
    """The releases of AIM and MST that need numpy alone, on the very splits."""
    rows = [
        "| dataset | method | splits | columns | pairs | triples | AUROC | processor, s | MB |",
        "|---|---|" + "---:|" * 7,
    ]
    for name in SETS:
        kinds = {
            method: [line for line in lines if (line["dataset"], line["method"]) == (name, method)] for method in BESIDE
        }
        seeds = {line["seed"] for line in kinds["mst-2024"]}
        for method, found in kinds.items():
            same = [line for line in found if line["epsilon"] == "1" and line["seed"] in seeds]
            if not same:
                continue
            values = [[line[figure] for line in same if figure in line] for figure in FIGURES]
            cells = [
                f"{np.mean(each):.{digits}f}" if each else "-"
                for each, digits in zip(values, FIGURES.values(), strict=True)
            ]
            rows.append(f"| {name} | {BESIDE[method]} | {len(same)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _mean(lines: Sequence[dict[str, Any]], name: str, method: str, epsilon: str | None, figure: str) -> str:
    key = (name, method, epsilon)
    found = [line for line in lines if (line["dataset"], line["method"], line["epsilon"]) == key]
    values = [line[figure] for line in found if figure in line]
    return f"{np.mean(values):.3f}" if values else "late" if found else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path, default=LINES)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--epsilons", nargs="+", default=["1", "0.5", "4"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tasks", type=Path)
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    if asked.report:
        lines = list(read_lines(asked.out))
        print(tables(lines), beside(lines), sep="\n\n")
    else:
        run(asked.sets, asked.epsilons, asked.seeds, asked.data, asked.out, asked.tasks)


if __name__ == "__main__":
    main()

"""Accuracy against epsilon: our learners by their defaults, every private peer that installs, and open baselines, on
the same rows in one run. Add/remove neighbours, random 80/20 splits, one delta.

    python -m benchmarks.utility                                     # Adult, which is shipped
    python -m benchmarks.utility --data DIR --datasets bound others  # all of it: hours
    python -m benchmarks.utility --table FILE --schema FILE          # rows of your own
    python -m benchmarks.utility --data DIR --out studies/accuracy --again lazybb  # one learner of the report anew

Every result is a line of JSON in `utility.jsonl.gz` of the folder `--out`; what stands there is not run again. The
report is written from that file alone: utility.md and its pictures, beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import datasets, peers, report
from benchmarks.datasets import Dataset
from benchmarks.lines import append_lines, read_lines, write_lines
from benchmarks.peers import Task
from training.rows.schema.schema import parse_schema

EPSILONS = ("0.05", "0.1", "0.25", "0.5", "1", "2", "4", "8")
DELTA = "0.000001"
TRAIN_SHARE = 0.8
BINS = 15  # of equal mass, of a picture of calibration
FLOOR = 1e-6  # of a probability, for the log loss alone
OUT = datasets.HERE.parent / "build" / "utility"
LINES = "utility.jsonl.gz"
IDENTITY = ("dataset", "method", "epsilon", "delta", "seed")
Line = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One line of the file: a method on one split of one dataset at one epsilon (None: the method has none)."""

    dataset: str
    method: str
    epsilon: str | None
    delta: str
    seed: int

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.dataset, self.method, self.epsilon, self.delta if self.epsilon else None, self.seed)


def read(path: Path) -> dict[tuple[Any, ...], Line]:
    """The lines of a results file by their key; of two with one key the later one."""
    return {Run(*(line[name] for name in IDENTITY)).key: line for line in read_lines(path)}


def tidied(path: Path) -> list[Line]:
    """The file again without lines that later ones replaced, in a lasting order; its lines."""
    lines = sorted(read(path).values(), key=lambda line: [str(line[name]) for name in IDENTITY])
    write_lines(path, lines)
    return lines


def runs(
    sets: Sequence[str], methods: Sequence[str], epsilons: Sequence[str], delta: str, seeds: Sequence[int]
) -> Iterator[Run]:
    """Seed by seed: of a run that is cut short every dataset has the first seeds."""
    for seed in seeds:
        for dataset in sets:
            for method in methods:
                free = peers.parse(method)[0].family == "open"
                for epsilon in (None,) if free else epsilons:
                    yield Run(dataset, method, epsilon, delta, seed)


def task_of(dataset: Dataset, run: Run, sample: int | None = None) -> Task:
    """The split that belongs to the run's seed. Training rows: 80 % (of `sample` rows, if given); `records` says 80 %
    of the schema's public number, never what was counted.
    """
    size = dataset.table.num_rows
    order = np.random.default_rng(run.seed).permutation(size)[: sample or size]
    cut = int(TRAIN_SHARE * len(order))
    public = round(TRAIN_SHARE * (sample or parse_schema(dataset.schema_bytes).records))
    schema = datasets.with_records(dataset.schema_bytes, public)
    train, test = dataset.table.take(order[:cut]), dataset.table.take(order[cut:])
    return Task(schema, train, test, run.epsilon or "1", run.delta, run.seed)


def judge(labels: Any, probabilities: Any) -> Line:
    """AUROC (of the last class; of K classes the mean of one against the rest), accuracy, log loss; of two classes also
    the slope of the truth on what was said, the expected calibration error, and the BINS that it comes from."""
    from sklearn.metrics import roc_auc_score

    kinds = [k for k in range(probabilities.shape[1]) if 0 < np.count_nonzero(labels == k) < len(labels)]
    areas = [roc_auc_score(labels == k, probabilities[:, k]) for k in (kinds[1:] if len(kinds) == 2 else kinds)]
    held = np.clip(probabilities[np.arange(len(labels)), labels], FLOOR, 1)
    found: Line = {
        "auroc": float(np.mean(areas)) if areas else float("nan"),
        "accuracy": float(np.mean(np.argmax(probabilities, axis=1) == labels)),
        "logloss": float(-np.mean(np.log(held))),
    }
    if probabilities.shape[1] == 2:
        truth, chance = labels == 1, probabilities[:, 1]
        found["slope"], found["ece"] = calibration(truth, chance)
        bins = np.array_split(np.argsort(chance, kind="stable"), BINS)
        found["bins"] = [[float(chance[each].mean()), float(truth[each].mean())] for each in bins if each.size]
    return found


def calibration(truth: NDArray[np.bool_], chance: NDArray[np.float64]) -> tuple[float, float]:
    """Slope of the truth on the log-odds of what was said (1: they mean what they say), and the expected calibration
    error over 15 bins of equal mass."""
    chance = np.clip(chance, 1e-6, 1 - 1e-6)
    odds, fit = np.log(chance / (1 - chance)), np.zeros(2)
    design = np.stack([np.ones(odds.size), odds])
    for _ in range(50):
        said = 1 / (1 + np.exp(-fit @ design))
        curved = (design * (said * (1 - said))) @ design.T + 1e-9 * np.eye(2)
        fit = fit + np.clip(np.linalg.solve(curved, design @ (truth - said)), -2, 2)
    bins = np.array_split(np.argsort(chance, kind="stable"), 15)
    error = sum(abs(float(truth[b].sum() - chance[b].sum())) for b in bins) / truth.size
    return float(fit[1]), float(error)


def perform(run: Run, task: Task, warmed: set[str]) -> Line | None:
    """The run's line; None where the method does not take such a task. A peer's own failure is part of its line."""
    method, parameters = peers.parse(run.method)
    if not method.fits(task):
        return None
    line: Line = {"dataset": run.dataset, "method": run.method, "epsilon": run.epsilon, "delta": run.delta}
    line |= {"seed": run.seed, "rows": task.train.num_rows, "features": len(task.schema.features)}
    try:
        if run.method not in warmed:  # imports and compiled code are not what is measured
            method.run(task, parameters)
            warmed.add(run.method)
        answer = method.run(task, parameters)
    except Exception as error:
        if method.family == "ours":
            raise
        return line | {"error": f"{type(error).__name__}: {error}"[:300]}
    found = judge(task.labels(task.test), answer.probabilities) | {"seconds": answer.seconds, "cpu": answer.cpu}
    return line | {name: np.round(value, 6).tolist() for name, value in found.items()}


def play(wanted: Sequence[Run], sets: dict[str, Dataset], out: Path, again: Sequence[str], sample: int | None) -> None:
    """Run what `out` does not have yet (and all of `again`), a line after each; a killed run goes on where it was."""
    had, warmed = read(out), set[str]()
    todo = [run for run in wanted if run.key not in had or run.method.partition(":")[0] in again]
    for number, run in enumerate(todo, 1):
        line = perform(run, task_of(sets[run.dataset], run, sample), warmed)
        if line is None:
            continue
        append_lines(out, line)
        said = line.get("error") or f"AUROC {line['auroc']:.4f}  accuracy {line['accuracy']:.4f}  {line['cpu']:.2f} s"
        where = f"[{number}/{len(todo)}] {run.dataset} {run.method} epsilon {run.epsilon} seed {run.seed}"
        print(f"{where}: {said}", flush=True)


def own(table: Path, schema: Path) -> Dataset:
    """Rows and schema of the user's."""
    raw = schema.read_bytes()
    return Dataset(table.stem, pq.read_table(table), parse_schema(raw).target, raw)


def chosen(asked: argparse.Namespace) -> dict[str, Dataset]:
    if asked.table is not None:
        mine = own(asked.table, asked.schema)
        return {mine.name: mine}
    folder = datasets.folder_of(asked.data)
    groups = {"bound": datasets.BOUND, "others": datasets.others()}
    fallback = ["bound"] if folder else ["adult"]
    names = [name for group in asked.datasets or fallback for name in groups.get(group, (group,))]
    return {name: datasets.load(name, folder) for name in names}


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the Parquet files (or DPSERVE_DATA)")
    parser.add_argument("--datasets", nargs="+", help="names, or the groups `bound` (the four) and `others`")
    parser.add_argument("--table", type=Path, help="one Parquet file of your own; needs --schema")
    parser.add_argument("--schema", type=Path)
    parser.add_argument("--epsilons", default=",".join(EPSILONS), help="comma between them")
    parser.add_argument("--delta", default=DELTA)
    parser.add_argument("--seeds", type=int, default=5, help="how many splits")
    parser.add_argument("--first-seed", type=int, default=0, help="of so many")
    parser.add_argument("--methods", nargs="+", default=list(peers.METHODS), help=f"of {', '.join(peers.METHODS)}")
    parser.add_argument("--again", nargs="+", default=[], help="methods to run although their lines are there")
    parser.add_argument("--sample", type=int, help="so many random rows only")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the lines and the report")
    parser.add_argument("--no-report", action="store_true")
    asked = parser.parse_args(arguments)
    if (asked.table is None) != (asked.schema is None):
        parser.error("--table and --schema: both or neither")
    return asked


def main(arguments: Sequence[str] | None = None) -> None:
    asked = parsed(arguments)
    epsilons = [f"{float(text):g}" for text in asked.epsilons.split(",")]
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    try:
        sets = chosen(asked)
        wanted = list(dict.fromkeys(runs(tuple(sets), asked.methods, epsilons, asked.delta, seeds)))
    except (KeyError, FileNotFoundError) as error:
        sys.exit(f"utility: {error.args[0] if isinstance(error, KeyError) else error}")
    asked.out.mkdir(parents=True, exist_ok=True)
    play(wanted, sets, asked.out / LINES, asked.again, asked.sample)
    if not asked.no_report:
        print(f"report: {report.write(tidied(asked.out / LINES), asked.out)}")


if __name__ == "__main__":
    main()

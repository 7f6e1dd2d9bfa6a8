"""When private tuning pays: the default rule at all of epsilon, against the best of a random number of runs at the same
price, and against every setting of the grid at all of epsilon (no private choice: nobody knows which one is best).

    python -m studies.defaults.tuning                                  # Adult, which is shipped
    python -m studies.defaults.tuning --data DIR --datasets adult telco --seeds 5
    python -m studies.defaults.tuning --guess 0.01                     # the schema says a hundredth of the records

Accuracy and AUROC on a random fifth that nothing was learnt from. Prints one line of JSON for each job as it is done,
and in the end the table of studies/defaults/tuning.md.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.metrics import roc_auc_score

from benchmarks import datasets
from dpserve_verify.privacy.budget import Budget, Relation
from models.forms.ensemble import Ensemble
from training.learners import PrivateClassifier
from training.learners.parameters import learner_of
from training.requests import TuningRequest
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema, parse_schema
from training.rows.tables.data import columns_of, rows_of
from training.session.session import Public, Session
from training.tuning.selecting import Outcome
from training.tuning.tune import Tuned, tuned_of

EPSILONS = ("0.1", "0.5", "1", "4")
DELTA = "0.000001"
GRIDS: dict[str, dict[str, list[Any]]] = {
    "rounds": {"rounds": ["default", 30, 300]},
    "rounds, weighting": {"rounds": ["default", 30, 300], "weighting": ["exponential", "logistic"]},
}
METHODS = ("default rule", *(f"tuned: {name}" for name in GRIDS), "worst setting", "best setting")


@dataclass(frozen=True)
class Split:
    """Four fifths to learn from, one to look at."""

    schema: Schema
    train: pa.Table
    test: pa.Table
    target: str

    @cached_property
    def rows(self) -> Rows:
        return rows_of(self.schema, self.train, self.train[self.target], Relation.ADD_REMOVE)

    def public(self, epsilon: str) -> Public:
        schema, budget = self.schema, Budget.of(epsilon, DELTA)
        classes, relation = schema.classes, Relation.ADD_REMOVE
        return Public(schema.features, schema.target, classes, schema.records, relation, budget, False)

    def figures(self, ensemble: Ensemble) -> tuple[float, float]:
        """Accuracy and AUROC on the rows held out."""
        columns = columns_of(self.schema, self.test)
        truth = np.asarray(self.test[self.target].to_pylist()).astype(str)
        told = ensemble.predict(columns).astype(str)
        scores = ensemble.probabilities(columns)[:, 1]
        return float(np.mean(told == truth)), float(roc_auc_score(truth == str(ensemble.classes[1]), scores))


def split_of(name: str, folder: str | None, seed: int, guess: float = 1) -> Split:
    """`guess`: how far the public guess of the number of records is off."""
    found = datasets.load(name, folder)
    order = np.random.default_rng(seed).permutation(len(found.table))
    cut = len(order) * 4 // 5
    schema = parse_schema(datasets.with_records(found.schema_bytes, round(cut * guess)))
    return Split(schema, found.table.take(order[:cut]), found.table.take(order[cut:]), found.target)


def learn(split: Split, learner: PrivateClassifier | Tuned, epsilon: str) -> tuple[float, float]:
    public = split.public(epsilon)
    recipe = learner.recipe(public)
    rows = Rows(split.rows.bins, split.rows.labels, split.rows.widths, max(2, split.rows.outputs))
    session = Session(public, recipe.unit, recipe.plan, rows)
    found = learner.learn(session)
    session.close()
    return split.figures(found.ensemble if isinstance(found, Outcome) else found)


def results(split: Split, epsilon: str) -> Iterator[tuple[str, tuple[float, float]]]:
    """Every method on one split at one epsilon. The extremes are those of the widest grid, by AUROC, in hindsight."""
    yield METHODS[0], learn(split, learner_of("lazybb"), epsilon)
    jobs = [tuned_of("lazybb", {}, TuningRequest(grid), False) for grid in GRIDS.values()]
    for method, job in zip(METHODS[1:], jobs, strict=False):
        yield method, learn(split, job, epsilon)
    settings = [learn(split, learner, epsilon) for learner in jobs[-1].learners]
    yield METHODS[-2], min(settings, key=lambda found: found[1])
    yield METHODS[-1], max(settings, key=lambda found: found[1])


def table_of(lines: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over the splits, as Markdown."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        found[line["dataset"], line["epsilon"], line["method"]].append(line)
    head = ["| dataset | ε | method | accuracy | AUROC |", "|---|---|---|---|---|"]
    rows = [
        f"| {name} | {epsilon} | {method} | {_cell(some, 'accuracy')} | {_cell(some, 'auroc')} |"
        for (name, epsilon, method), some in found.items()
    ]
    return "\n".join(head + rows)


def _cell(lines: list[dict[str, Any]], figure: str) -> str:
    values = [line[figure] for line in lines]
    return f"{mean(values):.4f}" + (f" ± {stdev(values):.4f}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder with the datasets that are not shipped")
    parser.add_argument("--datasets", nargs="+", default=["adult"])
    parser.add_argument("--epsilons", nargs="+", default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--guess", type=float, default=1, help="public guess of the records, as a share of the truth")
    asked = parser.parse_args()
    lines: list[dict[str, Any]] = []
    for name in asked.datasets:
        for seed in range(asked.seeds):
            split = split_of(name, asked.data, seed, asked.guess)
            for epsilon in asked.epsilons:
                for method, (accuracy, auroc) in results(split, epsilon):
                    line = {"dataset": name, "epsilon": epsilon, "seed": seed, "method": method}
                    lines.append({**line, "accuracy": accuracy, "auroc": auroc})
                    print(json.dumps(lines[-1]), flush=True)
    print(table_of(sorted(lines, key=lambda line: (line["dataset"], float(line["epsilon"])))))


if __name__ == "__main__":
    main()

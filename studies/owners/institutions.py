"""Institutions that keep their rows, beside one table of all rows and beside one of them by itself: AUROC.

    python -m studies.owners.institutions --out FILE                        # Adult, which is shipped: minutes
    python -m studies.owners.institutions --data DIR --datasets bank eeg california --out FILE

Institutions' sums add up to those of all rows, exactly (tests/local/institution), so it does not matter how many there
are, nor how the rows are cut: a fit is of all rows, with the noise of both aggregators, as `local.rounds` plays it.
A line of JSON for each fit. Adult is judged on its own test file, others on a random fifth. A target that is a number
becomes one of two classes: whether it is above the median.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from accountant.noise.mechanisms import DiscreteGaussian, Mechanism
from benchmarks import datasets
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import Release
from local.reports.shared import AGGREGATORS
from local.rounds import playing
from studies.defaults.tuning import Split, split_of
from training.learners.parameters import learner_of
from training.requests import AUTO
from training.rows.schema.schema import parse_schema
from training.session.session import Integers, Public, Session

DELTA, EPSILONS, PARTS = "0.000001", ("0.1", "0.25", "0.5", "1", "2", "4"), (3, 10, 30)


class TwoNoises(Session):
    """Every sum with the noise of both aggregators."""

    def draw(self, mechanism: Mechanism, exact: Integers, asked: Release) -> Integers:
        """Draw as both do."""
        assert isinstance(mechanism, DiscreteGaussian)
        for _ in range(AGGREGATORS):
            exact = mechanism.draw(exact, asked.sensitivity)
        return exact


def institutions(split: Split, epsilon: str, learner: str = AUTO, **parameters: object) -> float:
    """All of them together, as a campaign asks."""
    budget = Budget.of(epsilon, DELTA)
    asked = playing.rehearse(split.schema, learner, parameters, budget, 1)
    public = playing.public_of(split.schema, budget, 1)
    session = TwoNoises(public, asked.recipe.unit, asked.recipe.plan, split.rows)
    return split.figures(learner_of(asked.learner, json.loads(asked.settings)).learn(session))[1]


def central(split: Split, epsilon: str) -> float:
    """Pooled, by `auto`."""
    public = Public.of(split.schema, Relation.ADD_REMOVE, Budget.of(epsilon, DELTA), False)
    recipe = learner_of(AUTO).recipe(public)
    return split.figures(learner_of(AUTO).learn(Session(public, recipe.unit, recipe.plan, split.rows)))[1]


def alone(split: Split, epsilon: str, parts: int) -> float:
    """One of so many by itself."""
    size = len(split.train) // parts
    schema = replace(split.schema, records=size)
    return central(Split(schema, split.train.slice(0, size), split.test, split.target), epsilon)


def split_at(name: str, folder: str | None, seed: int) -> Split:
    """Rows to learn from, in an order of the seed's."""
    if name in datasets.regressions():
        return _halves(name, folder, seed)
    if name != "adult":
        return split_of(name, folder, seed)
    train, test = datasets.load(name, folder), datasets.load("adult_test", folder)
    order = np.random.default_rng(seed).permutation(len(train.table))
    schema = parse_schema(datasets.with_records(train.schema_bytes, len(order)))
    return Split(schema, train.table.take(order), test.table, train.target)


def _halves(name: str, folder: str | None, seed: int) -> Split:
    """A target above the median, or not, of a set whose target is a number."""
    found = datasets.load(name, folder)
    values = np.asarray(found.table[found.target])
    above = pa.array((values > np.median(values)).astype(np.int64))
    table = found.table.set_column(found.table.column_names.index(found.target), found.target, above)
    order = np.random.default_rng(seed).permutation(len(table))
    train, test = table.take(order[: (cut := len(order) * 4 // 5)]), table.take(order[cut:])
    classed = re.sub(rb"(?m)^(target: .*)range: \[.*?\]", rb"\1classes: [0, 1]", found.schema_bytes)
    schema = parse_schema(datasets.with_records(classed, cut))
    return Split(schema, train, test, found.target)


def main() -> None:
    """Append a line for each fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--datasets", nargs="+", default=["adult"])
    parser.add_argument("--epsilons", nargs="+", default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    for name in asked.datasets:
        for seed in range(asked.seeds):
            split = split_at(name, asked.data, seed)
            for epsilon in asked.epsilons:
                found = {
                    "institutions": institutions(split, epsilon),
                    "institutions, curves": institutions(split, epsilon, "ebm"),
                    "institutions, trees": institutions(split, epsilon, "forest", leaf="residuals", trees=250),
                    "central": central(split, epsilon),
                }
                found |= {f"alone 1/{parts}": alone(split, epsilon, parts) for parts in PARTS}
                for method, auroc in found.items():
                    line = {
                        "dataset": name,
                        "seed": seed,
                        "epsilon": epsilon,
                        "method": method,
                        "auroc": round(auroc, 4),
                    }
                    with asked.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()

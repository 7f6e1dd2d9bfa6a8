"""Trees that select nothing, over institutions: public splits, and of each tree one noisy sum of residuals per leaf.

    python -m studies.owners.tree_sums --data DIR --datasets codrna fashion --epsilons 1 --seeds 1 --grid --out FILE
    python -m studies.owners.tree_sums --data DIR --datasets adult bank eeg --epsilons 1 2 --out FILE

In floats, and calibrated by mu alone: how the settings of `forest` with leaf "residuals" were found, and no mechanism.
What the learner itself is worth measures `studies.owners.institutions`. Cut points are found by noisy counts, as `ebm`
finds them; every answer has the noise of both aggregators. A line of JSON for each fit.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from itertools import product
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import Feature
from studies.defaults.tuning import Split
from studies.owners.institutions import DELTA, split_at
from training.learners.base.cut_points import counted_numbers, cutting, recut
from training.learners.boosting.defaults import strength
from training.learners.boosting.tree_queries import public_cuts, split_tests
from training.learners.ebm.defaults import mu_of
from training.rows import kernels
from training.rows.partitions.rows import Rows
from training.rows.statistics.tree_rows import Cut
from training.rows.tables.data import rows_of
from training.session.session import Integers, Public

Floats = NDArray[np.float64]
FINDING = 0.05  # of the budget, for cut points
MOST_RATE = 0.3
MOST = 1.0  # of a step, in logits


@dataclass(frozen=True)
class Settings:
    """`clip`: of residuals, in chances; `noise`: the deviation, in logits, of what noise adds to a score in all trees
    together, by which a step's rate follows; `apart`: sums by class, whose own size is what a step is divided by, in
    place of sums of both, divided by the rows of a mean leaf.
    """

    trees: int
    depth: int
    clip: float
    noise: float
    apart: bool = False


def leaf_of(bins: NDArray[np.uint8], widths: list[int], cuts: tuple[Cut, ...]) -> NDArray[np.uint8]:
    """The leaf of each row."""
    leaves = np.zeros(bins.shape[1], np.uint8)
    steps = [(cut.leaf, cut.feature, *cut.interval(widths[cut.feature]), new) for new, cut in enumerate(cuts, 1)]
    kernels.trees.descend(bins, 0, leaves, np.array(steps, np.int64))
    return leaves


class Trial:
    """One split at one epsilon: rows in found bins, and what noise is left for trees."""

    def __init__(self, split: Split, epsilon: str, seed: int) -> None:
        budget = Budget.of(epsilon, DELTA)
        public = Public.of(split.schema, Relation.ADD_REMOVE, budget, False)
        self.draw = np.random.default_rng(seed)
        self.mu, self.records = mu_of(budget), public.records
        where = cutting(public, strength(public) / sqrt(2), 64, "auto", None)
        self.features: tuple[Feature, ...] = public.features
        held = rows_of(split.schema, split.test, split.test[split.target], Relation.ADD_REMOVE)
        if where.where != "declared":
            counts = 2 * counted_numbers(public)
            noise = sqrt(2 * counts / FINDING) / self.mu

            def counted(feature: int, of: Integers) -> Floats:
                exact = np.bincount(of, split.rows.cell_counts(feature, of.size))
                return exact + noise * self.draw.normal(size=exact.size)

            self.features = recut(public, where.bins, counted if where.where == "found" else None, noise)
            self.mu *= sqrt(1 - FINDING)
        self.known, self.truth = self._codes(split.rows, where.where)
        self.asked, self.answers = self._codes(held, where.where)
        self.widths = [feature.bins for feature in self.features]

    def _codes(self, rows: Rows, where: str) -> tuple[NDArray[np.uint8], Integers]:
        binned = rows if where == "declared" else rows.binned(self.features)
        return np.ascontiguousarray(binned.bins, np.uint8), np.asarray(binned.labels, np.int64)

    def auroc(self, asked: Settings) -> float:
        """Boosted by the sums, and judged on the rows held out."""
        tests = split_tests(self.features)
        deviation = sqrt(2 * asked.trees) / self.mu
        scores, held, signs = np.zeros(self.truth.size), np.zeros(self.answers.size), self.truth * 2 - 1
        leaves = 1 << asked.depth
        each = 4 * asked.clip * deviation * leaves / self.records  # logits, at a rate of 1
        rate = min(MOST_RATE, asked.noise / (each * sqrt(asked.trees)))
        for number in range(asked.trees):
            cuts = public_cuts(tests, number, asked.depth)
            at = leaf_of(self.known, self.widths, cuts)
            weight = np.minimum(1 / (1 + np.exp(signs * scores)), asked.clip) / asked.clip
            if asked.apart:
                sums = [np.bincount(at, weight * (signs == sign), leaves) for sign in (-1, 1)]
                against, favour = (np.maximum(s + deviation * self.draw.normal(size=leaves), 0) for s in sums)
                step = asked.noise * (favour - against) / (favour + against + 2 * deviation)
            else:
                sums = np.bincount(at, signs * weight, leaves) + deviation * self.draw.normal(size=leaves)
                step = rate * 4 * asked.clip * sums * leaves / self.records
            step = np.clip(step, -MOST, MOST)
            scores += step[at]
            held += step[leaf_of(self.asked, self.widths, cuts)]
        return float(roc_auc_score(self.answers, held))


GRID = [
    *(Settings(600, *rest) for rest in product((4, 5, 6, 7), (0.25, 0.5, 1.0), (0.5, 1.0, 2.0))),
    *(Settings(600, *rest, True) for rest in product((4, 6), (0.5, 1.0), (0.1, 0.2, 0.4))),
]
FROZEN = Settings(600, 6, 0.5, 1.0), Settings(600, 6, 0.5, 0.2, True)  # the best of each kind by the grid


def main() -> None:
    """Append a line for each fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--datasets", nargs="+", default=["adult"])
    parser.add_argument("--epsilons", nargs="+", default=["1"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    for name, seed, epsilon in product(asked.datasets, range(asked.seeds), asked.epsilons):
        trial = Trial(split_at(name, asked.data, seed), epsilon, seed)
        for settings in GRID if asked.grid else FROZEN:
            line = {"dataset": name, "seed": seed, "epsilon": epsilon, **asdict(settings)}
            with asked.out.open("a") as file:
                file.write(json.dumps({**line, "auroc": round(trial.auroc(settings), 4)}) + "\n")


if __name__ == "__main__":
    main()

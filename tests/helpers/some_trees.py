"""Rows of three features, grown trees over them, and the plain definition of which leaf a row falls into."""

from __future__ import annotations

import numpy as np

from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from training.learners.boosting.tree_queries import split_tests
from training.rows.kernels.trees import BLOCK
from training.rows.partitions.rows import Rows
from training.rows.statistics.tree_rows import Grown

FEATURES = (
    NumericFeature("age", (10.0, 20.0, 30.0)),
    CategoricalFeature("colour", ("red", "green")),
    BooleanFeature("member"),
)
WIDTHS = [feature.bins for feature in FEATURES]
SIZE = 2 * BLOCK + 37


def some_rows(seed: int = 0, size: int = SIZE) -> Rows:
    random = np.random.default_rng(seed)
    bins = np.stack([random.integers(0, width, size) for width in WIDTHS]).astype(np.uint8)
    labels = ((bins[0] > 1) ^ (random.random(size) < 0.3)).astype(np.uint8)
    return Rows(bins, labels, WIDTHS)


def some_tree(random, splits: int) -> Grown:
    tests = split_tests(FEATURES)
    cuts = tuple(tests.cut(int(random.integers(leaf + 1)), int(random.integers(tests.size))) for leaf in range(splits))
    return Grown(cuts, tuple(int(vote) for vote in random.choice([-1, 1], splits + 1)))


def some_trees(seed: int, count: int) -> tuple[Grown, ...]:
    random = np.random.default_rng(seed)
    return tuple(some_tree(random, int(random.integers(0, 9))) for _ in range(count))


def leaf_of(cuts, rows: Rows):
    """The plain definition: cut by cut."""
    leaves = np.zeros(rows.size, int)
    for new, cut in enumerate(cuts, 1):
        code, last = rows.bins[cut.feature].astype(int), WIDTHS[cut.feature] - 1
        passes = (code > cut.code) & (code < last) if cut.test == "above" else code == cut.code
        leaves[(leaves == cut.leaf) & passes] = new
    return leaves


def scores_of(trees, rows: Rows):
    return sum((np.array(tree.votes)[leaf_of(tree.cuts, rows)] for tree in trees), np.zeros(rows.size, int))

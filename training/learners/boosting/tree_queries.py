"""What boosted trees ask of rows: where to split, what leaves say, where scores lie. Proofs: docs/privacy/trees.md.

A row's margin is y * (sum of the votes of the trees released so far); its weight is a function of that alone, an
integer (`reweighting`). Every score here is "what all candidates share" plus a sum of some cell(a, b) over a partition
of the rows, a and b being the weights of the two classes in a part. Its range over neighbours follows from how fast a
cell changes with one weight: between 0 and 4 for Gini, -1 and 1 for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.privacy.budget import Relation
from models.features.features import Feature
from training.learners.base.class_weights import Balance, words_of
from training.learners.boosting.probabilities import ScoreCounts
from training.learners.boosting.reweighting import Reweighting
from training.rows import kernels
from training.rows.partitions.rows import FEW_ROWS, Rows
from training.rows.statistics.tree_rows import Cut, Grown, TreeRows
from training.session.session import Public

Integers = NDArray[np.int64]
Cuts = tuple[Cut, ...]
Criterion = Literal["gini", "error"]
SLOTS = 64


@dataclass(frozen=True, eq=False)
class SplitTests:
    """The public candidates of a split: every `value > cut`, and `value is code` where order does not tell it.
    `first[f]` is the first test of feature f; they stand feature by feature.
    """

    tests: tuple[tuple[Literal["above", "is"], int, int], ...]
    intervals: Integers  # (tests, 3): feature, lowest and highest code that pass
    first: tuple[int, ...]

    @property
    def size(self) -> int:
        """Count the candidates of all features together."""
        return len(self.tests)

    def cut(self, leaf: int, pick: int) -> Cut:
        """Return candidate number `pick` as a cut of `leaf`."""
        return Cut(leaf, *self.tests[pick])


@lru_cache(maxsize=64)
def split_tests(features: tuple[Feature, ...]) -> SplitTests:
    """Return the public candidates of these features, in their order."""
    tests: list[tuple[Literal["above", "is"], int, int]] = []
    first = []
    for f, feature in enumerate(features):
        first.append(len(tests))
        tests += [("above", f, code) for code in range(feature.cuts)]
        tests += [("is", f, code) for code in feature.single_codes]
    intervals = [(f, *Cut(0, test, f, code).interval(features[f].bins)) for test, f, code in tests]
    return SplitTests(tuple(tests), np.array(intervals, np.int64), (*first, len(tests)))


@dataclass(frozen=True)
class Weighing:
    """Weights of rows by their margins under the trees released so far, and by class where classes are `weighed`, which
    makes none larger. `bound`: the trees' total weight; no score is larger, whatever the row.
    """

    reweighting: Reweighting
    trees: tuple[Grown, ...]
    bound: int
    public: Public
    weighed: Balance | None = None

    @property
    def by_weight(self) -> bool:
        """Return whether rows may have weights: what a row weighs here follows from itself alone."""
        return not self.reweighting.reads_counts

    def moved(self, relation: Relation) -> int:
        """Return twice the most that a row can move the weights of all rows by, in sum, itself included."""
        return self.reweighting.sensitivity(relation, self.bound, self.public.records)

    def histograms(self, rows: Rows, cuts: Cuts) -> Integers:
        """Sum the weight per feature, leaf and class, and code: (features, 2 leaves, max width)."""
        return TreeRows(rows).histograms(self.trees, cuts, self.weights(rows))

    def margins(self, rows: Rows, cuts: Cuts) -> Integers:
        """Return the weight of class 1 less that of class 0 per feature, leaf and code: (features, leaves, max
        width).
        """
        return TreeRows(rows).margins(self.trees, cuts, self.weights(rows))

    def weights(self, rows: Rows) -> Integers:
        """Return weights (2 bound + 1,) by margin + bound; (2, 2 bound + 1) by class as well where classes are
        weighed.
        """
        bound, public = self.bound, self.public
        counts = np.zeros(2 * bound + 1, dtype=np.int64)
        if self.reweighting.reads_counts:
            first, second = TreeRows(rows).score_counts(self.trees, bound)
            counts = second + first[::-1]
        table = self.reweighting.weights(bound, counts, public.records, public.relation)
        return table if self.weighed is None else self.weighed.of_two(table)


class _Weighed:
    """A query of weights, whose answers move by as much as these do."""

    weighing: Weighing

    @property
    def by_weight(self) -> bool:
        """Return whether rows may have weights."""
        return self.weighing.by_weight


@dataclass(frozen=True)
class SplitGains(_Weighed):
    """Gain of every test in every leaf: (leaves, tests); or, `best_first`, all of them in one row.

    Range: by Gini 4 times what the weights move by in sum, plus the rounding; by error 2 times, exactly. The same for
    one split of any leaf and for a split of every leaf at once: a level of a tree costs what one split does.
    """

    tests: SplitTests
    weighing: Weighing
    cuts: Cuts
    criterion: Criterion
    best_first: bool
    norm: ClassVar[str] = "range"

    @property
    def purpose(self) -> str:
        """Return what a plan says of it: whether leaves are split one by one, and by which criterion."""
        where = "of any leaf" if self.best_first else "in every leaf"
        return f"select a split {where} by {self.criterion}{words_of(self.weighing.weighed)}"

    @property
    def size(self) -> int:
        """Count the answers: one for each test in each leaf."""
        return (len(self.cuts) + 1) * self.tests.size

    def sensitivity(self, relation: Relation) -> int:
        """Return the range of one row's effect on all gains, in units of weight, with what rounding adds."""
        moved, most = self.weighing.moved(relation), self.weighing.public.most
        return moved if self.criterion == "error" else 2 * moved + rounding(moved, len(self.cuts) + 1, most)

    def __call__(self, rows: Rows) -> Integers:
        sums = self.weighing.histograms(rows, self.cuts)
        gains: Integers = kernels.trees.gains(sums, self.tests.intervals, self.criterion == "gini")
        return gains.ravel() if self.best_first else gains


def rounding(moved: int, leaves: int, most: int = FEW_ROWS) -> int:
    """Return what computing Gini gains in floating point can add to their range, of at most `most` rows (lemma 3): four
    times the largest error.
    """
    return (moved * most >> 48) + 8 * leaves + 8


@dataclass(frozen=True)
class LeafVotes(_Weighed):
    """For every leaf, the scores of voting for class 0 and for class 1: (leaves, 2) of a - b and b - a."""

    weighing: Weighing
    cuts: Cuts
    norm: ClassVar[str] = "range"

    @property
    def purpose(self) -> str:
        """Return what a plan says of it."""
        return f"select the vote of every leaf{words_of(self.weighing.weighed)}"

    @property
    def size(self) -> int:
        """Count the answers: two for each leaf."""
        return 2 * (len(self.cuts) + 1)

    def sensitivity(self, relation: Relation) -> int:
        """Return the range of one row's effect on all scores, in units of weight."""
        return self.weighing.moved(relation)

    def __call__(self, rows: Rows) -> Integers:
        sums = TreeRows(rows).leaf_sums(self.weighing.trees, self.cuts, self.weighing.weights(rows))
        margin = sums[:, 1] - sums[:, 0]
        return np.column_stack([-margin, margin])

    def grown(self, picks: Sequence[int], weight: int) -> Grown:
        """Return the tree with these classes voted for, one per leaf, by votes of `weight`."""
        return Grown(self.cuts, tuple(weight * (2 * int(pick) - 1) for pick in picks))


@dataclass(frozen=True)
class LeafRules(_Weighed):
    """For every leaf and every 1-rule h, the sum of w y h(x) over the leaf's rows: (leaves, 2 (tests + 1)), as in
    `lazybb`. Splits the leaf and says what its halves vote in one selection; the constant rules are among them.
    """

    tests: SplitTests
    weighing: Weighing
    cuts: Cuts
    norm: ClassVar[str] = "range"

    @property
    def purpose(self) -> str:
        """Return what a plan says of it."""
        return f"select a 1-rule in every leaf by weighted agreement{words_of(self.weighing.weighed)}"

    @property
    def size(self) -> int:
        """Count the answers: one for each 1-rule in each leaf."""
        return (len(self.cuts) + 1) * 2 * (self.tests.size + 1)

    def sensitivity(self, relation: Relation) -> int:
        """Return the range of one row's effect on all scores, in units of weight."""
        return self.weighing.moved(relation)

    def __call__(self, rows: Rows) -> Integers:
        sums = self.weighing.margins(rows, self.cuts)
        scores: Integers = kernels.trees.agreements(sums, self.tests.intervals)
        return scores

    def grown(self, picks: Sequence[int], weight: int) -> Grown:
        """Grow the tree: a constant rule splits by the first test, to the same vote on both sides."""
        return _grow_by_rules(self.cuts, self.tests, tuple(int(pick) for pick in picks), weight)


@lru_cache(maxsize=4096)  # every rehearsal grows the same trees
def _grow_by_rules(cuts: Cuts, tests: SplitTests, picks: tuple[int, ...], weight: int) -> Grown:
    signs = [weight if pick <= tests.size else -weight for pick in picks]
    picked = [pick % (tests.size + 1) for pick in picks]
    deepened = level_of(cuts, tests, [test % tests.size for test in picked])
    fails = [sign if test == tests.size else -sign for sign, test in zip(signs, picked, strict=True)]
    return Grown(deepened, (*fails, *signs))


@dataclass(frozen=True)
class TreeScores(ScoreCounts):
    """By the scores of these trees."""

    trees: tuple[Grown, ...]

    def __call__(self, rows: Rows) -> Integers:
        return self.banded(TreeRows(rows).score_counts(self.trees, self.bound))


def level_of(cuts: Cuts, tests: SplitTests, picks: Sequence[int]) -> Cuts:
    """Return the cuts with one more level: pick number l splits leaf l."""
    return (*cuts, *(tests.cut(leaf, int(pick)) for leaf, pick in enumerate(picks)))


def split_of(cuts: Cuts, tests: SplitTests, pick: int) -> Cuts:
    """Return the cuts with one more, of any leaf: `pick` counts (leaf, test) pairs."""
    leaf, test = divmod(pick, tests.size)
    return (*cuts, tests.cut(leaf, test))


@lru_cache(maxsize=4096)
def public_cuts(tests: SplitTests, tree: int, levels: int, named: tuple[int, ...] = ()) -> Cuts:
    """Return the first `levels` levels of tree number `tree`: tests scattered evenly over features, then over a
    feature's tests. A fixed public table of the schema's size and these numbers, and of the features that were `named`
    by earlier releases, if any: no row has a say beyond those, and nothing is spent.
    """
    features = named or range(len(tests.first) - 1)
    cuts: Cuts = ()
    for level in range(levels):
        chosen = []
        for leaf in range(1 << level):
            digest = sha256(f"{tree} {1 << level} {leaf}".encode()).digest()
            feature = features[int.from_bytes(digest[:8], "big") % len(features)]
            low, high = tests.first[feature], tests.first[feature + 1]
            chosen.append(low + int.from_bytes(digest[8:16], "big") % (high - low))
        cuts = level_of(cuts, tests, chosen)
    return cuts


def slots(moves: NDArray[np.float64], alike: float) -> tuple[int, ...]:
    """Return features for `public_cuts`, each as often as it moves (features,) a released score, and `alike` of the
    slots for all alike; none where nothing moves, which stands for all alike.
    """
    total = float(moves.sum())
    if total <= 0:
        return ()
    shares = (1 - alike) * moves / total + alike / moves.size
    return tuple(np.repeat(np.arange(moves.size), np.rint(SLOTS * shares).astype(int)).tolist())


def gains_by_cuts(sums: NDArray[Any], cuts: Cuts, features: int, noise: float) -> NDArray[np.float64]:
    """Return how far apart the sides of each feature's cuts are by the noisy sums (leaves,) of a tree of whole levels,
    squared and added up, less what noise of this deviation makes of it in the mean; and how many cuts: (2, features).
    """
    gains: list[NDArray[np.float64]] = []
    while 1 << len(gains) <= len(cuts):
        below = sums.reshape(-1, 2 << len(gains))
        low, high = below.sum(axis=0).reshape(2, -1) / noise
        gains.append((high - low) ** 2 / (2 * len(below)) - 1)
    of = [cut.feature for cut in cuts]
    return np.stack([np.bincount(of, np.concatenate(gains), features), np.bincount(of, minlength=features)])

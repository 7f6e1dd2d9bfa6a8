"""BDPE: boosted ensembles of decision trees by the M-alpha loss (Nock and Henecka, "Boosted and differentially private
ensembles of decision trees"), with the corrected constants of docs/privacy/trees.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Relation
from models.features.features import Feature
from models.forms.trees import TreeEnsemble
from training.learners.base.checks import check_real, check_whole
from training.learners.base.class_weights import Balance, check_balance, class_weights, words_of
from training.learners.base.private_learner import PrivateClassifier
from training.learners.boosting import bdpe_loss as loss
from training.learners.boosting.bdpe_loss import SCORE_ONE, WEIGHT_ONE
from training.learners.boosting.defaults import strength
from training.learners.boosting.noisy_leaves import (
    ClassWeights,
    LeafNoise,
    check_two_classes,
    leaf_noise,
    norm_of,
    per_leaf,
    per_row,
    shares,
    stated_epsilon,
)
from training.learners.boosting.tree_queries import Cuts, SplitTests, level_of, split_tests
from training.rows.partitions.rows import FEW_ROWS, Rows
from training.rows.statistics.tree_rows import Grown, TreeRows
from training.session.session import Public, Releaser

Integers = NDArray[np.int64]
MAX_ROUNDS = 2000
MAX_DEPTH = 6
MAX_SCORE = 1 << 21  # of the sum of all trees: a table of weights has twice as many entries, and float32 holds it


@dataclass(frozen=True)
class SplitRisks:
    """Minus the M-alpha risk of the two children, for every test in every leaf: (leaves, tests).

    A row adds to one child's risk at most P = most(N + 1): add/remove, every score falls by something in [0, P] as a
    row comes, whichever leaf it is in, so a whole level has range P. Replace-one: one goes and one comes among n, range
    2 most(n). Class weights count up to N = `records` in a child, so that P holds whatever the private number of rows;
    more than `most` there never are, so N is never above it.
    """

    tests: SplitTests
    trees: tuple[Grown, ...]
    bound: int
    cuts: Cuts
    alpha: float
    curve: float  # alpha of the weights
    records: int
    most: int = FEW_ROWS
    weighed: Balance | None = None
    norm: ClassVar[str] = "range"

    @property
    def purpose(self) -> str:
        """Return what a plan says of it, including class weights."""
        return f"select a split in every leaf by M-alpha risk{words_of(self.weighed)}"

    @property
    def size(self) -> int:
        """Count the answers: one for each test in each leaf."""
        return (len(self.cuts) + 1) * self.tests.size

    def sensitivity(self, relation: Relation) -> int:
        """Return the range of one row's effect on all risks, with what rounding adds, in units of 1 / WEIGHT_ONE."""
        slack = loss.rounding(len(self.cuts) + 1, self.most)
        if relation is Relation.ADD_REMOVE:
            return loss.most(self.records + 1, self.alpha) + slack
        return 2 * loss.most(self.records, self.alpha) + slack

    def __call__(self, rows: Rows) -> Integers:
        table, tests = weights(self.bound, self.curve, self.weighed), self.tests.intervals
        sums = TreeRows(rows).passing(self.trees, self.cuts, table, tests)
        passing = sums[:-1]  # (tests, 2 leaves)
        rest, cap = sums[-1] - passing, self.records * WEIGHT_ONE
        children = [loss.risk(part[:, 0::2], part[:, 1::2], self.alpha, cap) for part in (passing, rest)]
        return np.ascontiguousarray(-(children[0] + children[1]).T)


@dataclass(eq=False, repr=False)
class CalibratedBoostingClassifier(PrivateClassifier):
    """Private boosting of decision trees by the M-alpha loss, with objective calibration. Two classes.

    Parameters, all public; None stands for a public rule:

    - `rounds`: how many trees, grown level by level, 1 to 2000. Default: None.
    - `depth`: tests on every path, 1 to 6. Default: None.
    - `alpha`: of the loss, its weights and its link, 0.01 to 1; 1 boosts fastest, and a split then needs the most
      noise. Default: 1.0.
    - `calibration`: a split at depth k is chosen by alpha * calibration^k, above 0 and at most 1; 1 is a fixed
      alpha. Default: 0.1.
    - `split_share`: the budget of a tree for its splits (of epsilon where delta is 0, else of the squares that
      compose), 0.05 to 0.95; the rest is for its leaves. Default: 0.5.
    - `rate`: of learning, above 0 and at most 1; public, as the paper's leveraging coefficients are computed from
      the rows and have no privacy at all. Default: 0.5.
    - `clamp`: largest size of a leaf's value before `rate`, above 0 and at most 100. Default: 10.0.
    - `values`: candidate cut points per feature at most, 0 to 65536, evenly among the public ones (the paper's
      v_q); 0 for all of them. Default: 10.
    - `balance`: of classes as in `lazybb`, 0 to 1. Default: None, which is 0.

    `calibration` is what objective calibration means here. The paper's alpha, the error of the tree so far over that of
    the root, is computed from the rows, and its proof of privacy does not cover that: every leaf's score then depends
    on all rows.

    A level costs one selection, `split_share` / depth of a tree's budget, as its leaves are disjoint (paper: divided by
    2^level once more). Weights are w = psi^-1(-y F(x)), F the released score: the mirror update, which is free. (Done
    step by step, as printed, it would forget F wherever |F| <= 2 (1 - alpha), where psi^-1 is flat.) Leaves: noisy
    class weights, smoothed, through the canonical link (paper: Laplace(2 clamp) noise on the link itself).
    """

    name: ClassVar[str] = "bdpe"

    rounds: int | None = None
    depth: int | None = None
    alpha: float = 1.0
    calibration: float = 0.1
    split_share: float = 0.5
    rate: float = 0.5
    clamp: float = 10.0
    values: int = 10
    balance: float | None = None

    def check(self, public: Public) -> None:
        """Raise InputError where a parameter is out of range, or the target has not two classes."""
        check_two_classes(self.name, public)
        public.check_priced("bdpe adds Gaussian noise to its leaves")
        for name, value, low, high in (
            ("rounds", self.rounds, 1, MAX_ROUNDS),
            ("depth", self.depth, 1, MAX_DEPTH),
        ):
            if value is not None:
                check_whole(name, value, low, high)
        check_whole("values", self.values, 0, 1 << 16)
        check_balance(self.balance, public)
        check_real("alpha", self.alpha, "at least 0.01 and at most 1", lambda x: 0.01 <= x <= 1)
        check_real("calibration", self.calibration, "above 0 and at most 1", lambda x: 0 < x <= 1)
        check_real("split_share", self.split_share, "between 0.05 and 0.95", lambda x: 0.05 <= x <= 0.95)
        check_real("rate", self.rate, "above 0 and at most 1", lambda x: 0 < x <= 1)
        check_real("clamp", self.clamp, "above 0 and at most 100", lambda x: 0 < x <= 100)
        if self.rounds_for(public) * self._largest() > MAX_SCORE:
            raise InputError(f"clamp={self.clamp}: too large for {self.rounds_for(public)} trees; scores must be small")

    def rounds_for(self, public: Public) -> int:
        """Return the number of trees: `rounds`, or by the public rule."""
        return self.rounds if self.rounds is not None else rounds_of(public)

    def learn(self, session: Releaser) -> TreeEnsemble:
        """Learn tree after tree: a private selection per level, then the noisy class weights of the leaves."""
        public, tests = session.public, thin_tests(session.public.features, self.values)
        trees: tuple[Grown, ...] = ()
        bound = 0
        for _ in range(self.rounds_for(public)):
            trees = (*trees, self._tree(session, tests, trees, bound))
            bound += max(map(abs, trees[-1].votes))
        assert public.classes is not None
        grown, weighed = tuple(tree.tree for tree in trees), class_weights(public, self.balance)
        constant = round(weighed.offsets[0] * SCORE_ONE) if weighed else 0
        return TreeEnsemble(public.features, public.target, public.classes, grown, constant, 1 / SCORE_ONE)

    def _tree(self, session: Releaser, tests: SplitTests, trees: tuple[Grown, ...], bound: int) -> Grown:
        public, depth = session.public, self.depth or depth_of(session.public)
        split, noise = self._prices(public, session.unit, depth)
        weighed = class_weights(public, self.balance)
        cuts: Cuts = ()
        for level in range(depth):
            alpha = self.alpha * self.calibration**level
            counted = min(public.records, public.most)
            risks = SplitRisks(tests, trees, bound, cuts, alpha, self.alpha, counted, public.most, weighed)
            picks = session.release(risks, per_row(public, split))
            cuts = level_of(cuts, tests, per_leaf(picks, cuts))
        table, purpose = weights(bound, self.alpha, weighed), f"{ClassWeights.purpose}{words_of(weighed)}"
        leaves = ClassWeights(cuts, trees, table, WEIGHT_ONE, norm_of(public), purpose)
        return Grown(cuts, self._values(session.release(leaves, noise), noise, public))

    def _prices(self, public: Public, unit: Decimal, depth: int) -> tuple[Decimal, LeafNoise]:
        """Return the price of a level and the noise of the leaves. `unit` is a tree's epsilon where delta is 0; else
        its squared price is that of one selection at `unit`.
        """
        if public.pure:
            level, rest = self.split_share / depth, 1 - self.split_share
        else:
            level, rest = sqrt(self.split_share / depth), sqrt(1 - self.split_share)
        return stated_epsilon(unit * Decimal(level)), leaf_noise(public, float(unit) * rest)

    def _values(self, noisy: Any, noise: LeafNoise, public: Public) -> tuple[int, ...]:
        """Return the leaf values in units of 1 / SCORE_ONE: rate times the link of the smoothed share, clamped."""
        twice = public.relation is Relation.REPLACE_ONE
        smoothing = max(1.0, noise.event.deviation * public.contributions * (1 + twice))
        most = self._largest()
        raw = [loss.link(q, self.alpha) for q in shares(noisy, WEIGHT_ONE, smoothing)]
        return tuple(max(-most, min(most, round(self.rate * SCORE_ONE * value))) for value in raw)

    def _largest(self) -> int:
        return max(1, round(self.rate * self.clamp * SCORE_ONE))


def weights(bound: int, alpha: float, weighed: Balance | None) -> Integers:
    """Return the weights of rows by margin + bound, and by class as well where classes are weighed; none above
    WEIGHT_ONE.
    """
    table = loss.weights(bound, alpha)
    return table if weighed is None else weighed.of_two(table)


def thin_tests(features: Sequence[Feature], values: int) -> SplitTests:
    """Return the public candidates with at most `values` cut points of a feature, evenly among its own; 0: all of
    them.
    """
    candidates = split_tests(tuple(features))
    if not values:
        return candidates
    places: list[int] = []
    first = [0]
    for f, feature in enumerate(features):
        low, cuts = candidates.first[f], feature.cuts
        few = min(cuts, values)
        places += [low + (2 * j + 1) * cuts // (2 * few) for j in range(few)]
        places += range(low + cuts, candidates.first[f + 1])
        first.append(len(places))
    return SplitTests(tuple(candidates.tests[k] for k in places), candidates.intervals[places], tuple(first))


def rounds_of(public: Public) -> int:
    """Return the public rule: every tree takes its share of the budget. At most as many as an entry of the ledger
    holds: five releases of a tree differ, and each is 200 bytes of it.
    """
    return int(min(50, max(3, round(0.8 * strength(public) ** 0.4))))


def depth_of(public: Public) -> int:
    """Return the public rule: more rows or more epsilon bear more regions."""
    return 2 if strength(public) < 300 else 3 if strength(public) < 3000 else 4

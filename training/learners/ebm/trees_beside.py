"""`ebm`, and of a number trees on what its curves leave to explain: their splits are public, of the features that move
the curves, and a leaf says the noisy mean, or a quantile, of the residuals in it. Proofs:
docs/privacy/ebm.md#trees-beside-curves.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import sqrt
from typing import ClassVar, Literal

import numpy as np

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import from_nano, nano
from models.forms.additive import AdditiveEnsemble
from models.forms.classes import ClassesEnsemble
from models.forms.curves_trees import CurvesAndTrees
from training.learners.base.checks import check_real, check_whole, check_word
from training.learners.base.private_learner import PrivateClassifier, PrivateRegressor
from training.learners.boosting.tree_queries import public_cuts, slots, split_tests
from training.learners.ebm.defaults import strength
from training.learners.ebm.ebm import DPEBM
from training.learners.ebm.leaf_numbers import COUNT, WIDTH, LeafNumbers
from training.learners.ebm.model import Model
from training.learners.ebm.noise import count_rows, noise_at
from training.learners.ebm.one_score import OneScore
from training.learners.ebm.residuals import GRID
from training.rows.partitions.partition import TARGET_GRID
from training.rows.statistics.tree_rows import Grown
from training.session.session import Public, Releaser

MAX_TREES, MAX_DEPTH = 1000, 7
TREES, DEPTH, SHARE = 300, 5, 0.5  # how these were found, and what they reach: studies/dpebm/trees.md
NARROWED = 10  # times, before so many trees each: residuals are clipped to SPREAD of their root mean squares
SPREAD, SQUARED = 2.5, Fraction(1, 500)  # of the curves' budget, for each sum of squares
TRAVEL, FLOOR = 100.0, 20.0  # full steps of all trees together; rows that a mean is of, in deviations of the noise
ALIKE = 0.1  # of a tree's tests, of features all alike; the others by how far they move the curves
LARGEST = 1 << 23  # of all trees' votes together: float32 adds them up exactly
TOGETHER = 2  # features that curves and their pairs tell all about
TREES_FROM = 150.0  # strength from which trees gain


@dataclass(eq=False, repr=False)
class DPEBMWithTrees(DPEBM):
    """What `DPEBMTreesClassifier` and `DPEBMTreesRegressor` share: the parameters of `ebm`, and

    - `trees`: of a number, how many, 0 to 1000. Default: None, which is 300, and 0 of classes, where delta is 0, and
      where there is little to tell.
    - `depth`: tests on every path of a tree, 1 to 7. Default: 5.
    - `trees_share`: of the budget (mu^2, or epsilon where delta is 0) for the trees, 0.05 to 0.95. Default: 0.5.
    - `loss`: what trees lessen, "squared" errors, "absolute" ones, which tells the median, or that of a "quantile".
      Default: "squared".
    - `quantile`: the share of rows that lie below it, 0.01 to 0.99. Default: None, for other losses.
    """

    name: ClassVar[str] = "ebm-trees"

    trees: int | None = None
    depth: int = DEPTH
    trees_share: float = SHARE
    loss: Literal["squared", "absolute", "quantile"] = "squared"
    quantile: float | None = None

    def check(self, public: Public) -> None:
        """Raise InputError where a parameter is out of range."""
        super().check(public)
        if self.trees is not None:
            check_whole("trees", self.trees, 0, MAX_TREES)
        check_whole("depth", self.depth, 1, MAX_DEPTH)
        check_real("trees_share", self.trees_share, "from 0.05 to 0.95", lambda x: 0.05 <= x <= 0.95)
        if self.trees and (public.classes is not None or self.start):
            raise InputError(f"trees={self.trees}: beside curves of a number, that begin from no public model")
        self._check_loss(public)

    def _check_loss(self, public: Public) -> None:
        check_word("loss", self.loss, ("squared", "absolute", "quantile"))
        if (self.quantile is not None) != (self.loss == "quantile"):
            raise InputError(f"quantile={self.quantile}: is said where loss is quantile, and nowhere else")
        if self.quantile is not None:
            check_real("quantile", self.quantile, "from 0.01 to 0.99", lambda x: 0.01 <= x <= 0.99)
        if self.loss != "squared" and not self.trees_of(public):
            raise InputError(
                f"loss={self.loss}: trees beside curves of a number learn it; there are none here: set trees"
            )

    @property
    def thousandths(self) -> int | None:
        """Return of how many rows in a thousand trees learn that they lie below; None: they learn the mean."""
        return {"squared": None, "absolute": 500}.get(self.loss, round(1000 * (self.quantile or 0)))

    def guess(self, public: Public) -> Decimal:
        """Return a unit near the calibrated one."""
        unit = super().guess(public)
        if not self.trees_of(public):
            return unit
        kept = 1 - self.trees_share
        whole = kept / (1 + kept * NARROWED * float(SQUARED))
        return from_nano(int(nano(unit) * (whole if public.pure else sqrt(whole)) * (1 - 1e-3)))

    def is_listed_for(self, public: Public) -> bool:
        """Return whether the target is a number: of classes it is `ebm`, which is listed."""
        return public.classes is None

    def trees_of(self, public: Public) -> int:
        """Return how many trees: by the parameter or the public rule."""
        if self.trees is not None:
            return self.trees
        return TREES if not self.start and gains_by_trees(public) else 0

    def beside(self, session: Releaser, model: Model) -> AdditiveEnsemble | ClassesEnsemble | CurvesAndTrees:
        """Return the model with trees beside its curves, where there are any."""
        number = self.trees_of(session.public)
        if not number or not isinstance(model, OneScore):
            return super().beside(session, model)
        trees = self._grow(session, model, number)
        curves = model.ensemble()
        return CurvesAndTrees.of(curves, [tree.tree for tree in trees])

    def _grow(self, session: Releaser, model: OneScore, number: int) -> tuple[Grown, ...]:
        """Grow tree after tree by noisy sums of what is left, and counts, per leaf."""
        public, pairs = session.public, self.pairs_of(session.public)
        sums = self.settings(public).epochs * len(public.features) + pairs.epochs * pairs.many
        share = Fraction(self.trees_share)
        noise = noise_at(public, session.unit, share / (1 - share) * sums / number)
        squaring = noise_at(public, session.unit, SQUARED * sums)
        moved = public.widening * public.contributions
        records = count_rows(public, model.counts[: len(public.features)], model.noise)
        tests, named = split_tests(public.features), slots(model.moves(), ALIKE)
        trees: tuple[Grown, ...] = ()
        smoothed = 1.0 if self.thousandths is None else WIDTH
        bound, clip, most = 0, model.clip, LARGEST // number
        for tree in range(number):
            if tree % -(-number // NARROWED) == 0:
                squares = model.left_to_trees(self.thousandths, clip, trees, bound)
                least = squaring.event.deviation * moved
                mean = max(float(session.release(squares, squaring)[0]) / GRID, least) / records
                clip = max(1 / TARGET_GRID, min(clip, SPREAD * clip * sqrt(mean)))
            left = model.left_to_trees(self.thousandths, smoothed * clip, trees, bound)
            asked = LeafNumbers(
                left.residuals, left.terms, left.joints, trees, bound, public_cuts(tests, tree, self.depth, named)
            )
            leaves = np.broadcast_to(session.release(asked, noise), asked.size).reshape(2, -1)
            noisy_sums, counts = leaves[0] * asked.residuals.worth, np.maximum(leaves[1] / COUNT, 0)
            rows = counts + FLOOR * noise.event.deviation * moved * asked.reached * asked.residuals.worth / clip
            votes = np.rint(TRAVEL / number * noisy_sums / rows * TARGET_GRID)
            votes = np.clip(votes, -most, most).astype(np.int64)
            trees = (*trees, Grown(asked.cuts, tuple(votes.tolist())))
            bound += int(np.abs(votes).max())
        return trees


class DPEBMTreesClassifier(DPEBMWithTrees, PrivateClassifier):
    """`ebm`; on the platform, of a number with trees on what its curves leave."""


class DPEBMTreesRegressor(DPEBMWithTrees, PrivateRegressor):
    """DP-EBM of a number in a public range, with trees on what its curves leave."""


def gains_by_trees(public: Public) -> bool:
    """Tell by public numbers whether trees gain beside curves: of a number and more features than a pair, with Gaussian
    noise, where there is enough to tell, and not of institutions, whose models have to stay small.
    """
    is_fit = public.classes is None and not public.pure and not public.shared
    return is_fit and len(public.features) > TOGETHER and strength(public) >= TREES_FROM

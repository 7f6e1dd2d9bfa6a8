"""What `ebm` knows of two classes, or of a number, while it learns: one score for each row."""

from __future__ import annotations

from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from accountant.noise.objective import FINE, RELEASED, RIDGE, SLOPE_UNIT, ObjectivePerturbation
from models.forms.additive import AdditiveEnsemble
from models.parts.answers import Bends
from training.learners.base.class_weights import class_weights, mean_weight
from training.learners.boosting.probabilities import fit_bends
from training.learners.ebm.blocks import Blocks, Layout, term_variances
from training.learners.ebm.convex import TABLE_UNIT, ConvexLoss
from training.learners.ebm.leaf_numbers import LeftSquares, QuantileResiduals
from training.learners.ebm.model import Model
from training.learners.ebm.public_start import OFF_LOGITS, OFF_RANGES, ChanceSum, NumberSum, StartSum, moved_by
from training.learners.ebm.queries import BandCounts, SquareSum
from training.learners.ebm.residuals import CLIP, GRID, SCORES, ClassResiduals, NumberResiduals
from training.rows.partitions.partition import TARGET_GRID
from training.rows.statistics.additive_rows import WIDEST
from training.rows.statistics.tree_rows import Grown
from training.session.session import Releaser

LEAST = 0.001  # half ranges: no clip of a number's residuals is below it
STEPS = 3.0  # as many full steps as a feature by itself would need: features correct each other
LEAST_RATE = 0.05  # of a public start: the share that curvature is taken at
RARE = 0.01  # the base rate that a model starts from is at least so far from 0 and 1
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


class OneScore(Model):
    """Scores in 1 / SCORES logits, or half the range / TARGET_GRID."""

    def __post_init__(self) -> None:
        self._number = self.public.classes is None
        grid, limit = (TARGET_GRID, 2 * TARGET_GRID) if self._number else (SCORES, CLIP)
        most = WIDEST // (len(self.counts) + self.pairs.many)
        self.weighed = class_weights(self.public, self.balance)
        self._hold(grid, min(limit, most), ())
        self._spread = [np.zeros(count.size) for count in self.counts]
        self._curvature = 1.0
        self._bends: Bends = ()

    def _made_residuals(self) -> ClassResiduals | NumberResiduals:
        constant, relation, norm = int(self._constant), self.public.relation, self.noise.norm
        if self._number:
            return NumberResiduals(constant, round(self._clip * TARGET_GRID), relation, norm)
        low, high = map(int, self.ends())
        return ClassResiduals(constant, low, high, self._clip, relation, norm, self.weighed)

    def start_sum(self) -> type[StartSum]:
        """Return what compares chances, or numbers."""
        return NumberSum if self._number else ChanceSum

    def drawn_scores(self, scores: Floats) -> Floats:
        """Return them times the mean size of a residual."""
        return scores * sqrt(2 / pi * self._curvature)

    def varying(self) -> list[float]:
        """Return rows times curvature, or a number's clipped spread."""
        if not self._number:
            return [self._rows() * self._curvature]
        return [self._rows() * (self._clip / self.settings.spread if self.settings.spread else 1.0) ** 2]

    def _curved(self) -> float:
        return self._curvature

    def start(self, sums: Integers) -> None:
        """Start from the sum of all residuals at score 0: the constant, and the curvature of the loss there. From a
        public start on: one step of its constant.

        The noise counts as so many rows: where it drowns their number, the constant stays near 0.
        """
        worth = self._left.worth
        weight = mean_weight(self.public, self.weighed)
        noise = self._noise(self.noise.starting, worth)
        mean = float(sums[0]) * worth / (self._rows() * weight + noise)
        if self.public.start is not None:
            if not self._number:
                rate = min(max(1 / (1 + np.exp(-self._constant / SCORES)), LEAST_RATE), 1 - LEAST_RATE)
                self._curvature = rate * (1 - rate)
            off = OFF_RANGES if self._number else OFF_LOGITS
            moved = moved_by(float(sums[0]) * worth, self._rows() * self._curvature, noise, off)
            self._constant += round(float(moved) * self._grid)
        elif self._number:
            self._constant = round(min(max(mean, -1.0), 1.0) * TARGET_GRID)
        else:
            rate = min(max(0.5 + mean, RARE), 1 - RARE)
            self._constant, self._curvature = round(log(rate / (1 - rate)) * SCORES), rate * (1 - rate) * weight
        self._clip = self.settings.clip

    def loss(self, layout: Layout) -> ConvexLoss:
        """Return the loss of all features together, from the constant on, clipped as residuals are."""
        blocks = Blocks.of(self.public.features, layout, self.counts)
        begin = np.zeros(blocks.width, np.int64)
        begin[: self.public.features[0].bins] = self._constant << FINE - SCORES.bit_length() + 1
        return ConvexLoss(blocks, layout, round(self._clip * (1 << TABLE_UNIT)), begin, self.public.most)

    def minimise(self, loss: ConvexLoss, noise: ObjectivePerturbation, theta: Integers) -> None:
        """Take the features' terms from the noisy minimum of that loss."""
        blocks, most = loss.blocks, loss.sensitivity(self.public.relation)
        terms = np.rint(np.ldexp(blocks.terms(theta), SCORES.bit_length() - 1 - RELEASED))
        terms = np.clip(terms, -self._limit, self._limit).astype(np.int64)
        deviation, ridge = noise.check_scale(most) * 2.0**-SLOPE_UNIT, noise.ridge * 2.0**-RIDGE
        curved = self._curvature * np.maximum(np.concatenate(self.counts), 0)
        spread = term_variances(blocks, curved, ridge, deviation)
        for place, (low, count) in enumerate(zip(blocks.places, self.counts, strict=True)):
            term = self._terms[place] = terms[low : low + count.size]
            self._spread[place] = spread[low : low + count.size]
            self._lows[place], self._highs[place] = int(term.min()), int(term.max())

    def bands(self) -> BandCounts:
        """Return the counts of rows by class and score."""
        return BandCounts(tuple(self._terms), self.joints, self.noise.norm)

    def place(self, counts: Integers) -> None:
        """Place the model by the counts by class and score: the constant, and where log-odds bend. Clipped residuals
        leave a rare class under-predicted, noise makes what adds up too steep or too flat, and where classes were
        weighed, chances go back to the declared shares. Terms and their errors stay in the log-odds that were learnt:
        what a point of score is worth instead is told from the first one on.
        """
        offset = self._constant / SCORES + (self.weighed.offsets[0] if self.weighed else 0.0)
        moved = self.bands().sensitivity(self.public.relation) / GRID
        noise = self.noise.placing.event.deviation * self.public.widening * moved * self.public.contributions
        near, self._constant, bends = fit_bends(counts / GRID, 1 / SCORES, noise, offset)
        beyond = {2 * score if abs(score) == 1 else score: slope for score, slope in bends}  # so many in any model
        self._bends = tuple(sorted({-1: near, 1: near, **beyond}.items()))

    def squares(self) -> SquareSum:
        """Return the sum of squared residuals of a number."""
        return SquareSum(self._constant, self.noise.norm)

    def narrow(self, squares: Integers) -> None:
        """Narrow by the sum of squared residuals: clip to so many of their root mean squares. A sum that its noise
        drowns is taken to be as large as that: else nothing would be left to learn from.
        """
        noise = self.noise.starting.event.deviation * self.public.contributions
        mean = max(max(float(squares[0]) / TARGET_GRID, noise) / self._rows(), LEAST**2)
        self._clip = max(LEAST, min(self._clip, self.settings.spread * sqrt(mean)))

    def left_to_trees(self, thousandths: int | None, clip: float, trees: tuple[Grown, ...], bound: int) -> LeftSquares:
        """Return what asks for the squares of what the curves and the trees leave, clipped; `thousandths`: of rows
        below the quantile that they learn, None for the mean.
        """
        about = int(self._constant), max(1, round(clip * TARGET_GRID)), self.public.relation, self.noise.norm
        left = NumberResiduals(*about) if thousandths is None else QuantileResiduals(*about, thousandths)
        return LeftSquares(left, tuple(self._terms), self.joints, trees, bound)

    @property
    def clip(self) -> float:
        """Return what residuals are clipped to, in half ranges."""
        return self._clip

    def moves(self) -> Floats:
        """Return how far each feature moves the score, by itself and in pairs, in the mean over the noisy counts."""
        moved = np.zeros(len(self.public.features))
        for place, (term, count) in enumerate(zip(self._terms, self.counts, strict=True)):
            share = np.maximum(count, 0) + 1e-9
            mean_size = float(np.average(np.abs(term - np.average(term, weights=share)), weights=share))
            of = [place] if place < moved.size else [*self.joints[place - moved.size].features]
            moved[of] += mean_size
        return moved

    def rates_of(self, inside: Floats, bins: Integers, noise: float) -> Floats:
        """Return the rate of each leaf: the setting, and where there is `doubt` no more than so many full steps in all
        epochs together as the leaf's rows can be told to need (docs/privacy/ebm.md#steps-errors-edits-free): a leaf
        with fewer rows than `least` hardly moves, for the noise of its sums would add up to more than it has to say.
        """
        settings, counting = self.settings, self.noise.counting.event.deviation * self.public.contributions
        if not settings.doubt:
            return np.full(inside.size, settings.rate)
        whole = self._clip / settings.spread if self._number and settings.spread else 1.0
        least = settings.doubt * noise * sqrt(len(self.public.features) / settings.epochs) / whole
        rows = self._curvature**2 * np.maximum(inside**2 - bins * counting**2, 0)  # squared, without what noise adds
        return np.minimum(settings.rate, STEPS * np.log1p(rows / least**2) / settings.epochs)

    def end(self, session: Releaser) -> None:
        """Place the scores of two classes by the counts by class and score."""
        if not self._number:
            self.place(session.release(self.bands(), self.noise.placing))

    def ensemble(self) -> AdditiveEnsemble:
        """Return the model. Scores stay as they are."""
        all_terms, constant = self._centred()
        spreads = [tuple((np.sqrt(spread) * self._grid).tolist()) for spread in self._spread]
        (terms, counts, errors), pairs = self._parts([tuple(term) for term in all_terms], self._whole_counts(), spreads)
        public, (low, high) = self.public, self.public.target_range or (0.0, 0.0)
        return AdditiveEnsemble(
            public.features,
            public.target,
            public.classes or (),
            public.target_range,
            (high / 2 - low / 2) / TARGET_GRID if self._number else 1 / SCORES,
            int(constant),
            terms,
            counts,
            errors,
            pairs=pairs,
            bends=self._bends,
        )

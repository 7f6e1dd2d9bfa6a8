"""What `ebm` knows while it learns: the released numbers, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from accountant.noise.objective import FINE, RELEASED, RIDGE, SLOPE_UNIT, ObjectivePerturbation
from models.forms.additive import AdditiveEnsemble
from models.parts.answers import Bends
from models.parts.pairs import PairTerm, in_rows
from training.learners.base.class_weights import Balance, mean_weight
from training.learners.boosting.probabilities import fit_bends
from training.learners.ebm.convex import TABLE_UNIT, Blocks, ConvexLoss, Layout, term_variances
from training.learners.ebm.defaults import NO_PAIRS, EbmDefaults, PairDefaults
from training.learners.ebm.noise import Mechanism, Noise, count_rows
from training.learners.ebm.pairs import (
    GIVING,
    SEEN,
    Places,
    by_chance,
    cells_partition,
    clearest,
    gains_of,
    joint_of,
    pairs_among,
)
from training.learners.ebm.public_start import (
    OFF_LOGITS,
    OFF_RANGES,
    ChanceSum,
    NumberSum,
    StartSum,
    caution,
    in_scores,
    moved_by,
)
from training.learners.ebm.queries import BandCounts, LeafSums, PairScores, PairSums, SquareSum
from training.learners.ebm.residuals import CLIP, GRID, SCORES, ClassResiduals, NumberResiduals, Residuals
from training.learners.ebm.splits import partition
from training.rows.partitions.partition import TARGET_GRID
from training.rows.statistics.additive_rows import WIDEST, Joint
from training.session.session import Public, Start

LEAST = 0.001  # half ranges: no clip of a number's residuals is below it
STEPS = 3.0  # as many full steps as a feature by itself would need: features correct each other
LEAST_RATE = 0.05  # of a public start: the share that curvature is taken at
RARE = 0.01  # the base rate that a model starts from is at least so far from 0 and 1
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass
class Model:
    """What was released so far, and what follows from it: everything here is public.

    Scores are whole numbers: 1 / SCORES logits, or half the range / TARGET_GRID. `counts`: noisy rows per bin. Behind
    the features stand the pairs that were joined: a place is a feature's, or a pair's.
    """

    public: Public
    settings: EbmDefaults
    noise: Noise
    counts: list[Floats]
    pairs: PairDefaults = NO_PAIRS
    joints: tuple[Joint, ...] = ()
    weighed: Balance | None = None

    def __post_init__(self) -> None:
        self._number = self.public.classes is None
        self._grid = TARGET_GRID if self._number else SCORES
        most = WIDEST // (len(self.counts) + self.pairs.many)
        self._limit = min(2 * TARGET_GRID if self._number else CLIP, most)
        self._terms = [np.zeros(count.size, np.int64) for count in self.counts]
        self._spread = [np.zeros(count.size) for count in self.counts]  # variance of each term by noise alone
        self._lows, self._highs = [0] * len(self.counts), [0] * len(self.counts)
        self._epochs = [0] * len(self.counts)
        self._beyond: int | None = None  # so many of the pairs say more than noise would; None: all, they were named
        self._constant, self._curvature = 0, 1.0
        self._bends: Bends = ()
        self._clip = 1.0  # the first sum is of all that there is
        self._left: ClassResiduals | None = None  # the last ones
        self._caution = 1.0  # what steps are times: from a public start on

    def leaves(self, place: int) -> Integers:
        """Return the next public partition of a feature's bins, or a pair's cells."""
        features, counts, mass = self.public.features, self.counts[place], self.settings.mass
        epoch = self._epochs[place]
        self._epochs[place] += 1
        if place < len(features):
            return partition(features[place], self.settings.leaves, mass, counts, (place, epoch))
        at = place - len(features)
        return cells_partition(features, self.joints[at], counts, self.pairs.leaves, mass, (at, epoch))

    def query(self, place: int, leaves: Integers) -> LeafSums:
        """Return the sums of what is left over these leaves."""
        return LeafSums(self._residuals(), tuple(self._terms), place, leaves, self.joints)

    def candidates(self) -> list[Places]:
        """Return the pairs that are looked at: of the features that add or take away most, in the mean over the
        histogram.
        """
        sizes = []
        for term, count in zip(self._terms, self.counts, strict=True):
            share = np.maximum(count, 0) + 1e-9
            share = share / share.sum()
            sizes.append(float(share @ np.abs(term - share @ term)))
        return pairs_among(sizes)

    def scores(self, places: Sequence[Places]) -> PairScores | PairSums:
        """Return how much each of these pairs leaves to explain: its score, or what adds up over institutions."""
        joints = tuple(joint_of(self.public.features, self.counts, each, SEEN) for each in places)
        asked = PairSums if self.public.shared else PairScores
        return asked(self._residuals(), tuple(self._terms), joints)

    def best(self, query: PairScores | PairSums, answers: Integers) -> list[Places]:
        """Return those whose sums are largest, beyond what chance alone makes of them; and how many say more than
        noise.
        """
        worth = query.residuals.worth
        noise = self._noise(self.noise.scoring, worth) * query.sensitivity(self.public.relation) / GRID
        if isinstance(query, PairSums):
            beyond, noises = gains_of(query.joints, self.counts, answers * worth, [self._varying()], noise)
        else:
            chance = [by_chance(joint, self.counts, self._rows()) for joint in query.joints]
            beyond, noises = answers * worth - np.array(chance) * sqrt(2 / pi * self._curvature), np.array(noise)
        order, clear = clearest(beyond, noises, self.pairs.many)
        if answers.any():  # none are in a rehearsal, whose model has as many parts as any
            self._beyond = clear
        return [query.joints[at].features for at in order]

    def _varying(self) -> float:
        """Return the variance of a sum of all residuals, were they drawn by chance."""
        if not self._number:
            return self._rows() * self._curvature
        return self._rows() * (self._clip / self.settings.spread if self.settings.spread else 1.0) ** 2

    @property
    def kept(self) -> range:
        """Return the places of the pairs that are learnt."""
        alone = len(self.public.features)
        return range(alone, alone + (len(self.joints) if self._beyond is None else self._beyond))

    def join(self, places: Places) -> None:
        """Add one more pair, behind the features."""
        joint = joint_of(self.public.features, self.counts, places)
        self.joints = (*self.joints, joint)
        self._terms.append(np.zeros(joint.cells, np.int64))
        self._spread.append(np.zeros(joint.cells))
        for each in (self._lows, self._highs, self._epochs):
            each.append(0)

    def counted(self, counts: Integers) -> None:
        """Return the noisy rows per cell of the last pair."""
        self.counts.append(counts / GRID)

    def begin(self, start: Start) -> StartSum:
        """Begin from a public score, a function of the row. Return what asks how far rows go along with it."""
        terms, constant = in_scores(start, self._grid, self._limit)
        self._terms, self._constant = [term[:, 0] for term in terms], int(constant[0])
        self._caution = caution(self.public)
        self._bound()
        kind = NumberSum if self._number else ChanceSum
        return kind(tuple(self._terms), self._constant, self.noise.norm, self.public.relation)

    def leave(self) -> None:
        """Leave the start: begin from its constant alone."""
        self._terms, self._caution = [np.zeros_like(term) for term in self._terms], 1.0
        self._bound()

    def _bound(self) -> None:
        self._lows, self._highs = ([int(end(term)) for term in self._terms] for end in (np.min, np.max))

    def start(self, total: Integers) -> None:
        """Start from the sum of all residuals at score 0: the constant, and the curvature of the loss there. From a
        public start on: one step of its constant.

        The noise counts as so many rows: where it drowns their number, the constant stays near 0.
        """
        worth = self._residuals().worth
        weight = mean_weight(self.public, self.weighed)
        noise = self._noise(self.noise.starting, worth)
        mean = float(total[0]) * worth / (self._rows() * weight + noise)
        if self.public.start is not None:
            if not self._number:
                rate = min(max(1 / (1 + np.exp(-self._constant / SCORES)), LEAST_RATE), 1 - LEAST_RATE)
                self._curvature = rate * (1 - rate)
            off = OFF_RANGES if self._number else OFF_LOGITS
            moved = moved_by(float(total[0]) * worth, self._rows() * self._curvature, noise, off)
            self._constant += round(float(moved) * self._grid)
        elif self._number:
            self._constant = round(min(max(mean, -1.0), 1.0) * TARGET_GRID)
        else:
            rate = min(max(0.5 + mean, RARE), 1 - RARE)
            self._constant, self._curvature = round(log(rate / (1 - rate)) * SCORES), rate * (1 - rate) * weight
        self._clip = self.settings.clip

    def loss(self, layout: Layout) -> ConvexLoss:
        """Return the loss of all features together, from the constant on, clipped as residuals are."""
        blocks = Blocks.of(self.public.features, layout)
        begin = np.zeros(blocks.width, np.int64)
        begin[: self.public.features[0].bins] = self._constant << FINE - SCORES.bit_length() + 1
        return ConvexLoss(blocks, layout.count, round(self._clip * (1 << TABLE_UNIT)), begin, self.public.most)

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

    def step(self, place: int, leaves: Integers, sums: Integers) -> None:
        """Add rate * sum / (h + ridge * noise) on every bin of a leaf, h being its noisy rows times curvature, with
        the rate of `_rates`.
        """
        worth, rows = self._residuals().worth, np.maximum(self.counts[place], 0)
        noise = self._noise(self.noise.summing, worth)
        # the fewer pairs are learnt, the more and the finer steps each makes
        share = len(self.kept) / self.pairs.many if place in self.kept else 1.0
        inside = np.bincount(leaves, rows).astype(np.float64)
        rates = self._caution * share * self._rates(inside, np.bincount(leaves), noise * sqrt(share))
        gain = rates / (self._curvature * np.maximum(inside, 1) + self.settings.ridge * sqrt(share) * noise)
        moved = np.rint(gain * worth * sums * self._grid)[leaves]
        term = np.minimum(np.maximum(self._terms[place] + moved, -self._limit), self._limit).astype(np.int64)
        self._terms[place] = term  # a new array each time: rows know a term by its object
        self._lows[place], self._highs[place] = int(term.min()), int(term.max())
        corrected = (gain * self._curvature)[leaves] * rows
        self._spread[place] = (1 - corrected) ** 2 * self._spread[place] + ((gain * noise)[leaves]) ** 2

    def _rates(self, inside: Floats, bins: Integers, noise: float) -> Floats:
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

    def ensemble(self) -> AdditiveEnsemble:
        """Return the model. What a pair's rows and columns add by themselves is in the features' terms. These are
        centred, by the noisy histogram: what they share is in the constant. Scores stay as they are.
        """
        for place, joint in zip(self.kept, self.joints, strict=False):
            self._give(place, joint)
        terms, constant = [], self._constant
        for term, count in zip(self._terms, self.counts, strict=True):
            rows = np.maximum(count, 0)
            middle = round(float(rows @ term / rows.sum())) if rows.sum() else 0
            terms.append(tuple((term - middle).tolist()))
            constant += middle
        public, alone = self.public, len(self.public.features)
        low, high = public.target_range or (0.0, 0.0)
        spread = [tuple((np.sqrt(spread) * self._grid).tolist()) for spread in self._spread]
        counts = [tuple(np.round(count).astype(np.int64).tolist()) for count in self.counts]
        pairs = tuple(
            PairTerm(
                joint.features,
                joint.groups,
                *(in_rows(table[alone + at], joint.shape[1]) for table in (terms, counts, spread)),
            )
            for at, joint in enumerate(self.joints[: len(self.kept)])
        )
        return AdditiveEnsemble(
            public.features,
            public.target,
            public.classes or (),
            public.target_range,
            (high / 2 - low / 2) / TARGET_GRID if self._number else 1 / SCORES,
            constant,
            tuple(terms[:alone]),
            tuple(counts[:alone]),
            tuple(spread[:alone]),
            pairs=pairs,
            bends=self._bends,
        )

    def _give(self, place: int, joint: Joint) -> None:
        """Give the means of a pair's rows and of its columns, over its noisy counts, to the terms of its features."""
        table = self._terms[place].reshape(joint.shape).astype(np.float64)
        rows = np.maximum(self.counts[place], 0).reshape(joint.shape) + 1e-9
        noise = self._spread[place].reshape(joint.shape)
        given = [np.zeros(size) for size in joint.shape]
        for at in range(2 * GIVING):
            side = at % 2
            means = np.average(table, axis=1 - side, weights=rows)
            given[side] += means
            table -= np.expand_dims(means, 1 - side)
        for side, feature in enumerate(joint.features):
            groups, whole = np.array(joint.groups[side]), np.rint(given[side]).astype(np.int64)
            shares = rows / rows.sum(axis=1 - side, keepdims=True)
            self._terms[feature] = self._terms[feature] + whole[groups]
            self._spread[feature] = self._spread[feature] + (shares**2 * noise).sum(axis=1 - side)[groups]
            lost = np.expand_dims(whole, 1 - side) + np.zeros(joint.shape, np.int64)
            self._terms[place] = self._terms[place] - lost.ravel()

    def _residuals(self) -> Residuals:
        relation, norm = self.public.relation, self.noise.norm
        if self._number:
            return NumberResiduals(self._constant, round(self._clip * TARGET_GRID), relation, norm)
        low, high = self._constant + sum(self._lows), self._constant + sum(self._highs)
        found = ClassResiduals(self._constant, low, high, self._clip, relation, norm, self.weighed)
        self._left = self._left if found == self._left else found  # which knows its table already
        return self._left

    def _noise(self, mechanism: Mechanism, worth: float) -> float:
        """Return the standard deviation of its noise on a sum, in logits or half ranges."""
        return mechanism.event.deviation * self.public.widening * self.public.contributions * GRID * worth

    def _rows(self) -> float:
        return count_rows(self.public, self.counts[: len(self.public.features)], self.noise)

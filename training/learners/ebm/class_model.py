"""What `ebm` knows of three classes or more while it learns: the released numbers, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.forms.classes import HELD, ClassesEnsemble
from models.parts.pairs import PairTerm, in_rows
from training.learners.base.class_weights import ONE, Balance
from training.learners.ebm.defaults import NO_PAIRS, EbmDefaults, PairDefaults
from training.learners.ebm.noise import Mechanism, Noise, count_rows
from training.learners.ebm.pairs import (
    GIVING,
    SEEN,
    Asked,
    Places,
    by_chance,
    cells_partition,
    clearest,
    gains_of,
    joint_of,
    pairs_among,
)
from training.learners.ebm.public_start import OFF_LOGITS, ClassSum, StartSum, caution, choose, in_scores, moved_by
from training.learners.ebm.queries import BinCounts, JointCounts, LeafSums, PairScores, PairSums, SlopeSums
from training.learners.ebm.residuals import CLIP, GRID, SCORES, ClassVectors, class_balance
from training.learners.ebm.splits import partition
from training.rows.statistics.additive_rows import Joint
from training.session.session import Public, Releaser, Start

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
OF_CHANCE = 0.9  # of the root of their squares' sum, what the length of a few random numbers is in the mean
RARE = 0.05  # the share of a class that a model starts from is at least so much of an even one's
PRIOR = 0.1  # how far the slope of the scores is thought to be off
MOST_LEFT = 0.9  # of a class, that its chances lack
LEAST_SLOPE, MOST_SLOPE = 0.4, 2.5


@dataclass
class ClassModel:
    """What was released so far, and what follows from it: everything here is public.

    Scores are whole numbers, in 1 / SCORES logits, one for each class. `counts`: noisy rows per bin. Behind the
    features stand the pairs that were joined: a place is a feature's, or a pair's.
    """

    public: Public
    settings: EbmDefaults
    noise: Noise
    counts: list[Floats]
    pairs: PairDefaults = NO_PAIRS
    weighed: Balance | None = None

    def __post_init__(self) -> None:
        classes, places = len(self.public.classes or ()), len(self.counts) + self.pairs.many
        self._limit = min(CLIP, (HELD >> 1) // places)
        self._terms = [np.zeros((count.size, classes), np.int64) for count in self.counts]
        self._lows, self._highs = (np.zeros((places, classes), np.int64) for _ in range(2))
        self._epochs = [0] * places
        self.joints: tuple[Joint, ...] = ()
        self.clear: int | None = None  # so many of the pairs say more than noise would; None: all, they were named
        self._constant, self._slope = np.zeros(classes, np.int64), 1.0
        self._shares = np.full(classes, 1 / classes)
        self._clip = 1.0  # the first sum is of all that there is
        self._caution = 1.0  # what steps are times: from a public start on

    def leaves(self, place: int) -> Integers:
        """Return the next public partition of a feature's bins, or a pair's cells."""
        features, settings, epoch = self.public.features, self.settings, self._epochs[place]
        self._epochs[place] += 1
        counts, at = self.counts[place], place - len(features)
        if at < 0:
            return partition(features[place], settings.leaves, settings.mass, counts, (place, epoch))
        return cells_partition(features, self.joints[at], counts, self.pairs.leaves, settings.mass, (at, epoch))

    def vectors(self) -> ClassVectors:
        """Return what is left to explain of a row."""
        ends = self._constant + self._lows.sum(axis=0), self._constant + self._highs.sum(axis=0)
        return ClassVectors(self._constant, *ends, self._clip, self.public.relation, self.noise.norm, self.weighed)

    def query(self, place: int, leaves: Integers) -> LeafSums:
        """Return the sums of what is left over these leaves."""
        return LeafSums(self.vectors(), tuple(self._terms), place, leaves, self.joints)

    def candidates(self) -> PairScores | PairSums:
        """Return the scores of the pairs that are looked at, or what adds up over institutions: of the features that
        add or take away most, in the mean over the histogram.
        """
        sizes = []
        for term, count in zip(self._terms, self.counts, strict=True):
            share = np.maximum(count, 0) + 1e-9
            share = share / share.sum()
            sizes.append(float(share @ np.abs(term - share @ term).sum(axis=1)))
        places = pairs_among(sizes)
        joints = tuple(joint_of(self.public.features, self.counts, each, SEEN) for each in places)
        asked = PairSums if self.public.shared else PairScores
        return asked(self.vectors(), tuple(self._terms), joints)

    def best(self, query: PairScores | PairSums, answers: Integers) -> list[Places]:
        """Return those whose sums are longest, beyond what chance alone makes of them; and how many say more than
        noise.
        """
        worth, curved = query.residuals.worth, self._shares * (1 - self._shares) * self._mean_weight()
        noise = self._noise(self.noise.scoring, worth) * query.sensitivity(self.public.relation) / GRID
        if isinstance(query, PairSums):
            beyond, noises = gains_of(query.joints, self.counts, answers * worth, self._rows() * curved, noise)
        else:
            chance = [by_chance(joint, self.counts, self._rows()) for joint in query.joints]
            beyond = answers * worth - np.array(chance) * OF_CHANCE * sqrt(float(curved.sum()))
            noises = np.array(noise)
        order, clear = clearest(beyond, noises, self.pairs.many)
        if answers.any():  # none are in a rehearsal, whose model has as many parts as any
            self.clear = clear
        return [query.joints[at].features for at in order]

    def join(self, places: Places) -> JointCounts:
        """Add one more pair, behind the features, and return the counts of rows per cell."""
        joint = joint_of(self.public.features, self.counts, places)
        self.joints = (*self.joints, joint)
        self._terms.append(np.zeros((joint.cells, self._shares.size), np.int64))
        return JointCounts(joint, self.noise.norm)

    @property
    def kept(self) -> range:
        """Return the places of the pairs that are learnt."""
        alone = len(self.public.features)
        return range(alone, alone + (len(self.joints) if self.clear is None else self.clear))

    def begin(self, start: Start) -> StartSum:
        """Begin from a public score, a function of the row. Return what asks how far rows go along with it."""
        self._terms, self._constant = in_scores(start, SCORES, self._limit)
        self._bound()
        self._caution = caution(self.public)
        return ClassSum(tuple(self._terms), self._constant, self.noise.norm, self.public.relation)

    def leave(self) -> None:
        """Leave the start: begin from its constant alone."""
        self._terms, self._caution = [np.zeros_like(term) for term in self._terms], 1.0
        self._bound()

    def _bound(self) -> None:
        for ends, end in ((self._lows, np.min), (self._highs, np.max)):
            ends[: len(self._terms)] = [end(term, axis=0) for term in self._terms]

    def start(self, query: LeafSums, sums: Integers) -> None:
        """Start from the sums of all residuals at score 0: a share of each class, and so the constants. The noise
        counts as so many rows: where it drowns their number, shares stay near even.
        """
        worth, classes = query.residuals.worth, self._shares.size
        weight = self._mean_weight()
        if self.public.start is not None:
            self._move(worth, sums)
            self._clip = self.settings.clip
            return
        rows = self._rows() * weight + self._noise(self.noise.starting, worth)
        shares = np.maximum(1 / classes + _level(sums * worth) / rows, RARE / classes)
        self._shares = shares / shares.sum()
        self._constant = np.rint(np.log(self._shares * classes) * SCORES).astype(np.int64)
        self._clip = self.settings.clip

    def _move(self, worth: float, sums: Integers) -> None:
        """Move a public start's constants by the sums of all that is left, and take classes' shares from them."""
        for moves in (True, False):
            chances = np.exp((self._constant - self._constant.max()) / SCORES)
            shares = np.maximum(chances / chances.sum(), RARE / chances.size)
            self._shares = shares / shares.sum()
            if moves:
                noise, curved = self._noise(self.noise.starting, worth), self._rows() * self._shares
                moved = moved_by(_level(sums * worth), curved, noise, OFF_LOGITS)
                self._constant = self._constant + np.rint(moved * SCORES).astype(np.int64)

    def step(self, place: int, leaves: Integers, query: LeafSums, sums: Integers) -> None:
        """Add rate * sum / (h + ridge * noise) on every bin of a leaf and for each class, h being its noisy rows times
        the class's curvature p (1 - p) at the start. Residuals of all classes add up to 0: so do the sums, without
        the noise that they share.
        """
        worth, rows = query.residuals.worth, np.maximum(self.counts[place], 0)
        curved = self._shares * (1 - self._shares) * self._mean_weight()
        h = np.maximum(np.bincount(leaves, rows), 1)[:, None] * curved
        noise = self._noise(self.noise.summing, worth)
        # the fewer pairs are learnt, the more and the finer steps each makes
        share = len(self.kept) / self.pairs.many if place in self.kept else 1.0
        gain = self._caution * share * self.settings.rate / (h + self.settings.ridge * sqrt(share) * noise)
        moved = np.rint(gain * worth * SCORES * _level(sums.reshape(h.shape)))[leaves]
        term = np.clip(self._terms[place] + moved, -self._limit, self._limit).astype(np.int64)
        self._terms[place] = term  # a new array each time: rows know a term by its object
        self._lows[place], self._highs[place] = term.min(axis=0), term.max(axis=0)

    def level(self) -> None:
        """Bring chances back to the declared shares where classes were weighed, and clip nothing from here on."""
        if self.weighed:
            self._constant = self._constant + np.rint(np.array(self.weighed.offsets) * SCORES).astype(np.int64)
            shares = np.array(self.public.prevalence)
            self._shares, self.weighed = shares / shares.sum(), None
        self._clip = 1.0

    def place(self, query: LeafSums, sums: Integers) -> None:
        """Move the constants by the sums of all that is left: clipped residuals leave a rare class under-predicted.
        What is left of a class, over its share, says how far its mean chance is below that: by the log of it.
        """
        worth = query.residuals.worth
        if self.public.start is not None:
            self._move(worth, sums)
            return
        rows = self._rows() * self._shares + self._noise(self.noise.starting, worth)
        moved = -np.log1p(-np.clip(_level(sums * worth) / rows, -MOST_LEFT, MOST_LEFT))
        self._constant = self._constant + np.rint(moved * SCORES).astype(np.int64)

    def slopes(self) -> SlopeSums:
        """Return the sums that say how steep the scores should be."""
        return SlopeSums(self._constant, tuple(self._terms), self.joints, self.noise.norm, self.public.relation)

    def steepen(self, query: SlopeSums, sums: Integers) -> None:
        """Set the slope by one step of Newton's from 1, weighed by what noise and sampling do to it: where the noise
        drowns the rows it stays 1.
        """
        rise, bend = sums * query.worth
        noise = self._noise(self.noise.placing, query.worth)
        curved = max(float(bend), 0.0)
        weighed = curved / (curved + noise**2 + 1e-9)
        moved = weighed * float(rise) / (weighed * curved + 1 / PRIOR**2)
        self._slope = min(max(1 + moved, LEAST_SLOPE), MOST_SLOPE)

    def ensemble(self) -> ClassesEnsemble:
        """Return the model. What a pair's rows and columns add by themselves is in the features' terms; these are
        centred over the noisy histogram and over the classes: what they share is in the constant, and what classes
        share changes no chance.
        """
        for place, joint in zip(self.kept, self.joints, strict=False):
            self._give(place, joint)
        public, constant, terms = self.public, self._constant, []
        for term, count in zip(self._terms, self.counts, strict=True):
            rows = np.maximum(count, 0)
            own = np.rint(term.mean(axis=1)).astype(np.int64)
            middle = np.zeros(constant.size, np.int64)
            if rows.sum():
                middle = np.rint(rows @ (term - own[:, None]) / rows.sum()).astype(np.int64)
            constant = constant + middle
            terms.append(tuple(map(tuple, (term - own[:, None] - middle).tolist())))
        counts = [tuple(np.round(count).astype(np.int64).tolist()) for count in self.counts]
        alone, start = len(public.features), tuple((constant - round(float(constant.mean()))).tolist())
        pairs = tuple(
            PairTerm(joint.features, joint.groups, *(in_rows(each, joint.shape[1]) for each in both))
            for joint, *both in zip(self.joints[: len(self.kept)], terms[alone:], counts[alone:], strict=False)
        )
        released = tuple(terms[:alone]), (), pairs, tuple(counts[:alone])
        classes, link = public.classes or (), self._slope / SCORES
        return ClassesEnsemble(public.features, public.target, classes, link, start, *released)

    def _give(self, place: int, joint: Joint) -> None:
        """Give the means of a pair's rows and of its columns, over its noisy counts, to the terms of its features."""
        table = self._terms[place].reshape(*joint.shape, -1).astype(np.float64)
        rows = np.maximum(self.counts[place], 0).reshape(*joint.shape, 1) + 1e-9 + np.zeros_like(table)
        given = [np.zeros((size, self._shares.size)) for size in joint.shape]
        for at in range(2 * GIVING):
            side = at % 2
            means = np.average(table, axis=1 - side, weights=rows)
            given[side] += means
            table -= np.expand_dims(means, 1 - side)
        for side, feature in enumerate(joint.features):
            whole = np.rint(given[side]).astype(np.int64)
            self._terms[feature] = self._terms[feature] + whole[np.array(joint.groups[side])]
            lost = np.expand_dims(whole, 1 - side) + np.zeros(table.shape, np.int64)
            self._terms[place] = self._terms[place] - lost.reshape(self._terms[place].shape)

    def _mean_weight(self) -> float:
        if self.weighed is None:
            return 1.0
        weights = [pair[1] / ONE for pair in self.weighed.pairs]
        return float(np.dot(self.public.prevalence, weights))

    def _noise(self, mechanism: Mechanism, worth: float) -> float:
        """Return the standard deviation of its noise on a sum, in logits."""
        return mechanism.event.deviation * self.public.widening * self.public.contributions * GRID * worth

    def _rows(self) -> float:
        return count_rows(self.public, self.counts[: len(self.public.features)], self.noise)


def _level(sums: NDArray[Any]) -> Floats:
    """Return sums less their mean over classes, which is 0 but for noise and rounding."""
    return np.asarray(sums - np.mean(sums, axis=-1, keepdims=True), np.float64)


def learn_classes(
    session: Releaser, settings: EbmDefaults, pairs: PairDefaults, noise: Noise, asked: Asked, balance: float | None
) -> ClassesEnsemble:
    """Learn three classes or more: from histograms and a starting sum, then from noisy sums per epoch and feature, with
    a step by each, and the same for pairs of features, if any are wanted; in the end from sums that say where and how
    steep the scores are.
    """
    public = session.public
    features = list(enumerate(public.features))
    counts = [session.release(BinCounts(f, feature.bins, noise.norm), noise.counting) for f, feature in features]
    weighed = class_balance(public.prevalence, balance or 0.0)
    model = ClassModel(public, settings, noise, [count / GRID for count in counts], pairs, weighed)
    whole, alone = np.zeros(public.features[0].bins, np.int64), range(len(features))
    if public.start is not None:
        choose(session, model, public.start)
    query = model.query(0, whole)
    model.start(query, session.release(query, noise.starting))
    _boost(session, model, settings.epochs * len(alone), alone)
    chosen: Sequence[Places] = asked.named
    if pairs.found:
        scores = model.candidates()
        chosen = model.best(scores, session.release(scores, noise.scoring))
    for places in chosen[: pairs.many]:
        model.counts.append(session.release(model.join(places), noise.counting) / GRID)
    _boost(session, model, pairs.epochs * pairs.many, model.kept or alone)
    model.level()
    query = model.query(0, whole)
    model.place(query, session.release(query, noise.starting))
    slopes = model.slopes()
    model.steepen(slopes, session.release(slopes, noise.placing))
    return model.ensemble()


def _boost(session: Releaser, model: ClassModel, sums: int, places: Sequence[int]) -> None:
    """Release `sums` sums, for one place after the other in turn, and take a step by each."""
    for at in range(sums):
        place = places[at % len(places)]
        leaves = model.leaves(place)
        query = model.query(place, leaves)
        model.step(place, leaves, query, session.release(query, model.noise.summing))

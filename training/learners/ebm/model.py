"""What `ebm` knows while it learns: the released numbers, and what follows from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.forms.additive import AdditiveEnsemble
from models.forms.classes import ClassesEnsemble
from models.parts.pairs import PairTerm, in_rows
from training.learners.base.class_weights import Balance
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
from training.learners.ebm.public_start import StartSum, caution, in_scores
from training.learners.ebm.queries import JointCounts, LeafSums, PairScores, PairSums
from training.learners.ebm.residuals import GRID, Residuals
from training.learners.ebm.splits import partition
from training.rows.statistics.additive_rows import Joint
from training.session.session import Public, Releaser, Start

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass
class Model(ABC):
    """What was released so far, and what follows from it: everything here is public.

    Scores are whole numbers, in 1 / `_grid` logits or half ranges: one, or one for each of several classes. `counts`:
    noisy rows per bin. Behind the features stand the pairs that were joined: a place is a feature's, or a pair's.
    """

    public: Public
    settings: EbmDefaults
    noise: Noise
    counts: list[Floats]
    pairs: PairDefaults = NO_PAIRS
    joints: tuple[Joint, ...] = ()
    balance: float = 0.0
    weighed: Balance | None = field(default=None, init=False)

    @abstractmethod
    def __post_init__(self) -> None:
        """Begin with scores of 0, by `_hold`."""

    def _hold(self, grid: int, limit: int, scores: tuple[int, ...]) -> None:
        """Hold terms of so many `scores` for each bin, none over `limit`."""
        self._grid, self._limit, self._shape = grid, limit, scores
        self._terms = [np.zeros((count.size, *scores), np.int64) for count in self.counts]
        self._spread: list[Floats] = []  # variance of each term by noise alone, where it is known
        self._lows: list[Any] = [np.zeros(scores, np.int64)] * len(self.counts)
        self._highs = list(self._lows)
        self._epochs = [0] * len(self.counts)
        self._clear: int | None = None  # so many of the pairs say more than noise would; None: all, they were named
        self._constant: Any = np.zeros(scores, np.int64)[()]
        self._clip = 1.0  # the first sum is of all that there is
        self._caution = 1.0  # what steps are times: from a public start on
        self._left = self._made_residuals()  # the last that were asked about

    def leaves(self, place: int) -> Integers:
        """Return the next public partition of a feature's bins, or a pair's cells."""
        features, counts, mass = self.public.features, self.counts[place], self.settings.mass
        epoch = self._epochs[place]
        self._epochs[place] += 1
        if place < len(features):
            return partition(features[place], self.settings.leaves, mass, counts, (place, epoch))
        at = place - len(features)
        return cells_partition(features, self.joints[at], counts, self.pairs.leaves, mass, (at, epoch))

    @abstractmethod
    def _made_residuals(self) -> Residuals:
        """Return what is left to explain of a row."""

    def ends(self) -> tuple[Any, Any]:
        """Return the lowest and the highest score that a row can have."""
        return self._constant + sum(self._lows), self._constant + sum(self._highs)

    def _residuals(self) -> Residuals:
        found = self._made_residuals()
        self._left = self._left if found == self._left else found  # which knows its table already
        return self._left

    def query(self, place: int, leaves: Integers) -> LeafSums:
        """Return the sums of what is left over these leaves."""
        return LeafSums(self._residuals(), tuple(self._terms), place, leaves, self.joints)

    def whole(self) -> LeafSums:
        """Return the sum of all that is left."""
        return self.query(0, np.zeros(self.public.features[0].bins, np.int64))

    def candidates(self) -> PairScores | PairSums:
        """Return the scores of the pairs that are looked at, or what adds up over institutions: of the features that
        add or take away most, in the mean over the histogram.
        """
        sizes = []
        for term, count in zip(self._terms, self.counts, strict=True):
            share = np.maximum(count, 0) + 1e-9
            share = share / share.sum()
            sizes.append(float(share @ np.abs(term - share @ term).reshape(share.size, -1).sum(axis=1)))
        joints = tuple(joint_of(self.public.features, self.counts, each, SEEN) for each in pairs_among(sizes))
        asked = PairSums if self.public.shared else PairScores
        return asked(self._residuals(), tuple(self._terms), joints)

    def best(self, query: PairScores | PairSums, answers: Integers) -> list[Places]:
        """Return those whose sums are largest, beyond what chance alone makes of them; and how many say more than
        noise.
        """
        worth = query.residuals.worth
        noise = self._noise(self.noise.scoring, worth) * query.sensitivity(self.public.relation) / GRID
        if isinstance(query, PairSums):
            beyond, noises = gains_of(query.joints, self.counts, answers * worth, self.varying(), noise)
        else:
            chance = np.array([by_chance(joint, self.counts, self._rows()) for joint in query.joints])
            beyond, noises = answers * worth - self.drawn_scores(chance), np.array(noise)
        order, clear = clearest(beyond, noises, self.pairs.many)
        if answers.any():  # none are in a rehearsal, whose model has as many parts as any
            self._clear = clear
        return [query.joints[at].features for at in order]

    @abstractmethod
    def varying(self) -> Any:
        """Return the variance of a sum of all residuals, were they drawn by chance: (outputs,)."""

    @abstractmethod
    def drawn_scores(self, scores: Floats) -> Floats:
        """Return scores of pairs, of random numbers of a variance of 1, for residuals that are drawn by chance."""

    @property
    def kept(self) -> range:
        """Return the places of the pairs that are learnt."""
        alone = len(self.public.features)
        return range(alone, alone + (len(self.joints) if self._clear is None else self._clear))

    def join(self, places: Places) -> JointCounts:
        """Add one more pair, behind the features, and return the counts of rows per cell."""
        joint = joint_of(self.public.features, self.counts, places)
        self.joints = (*self.joints, joint)
        self._terms.append(np.zeros((joint.cells, *self._shape), np.int64))
        if self._spread:
            self._spread.append(np.zeros(joint.cells))
        for each in (self._lows, self._highs):
            each.append(np.zeros(self._shape, np.int64))
        self._epochs.append(0)
        return JointCounts(joint, self.noise.norm)

    @abstractmethod
    def start_sum(self) -> type[StartSum]:
        """Return what asks how far rows go along with a public start."""

    def begin(self, start: Start) -> StartSum:
        """Begin from a public score, a function of the row. Return what asks how far rows go along with it."""
        terms, constant = in_scores(start, self._grid, self._limit)
        self._terms = [term.reshape(len(term), *self._shape) for term in terms]
        self._constant = constant.reshape(self._shape)[()]
        self._caution = caution(self.public)
        self._bound()
        return self.start_sum()(tuple(self._terms), self._constant, self.noise.norm, self.public.relation)

    def leave(self) -> None:
        """Leave the start: begin from its constant alone."""
        self._terms, self._caution = [np.zeros_like(term) for term in self._terms], 1.0
        self._bound()

    def _bound(self) -> None:
        self._lows, self._highs = ([end(term, axis=0) for term in self._terms] for end in (np.min, np.max))

    @abstractmethod
    def start(self, sums: Integers) -> None:
        """Start from the sum of all residuals at score 0. From a public start on: one step of its constant."""

    def step(self, place: int, leaves: Integers, sums: Integers) -> None:
        """Add rate * sum / (h + ridge * noise) on every bin of a leaf, h being its noisy rows times curvature, with
        the rate of `rates_of`.
        """
        worth, rows = self._left.worth, np.maximum(self.counts[place], 0)
        noise = self._noise(self.noise.summing, worth)
        # the fewer pairs are learnt, the more and the finer steps each makes
        share = len(self.kept) / self.pairs.many if place in self.kept else 1.0
        inside = np.bincount(leaves, rows).astype(np.float64)
        rates = self._caution * share * self.rates_of(inside, np.bincount(leaves), noise * sqrt(share))
        h = np.multiply.outer(np.maximum(inside, 1), self._curved())
        gain = rates / (h + self.settings.ridge * sqrt(share) * noise)
        moved = np.rint(gain * worth * self.unshared(sums.reshape(h.shape)) * self._grid)[leaves]
        term = np.minimum(np.maximum(self._terms[place] + moved, -self._limit), self._limit).astype(np.int64)
        self._terms[place] = term  # a new array each time: rows know a term by its object
        self._lows[place], self._highs[place] = term.min(axis=0), term.max(axis=0)
        if self._spread:
            corrected = (gain * self._curved())[leaves] * rows
            self._spread[place] = (1 - corrected) ** 2 * self._spread[place] + ((gain * noise)[leaves]) ** 2

    @abstractmethod
    def _curved(self) -> Any:
        """Return the curvature of the loss at the start, in the mean over rows: (outputs,)."""

    def rates_of(self, inside: Floats, bins: Integers, noise: float) -> Any:
        """Return the rate of each leaf: the setting."""
        return self.settings.rate

    def unshared(self, sums: Any) -> Any:
        """Return sums without what they cannot say."""
        return sums

    @abstractmethod
    def end(self, session: Releaser) -> None:
        """Place the scores by what rows say of them in the end."""

    @abstractmethod
    def ensemble(self) -> AdditiveEnsemble | ClassesEnsemble:
        """Return the model."""

    def _centred(self) -> tuple[list[Any], Any]:
        """Return terms, centred by the noisy histogram: what they share is in the constant, which comes behind. What a
        pair's rows and columns add by themselves is in the features' terms.
        """
        for place, joint in zip(self.kept, self.joints, strict=False):
            self._give(place, joint)
        terms, constant = [], self._constant
        for whole, count in zip(self._terms, self.counts, strict=True):
            term, rows, middle = self.own_part(whole), np.maximum(count, 0), np.zeros(self._shape, np.int64)
            if rows.sum():
                middle = np.rint(rows @ term / rows.sum()).astype(np.int64)
            terms.append((term - middle).tolist())
            constant = constant + middle
        return terms, constant

    def own_part(self, term: Integers) -> Integers:
        """Return a term without what changes no answer."""
        return term

    def _parts(self, *tables: Sequence[Sequence[Any]]) -> tuple[list[tuple[Any, ...]], tuple[PairTerm, ...]]:
        """Return such tables of the features, and the terms of the pairs that are learnt, which stand behind them."""
        alone = len(self.public.features)
        pairs = tuple(
            PairTerm(joint.features, joint.groups, *(in_rows(table[alone + at], joint.shape[1]) for table in tables))
            for at, joint in enumerate(self.joints[: len(self.kept)])
        )
        return [tuple(table[:alone]) for table in tables], pairs

    def _whole_counts(self) -> list[tuple[int, ...]]:
        return [tuple(np.round(count).astype(np.int64).tolist()) for count in self.counts]

    def _give(self, place: int, joint: Joint) -> None:
        """Give the means of a pair's rows and of its columns, over its noisy counts, to the terms of its features."""
        table = self._terms[place].reshape(*joint.shape, *self._shape).astype(np.float64)
        rows = np.maximum(self.counts[place], 0).reshape(joint.shape) + 1e-9
        weights = rows.reshape(*joint.shape, *(1 for _ in self._shape)) + np.zeros_like(table)
        given = [np.zeros((size, *self._shape)) for size in joint.shape]
        for at in range(2 * GIVING):
            side = at % 2
            means = np.average(table, axis=1 - side, weights=weights)
            given[side] += means
            table -= np.expand_dims(means, 1 - side)
        for side, feature in enumerate(joint.features):
            groups, whole = np.array(joint.groups[side]), np.rint(given[side]).astype(np.int64)
            self._terms[feature] = self._terms[feature] + whole[groups]
            lost = np.expand_dims(whole, 1 - side) + np.zeros(table.shape, np.int64)
            self._terms[place] = self._terms[place] - lost.reshape(self._terms[place].shape)
            if self._spread:
                shares, noise = rows / rows.sum(axis=1 - side, keepdims=True), self._spread[place].reshape(joint.shape)
                self._spread[feature] = self._spread[feature] + (shares**2 * noise).sum(axis=1 - side)[groups]

    def _noise(self, mechanism: Mechanism, worth: float) -> float:
        """Return the standard deviation of its noise on a sum, in logits or half ranges."""
        return mechanism.event.deviation * self.public.widening * self.public.contributions * GRID * worth

    def _rows(self) -> float:
        return count_rows(self.public, self.counts[: len(self.public.features)], self.noise)

"""What `ebm` knows of three classes or more while it learns: the released numbers, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.forms.classes import HELD, ClassesEnsemble
from training.learners.base.class_weights import ONE, Balance
from training.learners.ebm.class_queries import ClassSums, ClassVectors, SlopeSums, class_balance
from training.learners.ebm.defaults import EbmDefaults
from training.learners.ebm.noise import Mechanism, Noise, count_rows
from training.learners.ebm.queries import CLIP, GRID, SCORES, BinCounts
from training.learners.ebm.splits import partition
from training.session.session import Public, Releaser

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
RARE = 0.05  # the share of a class that a model starts from is at least so much of an even one's
PRIOR = 0.3  # how far the slope of the scores is thought to be off
LEAST_SLOPE, MOST_SLOPE = 0.4, 2.5


@dataclass
class ClassModel:
    """What was released so far, and what follows from it: everything here is public.

    Scores are whole numbers, in 1 / SCORES logits, one for each class. `counts`: noisy rows per bin.
    """

    public: Public
    settings: EbmDefaults
    noise: Noise
    counts: list[Floats]
    weighed: Balance | None = None

    def __post_init__(self) -> None:
        classes = len(self.public.classes or ())
        self._limit = min(CLIP, (HELD >> 1) // len(self.counts))
        self._terms = [np.zeros((count.size, classes), np.int64) for count in self.counts]
        self._lows, self._highs = (np.zeros((len(self.counts), classes), np.int64) for _ in range(2))
        self._epochs = [0] * len(self.counts)
        self._constant, self._slope = np.zeros(classes, np.int64), 1.0
        self._shares = np.full(classes, 1 / classes)
        self._clip = 1.0  # the first sum is of all that there is

    def leaves(self, place: int) -> Integers:
        """Return the next public partition of a feature's bins."""
        settings, epoch = self.settings, self._epochs[place]
        self._epochs[place] += 1
        return partition(
            self.public.features[place], settings.leaves, settings.mass, self.counts[place], (place, epoch)
        )

    def query(self, place: int, leaves: Integers) -> ClassSums:
        """Return the sums of what is left over these leaves."""
        ends = self._constant + self._lows.sum(axis=0), self._constant + self._highs.sum(axis=0)
        relation, norm = self.public.relation, self.noise.norm
        vectors = ClassVectors(self._constant, *ends, self._clip, relation, norm, self.weighed)
        return ClassSums(vectors, tuple(self._terms), place, leaves)

    def start(self, query: ClassSums, sums: Integers) -> None:
        """Start from the sums of all residuals at score 0: a share of each class, and so the constants. The noise
        counts as so many rows: where it drowns their number, shares stay near even.
        """
        worth, classes = query.vectors.worth, self._shares.size
        weight = self._mean_weight()
        rows = self._rows() * weight + self._noise(self.noise.starting, worth)
        shares = np.maximum(1 / classes + _level(sums * worth) / rows, RARE / classes)
        self._shares = shares / shares.sum()
        self._constant = np.rint(np.log(self._shares * classes) * SCORES).astype(np.int64)
        self._clip = self.settings.clip

    def step(self, place: int, leaves: Integers, query: ClassSums, sums: Integers) -> None:
        """Add rate * sum / (h + ridge * noise) on every bin of a leaf and for each class, h being its noisy rows times
        the class's curvature p (1 - p) at the start. Residuals of all classes add up to 0: so do the sums, without
        the noise that they share.
        """
        worth, rows = query.vectors.worth, np.maximum(self.counts[place], 0)
        curved = self._shares * (1 - self._shares) * self._mean_weight()
        h = np.maximum(np.bincount(leaves, rows), 1)[:, None] * curved
        noise = self._noise(self.noise.summing, worth)
        gain = self.settings.rate / (h + self.settings.ridge * noise)
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

    def place(self, query: ClassSums, sums: Integers) -> None:
        """Move the constants by the sums of all that is left: clipped residuals leave a rare class under-predicted."""
        worth = query.vectors.worth
        rows = self._rows() * self._shares + self._noise(self.noise.starting, worth)
        moved = np.clip(_level(sums * worth) / rows, -2.0, 2.0)
        self._constant = self._constant + np.rint(moved * SCORES).astype(np.int64)

    def slopes(self) -> SlopeSums:
        """Return the sums that say how steep the scores should be."""
        return SlopeSums(self._constant, tuple(self._terms), self.noise.norm, self.public.relation)

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
        """Return the model. Terms are centred over the noisy histogram and over the classes: what they share is in the
        constant, and what classes share changes no chance.
        """
        public, constant, terms = self.public, self._constant, []
        for term, count in zip(self._terms, self.counts, strict=True):
            rows = np.maximum(count, 0)
            own = np.rint(term.mean(axis=1)).astype(np.int64)
            middle = np.zeros(constant.size, np.int64)
            if rows.sum():
                middle = np.rint(rows @ (term - own[:, None]) / rows.sum()).astype(np.int64)
            constant = constant + middle
            terms.append(tuple(map(tuple, (term - own[:, None] - middle).tolist())))
        start = tuple((constant - round(float(constant.mean()))).tolist())
        link = self._slope / SCORES
        return ClassesEnsemble(public.features, public.target, public.classes or (), link, start, tuple(terms))

    def _mean_weight(self) -> float:
        if self.weighed is None:
            return 1.0
        weights = [pair[1] / ONE for pair in self.weighed.pairs]
        return float(np.dot(self.public.prevalence, weights))

    def _noise(self, mechanism: Mechanism, worth: float) -> float:
        """Return the standard deviation of its noise on a sum, in logits."""
        return mechanism.event.deviation * self.public.widening * self.public.contributions * GRID * worth

    def _rows(self) -> float:
        return count_rows(self.public, self.counts, self.noise)


def _level(sums: NDArray[Any]) -> Floats:
    """Return sums less their mean over classes, which is 0 but for noise and rounding."""
    return np.asarray(sums - np.mean(sums, axis=-1, keepdims=True), np.float64)


def learn_classes(session: Releaser, settings: EbmDefaults, noise: Noise, balance: float | None) -> ClassesEnsemble:
    """Learn three classes or more: from histograms and a starting sum, then from noisy sums per epoch and feature, with
    a step by each; in the end from sums that say where and how steep the scores are.
    """
    public = session.public
    features = list(enumerate(public.features))
    counts = [session.release(BinCounts(f, feature.bins, noise.norm), noise.counting) for f, feature in features]
    weighed = class_balance(public.prevalence, balance or 0.0)
    model = ClassModel(public, settings, noise, [count / GRID for count in counts], weighed)
    whole = np.zeros(public.features[0].bins, np.int64)
    query = model.query(0, whole)
    model.start(query, session.release(query, noise.starting))
    for at in range(settings.epochs * len(features)):
        place = at % len(features)
        leaves = model.leaves(place)
        query = model.query(place, leaves)
        model.step(place, leaves, query, session.release(query, noise.summing))
    model.level()
    query = model.query(0, whole)
    model.place(query, session.release(query, noise.starting))
    slopes = model.slopes()
    model.steepen(slopes, session.release(slopes, noise.placing))
    return model.ensemble()

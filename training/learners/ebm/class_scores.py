"""What `ebm` knows of three classes or more while it learns: a score for each class."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.forms.classes import HELD, ClassesEnsemble
from training.learners.base.class_weights import ONE
from training.learners.ebm.model import Model
from training.learners.ebm.public_start import OFF_LOGITS, ClassSum, StartSum, moved_by
from training.learners.ebm.queries import SlopeSums
from training.learners.ebm.residuals import CLIP, SCORES, ClassVectors, class_balance
from training.session.session import Releaser

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
OF_CHANCE = 0.9  # of the root of their squares' sum, what the length of a few random numbers is in the mean
RARE = 0.05  # the share of a class that a model starts from is at least so much of an even one's
PRIOR = 0.1  # how far the slope of the scores is thought to be off
MOST_LEFT = 0.9  # of a class, that its chances lack
LEAST_SLOPE, MOST_SLOPE = 0.4, 2.5


class ClassScores(Model):
    """Scores in 1 / SCORES logits: (classes,). Residuals of all classes add up to 0: so do the sums, without the noise
    that they share.
    """

    def __post_init__(self) -> None:
        classes, places = len(self.public.classes or ()), len(self.counts) + self.pairs.many
        self.weighed = class_balance(self.public.prevalence, self.balance)
        self._hold(SCORES, min(CLIP, (HELD >> 1) // places), (classes,))
        self._slope, self._shares = 1.0, np.full(classes, 1 / classes)

    def _made_residuals(self) -> ClassVectors:
        relation, norm = self.public.relation, self.noise.norm
        return ClassVectors(self._constant, *self.ends(), self._clip, relation, norm, self.weighed)

    def start_sum(self) -> type[StartSum]:
        """Return what compares the chances of all classes."""
        return ClassSum

    def drawn_scores(self, scores: Floats) -> Floats:
        """Return them times the mean length of a vector of residuals."""
        return np.asarray(scores * OF_CHANCE * sqrt(float(self._curved().sum())))

    def varying(self) -> Floats:
        """Return rows times the curvature of each class."""
        return self._rows() * self._curved()

    def _curved(self) -> Floats:
        return np.asarray(self._shares * (1 - self._shares) * self._mean_weight())

    def unshared(self, sums: Any) -> Floats:
        """Return sums less their mean over classes, which is 0 but for noise and rounding."""
        return np.asarray(sums - np.mean(sums, axis=-1, keepdims=True), np.float64)

    def start(self, sums: Integers) -> None:
        """Start from the sums of all residuals at score 0: a share of each class, and so the constants. The noise
        counts as so many rows: where it drowns their number, shares stay near even.
        """
        worth, classes = self._left.worth, self._shares.size
        weight = self._mean_weight()
        if self.public.start is not None:
            self._move(worth, sums)
            self._clip = self.settings.clip
            return
        rows = self._rows() * weight + self._noise(self.noise.starting, worth)
        shares = np.maximum(1 / classes + self.unshared(sums * worth) / rows, RARE / classes)
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
                moved = moved_by(self.unshared(sums * worth), curved, noise, OFF_LOGITS)
                self._constant = self._constant + np.rint(moved * SCORES).astype(np.int64)

    def level(self) -> None:
        """Bring chances back to the declared shares where classes were weighed, and clip nothing from here on."""
        if self.weighed:
            self._constant = self._constant + np.rint(np.array(self.weighed.offsets) * SCORES).astype(np.int64)
            shares = np.array(self.public.prevalence)
            self._shares, self.weighed = shares / shares.sum(), None
        self._clip = 1.0

    def place(self, sums: Integers) -> None:
        """Move the constants by the sums of all that is left: clipped residuals leave a rare class under-predicted.
        What is left of a class, over its share, says how far its mean chance is below that: by the log of it.
        """
        worth = self._left.worth
        if self.public.start is not None:
            self._move(worth, sums)
            return
        rows = self._rows() * self._shares + self._noise(self.noise.starting, worth)
        moved = -np.log1p(-np.clip(self.unshared(sums * worth) / rows, -MOST_LEFT, MOST_LEFT))
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

    def end(self, session: Releaser) -> None:
        """Place the scores by sums that say where and how steep they are."""
        self.level()
        self.place(session.release(self.whole(), self.noise.starting))
        slopes = self.slopes()
        self.steepen(slopes, session.release(slopes, self.noise.placing))

    def own_part(self, term: Integers) -> Integers:
        """Return a term less its mean over classes: what classes share changes no chance."""
        return np.asarray(term - np.rint(term.mean(axis=1)).astype(np.int64)[:, None])

    def ensemble(self) -> ClassesEnsemble:
        """Return the model, its constant centred over the classes."""
        all_terms, constant = self._centred()
        (terms, counts), pairs = self._parts([tuple(map(tuple, term)) for term in all_terms], self._whole_counts())
        public, start = self.public, tuple((constant - round(float(constant.mean()))).tolist())
        classes, link = public.classes or (), self._slope / SCORES
        return ClassesEnsemble(public.features, public.target, classes, link, start, tuple(terms), (), pairs, counts)

    def _mean_weight(self) -> float:
        if self.weighed is None:
            return 1.0
        weights = [pair[1] / ONE for pair in self.weighed.pairs]
        return float(np.dot(self.public.prevalence, weights))

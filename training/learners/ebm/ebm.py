"""DP-EBM (Nori, Caruana, Bu, Shen and Kulkarni, "Accuracy, interpretability, and differential privacy via explainable
boosting", Algorithm 2), with the corrected constants of docs/privacy/ebm.md. Reads like the paper: histograms, then for
every epoch and feature, noisy sums of residuals over the leaves of a random partition, and a step.

Two classes, or a number. Bins, categories, ranges and partitions are public; Theorem 6 of the paper is false for
numbers, whose residuals are clipped here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from decimal import Decimal
from math import log, sqrt
from statistics import NormalDist
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from accountant.budget import Relation
from accountant.errors import InputError
from models.forms.additive import AdditiveEnsemble
from training.learners.base import PrivateClassifier, PrivateLearner, PrivateRegressor
from training.learners.boosting.defaults import strength as signal
from training.learners.checks import check_real, check_whole
from training.learners.cut_points import (
    CellCounts,
    Cutting,
    Recut,
    Where,
    check_cuts,
    counted_numbers,
    cutting,
    recut,
)
from training.learners.ebm.defaults import EbmDefaults, ebm_defaults
from training.learners.ebm.noise import Mechanism, Noise, noise_of, unit_near
from training.learners.ebm.queries import (
    CLIP,
    GRID,
    SCORES,
    BinCounts,
    ClassResiduals,
    LeafSums,
    NumberResiduals,
    Residuals,
    SquareSum,
)
from training.learners.ebm.splits import partition
from training.rows.additive_rows import WIDEST
from training.rows.partitions.partition import TARGET_GRID
from training.session import Public, Releaser

MAX_EPOCHS = 5000
FEW_BINS, MANY_BINS = 64, 128  # by the public rule where there is much to tell, of classes and of a number to predict
LEAST = 0.001  # half ranges: no clip of a number's residuals is below it
LESS_TOLD = 2.5  # of a number to predict the same strength tells so much less of where to cut others
OFF, MOST_OFF = 0.5, 2.0  # logits by which clipped residuals may leave a constant wrong: about so many, at most so many
NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 64) for i in range(64)])
RARE = 0.01  # the base rate that a model starts from is at least so far from 0 and 1
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class DPEBM(PrivateLearner):
    """What `DPEBMClassifier` and `DPEBMRegressor` share.

    Parameters, all public; None stands for the default rule (training/learners/ebm/defaults.py): `epochs` over all
    features; `leaves` of a partition of a number's bins, 0 for every bin its own; `mass`, how far its cuts follow the
    released histogram; `rate` of a step; `ridge`, in standard deviations of the noise, added to what a step is divided
    by; `share` of the budget for the histograms; `clip` of residuals, in chances or half ranges; `spread`: a number's
    are clipped to that many of their released root mean squares as well, 0 for not; `cuts` and `bins` of numbers as in
    `lazybb`.
    """

    name: ClassVar[str] = "ebm"

    epochs: int | None = None
    leaves: int | None = None
    rate: float | None = None
    ridge: float | None = None
    share: float | None = None
    clip: float | None = None
    mass: float | None = None
    spread: float | None = None
    cuts: Where | Literal["auto"] = "auto"
    bins: int | None = None

    def check(self, public: Public) -> None:
        """InputError where a parameter is out of range, or the target has neither two classes nor a range."""
        if public.classes is not None and len(public.classes) != 2:
            raise InputError(f"learner ebm: {len(public.classes)} classes; it takes two classes, or a number")
        if public.classes is None and public.target_range is None:
            raise InputError(f"learner ebm: {public.target!r} is a number without a public range")
        public.check_priced("ebm adds Gaussian noise to its sums")
        for name, low, high in (("epochs", 1, MAX_EPOCHS), ("leaves", 0, 1 << 16)):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), low, high)
        if self.leaves == 1:
            raise InputError("leaves=1: must be 0 for every bin its own, or at least 2")
        check_cuts(self.cuts, self.bins)
        self.cutting_of(public)
        for name, words, fits in _REALS:
            if getattr(self, name) is not None:
                check_real(name, getattr(self, name), words, fits)

    def guess(self, public: Public) -> Decimal:
        """Many epochs make a rehearsal dear."""
        found = 2 * counted_numbers(public) if self.cutting_of(public).where == "found" else 0
        return unit_near(public, self.settings(public), found)

    def cutting_of(self, public: Public) -> Cutting:
        """Where numbers are cut, by the parameters or the public rule."""
        most, less = (MANY_BINS, LESS_TOLD) if public.classes is None else (FEW_BINS, 1.0)
        return cutting(public, signal(public) / less, most, self.cuts, self.bins)

    def _cut(self, session: Releaser, noise: Noise) -> Releaser:
        cuts = self.cutting_of(session.public)
        if cuts.where == "declared":
            return session

        def counted(feature: int, of: Integers) -> Floats:
            counts = session.release(CellCounts(feature, of, noise.norm, GRID), noise.finding)
            return np.asarray(counts, np.float64) / GRID

        return Recut(session, recut(session.public, cuts.bins, counted if cuts.where == "found" else None))

    def rounds_for(self, public: Public) -> int:
        """Epochs: `epochs`, or by the default rule."""
        return self.settings(public).epochs

    def settings(self, public: Public) -> EbmDefaults:
        """The parameters, and the default rule for those that are not given."""
        given = {field.name: getattr(self, field.name) for field in fields(EbmDefaults)}
        return replace(ebm_defaults(public), **{name: value for name, value in given.items() if value is not None})

    def learn(self, session: Releaser) -> AdditiveEnsemble:
        """Histograms, what the model starts from, then a noisy sum per epoch and feature, and a step by it. Of two
        classes, in the end one sum of all that is left."""
        settings = self.settings(session.public)
        noise = noise_of(session.public, session.unit, settings)
        session = self._cut(session, noise)
        public = session.public
        features = list(enumerate(public.features))
        counts = [session.release(BinCounts(f, feature.bins, noise.norm), noise.counting) for f, feature in features]
        model = _Model(public, settings, noise, [count / GRID for count in counts])
        whole = np.zeros(public.features[0].bins, np.int64)
        model.start(session.release(model.query(0, whole), noise.starting))
        if public.classes is None and settings.spread:
            model.narrow(session.release(model.squares(), noise.starting))
        for epoch in range(settings.epochs):
            for f, feature in features:
                leaves = partition(feature, settings.leaves, settings.mass, model.counts[f], (f, epoch))
                model.step(f, leaves, session.release(model.query(f, leaves), noise.summing))
        if public.classes is not None:
            model.centre(session.release(model.unclipped(whole), noise.starting))
        return model.ensemble()


class DPEBMClassifier(DPEBM, PrivateClassifier):
    """DP-EBM of two classes; on the platform, of a number too, where the schema declares one."""


class DPEBMRegressor(DPEBM, PrivateRegressor):
    """DP-EBM of a number in a public range; values outside are taken as its nearer end."""


_REALS: tuple[tuple[str, str, Any], ...] = (
    ("rate", "above 0 and at most 1", lambda x: 0 < x <= 1),
    ("ridge", "between 0 and 1000", lambda x: 0 <= x <= 1000),
    ("share", "from 0.001 to 0.5", lambda x: 0.001 <= x <= 0.5),
    ("clip", "from 0.001 to 1", lambda x: 0.001 <= x <= 1),
    ("mass", "between 0 and 1", lambda x: 0 <= x <= 1),
    ("spread", "between 0 and 100", lambda x: 0 <= x <= 100),
)


@dataclass
class _Model:
    """What was released so far, and what follows from it: everything here is public.

    Scores are whole numbers: 1 / SCORES logits, or half the range / TARGET_GRID. `counts`: noisy rows per bin.
    """

    public: Public
    settings: EbmDefaults
    noise: Noise
    counts: list[Floats]

    def __post_init__(self) -> None:
        self._number = self.public.classes is None
        self._grid = TARGET_GRID if self._number else SCORES
        self._limit = min(2 * TARGET_GRID if self._number else CLIP, WIDEST // len(self.counts))
        self._terms = [np.zeros(count.size, np.int64) for count in self.counts]
        self._spread = [np.zeros(count.size) for count in self.counts]  # variance of each term by noise alone
        self._lows, self._highs = [0] * len(self.counts), [0] * len(self.counts)
        self._constant, self._curvature = 0, 1.0
        self._clip = 1.0  # the first sum is of all that there is

    def query(self, feature: int, leaves: Integers) -> LeafSums:
        relation, norm = self.public.relation, self.noise.norm
        return LeafSums(self._residuals(), tuple(self._terms), feature, leaves, norm, relation)

    def start(self, total: Integers) -> None:
        """From the sum of all residuals at score 0: the constant, and the curvature of the loss there.

        The noise counts as so many rows: where it drowns their number, the constant stays near 0.
        """
        worth = self._residuals().worth
        mean = float(total[0]) * worth / (self._rows() + self._noise(self.noise.starting, worth))
        if self._number:
            self._constant = round(min(max(mean, -1.0), 1.0) * TARGET_GRID)
        else:
            rate = min(max(0.5 + mean, RARE), 1 - RARE)
            self._constant, self._curvature = round(log(rate / (1 - rate)) * SCORES), rate * (1 - rate)
        self._clip = self.settings.clip

    def unclipped(self, whole: Integers) -> LeafSums:
        """The sum of all residuals as they are: with clipped ones a rare class stays under-predicted."""
        self._clip = 1.0
        return self.query(0, whole)

    def centre(self, total: Integers) -> None:
        """From the sum of all residuals: the constant at which chances add up to what was found, by a part of the way
        that is smaller the more the noise is. Of scores whose features are independent, by the histograms.
        """
        worth, rows = self._residuals().worth, self._rows()
        middle, spread = self._constant / SCORES, 0.0
        for term, count in zip(self._terms, self.counts, strict=True):
            share = np.maximum(count, 0) + 1e-9
            share, logits = share / share.sum(), term / SCORES
            mean = float(share @ logits)
            middle, spread = middle + mean, spread + float(share @ (logits - mean) ** 2)
        moves = np.linspace(-MOST_OFF, MOST_OFF, 401)
        chances = 1 / (1 + np.exp(-(middle + sqrt(spread) * NORMAL + moves[:, None])))
        curved = rows * float((chances * (1 - chances))[200].mean())
        doubt = self._noise(self.noise.starting, worth) ** 2 + curved
        missing = float(total[0]) * worth / (1 + doubt / (OFF * curved) ** 2)
        sums = rows * (chances.mean(axis=1) - chances[200].mean())
        self._constant += round(float(np.interp(missing, sums, moves)) * SCORES)

    def squares(self) -> SquareSum:
        return SquareSum(self._constant, self.noise.norm)

    def narrow(self, squares: Integers) -> None:
        """From the sum of squared residuals: clip to so many of their root mean squares."""
        mean = max(float(squares[0]) / TARGET_GRID / self._rows(), LEAST**2)
        self._clip = max(LEAST, min(self._clip, self.settings.spread * sqrt(mean)))

    def step(self, feature: int, leaves: Integers, sums: Integers) -> None:
        """rate * sum / (h + ridge * noise) on every bin of a leaf, h being its noisy rows times curvature."""
        worth, rows = self._residuals().worth, np.maximum(self.counts[feature], 0)
        inside = np.bincount(leaves, rows)
        h = self._curvature * np.maximum(inside, 1)
        noise = self._noise(self.noise.summing, worth)
        gain = self.settings.rate / (h + self.settings.ridge * noise)
        moved = np.round(gain * worth * sums * self._grid)[leaves]
        term = np.clip(self._terms[feature] + moved, -self._limit, self._limit).astype(np.int64)
        self._terms[feature] = term  # a new array each time: rows know a term by its object
        self._lows[feature], self._highs[feature] = int(term.min()), int(term.max())
        corrected = (gain * self._curvature)[leaves] * rows
        self._spread[feature] = (1 - corrected) ** 2 * self._spread[feature] + ((gain * noise)[leaves]) ** 2

    def ensemble(self) -> AdditiveEnsemble:
        """Terms are centred, by the noisy histogram: what they share is in the constant."""
        terms, constant = [], self._constant
        for term, count in zip(self._terms, self.counts, strict=True):
            rows = np.maximum(count, 0)
            middle = round(float(rows @ term / rows.sum())) if rows.sum() else 0
            terms.append(tuple((term - middle).tolist()))
            constant += middle
        public = self.public
        low, high = public.target_range or (0.0, 0.0)
        spread = [np.sqrt(spread) * self._grid for spread in self._spread]
        return AdditiveEnsemble(
            public.features,
            public.target,
            public.classes or (),
            public.target_range,
            (high / 2 - low / 2) / TARGET_GRID if self._number else 1 / SCORES,
            constant,
            tuple(terms),
            tuple(tuple(np.round(count).astype(np.int64).tolist()) for count in self.counts),
            tuple(tuple(each.tolist()) for each in spread),
        )

    def _residuals(self) -> Residuals:
        relation, norm = self.public.relation, self.noise.norm
        if self._number:
            return NumberResiduals(self._constant, round(self._clip * TARGET_GRID), relation)
        low, high = self._constant + sum(self._lows), self._constant + sum(self._highs)
        return ClassResiduals(self._constant, low, high, self._clip, relation, norm)

    def _noise(self, mechanism: Mechanism, worth: float) -> float:
        """The standard deviation of its noise on a sum, in logits or half ranges."""
        return mechanism.event.deviation * self.public.contributions * GRID * worth

    def _rows(self) -> float:
        """How many rows there are: public under replace-one, else by the histograms, the shorter the surer, and by the
        declared number, which is taken to be off by half of itself: of weak histograms alone it might come out as none.
        """
        if self.public.relation is Relation.REPLACE_ONE:
            return float(self.public.records)
        sizes = np.array([count.size for count in self.counts])
        found = np.array([count.sum() for count in self.counts]) @ (1 / sizes) / (1 / sizes).sum()
        doubt = (self.noise.counting.event.deviation * self.public.contributions) ** 2 / float((1 / sizes).sum())
        trust = 1 / (1 + doubt / (self.public.records / 2) ** 2)
        return max(1.0, trust * float(found) + (1 - trust) * self.public.records)

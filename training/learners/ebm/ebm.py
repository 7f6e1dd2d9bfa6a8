"""DP-EBM (Nori, Caruana, Bu, Shen and Kulkarni, "Accuracy, interpretability, and differential privacy via explainable
boosting", Algorithm 2), with the corrected constants of docs/privacy/ebm.md. Reads like the paper: histograms, then for
every epoch and feature, noisy sums of residuals over the leaves of a random partition, and a step.

Two classes, or a number. Bins, categories, ranges and partitions are public; Theorem 6 of the paper is false for
numbers, whose residuals are clipped here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import from_nano, nano
from models.forms.additive import AdditiveEnsemble
from models.forms.classes import ClassesEnsemble
from models.forms.curves_trees import CurvesAndTrees
from models.parts.pairs import JOINED, pair_name
from training.learners.base.checks import check_real, check_whole
from training.learners.base.class_weights import check_balance
from training.learners.base.cut_points import (
    Cutting,
    Recut,
    Where,
    check_cuts,
    counted_numbers,
    cut_numbers,
    cutting,
)
from training.learners.base.private_learner import PrivateClassifier, PrivateLearner, PrivateRegressor
from training.learners.boosting.defaults import strength as signal
from training.learners.ebm.blocks import Layout
from training.learners.ebm.class_scores import ClassScores
from training.learners.ebm.defaults import NO_PAIRS, EbmDefaults, PairDefaults, ebm_defaults, pair_defaults, strength
from training.learners.ebm.engines import check_engine, engine_rule
from training.learners.ebm.model import Model
from training.learners.ebm.noise import DEARER, Noise, convex_noise, noise_of, unit_near
from training.learners.ebm.one_score import OneScore
from training.learners.ebm.pairs import AUTO, Places, asked_pairs
from training.learners.ebm.public_start import choose
from training.learners.ebm.queries import BinCounts
from training.learners.ebm.residuals import GRID
from training.session.session import Public, Releaser

MAX_EPOCHS = 5000
FEW_BINS, MANY_BINS = 64, 128  # by the public rule where there is much to tell, of classes and of a number to predict
LESS_TOLD = 2.5  # of a number to predict the same strength tells so much less of where to cut others
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class DPEBM(PrivateLearner):
    """What `DPEBMClassifier` and `DPEBMRegressor` share.

    Parameters, all public; None stands for the default rule (training/learners/ebm/defaults.py):

    - `epochs`: passes over all features, 1 to 5000. Default: None.
    - `leaves`: of a partition of a number's bins, 2 to 65536, or 0 for every bin its own. Default: None.
    - `rate`: of a step, above 0 and at most 1. Default: None.
    - `ridge`: added to what a step is divided by, in standard deviations of the noise, 0 to 1000. Default: None.
    - `share`: of the budget for the histograms, 0.001 to 0.5. Default: None.
    - `clip`: of residuals, in chances or half ranges, 0.001 to 1. Default: None.
    - `mass`: how far the cuts of a partition follow the released histogram, 0 to 1. Default: None.
    - `spread`: residuals of a number are clipped to that many of their released root mean squares as well, 0 to
      100, 0 for not. Default: None.
    - `doubt`: how far steps of leaves with few rows are held back, in standard deviations of the noise of all epochs,
      0 to 1000, 0 for not. Default: None, which is 2.5 of a number and 0 of classes.
    - `cuts`: of numbers as in `lazybb`. Default: "auto".
    - `bins`: of numbers as in `lazybb`, 2 to 255. Default: None.
    - `pairs`: of features that add something together: "auto", a number from 0 to 64, or themselves, "age & hours".
      Default: "auto".
    - `balance`: of classes as in `lazybb`, 0 to 1. Default: None, which is 0, for residuals weigh by chances
      already.
    - `engine`: how features' curves are learnt, "epochs" of sums, or at once as the noisy minimum of a "convex" loss:
      two classes, of records that are added or removed, one of each unit. Default: "auto".
    - `start`: sha256 of the public model that boosting begins from; `dpserve train --public` names it. Default: "".
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
    doubt: float | None = None
    cuts: Where | Literal["auto"] = "auto"
    bins: int | None = None
    pairs: object = AUTO
    balance: float | None = None
    engine: Literal["auto", "epochs", "convex"] = "auto"
    start: str = ""

    def check(self, public: Public) -> None:
        """Raise InputError where a parameter is out of range, or the target has neither classes nor a range."""
        if public.classes is None and public.target_range is None:
            raise InputError(f"learner ebm: {public.target!r} is a number without a public range")
        public.check_priced("ebm adds Gaussian noise to its sums")
        for name, low, high in (("epochs", 1, MAX_EPOCHS), ("leaves", 0, 1 << 16)):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), low, high)
        if self.leaves == 1:
            raise InputError("leaves=1: must be 0 for every bin its own, or at least 2")
        if self.doubt and len(public.classes or ()) > 2:
            raise InputError(f"doubt={self.doubt}: of two classes or of a number; leave it out, or set 0")
        check_cuts(self.cuts, self.bins)
        self._check_start(public)
        check_balance(self.balance, public)
        self.cutting_of(public)
        self._check_pairs(public)
        check_engine(self.engine, public, self.balance)
        for name, words, fits in _REALS:
            if getattr(self, name) is not None:
                check_real(name, getattr(self, name), words, fits)

    def _check_start(self, public: Public) -> None:
        if self.start == "":
            return
        if public.start is None or public.start.digest != self.start:
            raise InputError(f"start={self.start!r:.80}: name a public model by dpserve train --public FILE, or MODEL")
        fixed = {"cuts": ("auto", "declared"), "bins": (None,), "engine": ("auto", "epochs"), "balance": (None,)}
        wrong = [name for name, values in fixed.items() if getattr(self, name) not in values]
        wrong += ["pairs"] if self.pairs not in (AUTO, 0, "0") else []
        if wrong:
            raise InputError(f"{wrong[0]}: boosting begins from a public start at the declared bins; leave it out")

    def _check_pairs(self, public: Public) -> None:
        names = {feature.name for feature in public.features}
        if self.pairs_of(public).many and any(JOINED in name for name in names):
            both = (pair_name(public.features, at) for at in combinations(range(len(names)), 2))
            taken = sorted(names.intersection(both))
            if taken:
                raise InputError(f"pairs: {taken[0]!r:.80} is a feature, and would be the name of a pair")

    def guess(self, public: Public) -> Decimal:
        """Return a unit near the calibrated one: many epochs make a rehearsal slow."""
        counts = 2 * counted_numbers(public) if self.cutting_of(public).where == "found" else 0
        unit = unit_near(public, self.settings(public), self.pairs_of(public), counts)
        return unit if self.engine_of(public) == "epochs" else from_nano(int(DEARER * nano(unit)))

    def pairs_of(self, public: Public) -> PairDefaults:
        """Return how many pairs, and in how many epochs: by the parameter or the public rule."""
        if self.start:
            return NO_PAIRS
        return pair_defaults(public, self.settings(public), asked_pairs(self.pairs, public.features))

    def cutting_of(self, public: Public) -> Cutting:
        """Return where numbers are cut, by the parameters or the public rule."""
        most, less = (MANY_BINS, LESS_TOLD) if public.classes is None else (FEW_BINS, 1.0)
        where: Where | Literal["auto"] = "declared" if self.start else self.cuts
        return cutting(public, signal(public) / less, most, where, self.bins)

    def _cut(self, session: Releaser, noise: Noise) -> Releaser:
        cuts = self.cutting_of(session.public)
        if cuts.where == "declared":
            return session
        return Recut(session, cut_numbers(session, cuts, noise.finding, noise.norm, GRID))

    def engine_of(self, public: Public) -> str:
        """Return the engine: the one asked for, or by the public rule."""
        if self.start:
            return "epochs"
        return engine_rule(public, self.balance) if self.engine == "auto" else self.engine

    def _layout(self, public: Public) -> Layout | None:
        """Return the public layout of one convex fit; None where epochs are made."""
        if self.engine_of(public) != "convex":
            return None
        cuts, spans = self.cutting_of(public), public.spans or (None,) * len(public.features)
        bins = [
            feature.bins - 1 if span is None or cuts.where == "declared" else cuts.bins
            for feature, span in zip(public.features, spans, strict=True)
        ]
        return Layout.of(public.features, bins, strength(public))

    def rounds_for(self, public: Public) -> int:
        """Return the number of epochs: `epochs`, or by the default rule."""
        return self.settings(public).epochs

    def settings(self, public: Public) -> EbmDefaults:
        """Return the parameters, and the default rule for those that are not given."""
        parameters = {field.name: getattr(self, field.name) for field in fields(EbmDefaults)}
        return replace(ebm_defaults(public), **{name: value for name, value in parameters.items() if value is not None})

    def learn(self, session: Releaser) -> AdditiveEnsemble | ClassesEnsemble | CurvesAndTrees:
        """Learn from histograms and a starting score, then from a noisy sum per epoch and feature, with a step by each;
        then the same for pairs of features, if any are wanted. Of classes, ask in the end where scores stand."""
        settings, pairs = self.settings(session.public), self.pairs_of(session.public)
        noise = noise_of(session.public, session.unit, settings, pairs)
        layout = self._layout(session.public)
        session = self._cut(session, noise)
        public = session.public
        features = list(enumerate(public.features))
        counts = [session.release(BinCounts(f, feature.bins, noise.norm), noise.counting) for f, feature in features]
        kind: type[Model] = ClassScores if len(public.classes or ()) > 2 else OneScore
        model = kind(public, settings, noise, [count / GRID for count in counts], pairs, balance=self.balance or 0.0)
        if public.start is not None:
            choose(session, model, public.start)
        model.start(session.release(model.whole(), noise.starting))
        if isinstance(model, OneScore) and public.classes is None and settings.spread:
            model.narrow(session.release(model.squares(), noise.starting))
        alone = range(len(features))
        if isinstance(model, OneScore) and layout is not None:
            loss, minimum = model.loss(layout), convex_noise(session.unit, settings.epochs * len(features), layout)
            model.minimise(loss, minimum, session.release(loss, minimum))
        else:
            self._boost(session, model, settings.epochs * len(features), alone)
        for places in self._chosen(session, model):
            model.counts.append(session.release(model.join(places), noise.counting) / GRID)
        self._boost(session, model, pairs.epochs * pairs.many, model.kept or alone)
        model.end(session)
        return self.beside(session, model)

    def beside(self, session: Releaser, model: Model) -> AdditiveEnsemble | ClassesEnsemble | CurvesAndTrees:
        """Return the model: these curves, and nothing beside them."""
        return model.ensemble()

    def _boost(self, session: Releaser, model: Model, sums: int, places: Sequence[int]) -> None:
        """Release `sums` sums, for one place after the other in turn, and take a step by each."""
        for at in range(sums):
            place = places[at % len(places)]
            leaves = model.leaves(place)
            model.step(place, leaves, session.release(model.query(place, leaves), model.noise.summing))

    def _chosen(self, session: Releaser, model: Model) -> Sequence[Places]:
        """Return the pairs that are named, or those that leave most to explain by their noisy scores, as many as the
        plan has sums for: such as say no more than noise would are counted, and get none of the sums.
        """
        if not model.pairs.found:
            return asked_pairs(self.pairs, session.public.features).named
        scores = model.candidates()
        return model.best(scores, session.release(scores, model.noise.scoring))


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
    ("doubt", "between 0 and 1000", lambda x: 0 <= x <= 1000),
)

"""LazyBB over 1-rules (Asadi, Carmosino, Jahanara, Rafiey and Salamatian, "Private boosted decision trees via smooth
re-weighting", Algorithm 1), with the corrected constants of docs/privacy/lazybb.md. Reads like the paper: weigh,
pick, vote.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from accountant.budget import Relation
from accountant.errors import InputError
from models.ensemble import Vote, VotingEnsemble
from training.engine import Rows
from training.learners.base import PrivateClassifier
from training.learners.reweighting import Projected, Reweighting, Scheduled, rounds_of, sharpness
from training.learners.rules import OneRules, one_rules
from training.session import Public, Releaser

MAX_ROUNDS = 5000
THRESHOLD_UNITS = 2  # of the rounds' price: a misplaced threshold costs more accuracy than one misplaced vote


@dataclass(frozen=True)
class WeightedAgreement:
    """For every 1-rule h: sum over rows of w y h(x), w given by the margins of the votes released so far."""

    rules: OneRules
    reweighting: Reweighting
    votes: tuple[Vote, ...]
    public: Public
    purpose: ClassVar[str] = "select a 1-rule by weighted agreement"
    norm: ClassVar[str] = "range"

    @property
    def size(self) -> int:
        return self.rules.size

    def sensitivity(self, relation: Relation) -> int:
        return self.reweighting.sensitivity(relation, len(self.votes), self.public.records)

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        bound, public = len(self.votes), self.public
        none = np.zeros(2 * bound + 1, dtype=np.int64)
        counts = rows.margin_counts(self.votes, bound) if self.reweighting.reads_counts else none
        weights = self.reweighting.weights(bound, counts, public.records, public.relation)
        return self.rules.scores(rows.signed_sums(self.votes, weights, bound))


@dataclass(frozen=True)
class ThresholdAgreement:
    """For every threshold b in -B..B: the number of rows on which `score > b` agrees with the label.

    One more row moves every such count by something in [0, 1]: range 1 under add/remove, 2 under replace-one.
    """

    votes: tuple[Vote, ...]
    purpose: ClassVar[str] = "select the decision threshold"
    norm: ClassVar[str] = "range"

    @property
    def size(self) -> int:
        return 2 * len(self.votes) + 1

    def sensitivity(self, relation: Relation) -> int:
        return 1 if relation is Relation.ADD_REMOVE else 2

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        negative, positive = rows.score_counts(self.votes, len(self.votes))
        return np.asarray(np.cumsum(negative) + positive.sum() - np.cumsum(positive), np.int64)


def _is_number(value: object, kind: type) -> bool:
    """Parameters come from JSON and from people: a text or a truth value is no number."""
    return isinstance(value, kind) and not isinstance(value, bool)


class LazyBB(PrivateClassifier):
    """Private boosting of 1-rules by smooth reweighting. Two classes.

    Parameters, all public: `rounds` (None: a public rule of records, epsilon and delta), `rate` lambda of the
    exponential weights, `reweighting` "scheduled" (default under add/remove), "projected" (default under replace-one)
    or "auto", `slope` of the schedule, `density` kappa of the projection, `threshold` whether one more selection
    places the decision threshold (the paper has it at 0). Each round costs one selection at the calibrated price
    (range, not twice the sensitivity: half the paper's noise).
    """

    name: ClassVar[str] = "lazybb"

    def __init__(
        self,
        rounds: int | None = None,
        rate: float = 0.4,
        reweighting: Literal["auto", "scheduled", "projected"] = "auto",
        slope: float = 0.1,
        density: float = 0.5,
        threshold: bool = True,
        schema: object = None,
        epsilon: object = 1,
        delta: object = "0.000001",
        relation: str = "add-remove",
    ) -> None:
        super().__init__(schema=schema, epsilon=epsilon, delta=delta, relation=relation)
        self.rounds, self.rate, self.reweighting, self.slope = rounds, rate, reweighting, slope
        self.density, self.threshold = density, threshold

    def check(self, public: Public) -> None:
        if public.classes is None or len(public.classes) != 2:
            raise InputError(f"learner lazybb: {public.target!r} needs exactly two classes")
        if self.rounds is not None and not (_is_number(self.rounds, Integral) and 1 <= self.rounds <= MAX_ROUNDS):
            raise InputError(f"rounds={self.rounds!r}: must be a whole number between 1 and {MAX_ROUNDS}")
        for name, value, high in (("rate", self.rate, 10), ("density", self.density, 1)):
            if not (_is_number(value, Real) and 0 < value <= high):
                raise InputError(f"{name}={value!r}: must be above 0 and at most {high}")
        if not (_is_number(self.slope, Real) and 0 <= self.slope <= 1):
            raise InputError(f"slope={self.slope!r}: must be between 0 and 1")
        if not isinstance(self.threshold, bool):
            raise InputError(f"threshold={self.threshold!r}: must be true or false")
        if self.reweighting not in ("auto", "scheduled", "projected"):
            raise InputError(f"reweighting={self.reweighting!r}: must be auto, scheduled or projected")

    def rounds_for(self, public: Public) -> int:
        return self.rounds or rounds_of(public.records, float(public.budget.epsilon), public.pure)

    def _fit(self, session: Releaser) -> VotingEnsemble:
        public = session.public
        rules, reweighting = one_rules(public.features), self._reweighting(public.relation)
        mechanism = public.selection(session.unit)
        votes: tuple[Vote, ...] = ()
        rounds = self.rounds_for(public)
        for _ in range(rounds):
            pick = session.release(WeightedAgreement(rules, reweighting, votes, public), mechanism)
            votes = (*votes, rules.vote(pick))
        if self.threshold:
            threshold = session.release(
                ThresholdAgreement(votes), public.selection(THRESHOLD_UNITS * session.unit)
            ) - len(votes)
            votes = (*votes, Vote("always", 0, 0, -threshold))
        assert public.classes is not None
        first, second = public.classes
        return VotingEnsemble(public.features, public.target, (first, second), votes, sharpness(self.rate, rounds))

    def _reweighting(self, relation: Relation) -> Reweighting:
        kind = self.reweighting
        if kind == "scheduled" or (kind == "auto" and relation is Relation.ADD_REMOVE):
            return Scheduled(self.rate, self.slope)
        return Projected(self.rate, self.density)

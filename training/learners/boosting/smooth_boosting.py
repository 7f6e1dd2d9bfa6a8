"""What boosting by smooth reweighting has in common, whatever its base learner: its parameters, their checks, the
default rule for those that are not given, and the thresholds that its last selection chooses from.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from accountant.budget import MAX_EPSILON, Relation
from accountant.errors import InputError
from training.learners.base import PrivateClassifier
from training.learners.boosting.defaults import Defaults, defaults
from training.learners.boosting.reweighting import Projected, Reweighting, Scheduled
from training.learners.checks import check_flag, check_real, check_whole, check_word
from training.session import Public

FIRST_WEIGHT = 64  # of a vote, where later ones weigh less
THRESHOLD_UNITS = 2  # of the rounds' price: a misplaced threshold costs more accuracy than one misplaced vote
THRESHOLDS_PER_VOTE = 4
LEAN = 16  # of thresholds with equal agreement, one at the bound is chosen e^-16 times as often as 0 (add/remove)


@dataclass(frozen=True)
class Thresholds:
    """For every threshold b in {-steps .. steps} * step: the number of rows on which `score > b` agrees with the label,
    scores being within -bound .. bound, less `lean` * |b| / bound: a public preference among thresholds that agree on
    about as many rows. Where one class is rare, all those above every score do.

    One more row moves every such count by something in [0, 1]: range 1 under add/remove, 2 under replace-one.
    """

    bound: int
    step: int
    lean: int
    purpose: ClassVar[str] = "select the decision threshold"
    norm: ClassVar[str] = "range"

    @property
    def steps(self) -> int:
        """Thresholds on either side of 0."""
        return -(-self.bound // self.step)

    @property
    def size(self) -> int:
        """Candidates: as many below 0 as above it, and 0."""
        return 2 * self.steps + 1

    def threshold(self, pick: int) -> int:
        """The candidate as a score."""
        return (pick - self.steps) * self.step

    def sensitivity(self, relation: Relation) -> int:
        """1 under add/remove, 2 under replace-one, in rows."""
        return 1 if relation is Relation.ADD_REMOVE else 2

    def agreeing(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """`counts` (2, 2 bound + 1): rows per class and score -> (size,)."""
        negative, positive = counts
        below = np.concatenate([np.zeros((2, 1), np.int64), np.cumsum([negative, positive], axis=1)], axis=1)
        agree = below[0] + positive.sum() - below[1]  # of -bound - 1, which every score is above, to bound
        at = self.step * np.arange(-self.steps, self.steps + 1) + self.bound
        lean = self.lean * np.abs(at - self.bound) // max(1, self.bound)
        return np.asarray(agree[np.clip(at + 1, 0, 2 * self.bound + 1)] - lean, np.int64)


@dataclass(eq=False, repr=False)
class SmoothBooster(PrivateClassifier):
    """Base of the boosters by smooth reweighting, and the parameters that they share; `LazyBB` says what they are."""

    rounds: int | None = None
    _: KW_ONLY
    rate: float | None = None
    reweighting: Literal["auto", "scheduled", "projected"] = "auto"
    slope: float | None = None
    density: float = 0.5
    threshold: bool = True
    weighting: Literal["auto", "exponential", "logistic"] = "auto"
    decay: float | None = None

    def check_smooth(self, most_rounds: int) -> None:
        """InputError where a shared parameter is out of range, or two of them do not go together."""
        check_word("reweighting", self.reweighting, ("auto", "scheduled", "projected"))
        check_word("weighting", self.weighting, ("auto", "exponential", "logistic"))
        check_real("density", self.density, "above 0 and at most 1", lambda x: 0 < x <= 1)
        check_flag("threshold", self.threshold)
        if self.rounds is not None:
            check_whole("rounds", self.rounds, 1, most_rounds)
        if self.rate is not None:
            check_real("rate", self.rate, "above 0 and at most 10", lambda x: 0 < x <= 10)
        for name, value in (("slope", self.slope), ("decay", self.decay)):
            if value is not None:
                check_real(name, value, "between 0 and 1", lambda x: 0 <= x <= 1)
        if self.reweighting == "projected" and self.weighting == "logistic":
            raise InputError("weighting='logistic': projected reweighting has exponential weights")
        if self.reweighting == "projected" and self.decay:
            raise InputError(f"decay={self.decay}: projected reweighting has equal votes; must be 0 or left out")

    def rounds_for(self, public: Public) -> int:
        """Rounds: `rounds`, or by the default rule."""
        return self.settings(public).rounds

    def settings(self, public: Public) -> Defaults:
        """The parameters, and the default rule for those that are not given."""
        rule = defaults(public, None if self.weighting == "auto" else self.weighting)
        if self.reweighting == "projected":
            rule = Defaults(rule.rounds, "exponential", 0.4, 0.0, 0.0)
        return replace(
            rule,
            rounds=rule.rounds if self.rounds is None else self.rounds,
            rate=rule.rate if self.rate is None else self.rate,
            slope=rule.slope if self.slope is None else self.slope,
            decay=rule.decay if self.decay is None else self.decay,
        )

    def reweighting_of(self, settings: Defaults) -> Reweighting:
        """How rows are weighed by their margins, by these settings."""
        if self.reweighting == "projected":
            return Projected(settings.rate, self.density)
        return Scheduled(settings.rate, settings.slope, settings.weighting, unit_of(settings))


def unit_of(settings: Defaults) -> int:
    """What a vote of weight 1 counts in margins."""
    return FIRST_WEIGHT if settings.decay else 1


@lru_cache(maxsize=65536)
def weight_of_vote(earlier: int, settings: Defaults) -> int:
    """Integer weight of an output's next vote after `earlier` ones: (1 + earlier / 5)^-decay units, at least 1."""
    return max(1, round(float(unit_of(settings) * (1 + earlier / 5) ** -settings.decay)))


def threshold_step(settings: Defaults) -> int:
    """Distance of the thresholds that the last selection chooses from."""
    return max(1, unit_of(settings) // THRESHOLDS_PER_VOTE)


def threshold_price(unit: Decimal) -> Decimal:
    """Of the selection of the threshold: THRESHOLD_UNITS * `unit`, as far as one release may cost."""
    return min(MAX_EPSILON, THRESHOLD_UNITS * unit)


def threshold_lean(unit: Decimal) -> int:
    """The preference for small thresholds, in rows, for a selection at `threshold_price`."""
    return int(LEAN / threshold_price(unit))

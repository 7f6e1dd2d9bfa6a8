"""What boosting by smooth reweighting has in common, whatever its base learner: its parameters, their checks, the
default rule for those that are not given, and where its probabilities are placed in the end.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import Literal

from accountant.errors import InputError
from training.learners.base import PrivateClassifier
from training.learners.boosting.defaults import Defaults, defaults
from training.learners.boosting.probabilities import ScoreCounts, counting, noise_in_rows, placed
from training.learners.boosting.reweighting import Projected, Reweighting, Scheduled
from training.learners.checks import check_flag, check_real, check_whole, check_word
from training.session import Public, Releaser

FIRST_WEIGHT = 64  # of a vote, where later ones weigh less


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

    def place(self, session: Releaser, query: ScoreCounts) -> tuple[float, int]:
        """The last release: the link and the constant that go with the scores which `query` counts."""
        mechanism = counting(session.unit)
        noise = noise_in_rows(query, mechanism, session.public)
        return placed(session.release(query, mechanism), query.link, noise)

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

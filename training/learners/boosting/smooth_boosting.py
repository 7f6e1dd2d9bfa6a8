"""What boosting by smooth reweighting has in common, whatever its base learner: its parameters, their checks, the
default rule for those that are not given, and where its probabilities are placed in the end.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import sqrt
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from accountant.noise.mechanisms import DiscreteLaplace
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import MAX_EPSILON, from_nano, nano
from models.parts.answers import Bends
from training.learners.base.checks import check_flag, check_real, check_whole, check_word
from training.learners.base.class_weights import Balance, balance_of, check_balance, class_weights
from training.learners.base.cut_points import (
    Cutting,
    Recut,
    Where,
    check_cuts,
    counted_numbers,
    counts_noise,
    counts_share,
    cut_numbers,
    cutting,
)
from training.learners.base.orders import ORDER_SHARE, Order, check_order, order_categories, ordered_places
from training.learners.base.private_learner import PrivateClassifier
from training.learners.boosting.defaults import RULES, Defaults, Votes, defaults, strength
from training.learners.boosting.probabilities import EXACT, ScoreCounts, counting, fit_bends, fit_link, noise_in_rows
from training.learners.boosting.reweighting import MOST_PROJECTED, Projected, Reweighting, Scheduled
from training.session.session import Public, Releaser, require_alike

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
STEPS = 8
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
    cuts: Where | Literal["auto"] = "auto"
    bins: int | None = None
    balance: float | None = None
    order: Order = "auto"

    most_bins: ClassVar[int] = 64  # by the public rule, where there is much to tell

    def check_smooth(self, public: Public, most_rounds: int) -> None:
        """Raise InputError where a shared parameter is out of range, or two of them do not go together."""
        check_word("reweighting", self.reweighting, ("auto", "scheduled", "projected"))
        check_word("weighting", self.weighting, ("auto", "exponential", "logistic"))
        check_real("density", self.density, "above 0 and at most 1", lambda x: 0 < x <= 1)
        check_flag("threshold", self.threshold)
        check_cuts(self.cuts, self.bins)
        check_balance(self.balance, public)
        check_order(self.order, public)
        self.cutting_of(public)
        if self.rounds is not None:
            check_whole("rounds", self.rounds, 1, most_rounds)
        if self.rate is not None:
            check_real("rate", self.rate, "above 0 and at most 10", lambda x: 0 < x <= 10)
        for name, value in (("slope", self.slope), ("decay", self.decay)):
            if value is not None:
                check_real(name, value, "between 0 and 1", lambda x: 0 <= x <= 1)
        if self.reweighting == "projected" and self.weighting == "logistic":
            raise InputError("weighting='logistic': projected reweighting has exponential weights")
        if self.reweighting == "projected" and self.balance:
            raise InputError(f"balance={self.balance}: projected reweighting has no class weights; leave it out")
        if self.reweighting == "projected":
            require_alike(public, "projected reweighting")
        if self.reweighting == "projected" and public.most > MOST_PROJECTED:
            most = f"rows weighed so are at most {MOST_PROJECTED}, and there may be {public.most}"
            raise InputError(f"reweighting='projected': {most}; scheduled reweighting takes them")
        if self.reweighting == "projected" and self.decay:
            raise InputError(f"decay={self.decay}: projected reweighting has equal votes; must be 0 or left out")

    def rounds_for(self, public: Public) -> int:
        """Return the number of rounds: `rounds`, or by the default rule."""
        return self.settings(public).rounds

    def settings(self, public: Public) -> Defaults:
        """Return the parameters, and the default rule for those that are not given."""
        rule = defaults(public, None if self.weighting == "auto" else self.weighting, self.votes_of(public))
        if self.reweighting == "projected":
            rule = Defaults(rule.rounds, "exponential", 0.4, 0.0, 0.0)
        return replace(
            rule,
            rounds=rule.rounds if self.rounds is None else self.rounds,
            rate=rule.rate if self.rate is None else self.rate,
            slope=rule.slope if self.slope is None else self.slope,
            decay=rule.decay if self.decay is None else self.decay,
        )

    def votes_of(self, public: Public) -> Votes:
        """Return what the default rule is told of the base learner's votes."""
        return RULES

    def cut(self, session: Releaser, releases: int) -> Releaser:
        """Return the session to go on with: where numbers are cut otherwise than declared, or categories ordered, one
        in those bins, after noisy counts of each number and category where these are found. `releases`: how many
        selections the plan has besides.
        """
        public, cuts = session.public, self.cutting_of(session.public)
        features, places = public.features, ordered_places(public, strength(public), self.order)
        if cuts.where != "declared":
            together = float(counts_share(public, strength(public)))
            noise = DiscreteLaplace(_counting(session, 2 * counted_numbers(public), releases, together))
            features = cut_numbers(session, cuts, noise)
        if places:
            known = DiscreteLaplace(_counting(session, len(places), releases, ORDER_SHARE))
            in_rows = counts_noise(public, known)
            features = order_categories(features, places, lambda query: session.release(query, known), in_rows)
        return session if features is public.features else Recut(session, features)

    def cutting_of(self, public: Public) -> Cutting:
        """Return where numbers are cut, by the parameters or the public rule."""
        return cutting(public, strength(public), self.most_bins, self.cuts, self.bins)

    def class_weights(self, public: Public) -> Balance | None:
        """Return what rows of each class weigh; None: all alike."""
        if self.reweighting == "projected":
            return None
        return class_weights(public, balance_of(public, strength(public)) if self.balance is None else self.balance)

    def place(self, session: Releaser, query: ScoreCounts, offset: float) -> tuple[float, int]:
        """Make the last release, and return the link and the constant that go with the scores which `query` counts.
        `offset`: log-odds at a score of 0 by the public rule, other than 0 where classes were weighed.
        """
        return fit_link(*_score_counts(session, query), offset, EXACT - query.bound)

    def bend(self, session: Releaser, query: ScoreCounts, offset: float) -> tuple[float, int, Bends]:
        """Make the last release, and return the same and where log-odds bend."""
        return fit_bends(*_score_counts(session, query), offset, EXACT - query.bound)

    def reweighting_of(self, settings: Defaults, public: Public) -> Reweighting:
        """Return how rows are weighed by their margins, by these settings."""
        if self.reweighting == "projected":
            return Projected(settings.rate, self.density, public.most)
        return Scheduled(settings.rate, settings.slope, settings.weighting, unit_of(settings), public.most)


def _score_counts(session: Releaser, query: ScoreCounts) -> tuple[Integers, float, float]:
    """Release noisy counts by score; return them, the public rule's link, and the noise in rows."""
    mechanism = counting(session.unit)
    return session.release(query, mechanism), query.link, noise_in_rows(query, mechanism, session.public)


def _counting(session: Releaser, counts: int, releases: int, together: float) -> Decimal:
    """Return the epsilon of each of so many counts, which have a part of the budget `together`: of epsilon where delta
    is 0, else of what composes, the squares of the intervals that losses lie in, a count's being twice its epsilon. In
    whole steps of one grid with the selections', which makes for a tight composed claim; else where they are too small
    for it.
    """
    share = together / (1 - together) * releases / counts
    ratio = share if session.public.pure else sqrt(share) / 2
    steps = Fraction(max(1, round(STEPS * ratio)), STEPS) if STEPS * ratio > 0.75 else Fraction(ratio)
    return min(MAX_EPSILON, from_nano(max(1, int(nano(session.unit) * steps))))


def unit_of(settings: Defaults) -> int:
    """Return what a vote of weight 1 counts in margins."""
    return FIRST_WEIGHT if settings.decay else 1


@lru_cache(maxsize=65536)
def weight_of_vote(earlier: int, settings: Defaults) -> int:
    """Weigh an output's next vote after `earlier` ones: (1 + earlier / 5)^-decay units, a whole number, at least 1."""
    return max(1, round(float(unit_of(settings) * (1 + earlier / 5) ** -settings.decay)))

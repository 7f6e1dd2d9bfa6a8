"""The public default rule of `lazybb`: what is used where a parameter is not given.

One rule for all datasets, of public numbers alone: records, epsilon, whether delta is 0, the relation, rows of one unit
of privacy, classes. How it was found, and that it holds on datasets left out: studies/defaults/default-rule.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Literal

import numpy as np

from dpserve_verify.privacy.budget import Relation
from models.features.features import share_of_numbers
from training.session.session import Public

Weighting = Literal["exponential", "logistic"]

MANY_TESTS = 2_000
LOGISTIC_FROM = 30_000  # strength from which the noise is so small that the best weights are those of the log loss
MANY_RECORDS = 40_000  # from here on time counts: trees have fewer rounds, each of which says more


ONLY_NUMBERS = 0.9  # share of the features above which trees on them act together, and vote by larger steps
WEAK, WEAK_RATE = 3_000, 0.2  # a strength, and the rate per vote below it


@dataclass(frozen=True)
class Votes:
    """At most so many rounds, and the rate per vote where weights are logistic, and where they are exponential and
    strength is not WEAK.
    """

    rounds: int
    rate: float
    exponential: float = 0.3


# how these were found: studies/defaults/auto.md
RULES, TREES, TREES_OF_MIXED, TREES_OF_MANY = Votes(400, 0.6), Votes(400, 0.3), Votes(400, 0.15, 0.15), Votes(250, 0.4)


@dataclass(frozen=True)
class Defaults:
    """`rounds`; the `weighting` with its `rate` (per vote of weight 1) and `slope`; `decay` of the votes' weights."""

    rounds: int
    weighting: Weighting
    rate: float
    slope: float
    decay: float


def strength(public: Public) -> float:
    """Return the signal to noise of one selection, up to a constant: records times epsilon, halved where replacing a
    record moves scores twice as far, and divided by the rows that a unit of privacy may have.
    """
    twice = 1 if public.relation is Relation.ADD_REMOVE else 2
    return public.records * float(public.budget.epsilon) / (twice * public.contributions * public.widening)


def votes_of_trees(public: Public) -> Votes:
    """Return the votes of trees, which say more than those of 1-rules: by smaller steps where features are mixed, for
    public splits tell little of what has few values.
    """
    if public.records >= MANY_RECORDS:
        return TREES_OF_MANY
    return TREES_OF_MIXED if share_of_numbers(public.features) <= ONLY_NUMBERS else TREES


def defaults(public: Public, weighting: Weighting | None = None, votes: Votes = RULES) -> Defaults:
    """Return the rule, also for a `weighting` that was chosen.

    Rounds grow as strength^0.4, and by the outputs' root, since outputs share them; fewer where delta is 0: prices then
    add up to more; and where there are more than MANY_TESTS to choose from, for a selection among more needs more.
    """
    power = strength(public)
    outputs = 1 if len(public.classes or ()) == 2 else len(public.classes or ())
    rounds = (1.2 if public.pure else 3.5) * power**0.4 * outputs**0.5
    tests = sum(feature.cuts + len(feature.single_codes) for feature in public.features)
    rounds = min(votes.rounds * outputs**0.5, rounds) * min(1.0, log(MANY_TESTS) / log(max(2, tests))) ** 3
    whole_rounds = round(max(5, rounds))
    if weighting == "logistic" or (weighting is None and power >= LOGISTIC_FROM):
        return Defaults(whole_rounds, "logistic", votes.rate, 0.05, 0.5)
    rate = WEAK_RATE if power < WEAK else votes.exponential
    return Defaults(whole_rounds, "exponential", rate, 0.05, 0.35)


def link_of(settings: Defaults) -> float:
    """Return the slope of the probability per vote of weight 1: p = 1 / (1 + exp(-link * score)).

    The more votes there are, the wider scores spread for the same probabilities. The constants are those of the
    smallest held-out log loss on the datasets of the study; calibrating the slope on private rows would have a price.
    """
    total = float(np.sum((1 + np.arange(settings.rounds) / 5) ** -settings.decay))
    return (75 if settings.weighting == "exponential" else 56) * settings.rate / (total + 35)

"""The claims of LazyBB's further forms against exact laws: logistic weights, votes that weigh less and less, K classes.

As in test_privacy_exact.py: every transcript on every pair of neighbours in a small domain; the largest loss is at most
the claim and at least .6 of it; with half of the sensitivity it exceeds the claim.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import product

import numpy as np
import pytest
from exact_laws import BOOLEAN, canonical, neighbours, public_of, rows_of, transcript_law

from dpserve_verify.privacy.budget import NANO, Relation
from dpserve_verify.privacy.renyi import compose_pure
from models.features.features import CategoricalFeature
from training.calibration.calibrate import rehearse
from training.learners.boosting.defaults import Defaults
from training.learners.boosting.lazybb import LazyBB, WeightedAgreement
from training.learners.boosting.reweighting import SCHEDULED_ONE, Scheduled
from training.learners.boosting.smooth_boosting import FIRST_WEIGHT, weight_of_vote
from training.session.session import Session

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
UNIT = Decimal(2)
TIGHT = 0.6
SLACK = 1e-9
SIZES = {ADD: range(4), REPLACE: range(3, 4)}
CLASSES = {2: ("no", "yes"), 3: ("a", "b", "c")}


@contextmanager
def halved_sensitivity():
    with pytest.MonkeyPatch.context() as patch:
        true = WeightedAgreement.sensitivity
        patch.setattr(WeightedAgreement, "sensitivity", lambda self, relation: true(self, relation) / 2)
        yield


def worst_share(
    learner: LazyBB, relation: Relation, classes: int, fault=nullcontext, constant=False, shares=()
) -> float:
    """Largest loss over all transcripts and neighbours as a share of the plan's pure price."""
    public = replace(public_of(relation, 4, classes=CLASSES[classes]), prevalence=shares)
    plan = rehearse(learner, public, UNIT)
    price = compose_pure(plan.events) / NANO
    rows = tuple(product((0,) if constant else (0, 1), range(classes)))

    @cache
    def law(data):
        with fault():
            return transcript_law(learner, public, UNIT, rows_of(data, BOOLEAN, classes), len(plan))

    worst = 0.0
    for size in SIZES[relation]:
        for one, other in neighbours(relation, size, rows):
            loss = float(np.abs(law(canonical(one)) - law(canonical(other))).max())
            assert loss <= price + SLACK, f"{one} / {other}: loss {loss}, claimed {price}"
            worst = max(worst, loss / price)
    return worst


FORMS = list(product((ADD, REPLACE), ("exponential", "logistic"), (0.0, 1.0)))


def of_form(weighting: str, decay: float, rate: float = 0.1, **more) -> LazyBB:
    return LazyBB(rounds=2, weighting=weighting, rate=rate, slope=0.1, decay=decay, **more)


@pytest.mark.slow
@pytest.mark.parametrize(("relation", "weighting", "decay"), FORMS)
def test_every_transcript_of_two_classes(relation, weighting, decay):
    """Selections alone: the counts that place probabilities are in test_probabilities.py."""
    learner = of_form(weighting, decay, threshold=False)
    assert TIGHT <= worst_share(learner, relation, 2) <= 1 + SLACK
    assert worst_share(of_form(weighting, decay, 2.0, threshold=False), relation, 2) <= 1 + SLACK
    with pytest.raises(AssertionError, match="claimed"):
        worst_share(learner, relation, 2, halved_sensitivity)


@pytest.mark.slow
@pytest.mark.parametrize(("relation", "weighting", "decay"), FORMS[::3])
def test_every_transcript_of_three_classes(relation, weighting, decay):
    """One selection among the rules of all classes costs what it costs for one."""
    learner = of_form(weighting, decay)
    assert TIGHT <= worst_share(learner, relation, 3, constant=True) <= 1 + SLACK
    with pytest.raises(AssertionError, match="claimed"):
        worst_share(learner, relation, 3, halved_sensitivity, constant=True)


@pytest.mark.slow
@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.6, 0.3, 0.1)])
def test_every_transcript_where_classes_are_weighed(relation, shares):
    """The rarer class has the weight that is priced, so the claim is as tight as without."""
    learner, classes = of_form("exponential", 0.0, threshold=False, balance=1.0), len(shares)
    found = worst_share(learner, relation, classes, constant=classes > 2, shares=shares)
    assert (TIGHT if relation is ADD else 0.45) <= found <= 1 + SLACK
    with pytest.raises(AssertionError, match="claimed"):
        worst_share(learner, relation, classes, halved_sensitivity, constant=classes > 2, shares=shares)


def test_three_classes_cost_what_two_cost():
    learner, unit = LazyBB(rounds=7, threshold=False), Decimal("0.01")
    plans = [rehearse(learner, public_of(ADD, classes=classes), unit) for classes in CLASSES.values()]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("weighting", ["exponential", "logistic"])
@pytest.mark.parametrize("unit", [1, 64])
@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_weights_follow_their_formula(weighting, unit, slope):
    bound, rate = 5 * unit, 0.6
    margins = np.arange(-bound, bound + 1) / unit
    found = Scheduled(rate, slope, weighting, unit).weights(bound, np.zeros(0), 100, ADD) / SCHEDULED_ONE
    past = margins - slope * 5
    expected = {
        "exponential": np.minimum(1, np.exp(-rate * past)),
        "logistic": (1 + np.exp(rate * past[0])) / (1 + np.exp(rate * past)),
    }[weighting]
    assert found == pytest.approx(expected, abs=1e-9)
    assert found.max() == 1
    assert (np.diff(found) <= 0).all()


def test_weights_stay_finite_and_within_one_where_margins_are_huge():
    for weighting in ("exponential", "logistic"):
        weights = Scheduled(10.0, 0.05, weighting, 1).weights(100_000, np.zeros(0), 1, ADD)
        assert weights.min() >= 0
        assert weights.max() == SCHEDULED_ONE


def test_votes_weigh_less_and_less():
    weights = [weight_of_vote(earlier, Defaults(9, "logistic", 0.6, 0.05, 0.5)) for earlier in range(2000)]
    assert weights[0] == FIRST_WEIGHT
    assert weights[15] == FIRST_WEIGHT / 2
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] >= 1
    assert {weight_of_vote(earlier, Defaults(9, "logistic", 0.6, 0.05, 0.0)) for earlier in range(100)} == {1}


def test_three_classes_are_learnt():
    """Rows of class k have x = k: three features that name the class each."""
    features = (CategoricalFeature("x", ("a", "b", "c")),)
    public = public_of(ADD, 3000, features=features, classes=CLASSES[3])
    random = np.random.default_rng(0)
    data = [(int(y), int(y)) for y in random.integers(0, 3, 3000)]
    learner = LazyBB()
    recipe = learner.recipe(public)
    ensemble = learner.learn(Session(public, recipe.unit, recipe.plan, rows_of(data, features, 3)))
    found = ensemble.predict({"x": np.array(["a", "b", "c"], dtype=object)})
    assert found.tolist() == ["a", "b", "c"]

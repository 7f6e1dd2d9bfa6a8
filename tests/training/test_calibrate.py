"""Calibration: as much as the target affords, by few trials of the dear bound, and never more."""

from __future__ import annotations

from decimal import Decimal

import pytest
from exact_laws import public_of

from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace, ExponentialSelection
from accountant.privacy.claims import ADAPTIVE, CHEAP_BOUNDS, GAUSSIAN, PURE, claim
from dpserve_verify.privacy.budget import NANO, Budget, Relation, from_nano, nano
from training.calibration import calibrate as module
from training.calibration.calibrate import calibrate, rehearse


class Sums:
    """A query without rows: what it asks for is all that a rehearsal needs."""

    purpose, size = "sums", 3

    def __init__(self, norm: str, sensitivity: int) -> None:
        self.norm, self._sensitivity = norm, sensitivity

    def sensitivity(self, relation: Relation) -> int:
        return self._sensitivity


class Rounds:
    """`count` selections at the unit, then one at twice the unit: the shape of a boosting plan."""

    def __init__(self, count: int) -> None:
        self.count = count

    def learn(self, session):
        for _ in range(self.count):
            session.release(Sums("range", 1), ExponentialSelection(session.unit))
        session.release(Sums("range", 1), ExponentialSelection(2 * session.unit))


class Noise:
    """Gaussian sums: the unit is the inverse of the noise."""

    def learn(self, session):
        multiplier = (1 / session.unit).quantize(Decimal("0.000000001"))
        for _ in range(40):
            session.release(Sums("l2", 1000), DiscreteGaussian(multiplier))


class Counts:
    def learn(self, session):
        session.release(Sums("l1", 1), DiscreteLaplace(session.unit))


@pytest.fixture
def trials(monkeypatch):
    """How often all bounds were asked for."""
    seen = []

    def counted(plan, delta, bounds=module.BOUNDS):
        seen.extend([bounds] if bounds == module.BOUNDS else [])
        return claim(plan, delta, bounds)

    monkeypatch.setattr(module, "claim", counted)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 8, 60, 300])
@pytest.mark.parametrize("epsilon", ["0.001", "0.05", "0.5", "0.777777777", "4"])
def test_the_target_is_met_from_below_with_few_trials(trials, count, epsilon):
    target, learner, public = Budget.of(epsilon, "0.000001"), Rounds(count), public_of(Relation.ADD_REMOVE)
    recipe = calibrate(learner, public, target)
    assert recipe.plan == rehearse(learner, public, recipe.unit)
    assert recipe.claim == claim(recipe.plan, target.delta)
    assert recipe.claim.epsilon <= target.epsilon
    more = from_nano(nano(recipe.unit * Decimal("1.0002")) + 1)
    assert claim(rehearse(learner, public, more), target.delta).epsilon > target.epsilon
    assert len(trials) <= 30


class Bends(Rounds):
    """More rounds where the unit is larger: no plan is another one with other prices."""

    def learn(self, session):
        for _ in range(self.count + int(session.unit * 100)):
            session.release(Sums("range", 1), ExponentialSelection(session.unit))


@pytest.mark.parametrize(("made", "most"), [(Rounds, 2), (Bends, 40)])
def test_a_plan_is_rehearsed_twice_unless_it_bends(monkeypatch, made, most):
    rehearsals = []
    monkeypatch.setattr(
        made, "learn", lambda self, session, learn=made.learn: (rehearsals.append(1), learn(self, session))
    )
    target, learner, public = Budget.of("1", "0.000001"), made(60), public_of(Relation.ADD_REMOVE)
    recipe = calibrate(learner, public, target)
    assert len(rehearsals) <= most
    assert recipe.plan == rehearse(learner, public, recipe.unit)
    assert recipe.claim == claim(recipe.plan, target.delta)
    assert Decimal("0.999") < recipe.claim.epsilon <= 1


def test_the_dear_bound_buys_larger_units():
    target, public = Budget.of("0.5", "0.000001"), public_of(Relation.ADD_REMOVE)
    recipe = calibrate(Rounds(99), public, target)
    assert recipe.claim.bound == ADAPTIVE
    assert claim(recipe.plan, target.delta, CHEAP_BOUNDS).epsilon > Decimal("0.53")
    assert recipe.claim.epsilon > Decimal("0.49999")


@pytest.mark.parametrize("learner", [Rounds(99), Noise()])
def test_within_cheap_bounds_it_finds_what_costs_no_more_and_asks_no_dear_one(trials, learner):
    target, public = Budget.of("0.5", "0.000001"), public_of(Relation.ADD_REMOVE)
    recipe = calibrate(learner, public, target)
    trials.clear()
    floor = calibrate(learner, public, target, within=CHEAP_BOUNDS)
    assert trials == []
    assert floor.claim == claim(floor.plan, target.delta, CHEAP_BOUNDS)
    assert Decimal("0.4999") < floor.claim.epsilon <= target.epsilon
    assert floor.unit <= recipe.unit * Decimal("1.0001")
    assert (floor.unit < recipe.unit * Decimal("0.95")) == (recipe.claim.bound == ADAPTIVE)


def test_gaussian_plans_are_calibrated_by_their_own_bound():
    recipe = calibrate(Noise(), public_of(Relation.ADD_REMOVE), Budget.of("2", "0.000001"))
    assert recipe.claim.bound == GAUSSIAN
    assert Decimal("1.9999") < recipe.claim.epsilon <= 2


@pytest.mark.parametrize("delta", ["0", "0.000000000000000000000000000001"])
def test_pure_plans_are_calibrated_to_the_last_digit(trials, delta):
    recipe = calibrate(Counts(), public_of(Relation.ADD_REMOVE, pure=True), Budget.of("0.123456", delta))
    assert recipe.unit == Decimal("0.123456")
    assert recipe.claim.bound == PURE
    assert len(trials) == 2  # of what the plan will probably be, and of what it is


def test_no_unit_is_above_the_target():
    """At a large delta one release could be larger than its claim; units stay what events may hold."""
    recipe = calibrate(Counts(), public_of(Relation.ADD_REMOVE), Budget.of("100", "0.5"))
    assert recipe.unit <= 100
    assert recipe.unit * NANO == nano(recipe.unit)

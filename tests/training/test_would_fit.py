"""The search for what would fit: what it tells is admitted, nothing above it is, and it rehearses seldom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest

from accountant.noise.mechanisms import ExponentialSelection
from accountant.privacy.claims import price
from accountant.privacy.one_job import room
from dpserve_verify.privacy.budget import Budget, Relation, from_nano
from dpserve_verify.privacy.filter import Filter
from models.features.features import BooleanFeature
from training.calibration import would_fit as module
from training.calibration.calibrate import calibrate
from training.learners import LEARNERS
from training.session.session import Public


class Sums:
    purpose, norm, size = "choose", "range", 9

    def sensitivity(self, relation):
        return 1


class Rule:
    """Rounds by a public rule of epsilon, and a last selection at twice the price."""

    def __init__(self, rounds: Callable[[float], int]) -> None:
        self.rounds, self.rehearsals = rounds, 0

    def learn(self, session):
        self.rehearsals += 1
        for _ in range(self.rounds(float(session.public.budget.epsilon))):
            session.release(Sums(), ExponentialSelection(session.unit))
        session.release(Sums(), ExponentialSelection(2 * session.unit))

    def guess(self, public):
        return None

    def recipe(self, public):
        return calibrate(self, public, public.budget)


RULES = {
    "as many always": lambda epsilon: 30,
    "more for more": lambda epsilon: max(1, round(40 * epsilon**0.4)),
    "fewer for more": lambda epsilon: max(1, round(40 / epsilon)),
    "steep": lambda epsilon: max(1, round(20 * epsilon**2)),
    "odd and even": lambda epsilon: 20 + round(epsilon * 1000) % 2,
}


@pytest.mark.slow
@pytest.mark.parametrize("cap", ["0.0008", "0.31", "1.9"])
@pytest.mark.parametrize("rule", RULES)
def test_what_is_told_would_be_admitted_and_no_step_above_it(rule, cap):
    """A total of so much: told exactly, but where the public rule jumps to and fro."""
    design = Filter.design(Budget.of(cap, "1e-6"))
    learner = Rule(RULES[rule])
    public = Public(
        (BooleanFeature("a"),), "y", ("no", "yes"), 10, Relation.ADD_REMOVE, Budget.of("2.7182", "1e-6"), False
    )

    def at(step):
        return learner.recipe(replace(public, budget=Budget(from_nano(step * module.STEP), public.budget.delta)))

    def admits(plan):
        return design.admits(design.nothing(), price(plan, design.orders))

    refused = learner.recipe(public)
    assert not admits(refused.plan)
    learner.rehearsals = 0
    told = module.would_fit(learner, public, admits, refused.unit)
    assert learner.rehearsals <= 12
    if told is None:
        assert cap == "0.0008"
        return
    step = int(told * 1000)
    assert admits(at(step).plan)
    above = [more for more in range(step + 1, step + 6) if admits(at(more).plan)]
    assert above == [] or rule == "odd and even", (step, above)


def test_nothing_fits():
    learner = Rule(RULES["as many always"])
    public = Public((BooleanFeature("a"),), "y", ("no", "yes"), 10, Relation.ADD_REMOVE, Budget.of("3", "1e-6"), False)
    assert module.would_fit(learner, public, lambda plan: False, learner.recipe(public).unit) is None


def test_what_was_asked_may_lie_between_two_steps():
    learner = Rule(RULES["as many always"])
    asked = Public(
        (BooleanFeature("a"),), "y", ("no", "yes"), 10, Relation.ADD_REMOVE, Budget.of("0.6254", "1e-6"), False
    )
    refused = learner.recipe(asked)
    assert module.would_fit(learner, asked, lambda plan: plan != refused.plan, refused.unit) == Decimal("0.625")


def test_a_step_that_a_job_would_not_get_is_not_told(monkeypatch):
    """The search guesses at plans: what it finds is asked again as a job would be."""
    learner = Rule(RULES["as many always"])
    public = Public((BooleanFeature("a"),), "y", ("no", "yes"), 10, Relation.ADD_REMOVE, Budget.of("3", "1e-6"), False)
    refused = learner.recipe(public)
    monkeypatch.setattr(module, "_largest_claim", lambda *_: 2_999_999_999)
    monkeypatch.setattr(learner, "recipe", lambda public: SimpleNamespace(plan=public.budget.epsilon))
    assert module.would_fit(learner, public, lambda least: least <= Decimal("2.997"), refused.unit) == Decimal("2.997")
    assert module.would_fit(learner, public, lambda least: least <= Decimal("2.9"), refused.unit) is None


@pytest.mark.slow
@pytest.mark.parametrize(("total", "jobs"), [("3", 20), ("0.1", 0), ("0.1", 20), ("0.1", 55)])
def test_the_one_job_that_is_told_fits_by_every_learner_and_no_larger_one_by_noise(total, jobs):
    """What `left` says for everybody, and what a refusal says for one learner."""
    budget = Budget.of(total, "1e-6")
    design = Filter.design(budget)
    features = tuple(BooleanFeature(name) for name in "abcdefgh")
    public = Public(features, "y", ("no", "yes"), 10_000, Relation.ADD_REMOVE, budget, False)
    tenth = LEARNERS["lazybb"]().recipe(replace(public, budget=Budget(budget.epsilon / 10, budget.delta)))
    used = design.nothing()
    for _ in range(jobs):
        used += price(tenth.plan, design.orders)
    most = room(design, used, budget.delta).gaussian
    step = from_nano(module.STEP)
    for name in ("lazybb", "ebm", "bdpe", "forest"):
        learner = LEARNERS[name]()
        told = module.would_fit(
            learner, public, lambda plan: design.admits(used, price(plan, design.orders)), learner.recipe(public).unit
        )  # fmt: skip
        assert most - step < told <= most * Decimal("1.12") + step, name
        if name in ("ebm", "forest"):
            assert told <= most + step, name

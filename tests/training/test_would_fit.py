"""The search for what would fit: exact whatever guides it, and in few tries where the guide is any good."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest

from accountant.budget import Budget, Relation, from_nano
from accountant.errors import InputError
from accountant.privacy.claims import price
from accountant.privacy.filter import Filter
from accountant.privacy.one_job import one_job
from models.features import BooleanFeature
from training import would_fit as module
from training.learners import LEARNERS
from training.session import Public


class Steps:
    """A learner whose plan is its epsilon in steps; counts how often it was calibrated. None below `least`."""

    def __init__(self, monkeypatch, least: int = 1) -> None:
        self.tries, self.least = 0, least
        monkeypatch.setattr(module, "calibrate", self._calibrate)

    def guess(self, public):
        return None

    def recipe(self, public):
        step = int(public.budget.epsilon * 1000)
        if step < self.least:
            raise InputError("too small")
        return SimpleNamespace(plan=step, unit=from_nano(step))

    def _calibrate(self, learner, public, target, guess):
        self.tries += 1
        return self.recipe(public)


def search(learner, asked, admits, fullness):
    public = Public(
        (BooleanFeature("a"),), "y", ("no", "yes"), 10, Relation.ADD_REMOVE, Budget.of(asked, "1e-6"), False
    )
    refused = int(Decimal(asked) * 1000)
    return module.would_fit(learner, public, refused, admits, fullness)


GUIDES = {
    "linear": lambda share: share,
    "square": lambda share: share**2,
    "between": lambda share: 0.4 * share + 0.6 * share**2,
    "used before": lambda share: 0.8 + 0.2 * share**1.5,
    "blind": lambda share: 0.5 if share <= 1 else 2.0,
    "wrong": lambda share: 7.0,
}


@pytest.mark.parametrize("most", [1, 2, 77, 2800, 49_999])
@pytest.mark.parametrize("guide", GUIDES)
def test_it_finds_the_largest_whatever_guides_it(monkeypatch, guide, most):
    learner = Steps(monkeypatch)
    found = search(learner, "50", lambda step: step <= most, lambda step: GUIDES[guide](step / most))
    assert found == Decimal(most) / 1000
    assert learner.tries <= (16 if guide in ("linear", "square", "between") else 60)


def test_nothing_fits(monkeypatch):
    assert search(Steps(monkeypatch), "3", lambda step: False, lambda step: 9.0) is None
    assert search(Steps(monkeypatch, least=500), "3", lambda step: step < 400, lambda step: step / 400) is None


def test_what_was_asked_may_lie_between_two_steps(monkeypatch):
    assert search(Steps(monkeypatch), "0.6254", lambda step: step <= 625, lambda step: step / 625) == Decimal("0.625")


def test_a_step_that_a_job_would_not_get_is_not_told(monkeypatch):
    """The search calibrates from nearby: what it finds is asked again as a job would be."""
    learner = Steps(monkeypatch)
    monkeypatch.setattr(module, "calibrate", lambda *_: SimpleNamespace(plan=0, unit=from_nano(1)))
    assert search(learner, "3", lambda step: step < 2998, lambda step: step / 2998) == Decimal("2.997")


@pytest.mark.parametrize(("total", "jobs"), [("3", 20), ("0.1", 0), ("0.1", 20), ("0.1", 60)])
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
    most = one_job(design, used, budget.delta)
    step = from_nano(module.STEP)
    for name in ("lazybb", "ebm", "bdpe", "forest"):
        learner = LEARNERS[name]()
        told = module.would_fit(
            learner, public, learner.recipe(public).plan,
            lambda plan: design.admits(used, price(plan, design.orders)),
            lambda plan: design.fullness(used + price(plan, design.orders)),
        )  # fmt: skip
        assert most - step < told <= most * Decimal("1.12") + step, name
        if name in ("ebm", "forest"):
            assert told <= most + step, name

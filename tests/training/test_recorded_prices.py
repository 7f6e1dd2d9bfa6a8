"""Prices of a fixed list of jobs are to the last digit what they were when they were recorded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from accountant.privacy.claims import price
from dpserve_verify.errors import InputError
from dpserve_verify.formats import canonical
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from training.learners import LEARNERS
from training.session.session import Public

RECORDED = Path(__file__).parents[1] / "data" / "prices.json"
ORDERS = tuple(map(Decimal, ("1.5", "2", "8", "64")))
FEATURES = (
    NumericFeature("age", tuple(map(float, range(5, 90, 5)))),
    CategoricalFeature("work", tuple(f"w{number}" for number in range(8))),
    *(BooleanFeature(f"f{number}") for number in range(8)),
)
TARGETS = {"two": ("no", "yes"), "three": ("a", "b", "c"), "number": None}
BUDGETS = [("0.01", "1e-6"), ("0.1", "1e-5"), ("1", "1e-6"), ("1", "0"), ("8", "1e-9")]
CASES = {
    f"{learner} {target} {relation.value} {epsilon} {delta}": (learner, target, relation, epsilon, delta)
    for learner in LEARNERS
    for target in TARGETS
    for relation in Relation
    for epsilon, delta in BUDGETS
}


def price_of(case: str) -> str:
    """Return unit, claim, rounds and a digest of plan and price; or why there is none."""
    name, target, relation, epsilon, delta = CASES[case]
    budget = Budget.of(epsilon, delta)
    public = Public(FEATURES, "y", TARGETS[target], 20_000, relation, budget, budget.delta == 0)
    if target == "number":
        public = replace(public, target_range=(0.0, 10.0))
    try:
        found = LEARNERS[name]().recipe(public)
    except InputError as error:
        return str(error)
    cost, claim = price(found.plan, ORDERS), found.claim
    parts = [found.plan.to_json(), [str(cost.pure), cost.unbounded, *map(str, cost.rdp)]]
    digest = hashlib.sha256(canonical.encode(parts, 1 << 24)).hexdigest()[:16]
    return f"{found.unit} {claim.epsilon} {claim.order} {claim.bound} {len(found.plan)} {digest}"


@pytest.mark.parametrize("learner", LEARNERS)
def test_prices_are_what_they_were(learner):
    recorded = json.loads(RECORDED.read_text("utf-8"))
    cases = [case for case in CASES if case.startswith(f"{learner} ")]
    assert len(cases) == 30
    assert {case: price_of(case) for case in cases} == {case: recorded[case] for case in cases}
    assert len(recorded) == len(CASES)

"""A person with several rows: the claim holds for all of them together, exactly enumerated."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import combinations_with_replacement

import numpy as np
import pytest
from exact_laws import EVERY_ROW, canonical, datasets, public_of, rows_of, transcript_law

from dpserve_verify.privacy.budget import NANO, Relation
from dpserve_verify.privacy.renyi import compose_pure
from training.calibration.calibrate import rehearse
from training.learners.boosting.lazybb import LazyBB

pytestmark = pytest.mark.slow

UNIT = Decimal(2)


def worst_loss(learner, rows_of_a_person: int, claimed: int, pure: bool) -> float:
    """Largest loss when a person with so many rows is added, as a share of the plan's pure price."""
    public = replace(public_of(Relation.ADD_REMOVE, 4, pure), contributions=claimed)
    plan = rehearse(learner, public, UNIT)
    price = compose_pure(plan.events) / NANO
    laws = {}

    def law(data):
        key = canonical(data)
        if key not in laws:
            laws[key] = transcript_law(learner, public, UNIT, rows_of(key), len(plan))
        return laws[key]

    worst = 0.0
    for size in range(4):
        for shared in datasets(size):
            for person in combinations_with_replacement(EVERY_ROW, rows_of_a_person):
                worst = max(worst, float(np.abs(law(shared) - law((*shared, *person))).max()))
    return worst / price


def learner_of(reweighting: str) -> LazyBB:
    return LazyBB(rounds=2, rate=0.1, slope=0.1, decay=0.0, reweighting=reweighting, density=1.0, threshold=False)


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("reweighting", ["scheduled", "projected"])
def test_two_rows_of_one_person_cost_what_one_row_did(reweighting, pure):
    learner = learner_of(reweighting)
    assert (0.6 if reweighting == "scheduled" else 0.4) <= worst_loss(learner, 2, 2, pure) <= 1 + 1e-9
    assert worst_loss(learner, 1, 2, pure) <= 0.5 + 1e-9


def test_more_rows_than_were_claimed_show():
    assert worst_loss(learner_of("scheduled"), 2, 1, False) > 1.5

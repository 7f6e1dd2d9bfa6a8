"""The largest single job that fits: exact for Gaussian releases and for pure ones, and quickly told."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest

from accountant.budget import Budget, from_nano, nano
from accountant.ledger.left import left_to_json, left_words
from accountant.privacy.claims import claim, price
from accountant.privacy.events import MAX_NOISE, Gaussian, Plan, PureDp, Release
from accountant.privacy.filter import Filter
from accountant.privacy.one_job import MOST_RELEASES, _gaussian, one_job

SENSITIVITY = 10**6  # in grid units: rounding to integers costs nothing that shows
TOTALS = [("3", "1e-6"), ("1", "1e-5"), ("0.1", "1e-6"), ("0.01", "1e-9"), ("20", "1e-6")]


def gaussians(epsilon: Decimal, delta: Decimal, count: int) -> Plan:
    """The least noise whose claim is at most `epsilon`."""

    def plan(noise: int) -> Plan:
        return Plan.of([Release("p", "m", "l2", SENSITIVITY, Gaussian(from_nano(noise)))] * count)

    low, high = 1, nano(MAX_NOISE)
    while high - low > max(1, low // 10**8):
        middle = (low + high) // 2
        low, high = (middle, high) if claim(plan(middle), delta).epsilon > epsilon else (low, middle)
    return plan(high)


def after_jobs(design: Filter, share: float) -> Filter:
    cost = price(gaussians(design.budget.epsilon / 10, design.budget.delta, 20), design.orders)
    used = design.nothing()
    while design.share(used + cost) < share:
        used += cost
    return used


@pytest.mark.parametrize("count", [1, 100, MOST_RELEASES])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("total", TOTALS)
def test_it_is_what_a_gaussian_job_can_still_get(total, share, count):
    design = Filter.design(Budget.of(*total))
    used, delta = after_jobs(design, share), design.budget.delta
    for asked in (delta, delta / 100):
        most = one_job(design, used, asked)
        assert design.admits(used, price(gaussians(most, asked, count), design.orders))
        more = most * Decimal("1.005") + Decimal("0.001")
        assert not design.admits(used, price(gaussians(more, asked, count), design.orders))


@pytest.mark.parametrize("spent", ["0", "0.3", "2.9"])
def test_without_delta_it_is_what_the_sum_leaves(spent):
    design = Filter.design(Budget.of("3", "0"))
    used = design.nothing()
    if Decimal(spent):
        used += pure(spent, design)
    most = one_job(design, used, Decimal(0))
    assert most == 3 - Decimal(spent)
    assert design.admits(used, pure(most, design))
    assert not design.admits(used, pure(most + Decimal("0.001"), design))


def pure(epsilon, design):
    return price(Plan.of([Release("p", "m", "l1", 1, PureDp(Decimal(epsilon)))]), design.orders)


def test_a_pure_job_fits_beside_gaussian_ones_by_its_renyi_price():
    design = Filter.design(Budget.of("3", "1e-6"))
    used = after_jobs(design, 0.5)
    most = one_job(design, used, Decimal(0))
    assert used.unbounded
    assert 0 < most < 1
    assert design.admits(used, pure(most, design))
    assert not design.admits(used, pure(most + Decimal("0.001"), design))


def test_where_only_the_pure_sum_has_room_a_pure_job_is_told():
    design = Filter.design(Budget.of("3", "1e-6"))
    used = design.nothing()
    for _ in range(5):
        used += pure("0.5", design)
    most = one_job(design, used, design.budget.delta)
    assert design.admits(used, pure(most, design))
    assert most > 0


def test_nothing_is_left_of_a_full_budget():
    design = Filter.design(Budget.of("1", "0"))
    left = left_to_json(0.0, one_job(design, pure("1", design), Decimal(0)), Decimal(0))
    assert left == {"share": "0.000000", "one_job": None}
    assert left_words(left) == "0.0 %: no further job fits"


def test_a_share_is_never_rounded_up():
    budget = {"epsilon": "2.66", "delta": "0.000001"}
    told = left_words({"share": "0.999960", "one_job": budget})
    assert told == "99.9 %: one more job of at most epsilon 2.66 at delta 0.000001"
    assert left_words({"share": "0.000400", "one_job": budget}).startswith("less than 0.1 %")


def test_it_is_told_quickly():
    design = Filter.design(Budget.of("3", "1e-6"))
    _gaussian.cache_clear()
    start = time.process_time()
    one_job(design, design.nothing(), design.budget.delta)
    assert time.process_time() - start < 0.1

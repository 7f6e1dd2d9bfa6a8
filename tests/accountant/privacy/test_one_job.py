"""The largest single job that fits: exact for Gaussian releases and for pure ones, and quickly told."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.ledger.families.left import left_to_json, left_words
from accountant.privacy.claims import claim, price
from accountant.privacy.one_job import MAX_RELEASES, OneJob, Room, _gaussian, one_job, room
from dpserve_verify.privacy.budget import Budget, from_nano, nano
from dpserve_verify.privacy.events import MAX_NOISE, BoundedRange, Gaussian, Plan, PureDp, Release
from dpserve_verify.privacy.filter import Filter

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


@pytest.mark.slow
@pytest.mark.parametrize("count", range(3))
@pytest.mark.parametrize("total", range(len(TOTALS)))
def test_it_is_what_a_gaussian_job_can_still_get(total, count):
    """Every two of total, count and share meet."""
    share = [0.0, 0.4, 0.9][(total + count) % 3]
    total, count = TOTALS[total], [1, 100, MAX_RELEASES][count]
    design = Filter.design(Budget.of(*total))
    used, delta = after_jobs(design, share), design.budget.delta
    for asked in (delta, delta / 100):
        most = room(design, used, asked).gaussian
        assert design.admits(used, price(gaussians(most, asked, count), design.orders))
        more = most * Decimal("1.005") + Decimal("0.001")
        assert not design.admits(used, price(gaussians(more, asked, count), design.orders))


@pytest.mark.parametrize("spent", ["0", "0.3", "2.9"])
def test_without_delta_it_is_what_the_sum_leaves(spent):
    design = Filter.design(Budget.of("3", "0"))
    used = design.nothing()
    if Decimal(spent):
        used += pure(spent, design)
    most = room(design, used, Decimal(0)).pure
    assert most == 3 - Decimal(spent)
    assert design.admits(used, pure(most, design))
    assert not design.admits(used, pure(most + Decimal("0.001"), design))


def pure(epsilon, design):
    return price(Plan.of([Release("p", "m", "l1", 1, PureDp(Decimal(epsilon)))]), design.orders)


def test_a_pure_job_fits_beside_gaussian_ones_by_its_renyi_price():
    design = Filter.design(Budget.of("3", "1e-6"))
    used = after_jobs(design, 0.5)
    most = room(design, used, Decimal(0)).pure
    assert used.unbounded
    assert 0 < most < 1
    assert design.admits(used, pure(most, design))
    assert not design.admits(used, pure(most + Decimal("0.001"), design))


def test_where_only_the_pure_sum_has_room_a_pure_job_is_told():
    design = Filter.design(Budget.of("3", "1e-6"))
    used = pure("2.9", design)
    told = one_job([room(design, used, design.budget.delta)], design.budget.delta)
    assert told == OneJob(told.epsilon, Decimal(0))
    assert design.admits(used, pure(told.epsilon, design))
    assert told.epsilon > 0


def test_of_several_families_it_fits_into_each():
    """A job by noise into all of them, or else one at delta 0 into all of them: never the one here, the other there."""
    rich, noisy, pure_only = Room(*map(Decimal, "32")), Room(*map(Decimal, "11")), Room(Decimal(0), Decimal("0.7"))
    delta = Decimal("0.000001")
    assert one_job([rich, noisy], delta) == OneJob(Decimal(1), delta, gaussian=True)
    assert one_job([rich, noisy, pure_only], delta) == OneJob(Decimal("0.7"), Decimal(0))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(TOTALS), st.floats(0, 0.95), st.booleans(),
    st.lists(st.tuples(st.floats(0.001, 1), st.integers(1, 400), st.booleans()), min_size=1, max_size=4),
)  # fmt: skip
def test_what_is_told_is_admitted_of_whatever_it_is_released(total, share, noisy, parts):
    """Jobs of random parts, scaled until they claim what is told: by noise at delta, of all kinds at delta 0."""
    design = Filter.design(Budget.of(*total))
    used = after_jobs(design, share) if noisy else pure(from_nano(1 + int(nano(design.budget.epsilon) * share)), design)
    delta = design.budget.delta
    fits = room(design, used, delta)

    def by_noise(scale: int) -> Plan:
        noises = [(from_nano(min(nano(MAX_NOISE), max(1, int(scale / size)))), count) for size, count, _ in parts]
        return Plan(tuple((Release("p", "m", "l2", SENSITIVITY, Gaussian(each)), count) for each, count in noises))

    def by_pure(scale: int) -> Plan:
        sizes = [(max(1, int(scale * size)), count, kind) for size, count, kind in parts]
        kinds = [((BoundedRange if kind else PureDp)(from_nano(size)), count) for size, count, kind in sizes]
        return Plan(tuple((Release("p", "m", "range", 1, event), count) for event, count in kinds))

    cases = (
        (fits.gaussian, lambda scale: by_noise(scale), lambda plan: claim(plan, delta).epsilon <= fits.gaussian, -1),
        (fits.pure, lambda scale: by_pure(scale), lambda plan: claim(plan, Decimal(0)).epsilon <= fits.pure, 1),
    )
    for most, plan, within, way in cases:
        low, high = (1, 10**10) if way > 0 else (10**6, nano(MAX_NOISE))  # the largest that is within
        if not most or not within(plan(low if way > 0 else high)):
            continue
        while high - low > max(1, low // 10**6):
            middle = (low + high) // 2
            inside = within(plan(middle))
            low, high = (middle, high) if inside == (way > 0) else (low, middle)
        found = plan(low if way > 0 else high)
        assert within(found)
        assert design.admits(used, price(found, design.orders))


def test_of_few_large_selections_it_does_not_speak():
    """Of the same claim they cost more beside other jobs: so the words name the noise."""
    design = Filter.design(Budget.of("3", "1e-6"))
    used, delta = after_jobs(design, 0.5), design.budget.delta
    told = one_job([room(design, used, delta)], delta)
    few = Plan.of([Release("p", "exponential", "range", 1, BoundedRange(Decimal("0.63")))] * 3)
    assert told.gaussian
    assert claim(few, delta).epsilon < told.epsilon
    assert not design.admits(used, price(few, design.orders))


def test_nothing_is_left_of_a_full_budget():
    design = Filter.design(Budget.of("1", "0"))
    left = left_to_json(0.0, one_job([room(design, pure("1", design), Decimal(0))], Decimal(0)))
    assert left == {"share": "0.000000", "one_job": None}
    assert left_words(left) == "100 % of the budget used. No further job fits"


def test_a_share_is_never_rounded_up():
    job = OneJob(Decimal("2.66"), Decimal("0.000001"), gaussian=True)
    left = left_to_json(0.99996, job)
    assert left["one_job"] == {"epsilon": "2.66", "delta": "0.000001", "noise": "gaussian"}
    assert left_words(left) == "less than 0.1 % of the budget used. Room for one more job: up to epsilon 2.66"
    budget = {"epsilon": "2.66", "delta": "0.000001"}
    assert left_words({"share": "0.000400", "one_job": budget}).startswith("more than 99 % of the budget used. Room")
    pure = left_words({"share": "0.5", "one_job": {"epsilon": "0.1", "delta": "0"}})
    assert pure == "50 % of the budget used. Room for one more job: up to epsilon 0.1 at delta 0"


def test_it_is_told_quickly():
    design = Filter.design(Budget.of("3", "1e-6"))
    _gaussian.cache_clear()
    start = time.process_time()
    room(design, design.nothing(), design.budget.delta)
    assert time.process_time() - start < 0.1

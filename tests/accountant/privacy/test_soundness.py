"""Prices and claims by the definitions: what is sound passes, what is lower by a hair does not, whatever made it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledgers import MECHANISMS

from accountant.privacy import adaptive, gdp
from accountant.privacy.claims import ADAPTIVE, BOUNDS, GAUSSIAN, PURE, RENYI, Claim, claim, price
from dpserve_verify.errors import DpserveError, LedgerInvalid
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.adaptive_opinion import adaptive_delta
from dpserve_verify.privacy.board import board_of
from dpserve_verify.privacy.budget import NANO, Budget
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp, Release, RepeatAndSelect
from dpserve_verify.privacy.filter import Filter, price_to_json
from dpserve_verify.privacy.second_opinion import gaussian_delta
from dpserve_verify.privacy.second_opinion import pure as own_pure
from dpserve_verify.privacy.selection import Poisson, geometric
from dpserve_verify.privacy.soundness import judge_claim, judge_price, pure_sum

DELTA = Decimal("0.000001")


def plan(*runs) -> Plan:
    return Plan(tuple((Release("test", *MECHANISMS[type(event)], 1000, event), count) for event, count in runs))


RANGES = plan((BoundedRange(Decimal("0.0248")), 99))
COINS = plan((PureDp(Decimal("0.05")), 100))
GAUSSIANS = plan((Gaussian(Decimal("30")), 20))
SELECTION = plan((RepeatAndSelect(geometric(Decimal("0.01")), ((PureDp(Decimal("0.01")), 20),)), 1))
POISSON = plan(
    (RepeatAndSelect(Poisson(Decimal(9)), ((Gaussian(Decimal(9)), 2), (BoundedRange(Decimal("0.1")), 1))), 2)
)
MIXED = plan((Gaussian(Decimal(30)), 20), (PureDp(Decimal("0.01")), 2))
MANY = plan((PureDp(Decimal("0.0134")), 20), (BoundedRange(Decimal("0.02")), 60), (BoundedRange(Decimal("0.04")), 1))
PLANS = [RANGES, COINS, GAUSSIANS, SELECTION, POISSON, MIXED, MANY]


def stored(found: Claim):
    order = None if found.order is None else decimal_string(Decimal(repr(found.order)))
    epsilon, delta = decimal_string(found.epsilon), decimal_string(found.delta)
    return {"epsilon": epsilon, "delta": delta, "order": order, "bound": found.bound}


def asked(found: Claim) -> Budget:
    return Budget(max(found.epsilon, Decimal("0.000000001")), found.delta)


@pytest.mark.slow
@pytest.mark.parametrize("what", PLANS)
@pytest.mark.parametrize("delta", ["0.01", "0.000001", "0.000000000001", "0"])
def test_what_the_accountant_claims_is_sound(what, delta):
    found = claim(what, Decimal(delta))
    if found.epsilon.is_finite():
        judge_claim(what, asked(found), stored(found))


@pytest.mark.slow
def test_every_bound_is_met():
    found = {claim(what, DELTA).bound for what in PLANS} | {claim(COINS, Decimal(0)).bound}
    assert found == set(BOUNDS)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("factor", ["0.5", "0.995"])
def test_a_claim_that_is_too_low_is_refused(bound, factor):
    """By the definitions alone, whatever the accountant would say."""
    what = {PURE: COINS, RENYI: MIXED, GAUSSIAN: GAUSSIANS, ADAPTIVE: RANGES}[bound]
    honest = claim(what, Decimal(0) if bound == PURE else DELTA)
    assert honest.bound == bound
    lower = replace(honest, epsilon=honest.epsilon * Decimal(factor))
    with pytest.raises(LedgerInvalid, match="below what the definitions give"):
        judge_claim(what, asked(honest), stored(lower))


@pytest.mark.parametrize("what", PLANS)
@pytest.mark.parametrize("more", ["0.000001", "0.5", "1", "90"])
def test_a_claim_that_is_too_high_is_sound(what, more):
    """It promises less than it could. Nothing that is asked for may be exceeded all the same."""
    honest = claim(what, DELTA)
    higher = replace(honest, epsilon=honest.epsilon + Decimal(more))
    judge_claim(what, asked(higher), stored(higher))
    with pytest.raises(LedgerInvalid, match="above"):
        judge_claim(what, asked(honest), stored(higher))


@pytest.mark.parametrize("what", [RANGES, GAUSSIANS])
def test_a_claim_has_one_form_and_a_bound_that_gives_it(what):
    found = claim(what, DELTA)
    good = stored(found)
    judge_claim(what, Budget(Decimal(5), DELTA), good)
    wrong = [
        {**good, "epsilon": good["epsilon"] + "0"},
        {**good, "delta": "0"},
        {**good, "bound": PURE},
        {**good, "bound": "other"},
        {**good, "bound": None},
        {**good, "order": "8.9"},
        {**good, "bound": RENYI},
        {**good, "bound": RENYI, "order": "1"},
        {**good, "bound": RENYI, "order": "2"},
        {**good, "more": "1"},
        {key: good[key] for key in ("epsilon", "delta", "order")},
        {key: good[key] for key in ("epsilon", "order", "bound")},
        None,
    ]
    for body in wrong:
        with pytest.raises(LedgerInvalid, match="claim"):
            judge_claim(what, Budget(Decimal(5), DELTA), body)
    with pytest.raises(LedgerInvalid, match="above"):
        judge_claim(what, Budget(found.epsilon - Decimal("0.000001"), DELTA), good)


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_bound_is_not_sound_for_a_plan_it_does_not_fit(bound):
    """No bound holds at a nearly free epsilon for one large release of each kind."""
    free = Claim(Decimal("0.000001"), DELTA, 8.9 if bound == RENYI else None, bound)
    for what in (plan((PureDp(Decimal(5)), 1)), plan((Gaussian(Decimal(1)), 1)), POISSON):
        with pytest.raises(LedgerInvalid):
            judge_claim(what, Budget(Decimal(5), DELTA), stored(free))


@pytest.mark.parametrize("what", PLANS)
def test_a_price_is_at_least_that_of_the_definitions(what):
    """Every figure alone: what is lower by two parts of a thousand is refused, half of it too, and what is higher is
    sound."""
    orders = Filter.design(Budget(Decimal(3), DELTA)).orders
    right = price(what, orders)
    for factor, sound in (("0.5", False), ("0.998", False), ("1", True), ("1.02", True), ("2", True)):
        for at in range(len(orders)):
            figures = [*right.rdp]
            figures[at] = int(figures[at] * Decimal(factor))
            judged(what, replace(right, rdp=tuple(figures)), orders, f"at order {decimal_string(orders[at])}", sound)
        if right.pure:
            judged(what, replace(right, pure=int(right.pure * Decimal(factor))), orders, "the pure sum", sound)
    judged(what, replace(right, pure=0, unbounded=1), orders, "", True)  # infinity is above everything
    if right.unbounded:
        judged(what, replace(right, pure=10**12, unbounded=0), orders, "the pure sum", False)


def judged(what: Plan, stated, orders, problem: str, sound: bool) -> None:
    body = price_to_json(stated, orders)
    if sound:
        assert judge_price(what, body, orders).rdp == stated.rdp
    else:
        with pytest.raises(LedgerInvalid, match=f"price: .*{problem}.* is below what the definitions give"):
            judge_price(what, body, orders)


def test_one_unit_less_than_a_simple_price_is_refused():
    """The accountant rounds up and adds one unit for floating point; two less is below."""
    orders = Filter.design(Budget(Decimal(3), DELTA)).orders
    for what in (plan((BoundedRange(Decimal("0.02")), 1)), plan((PureDp(Decimal("0.05")), 1))):
        right = price(what, orders)
        judged(what, replace(right, rdp=tuple(each - 2 for each in right.rdp)), orders, "at order", False)
        judged(what, replace(right, pure=right.pure - 1), orders, "the pure sum", False)


@pytest.mark.parametrize("part", ["pure", "rdp", "unbounded"])
@pytest.mark.parametrize("bad", [None, -1, "-1", "1.0", "NaN", "1e3", 1.5, True, 2, {}, {"8.9": "1"}, "0.0000000001"])
def test_a_price_has_one_form(part, bad):
    orders = Filter.design(Budget(Decimal(3), DELTA)).orders
    body = price_to_json(price(COINS, orders), orders)
    for wrong in ({**body, part: bad}, {**body, "rdp": {**body["rdp"], "8.9": bad}}, {**body, "more": bad}, None):
        with pytest.raises(DpserveError):
            judge_price(COINS, wrong, orders)


@given(st.integers(1, 10 * NANO), st.integers(1, 1000))
def test_pure_sums_are_exact(units, count):
    for kind in (BoundedRange, PureDp):
        event = kind(Decimal(units) / NANO)
        assert own_pure(event) * NANO == units
        assert pure_sum(plan((event, count))) == units * count


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_the_references_are_upper_bounds_of_known_cases(epsilon):
    """One bounded-range release, one coin and one Gaussian, each with a closed form."""
    e = 3.5
    one = (exp(e / 2) - exp(epsilon / 2)) ** 2 / (exp(e) - 1)
    coin = (exp(e) - exp(epsilon)) / (1 + exp(e))
    for event, exact in ((BoundedRange(Decimal(str(e))), one), (PureDp(Decimal(str(e))), coin)):
        for step, slack in ((0.07, 1.05), (0.01, 1.002)):
            assert exact * (1 - 1e-12) <= adaptive_delta([(event, 1)], epsilon, step, 600) <= exact * slack
    assert gaussian_delta(1.0, epsilon) == pytest.approx(gdp.delta_of(1.0, epsilon), rel=1e-9)


def test_the_reference_holds_on_any_grid_and_is_near_the_accountants():
    events, epsilon = RANGES.events, float(claim(RANGES, DELTA).epsilon)
    ours = adaptive.delta_of(events, epsilon)
    step = board_of(events, 1e-6).step
    for finer, most in ((1, 1.0), (3, 2.0)):
        reference = adaptive_delta(events, epsilon, step * finer, 2200 // finer)
        assert ours * 0.98 <= reference <= ours * most

"""The auditor's own prices and claims: what is sound passes, what is lower by a hair does not, whoever computed it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.audit import judge
from accountant.audit.judge import judge_claim, judge_price
from accountant.budget import NANO, Budget
from accountant.canonical import decimal_string
from accountant.errors import LedgerInvalid
from accountant.privacy import adaptive, gdp
from accountant.privacy.claims import ADAPTIVE, BOUNDS, GAUSSIAN, PURE, RENYI, Claim, claim, price
from accountant.privacy.events import BoundedRange, Gaussian, Plan, PureDp, Release, RepeatAndSelect
from accountant.privacy.filter import Filter, price_to_json
from accountant.privacy.second_opinion import adaptive_delta, gaussian_delta
from accountant.privacy.second_opinion import pure as own_pure
from accountant.privacy.selection import Poisson, geometric

DELTA = Decimal("0.000001")


def plan(*runs) -> Plan:
    return Plan(tuple((Release("test", "test", "l2", 1000, event), count) for event, count in runs))


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


def stored(found: Claim, named: bool = True):
    order = None if found.order is None else decimal_string(Decimal(repr(found.order)))
    body = {"epsilon": decimal_string(found.epsilon), "delta": decimal_string(found.delta), "order": order}
    return body | ({"bound": found.bound} if named else {})


def asked(found: Claim) -> Budget:
    return Budget(max(found.epsilon, Decimal("0.000000001")), found.delta)


@pytest.mark.slow
@pytest.mark.parametrize("what", PLANS)
@pytest.mark.parametrize("delta", ["0.01", "0.000001", "0.000000000001", "0"])
@pytest.mark.parametrize("named", [True, False])
def test_what_the_accountant_claims_is_sound(what, delta, named):
    """With all four bounds where the entry names one, with the first two where it names none."""
    found = claim(what, Decimal(delta), BOUNDS if named else (PURE, RENYI))
    if found.epsilon.is_finite():
        judge_claim(what, asked(found), stored(found, named))


@pytest.mark.slow
def test_every_bound_is_met():
    found = {claim(what, DELTA).bound for what in PLANS} | {claim(COINS, Decimal(0)).bound}
    assert found == set(BOUNDS)


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_claim_that_is_too_low_is_known_by_the_definitions_alone(bound, monkeypatch):
    """Even where the accountant itself would say the same: its formula, not only its arithmetic, is in question."""
    what = {PURE: COINS, RENYI: MIXED, GAUSSIAN: GAUSSIANS, ADAPTIVE: RANGES}[bound]
    delta = Decimal(0) if bound == PURE else DELTA
    honest = claim(what, delta)
    assert honest.bound == bound
    lower = replace(honest, epsilon=honest.epsilon * Decimal("0.995"))
    monkeypatch.setattr(judge, "claim", lambda *_: lower)
    with pytest.raises(LedgerInvalid, match="definitions"):
        judge_claim(what, asked(honest), stored(lower))


@pytest.mark.parametrize("what", [RANGES, GAUSSIANS])
def test_a_claim_is_stored_as_it_was_computed(what):
    found = claim(what, DELTA)
    good = stored(found)
    wrong = [
        {**good, "epsilon": decimal_string(found.epsilon + Decimal("0.000001"))},
        {**good, "epsilon": decimal_string(found.epsilon - Decimal("0.000001"))},
        {**good, "bound": PURE},
        {**good, "bound": "other"},
        {**good, "bound": None},
        {**good, "order": "8.9"},
        {**good, "more": "1"},
        {key: good[key] for key in ("epsilon", "delta", "order")},
    ]
    for body in wrong:
        with pytest.raises(LedgerInvalid, match="does not follow"):
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
@pytest.mark.parametrize("factor", ["0.5", "0.98", "1.02", "2"])
def test_a_price_is_judged_by_the_definitions(what, factor, monkeypatch):
    """Were the accountant's price wrong by two percent either way, the auditor would know."""
    orders = Filter.design(Budget(Decimal(3), DELTA)).orders
    right = price(what, orders)
    judge_price(what, price_to_json(right, orders), orders)
    wrong = price_to_json(replace(right, rdp=tuple(int(each * Decimal(factor)) for each in right.rdp)), orders)
    monkeypatch.setattr(judge, "_stored_price", lambda *_: wrong)
    with pytest.raises(LedgerInvalid, match="definitions"):
        judge_price(what, wrong, orders)
    half = price_to_json(replace(right, pure=right.pure // 2), orders)
    monkeypatch.setattr(judge, "_stored_price", lambda *_: half)
    if right.pure:
        with pytest.raises(LedgerInvalid, match="pure"):
            judge_price(what, half, orders)


@given(st.integers(1, 10 * NANO), st.integers(1, 1000))
def test_pure_sums_are_exact(units, count):
    for kind in (BoundedRange, PureDp):
        event = kind(Decimal(units) / NANO)
        assert own_pure(event) * NANO == units
        assert judge._pure(plan((event, count))) == units * count


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
    step = adaptive.board_of(events, 1e-6).step
    for finer, most in ((1, 1.0), (3, 2.0)):
        reference = adaptive_delta(events, epsilon, step * finer, 2200 // finer)
        assert ours * 0.98 <= reference <= ours * most

"""Prices: reference numbers, exact worst cases below, looser theorems above, and rounding only ever upwards."""

from __future__ import annotations

from decimal import Decimal
from math import comb, exp, expm1, inf, log

import numpy as np
import pytest
from exact_laws import exponential_law, permute_and_flip_law
from hypothesis import given
from hypothesis import strategies as st

from accountant.privacy.claims import BOUNDS, PURE, RENYI, claim, price
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import NANO, Budget, nano
from dpserve_verify.privacy.events import SIMPLE, BoundedRange, Event, Gaussian, Plan, PureDp, Release, RepeatAndSelect
from dpserve_verify.privacy.filter import round_up
from dpserve_verify.privacy.renyi import GRID, compose_grid, compose_pure, compose_rdp, epsilon_at, rdp_nano
from dpserve_verify.privacy.selection import geometric

DELTA = Decimal("0.000001")
ORDERS = (1.1, 1.5, 2.0, 8.9, 22.0, 64.0, 500.0, 4000.0)
EPSILONS = ("0.000000001", "0.00001", "0.001", "0.02", "0.3", "1", "4", "30", "100")


@pytest.fixture
def dp():
    """dp_accounting, which takes half a second to load: not in each process that collects tests."""
    import dp_accounting

    return dp_accounting


def plan_of(event: Event, count: int = 1) -> Plan:
    return Plan(((Release("test", "test", "range", 1, event), count),))


def largest_unit(kind, count: int, epsilon: Decimal) -> Decimal:
    """The largest parameter for which `count` events together cost at most `epsilon` at DELTA, by sums and Renyi."""
    low, high = 0, nano(epsilon)
    while low < high:
        middle = (low + high + 1) // 2
        fits = claim(plan_of(kind(Decimal(middle) / NANO), count), DELTA, (PURE, RENYI)).epsilon <= epsilon
        low, high = (middle, high) if fits else (low, middle - 1)
    return Decimal(low) / NANO


# ---- what it buys ----------------------------------------------------------------------------------------------------


def test_what_ninety_nine_rounds_may_cost_each():
    """Total epsilon .5 at delta 1e-6: .0051 by adding up, .0233 as bounded range under Renyi composition."""
    assert round(Decimal("0.5") / 99, 4) == Decimal("0.0051")
    assert round(largest_unit(BoundedRange, 99, Decimal("0.5")), 4) == Decimal("0.0233")
    assert Decimal("0.0051") < largest_unit(PureDp, 99, Decimal("0.5")) < Decimal("0.0125")


EVENTS = [
    BoundedRange(Decimal("0.02")),
    PureDp(Decimal("0.5")),
    Gaussian(Decimal("8.9957")),
    RepeatAndSelect(geometric(Decimal("0.01")), ((PureDp(Decimal("0.1")), 2), (Gaussian(Decimal(9)), 1))),
]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("count", [1, 2, 25, 1000])
def test_compose_is_count_times_compose_of_one(event, count):
    for order in ORDERS:
        assert compose_rdp([(event, count)], order) == count * compose_rdp([(event, 1)], order)
        assert compose_rdp([(event, 1)] * count, order) == compose_rdp([(event, count)], order)
    assert compose_grid([(event, count)]) == [(order, compose_rdp([(event, count)], order) / NANO) for order in GRID]
    turns = [(event, count), (PureDp(Decimal("0.3")), 1), (event, 2), (PureDp(Decimal("0.3")), 4)]
    assert compose_grid(turns) == [(order, compose_rdp(turns, order) / NANO) for order in GRID]
    one = compose_pure([(event, 1)])
    assert compose_pure([(event, count)]) == (None if one is None else count * one)


def test_one_event_without_a_pure_price_leaves_the_whole_without():
    events = [(PureDp(Decimal(1)), 1), (Gaussian(Decimal(5)), 1)]
    assert compose_pure(events) is None
    found = price(Plan((*plan_of(PureDp(Decimal(1))).runs, *plan_of(Gaussian(Decimal(5))).runs)), (Decimal(2),))
    assert found.unbounded == 1


# ---- between an exact worst case and a looser theorem ----------------------------------------------------------------


def renyi(p, q, order) -> float:
    """Renyi divergence of two laws given by their log-probabilities."""
    terms = order * np.asarray(p) + (1 - order) * np.asarray(q)
    return float(np.logaddexp.reduce(terms) / (order - 1))


def worst_of_bounded_range(epsilon: float, order: float) -> float:
    """Renyi divergence of the worst of 2,000 releases with two outcomes, of loss t and t - epsilon."""
    found = 0.0
    for t in np.linspace(0, epsilon, 2001)[1:-1]:
        under_q = log(expm1(epsilon - t)) - log(expm1(epsilon))
        q = np.array([under_q, log(-expm1(under_q))])
        found = max(found, renyi(q + np.array([t, t - epsilon]), q, order))
    return found


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("order", [1.1, 2.0, 8.9, 64.0])
def test_bounded_range_is_the_worst_release_of_two_outcomes(epsilon, order):
    exact, found = worst_of_bounded_range(epsilon, order), BoundedRange(Decimal(str(epsilon))).rdp(order)
    assert exact <= found + 1e-12
    assert found <= exact * (1 + 1e-4)


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("order", [1.1, 2.0, 8.9, 64.0])
def test_pure_dp_is_randomized_response(epsilon, order):
    p = np.array([0, -epsilon]) - np.log1p(exp(-epsilon))
    assert PureDp(Decimal(str(epsilon))).rdp(order) == pytest.approx(renyi(p, p[::-1], order), rel=1e-9)


@pytest.mark.parametrize("sigma", ["0.5", "1", "8.9957", "200"])
@pytest.mark.parametrize("order", [1.1, 2.0, 8.9, 22.0])
def test_gaussian_by_quadrature(sigma, order):
    wide = float(sigma)
    x = np.linspace(-12 * wide, 12 * wide + order, 100_001)
    cell = log((x[1] - x[0]) / wide / (2 * np.pi) ** 0.5)
    p, q = (cell - (x - mean) ** 2 / (2 * wide**2) for mean in (1.0, 0.0))
    assert Gaussian(Decimal(sigma)).rdp(order) == pytest.approx(renyi(p, q, order), rel=1e-6, abs=1e-10)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("order", ORDERS)
def test_looser_theorems_lie_above(epsilon, order):
    e = float(epsilon)
    bounded, pure = BoundedRange(Decimal(epsilon)).rdp(order), PureDp(Decimal(epsilon)).rdp(order)
    assert bounded <= min(order * e * e / 8, e) + 1e-12
    assert pure <= min(order * e * e / 2, e) + 1e-12
    assert bounded <= pure + 1e-12


SCORES = st.lists(st.tuples(st.integers(-40, 40), st.floats(0, 1)), min_size=2, max_size=8)


@given(SCORES, st.sampled_from([0.1, 1.0, 3.0]), st.sampled_from([1.1, 2.0, 8.9, 64.0]))
def test_no_selection_exceeds_its_curve(scores, epsilon, order):
    """The exact laws of both selections over scores that change by something in [0, 1]."""
    one = np.array([value for value, _ in scores], dtype=float)
    other = one + [change for _, change in scores]
    for law, event in ((exponential_law, BoundedRange), (permute_and_flip_law, PureDp)):
        p, q = law(one, epsilon), law(other, epsilon)
        assert np.abs(p - q).max() <= epsilon + 1e-9
        assert max(renyi(p, q, order), renyi(q, p, order)) <= event(Decimal(str(epsilon))).rdp(order) + 1e-9


def test_permute_and_flip_exceeds_the_curve_of_bounded_range():
    """An event of the wrong type would under-count: the type of a release matters."""
    found = max(
        max(renyi(p, q, 64.0), renyi(q, p, 64.0))
        for gap in np.linspace(-3, 3, 61)
        for p, q in [[permute_and_flip_law(np.array([0.0, gap + change]), 1.0) for change in (0.0, 1.0)]]
    )
    assert found > BoundedRange(Decimal(1)).rdp(64.0)


# ---- conversion never below the exact delta --------------------------------------------------------------------------


def delta_of_randomized_response(epsilon: float, count: int, at: float) -> float:
    """Exact delta(at) of `count` randomized responses of `epsilon`."""
    p = 1 / (1 + exp(-epsilon))
    losses = [(comb(count, k) * p**k * (1 - p) ** (count - k), (2 * k - count) * epsilon) for k in range(count + 1)]
    return sum(chance * max(0.0, -expm1(at - loss)) for chance, loss in losses)


def delta_of_bounded_range(epsilon: float, count: int, at: float, steps: int = 12) -> float:
    """What an adaptive adversary reaches with `count` bounded-range releases whose losses lie on a grid."""
    p = [-expm1(t * epsilon / steps - epsilon) / -expm1(-epsilon) for t in range(steps + 1)]
    width = steps * count
    first = round(at / epsilon * steps)
    grid = np.arange(first - width, first + width + 1) * epsilon / steps
    value = np.maximum(-np.expm1(grid), 0)
    for _ in range(count):
        padded = np.concatenate([np.full(steps, value[0]), value, np.full(steps, value[-1])])
        shift = [padded[steps - t : steps - t + value.size] for t in range(steps + 1)]
        back = [padded[2 * steps - t : 2 * steps - t + value.size] for t in range(steps + 1)]
        value = np.max([p[t] * shift[t] + (1 - p[t]) * back[t] for t in range(steps + 1)], axis=0)
    return float(value[width])


@pytest.mark.parametrize("bounds", [(PURE, RENYI), BOUNDS])
@pytest.mark.parametrize("delta", ["0.1", "0.001", "0.000001", "0.000000000001"])
@pytest.mark.parametrize(("epsilon", "count"), [("0.1", 60), ("0.5", 20), ("2", 3)])
def test_the_claim_holds_for_randomized_response_and_is_near(epsilon, count, delta, bounds):
    found = float(claim(plan_of(PureDp(Decimal(epsilon)), count), Decimal(delta), bounds).epsilon)
    assert delta_of_randomized_response(float(epsilon), count, found) <= float(delta)
    if found < 0.99 * count * float(epsilon):
        assert delta_of_randomized_response(float(epsilon), count, 0.6 * found) > float(delta)


@pytest.mark.parametrize("bounds", [(PURE, RENYI), BOUNDS])
@pytest.mark.parametrize("delta", ["0.01", "0.000001"])
@pytest.mark.parametrize(("epsilon", "count"), [("0.1", 40), ("0.5", 15)])
def test_the_claim_holds_for_adaptive_bounded_range_and_is_near(epsilon, count, delta, bounds):
    found = float(claim(plan_of(BoundedRange(Decimal(epsilon)), count), Decimal(delta), bounds).epsilon)
    step = float(epsilon) / 12
    assert delta_of_bounded_range(float(epsilon), count, np.floor(found / step) * step + step) <= float(delta)
    assert delta_of_bounded_range(float(epsilon), count, np.floor(0.7 * found / step) * step) > float(delta)


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("sigma", ["2", "20", "300"])
def test_gaussians_against_dp_accounting(dp, sigma, count):
    """At the same orders the same number; at its own orders hardly ever less."""
    ours = float(claim(plan_of(Gaussian(Decimal(sigma)), count), DELTA, (RENYI,)).epsilon)
    event = dp.GaussianDpEvent(float(sigma))
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    theirs, default = (
        dp.rdp.RdpAccountant(orders, relation).compose(event, count).get_epsilon(1e-6) for orders in (list(GRID), None)
    )
    assert ours == pytest.approx(theirs, abs=3e-6)
    assert ours <= default * 1.0001


def test_default_orders_of_dp_accounting_cost_five_percent_at_small_totals(dp):
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    default = dp.rdp.RdpAccountant(None, relation).compose(dp.GaussianDpEvent(20.0)).get_epsilon(1e-6)
    assert float(claim(plan_of(Gaussian(Decimal(20))), DELTA, (RENYI,)).epsilon) < 0.95 * default


# ---- traps of dp-accounting 0.6.0: should one of these fail after an upgrade, a trap is gone -------------------------


def test_its_distributions_drop_the_count_of_randomized_response(dp):
    """Ours keeps it: two responses cost more than one."""
    event, relation = dp.dp_event.RandomizedResponseDpEvent(0.5, 2), dp.NeighboringRelation.REPLACE_ONE
    once, twice = (dp.pld.PLDAccountant(relation).compose(event, count).get_epsilon(1e-6) for count in (1, 2))
    assert once == pytest.approx(twice)
    assert once == pytest.approx(log(3), rel=1e-3)
    exact = float(claim(plan_of(PureDp(Decimal("1.098612289")), 2), DELTA).epsilon)
    assert exact == pytest.approx(2 * once, rel=1e-3)
    assert delta_of_randomized_response(log(3), 2, once) > 0.1  # far above the delta it is said to hold at


@pytest.mark.parametrize("event", ["GaussianDpEvent", "LaplaceDpEvent"])
def test_its_renyi_accountant_ignores_the_relation(dp, event):
    """So the relation belongs into the sensitivity, which every release states."""
    one, other = (
        dp.rdp.RdpAccountant(None, getattr(dp.NeighboringRelation, name))
        .compose(getattr(dp, event)(9.0), 5)
        .get_epsilon(1e-6)
        for name in ("ADD_OR_REMOVE_ONE", "REPLACE_ONE")
    )
    assert one == other


def test_its_epsilon_at_delta_zero_is_infinite_even_for_a_pure_mechanism(dp):
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = dp.rdp.RdpAccountant(None, relation).compose(dp.LaplaceDpEvent(10.0))
    assert accountant.get_epsilon(0) == inf
    assert claim(plan_of(PureDp(Decimal("0.1"))), Decimal(0)).epsilon == Decimal("0.1")


def test_it_has_no_event_for_the_exponential_mechanism(dp):
    events = [name for name in dir(dp.dp_event) if name.endswith("DpEvent")]
    assert not [name for name in events if "exponential" in name.lower() or "range" in name.lower()]
    assert "RepeatAndSelectDpEvent" in events


def test_without_delta_the_claim_is_the_pure_sum():
    """Where a Renyi accountant answers infinity, whatever the mechanism."""
    plan = plan_of(PureDp(Decimal("0.1")), 7)
    assert claim(plan, Decimal(0)).epsilon == Decimal("0.7")
    assert claim(plan, Decimal(0)).order is None
    assert claim(plan_of(Gaussian(Decimal(5))), Decimal(0)).epsilon == Decimal("Infinity")


def test_a_count_is_not_dropped():
    """dp-accounting 0.6.0 drops it in one branch (its PLD accountant for randomized response)."""
    one, two = (claim(plan_of(PureDp(Decimal(1)), count), DELTA, (PURE,)).epsilon for count in (1, 2))
    assert two == 2 * one == 2
    assert Decimal("1.999") < claim(plan_of(PureDp(Decimal(1)), 2), DELTA).epsilon <= 2


# ---- rounding and order ----------------------------------------------------------------------------------------------


@given(st.integers(1, 100 * NANO), st.sampled_from(ORDERS))
def test_prices_round_up(units, order):
    for kind in (BoundedRange, PureDp):
        event = kind(Decimal(units) / NANO)
        stored = rdp_nano(event, order)
        assert type(stored) is int
        assert event.rdp(order) <= stored / NANO <= event.rdp(order) + 2.1 / NANO


@given(st.integers(1, 100 * NANO - 1), st.integers(1, 1000), st.sampled_from(ORDERS))
def test_prices_grow_with_epsilon_and_fall_with_noise(units, more, order):
    small, large = Decimal(units) / NANO, Decimal(min(units + more, 100 * NANO)) / NANO
    for kind in (BoundedRange, PureDp):
        assert rdp_nano(kind(small), order) <= rdp_nano(kind(large), order) + 1  # one for floating point
    assert rdp_nano(Gaussian(large), order) <= rdp_nano(Gaussian(small), order)


@pytest.mark.parametrize("event", [BoundedRange(Decimal("0.3")), PureDp(Decimal("0.3")), Gaussian(Decimal("3"))])
def test_prices_grow_with_the_order(event):
    stored = [rdp_nano(event, order) for order in GRID]
    assert stored == sorted(stored)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BoundedRange, PureDp])
def test_claims_grow_with_epsilon_and_count_and_fall_with_delta(kind):
    units = [Decimal(k) / 10**4 for k in (1, 5, 9, 11, 50, 300, 1000, 20000)]
    claims = [claim(plan_of(kind(unit), 50), DELTA).epsilon for unit in units]
    assert claims == sorted(claims)
    claims = [claim(plan_of(kind(Decimal("0.01")), count), DELTA).epsilon for count in (1, 2, 10, 100, 1000)]
    assert claims == sorted(claims)
    deltas = [Decimal(10) ** -k for k in range(1, 20)]
    claims = [claim(plan_of(kind(Decimal("0.01")), 500), delta).epsilon for delta in deltas]
    assert claims == sorted(claims)


@pytest.mark.parametrize(("value", "rounded"), [("0.5", "0.5"), ("0.5000001", "0.500001"), ("0.4999999", "0.5")])
def test_claims_round_up_to_six_digits(value, rounded):
    assert round_up(Decimal(value)) == Decimal(rounded)


def test_a_claim_is_never_more_than_the_pure_sum_nor_negative():
    for epsilon in ("0.1", "1", "30"):
        assert 0 < claim(plan_of(BoundedRange(Decimal(epsilon)), 2), DELTA).epsilon <= 2 * Decimal(epsilon)
    assert claim(plan_of(Gaussian(Decimal(10**6))), Decimal("0.5")).epsilon >= 0
    assert epsilon_at(2.0, 0.0, 0.9) < 0


def test_a_claim_is_the_smallest_that_its_bounds_give():
    for event, count in ((BoundedRange(Decimal("0.02")), 50), (Gaussian(Decimal(9)), 3), (PureDp(Decimal("0.1")), 1)):
        single = [claim(plan_of(event, count), DELTA, (PURE, bound)) for bound in BOUNDS]
        found = claim(plan_of(event, count), DELTA)
        assert found.epsilon == min(each.epsilon for each in single)
        assert found == next(each for each in single if each.epsilon == found.epsilon)


@pytest.mark.parametrize("kind", SIMPLE)
def test_extreme_events_have_finite_prices(kind):
    for number in (Decimal(1) / NANO, Decimal(100)):
        for order in (*ORDERS, 8000.0):
            assert 0 < rdp_nano(kind(number), order) < inf


# ---- budgets ---------------------------------------------------------------------------------------------------------

BAD_NUMBERS = [
    "nan",
    "NaN",
    "inf",
    "-inf",
    "0",
    "-1",
    "-0.0",
    "1e-10",
    "0.1234567891",
    "100.000000001",
    "1e300",
    "",
    "x",
]


@pytest.mark.parametrize("epsilon", [*BAD_NUMBERS, float("nan"), float("inf"), 0, None, Decimal("sNaN")])
def test_an_epsilon_that_is_no_epsilon_is_refused(epsilon):
    with pytest.raises(InputError, match="epsilon="):
        Budget.of(epsilon)


@pytest.mark.parametrize("delta", ["nan", "inf", "-1e-6", "1", "1.5", "1e300", "1e-31", "x", float("nan")])
def test_a_delta_that_is_no_delta_is_refused(delta):
    with pytest.raises(InputError, match="delta="):
        Budget.of("1", delta)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "0.50000000000000000000000000000000000001"])
def test_a_budget_refuses_even_when_it_is_not_parsed(number):
    with pytest.raises(InputError, match="epsilon="):
        Budget(Decimal(number), Decimal(0))


@pytest.mark.parametrize(("delta", "records"), [("0.1", 10), ("0.5", 10), ("0.000001", 10**6), ("0.000001", 10**12)])
def test_delta_must_be_below_one_in_records(delta, records):
    with pytest.raises(InputError, match="1/records"):
        Budget.of("1", delta).check_delta(records)


def test_sound_budgets_are_taken_exactly():
    budget = Budget.of(0.1, "0.000001")
    assert budget.epsilon == Decimal("0.1")
    assert budget.to_json() == {"epsilon": "0.1", "delta": "0.000001"}
    budget.check_delta(10**6 - 1)
    Budget.of("100").check_delta(10**12)
    assert nano(Decimal("0.49999999999999999999999999999999999999")) == NANO // 2 - 1

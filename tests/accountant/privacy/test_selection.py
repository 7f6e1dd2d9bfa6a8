"""Private selection: above the exact law of the best of a random number of runs, near dp-accounting, below the looser
theorems; and the number of runs is drawn exactly."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import exp, inf, lgamma, log, log1p

import numpy as np
import pytest
from scipy.stats import chisquare

from accountant.noise import exact_weights, mechanisms
from accountant.noise.mechanisms import draw_runs
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import NANO
from dpserve_verify.privacy.events import (
    BoundedRange,
    Gaussian,
    PureDp,
    RepeatAndSelect,
    event_from_json,
    event_to_json,
)
from dpserve_verify.privacy.renyi import compose_pure, compose_rdp, rdp_nano
from dpserve_verify.privacy.second_opinion import pure, renyi
from dpserve_verify.privacy.selection import (
    Poisson,
    TruncatedNegativeBinomial,
    delta_at,
    geometric,
    logarithmic,
    selection_curve,
)

ORDERS = (1.5, 2.0, 8.9, 22.0, 64.0)
LAWS = [
    geometric(Decimal("0.1")),
    geometric(Decimal("0.001")),
    logarithmic(Decimal("0.02")),
    TruncatedNegativeBinomial(Decimal("-0.5"), Decimal("0.01")),
    TruncatedNegativeBinomial(Decimal("0.5"), Decimal("0.05")),
    TruncatedNegativeBinomial(Decimal("2.5"), Decimal("0.1")),
    Poisson(Decimal(1)),
    Poisson(Decimal("20.5")),
]


def repeated(law, event=PureDp(Decimal("0.1")), count=1) -> RepeatAndSelect:  # noqa: B008
    return RepeatAndSelect(law, ((event, count),))


def generating(law, x):
    """E x^K, from the definition of each distribution."""
    if isinstance(law, Poisson):
        return np.exp(float(law.mean) * (np.asarray(x) - 1))
    shape, gamma = float(law.shape), float(law.gamma)
    if shape == 0:
        return np.log1p(-(1 - gamma) * np.asarray(x)) / log(gamma)
    return ((1 - (1 - gamma) * np.asarray(x)) ** -shape - 1) / (gamma**-shape - 1)


def law_of_the_best(law, once):
    """Outcomes in order of their score: P(best <= y) = f(P(one <= y)); no run at all is an outcome below them all."""
    reached = generating(law, np.concatenate([[0.0], np.cumsum(once)]))
    return np.concatenate([reached[:1], np.diff(reached)])


def renyi_of(p, q, order) -> float:
    held = (p > 0) & (q > 0)
    return float(np.logaddexp.reduce(order * np.log(p[held]) + (1 - order) * np.log(q[held])) / (order - 1))


def responses(epsilon: float, categories: int):
    """Pairs of laws of one run: k-ary randomized response over every pair of true answers."""
    keep = exp(epsilon) / (exp(epsilon) + categories - 1)
    rows = np.full((categories, categories), (1 - keep) / (categories - 1))
    np.fill_diagonal(rows, keep)
    return [(rows[a], rows[b]) for a in range(categories) for b in range(categories) if a != b]


# ---- prices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("epsilon", ["0.1", "1"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_price_covers_every_selection_of_the_best(law, epsilon, order):
    event = repeated(law, PureDp(Decimal(epsilon)))
    for categories in (2, 3):
        for one, other in responses(float(epsilon), categories):
            p, q = law_of_the_best(law, one), law_of_the_best(law, other)
            assert renyi_of(p, q, order) <= event.rdp(order)
            if event.pure is not None:
                held = p > 0
                assert np.abs(np.log(p[held] / q[held])).max() <= float(event.pure)


def test_half_the_price_would_not_cover_them():
    """The geometric law nearly reaches its three epsilon."""
    law = geometric(Decimal("0.000001"))
    p, q = (law_of_the_best(law, one) for one in responses(0.5, 2)[1])
    assert np.abs(np.log(p[1:] / q[1:])).max() > float(repeated(law, PureDp(Decimal("0.25"))).pure)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("order", ORDERS)
def test_looser_theorems_lie_above(law, order):
    """Any single second order; and, for a geometric number, three epsilon (Liu and Talwar 2019)."""
    event = repeated(law, Gaussian(Decimal(5)))
    if isinstance(law, Poisson):
        worst = order / 50 + float(law.mean) + log(law.mean) / (order - 1)
    else:
        spread, grown = -log(float(law.gamma)), 1 + float(law.shape)
        worst = order / 50 + grown * (0.5 * 2 / 50 + spread / 2) + log(law.mean) / (order - 1)
        assert repeated(law).rdp(order) <= float(repeated(law).pure) * (1 + 1e-9)
    assert event.rdp(order) <= worst * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("law", [law for law in LAWS if isinstance(law, Poisson) or law.shape >= 0])
def test_near_dp_accounting(law, order):
    """Its accountant picks the second order among the orders it is given; ours looks between them too."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation  # slow to load: not in each process that collects
    from dp_accounting.dp_event import RepeatAndSelectDpEvent
    from dp_accounting.rdp import RdpAccountant

    orders = [*(1 + np.geomspace(0.01, 10000, 300)), *ORDERS]
    accountant = RdpAccountant(orders, NeighboringRelation.ADD_OR_REMOVE_ONE)
    shape = inf if isinstance(law, Poisson) else float(law.shape)
    accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(5.0), float(law.mean), shape))
    theirs = float(accountant.rdp[orders.index(order)])
    ours = repeated(law, Gaussian(Decimal(5))).rdp(order)
    assert ours <= theirs * (1 + 1e-6)
    if not isinstance(law, Poisson):  # theirs does not use higher orders for the Poisson law
        assert ours == pytest.approx(theirs, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    "runs",
    [
        ((PureDp(Decimal("0.1")), 1),),
        ((Gaussian(Decimal("7.5")), 30), (BoundedRange(Decimal("0.02")), 1)),
        ((BoundedRange(Decimal("0.02")), 99), (PureDp(Decimal("0.04")), 2)),
    ],
)
def test_the_auditor_finds_the_same_prices(law, runs):
    event = RepeatAndSelect(law, runs)
    for order in ORDERS:
        assert event.rdp(order) == pytest.approx(renyi(event, order), rel=5e-3)
    own = pure(event)
    assert (event.pure is None) == (own is None)
    if own is not None:
        assert own <= Fraction(event.pure) <= own + Fraction(1, NANO)


def test_the_pure_price():
    """(2 + shape) epsilon of one whole run; rounded up where that has more digits; none for a Poisson number."""
    runs = ((PureDp(Decimal("0.1")), 3), (BoundedRange(Decimal("0.05")), 2))
    assert RepeatAndSelect(geometric(Decimal("0.1")), runs).pure == Decimal("1.2")
    assert RepeatAndSelect(logarithmic(Decimal("0.1")), runs).pure == Decimal("0.8")
    odd = TruncatedNegativeBinomial(Decimal("0.333333333"), Decimal("0.1"))
    assert repeated(odd, PureDp(Decimal("0.000000001"))).pure == Decimal("0.000000003")
    assert repeated(Poisson(Decimal(3))).pure is None
    assert repeated(geometric(Decimal("0.1")), Gaussian(Decimal(3))).pure is None


@pytest.mark.parametrize("law", LAWS)
def test_compose_is_count_times_compose_of_one(law):
    event = repeated(law, BoundedRange(Decimal("0.02")), 20)
    for order in ORDERS:
        assert compose_rdp([(event, 7)], order) == 7 * rdp_nano(event, order)
    one = compose_pure([(event, 1)])
    assert compose_pure([(event, 7)]) == (None if one is None else 7 * one)


@pytest.mark.parametrize("law", LAWS)
def test_prices_grow_with_what_one_run_costs_and_with_the_order(law):
    for order in ORDERS:
        figures = [repeated(law, PureDp(Decimal(e))).rdp(order) for e in ("0.01", "0.1", "1", "10")]
        assert figures == sorted(figures)
    grid = [1.02 + j / 7 for j in range(600)]
    curve = [repeated(law, Gaussian(Decimal(5))).rdp(order) for order in grid]
    assert all(a <= b * (1 + 1e-4) for a, b in pairwise(curve))


def test_delta_of_one_run():
    curve = Gaussian(Decimal(5)).rdp
    assert delta_at(1.0, curve, inf) == pytest.approx(5e-8, rel=1)
    assert delta_at(0.1, lambda order: 0.1, 0.1) == 0
    assert delta_at(0.0, lambda order: 99.0, inf) == 1
    assert selection_curve(Poisson(Decimal(1)), lambda order: 0.0, 0.0)(3.0) == 0


@pytest.mark.parametrize("law", LAWS)
def test_the_mean_is_that_of_the_distribution(law):
    step = 1e-7
    assert float(law.mean) == pytest.approx((1 - generating(law, 1 - step)) / step, rel=1e-3)


# ---- the stored form -------------------------------------------------------------------------------------------------

GOOD = {
    "type": "repeat-and-select",
    "distribution": {"type": "truncated-negative-binomial", "shape": "-0.5", "gamma": "0.01"},
    "runs": [{"event": {"type": "pure-dp", "epsilon": "0.1"}, "count": 2}],
}
RUN = GOOD["runs"][0]
LAW = GOOD["distribution"]


@pytest.mark.parametrize("law", LAWS)
def test_events_are_read_back(law):
    runs = ((Gaussian(Decimal("7.5")), 30), (BoundedRange(Decimal("0.02")), 1), (Gaussian(Decimal("7.5")), 1))
    event = RepeatAndSelect(law, runs)
    assert event_from_json(event_to_json(event)) == event
    assert hash(event_from_json(event_to_json(event))) == hash(event)


def test_the_spelling_stands():
    event = event_from_json(GOOD)
    assert event_to_json(event) == GOOD
    assert event.pure == Decimal("0.3")
    assert event.rdp(8.9) == pytest.approx(0.3, rel=1e-9)


@pytest.mark.parametrize(
    "body",
    [
        {**GOOD, "more": 1},
        {key: value for key, value in GOOD.items() if key != "runs"},
        *({**GOOD, "runs": runs} for runs in (None, [], [RUN, RUN], [None], [GOOD], [{**RUN, "count": 0}], {"a": RUN})),
        *({**GOOD, "runs": [{**RUN, "count": bad}]} for bad in ("1", 1.0, True, None, 2**31)),
        *({**GOOD, "runs": [{**RUN, "event": bad}]} for bad in (None, GOOD, {"type": "pure-dp"}, {"type": "other"})),
        *({**GOOD, "distribution": bad} for bad in (None, {}, {"type": "poisson"}, {"type": "poisson", "mean": 3})),
        *({**GOOD, "distribution": {**LAW, "shape": bad}} for bad in ("-1", "101", "NaN", 1, None, "0.1234567891")),
        *({**GOOD, "distribution": {**LAW, "gamma": bad}} for bad in ("0", "1", "-0.5", "2", 0.5, "0.0000000001")),
        *({**GOOD, "distribution": {"type": "poisson", "mean": bad}} for bad in ("0.5", "1000001", "-2", "Infinity")),
        {**GOOD, "distribution": {"type": "truncated-negative-binomial", "shape": "2", "gamma": "0.000001"}},
    ],
)
def test_what_is_not_understood_is_refused(body):
    with pytest.raises(InputError):
        event_from_json(body)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "sNaN"])
def test_no_law_without_numbers(number):
    for kind in (Poisson, geometric, lambda x: TruncatedNegativeBinomial(x, Decimal("0.1"))):
        with pytest.raises(InputError):
            kind(Decimal(number))


def test_no_selection_within_a_selection():
    with pytest.raises(InputError, match="runs"):
        RepeatAndSelect(LAWS[0], ((repeated(LAWS[0]), 1),))


# ---- the draw --------------------------------------------------------------------------------------------------------


def chance(law, k: int) -> float:
    """P(K = k), from gamma functions."""
    if isinstance(law, Poisson):
        return exp(k * log(law.mean) - float(law.mean) - lgamma(k + 1))
    shape, gamma = float(law.shape), float(law.gamma)
    if shape == 0:
        return (1 - gamma) ** k / (k * -log(gamma))
    ways = exp(lgamma(k + shape) - lgamma(1 + shape) - lgamma(k + 1)) * shape
    return exp(k * log1p(-gamma)) * ways / (gamma**-shape - 1)


@pytest.mark.statistical
@pytest.mark.parametrize("law", [*LAWS, Poisson(Decimal(150))])
def test_the_number_of_runs_follows_its_law(law):
    """False alarm: 1e-6 for each law; a mean a third larger is told apart."""
    draws, first = 20_000, 0 if isinstance(law, Poisson) else 1
    seen = Counter(draw_runs(law) for _ in range(draws))
    chances = {k: chance(law, k) for k in range(first, 100_000 if first else 400)}
    assert sum(chances.values()) == pytest.approx(1, abs=1e-6)
    often = [k for k, p in chances.items() if p * draws >= 10]
    counts = [*(seen[k] for k in often), draws - sum(seen[k] for k in often)]
    expected = [*(chances[k] * draws for k in often), draws * (1 - sum(chances[k] for k in often))]
    keep = slice(None) if expected[-1] >= 5 else slice(-1)
    scaled = np.array(expected[keep]) * sum(counts[keep]) / sum(expected[keep])
    assert chisquare(counts[keep], scaled).pvalue > 1e-6
    mean = sum(k * n for k, n in seen.items()) / draws
    spread = sum(p * (k - float(law.mean)) ** 2 for k, p in chances.items()) ** 0.5
    assert abs(mean - float(law.mean)) < 5 * spread / draws**0.5


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_every_uniform_number_falls_where_the_law_says(law):
    """A thousand numbers of 32 bits, by the inverse of the distribution function."""
    first = 0 if isinstance(law, Poisson) else 1
    if first:
        going_on = 1 - Fraction(law.gamma)
        shape = (going_on, going_on * (1 + Fraction(law.shape)), 2)
    else:
        shape = (Fraction(0), Fraction(law.mean), 1)
    sums = exact_weights.run_sums(*shape, 32)
    reached = np.cumsum([chance(law, k) for k in range(first, 60_000 if first else 300)])
    for uniform in range(0, 2**32, 2**22 + 12345):
        found = exact_weights.place(*sums, uniform, 32)
        assert found is not None
        assert (reached[found - 1] if found else 0.0) - 1e-9 <= uniform / 2**32 <= reached[found] + 1e-9


def test_more_bits_are_drawn_until_they_tell(monkeypatch):
    """A uniform number on the border of two outcomes needs more digits."""
    drawn = iter([b"\x80" + bytes(7), b"\x01" * 8])
    monkeypatch.setattr(mechanisms.os, "urandom", lambda size: next(drawn))
    assert draw_runs(geometric(Decimal("0.5"))) == 2  # P(K = 1) is one half
    assert next(drawn, None) is None

"""The dataset's filter: reference caps and counts, its integers, and what it admits."""

from __future__ import annotations

from decimal import Decimal
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.privacy.claims import claim, price
from dpserve_verify.errors import InputError
from dpserve_verify.privacy import filter as filter_module
from dpserve_verify.privacy.budget import NANO, Budget, from_nano
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp, Release
from dpserve_verify.privacy.filter import WEIGHTS, Filter, Price, _criteria, price_from_json, price_to_json

THREE = Filter.design(Budget.of("3", "1e-6"))


def job(event, count=1) -> Price:
    return price(Plan.of([Release("p", "m", "range", 1, event)] * count), THREE.orders)


def admitted(design: Filter, cost: Price, most: int = 1000) -> int:
    used, count = design.nothing(), 0
    while count < most and design.admits(used, cost):
        used, count = used + cost, count + 1
    return count


@pytest.mark.parametrize(
    ("epsilon", "caps"),
    [
        ("3", {"8.9": "1.633768288", "17.8": "2.228531214", "35.6": "2.645864868"}),
        ("1", {"22": ".530813889", "44": ".720034791", "88": ".869659660"}),
    ],
)
def test_reference_caps(epsilon, caps):
    found = Filter.design(Budget.of(epsilon, "1e-6"))
    assert {c.order: from_nano(c.cap) for c in found.criteria} == {Decimal(a): Decimal(c) for a, c in caps.items()}


@pytest.mark.parametrize(
    ("cost", "count"),
    [
        (job(PureDp(Decimal("0.5"))), 6),
        (job(BoundedRange(Decimal("0.02")), 25), 146),
        (job(Gaussian(Decimal("8.9957"))), 29),
    ],
)
def test_reference_counts(cost, count):
    assert admitted(THREE, cost) == count == THREE.jobs_left(THREE.nothing(), cost)


@pytest.mark.parametrize(
    ("weights", "count"),
    [(("0.90", "0.05", "0.05"), 63), (("0.98", "0.01", "0.01"), 64), (("1", "1e-30", "1e-30"), 64)],
)
def test_what_other_weights_would_bring(weights, count, monkeypatch):
    """Jobs of 90 selections and claim .1 in (1, 1e-6): one more, and no further one by all of delta at one order."""
    monkeypatch.setattr(filter_module, "WEIGHTS", tuple(map(Decimal, weights)))
    design = Filter(Budget.of("1", "1e-6"), _criteria.__wrapped__(Budget.of("1", "1e-6")))
    plan = Plan.of([Release("p", "exponential", "range", 1, BoundedRange(Decimal("0.005801156")))] * 90)
    assert claim(plan, Decimal("0.000001")).epsilon == Decimal("0.1")
    cost = price(plan, design.orders)
    assert admitted(design, cost) == count == design.jobs_left(design.nothing(), cost)


def test_shares_of_delta_sum_to_one_so_that_some_order_costs_no_more_than_delta():
    assert sum(WEIGHTS) == 1
    assert sum(c.weight for c in THREE.criteria) == 1


@pytest.mark.slow
@given(st.integers(1, 400), st.integers(4, 12))
def test_every_cap_converts_to_the_total_at_its_share_of_delta_and_never_above(tenths, digits):
    budget = Budget(Decimal(tenths) / 10, Decimal(10) ** -digits)
    for c in Filter.design(budget).criteria:
        a, delta = float(c.order), float(budget.delta * c.weight)
        converted = c.cap / NANO + log(1 - 1 / a) - (log(delta) + log(a)) / (a - 1)
        assert converted <= float(budget.epsilon)
        assert converted > float(budget.epsilon) - 1e-8


def test_one_order_alone_promises_what_the_total_says():
    """At the cap, the worst Gaussian composition has an exact delta(epsilon) below its share of delta."""
    from statistics import NormalDist

    for c in THREE.criteria:
        mu = (2 * c.cap / NANO / float(c.order)) ** 0.5
        phi, epsilon = NormalDist().cdf, 3.0
        delta = phi(-epsilon / mu + mu / 2) - exp(epsilon) * phi(-epsilon / mu - mu / 2)
        assert delta <= float(c.weight) * 1e-6
        if c.order == THREE.orders[0]:  # a cap twice as large would break the promise
            mu *= 2**0.5
            assert phi(-epsilon / mu + mu / 2) - exp(epsilon) * phi(-epsilon / mu - mu / 2) > 1e-6


def test_without_delta_only_pure_sums_count():
    pure = Filter.design(Budget.of("1", "0"))
    assert pure.criteria == ()
    half = Price(NANO // 2, 0, ())
    assert admitted(pure, half) == 2
    assert not pure.admits(pure.nothing(), Price(0, 1, ()))


def test_a_job_without_a_pure_price_closes_the_pure_criterion_until_it_is_released():
    gaussian, tiny = job(Gaussian(Decimal("100"))), job(PureDp(Decimal("2.9")))
    assert THREE.admits(THREE.nothing(), tiny)
    assert not THREE.admits(THREE.nothing() + gaussian, tiny)
    assert THREE.admits(THREE.nothing() + gaussian - gaussian, tiny)


PRICES = st.builds(
    Price,
    st.integers(1, 4 * NANO),
    st.integers(0, 1),
    st.tuples(*[st.integers(1, 3 * NANO)] * 3),
)


@given(PRICES, PRICES)
def test_admission_is_the_rule_word_for_word(used, cost):
    pure = used.unbounded + cost.unbounded == 0 and used.pure + cost.pure <= 3 * NANO
    some = any(u + c <= k.cap for u, c, k in zip(used.rdp, cost.rdp, THREE.criteria, strict=True))
    assert THREE.admits(used, cost) == (pure or some)


@given(PRICES, PRICES, PRICES)
def test_more_spent_never_admits_more(used, more, cost):
    assert THREE.admits(used, cost) or not THREE.admits(used + more, cost)
    assert THREE.share(used) <= THREE.share(used + more)
    assert THREE.epsilon_of(used) <= THREE.epsilon_of(used + more) <= 3


@given(st.integers(NANO // 100, NANO // 4), st.integers(NANO // 50, NANO // 2))
def test_jobs_left_is_what_repeated_admission_gives(pure, figure):
    cost = Price(pure * 10, 0, (figure, figure * 2, figure * 4))
    assert THREE.jobs_left(THREE.nothing(), cost) == admitted(THREE, cost)


@given(PRICES)
def test_prices_are_stored_exactly(cost):
    assert price_from_json(price_to_json(cost, THREE.orders), THREE.orders) == cost


@pytest.mark.parametrize("change", [{"rdp": {}}, {"pure": "-1"}, {"pure": 1.5}, {"rdp": {"8.9": "x"}}])
def test_a_stored_price_that_is_not_understood_is_refused(change):
    body = {**price_to_json(job(PureDp(Decimal("0.5"))), THREE.orders), **change}
    with pytest.raises((InputError, KeyError)):
        price_from_json(body, THREE.orders)


# ---- why every order has its own share of delta ----------------------------------------------------------------------


class TwoStage:
    """An adversary against a filter that lets SOME order decide with all of delta in each of them.

    A first release has a rare outcome of loss x, a less rare one of loss y, or nothing. After the first, a second
    release brings the loss to where `high` converts best; after the other, to where `low` does; after nothing it stops.
    """

    def __init__(self, epsilon: float, delta: float, low: float, high: float) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.orders = {"low": low, "high": high}
        self.loss = {"low": 1.2, "high": 1.5}
        self.chance = {"low": exp(-2.9), "high": exp(-9.5)}
        self.rest = {name: self._remaining(name) for name in self.orders}

    def _remaining(self, name: str) -> tuple[float, float]:
        """Loss and chance of the second release's rare outcome: as much as this order's whole cap pays for."""
        a = self.orders[name]
        loss = self.epsilon + log(a / (a - 1)) - self.loss[name]
        low, high = 0.0, 1.0
        for _ in range(100):
            middle = (low + high) / 2
            fits = self.figure(name, a, (loss, middle)) <= conversion(a, self.epsilon, self.delta)
            low, high = (middle, high) if fits else (low, middle)
        return loss, low

    def first(self, a: float) -> float:
        """log E exp((a - 1) loss) of the first release."""
        rare = [(self.chance[name], self.loss[name]) for name in self.orders]
        return log(sum(p * exp((a - 1) * x) for p, x in rare) + rest_of(a, rare))

    def figure(self, name: str, a: float, second: tuple[float, float] | None = None) -> float:
        """Renyi figure at order `a` of the path through outcome `name`."""
        loss, chance = second or self.rest[name]
        rare = [(chance, loss)]
        return (self.first(a) + log(chance * exp((a - 1) * loss) + rest_of(a, rare))) / (a - 1)

    def exact_delta(self) -> float:
        paths = [(self.chance[name] * self.rest[name][1], self.loss[name] + self.rest[name][0]) for name in self.orders]
        return sum(chance * max(0.0, 1 - exp(self.epsilon - loss)) for chance, loss in paths)


def rest_of(a: float, rare: list[tuple[float, float]]) -> float:
    """p^a q^(1-a) of the outcome that is left over."""
    p, q = 1 - sum(chance for chance, _ in rare), 1 - sum(chance * exp(-loss) for chance, loss in rare)
    return p**a * q ** (1 - a) if p > 0 else 0.0


def conversion(a: float, epsilon: float, delta: float) -> float:
    return epsilon - log(1 - 1 / a) + (log(delta) + log(a)) / (a - 1)


def test_some_order_without_splitting_delta_is_no_filter():
    """Every path keeps one order within its undivided cap, and yet the exact delta(3) is far above 1e-6."""
    adversary = TwoStage(3.0, 1e-6, 9.0, 36.0)
    for name, order in adversary.orders.items():
        assert adversary.figure(name, order) <= conversion(order, 3.0, 1e-6)
    assert adversary.exact_delta() > 1.9e-6


def test_the_filter_itself_refuses_one_of_these_paths():
    """Caps of a filter with the same two orders, each with a share of delta, stop the adversary."""
    adversary, shares = TwoStage(3.0, 1e-6, 9.0, 36.0), {"low": 0.95, "high": 0.05}
    refused = [
        name
        for name in adversary.orders
        if all(adversary.figure(name, a) > conversion(a, 3.0, shares[k] * 1e-6) for k, a in adversary.orders.items())
    ]
    assert refused


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("0", "0"), ("-1", "0"), ("nan", "0"), ("inf", "0"), ("101", "0"), ("1e-10", "0"), ("1", "1"), ("1", "-1e-6"),
     ("1", "nan"), ("x", "0"), ("1", "1e-40")],
)  # fmt: skip
def test_budgets_that_mean_nothing_are_refused(epsilon, delta):
    with pytest.raises(InputError):
        Budget.of(epsilon, delta)


def test_delta_must_be_below_one_over_records():
    Budget.of("1", "0.00099").check_delta(1000)
    with pytest.raises(InputError, match="1/records"):
        Budget.of("1", "0.001").check_delta(1000)

"""Gaussian plans: above the exact delta of the integers' own Gaussian, below Renyi, and equal to the textbook's where
the grid is fine."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import exp, log, sqrt

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from accountant.privacy import gdp
from accountant.privacy.claims import BOUNDS, CHEAP_BOUNDS, GAUSSIAN, RENYI, claim
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, Release
from dpserve_verify.privacy.second_opinion import discrete_gaussian_mu, gaussian_delta

DELTA = Decimal("0.000001")


@pytest.fixture
def dp():
    """dp_accounting, which takes half a second to load: not in each process that collects tests."""
    import dp_accounting

    return dp_accounting


def gaussians(noise, count=1, sensitivity=1) -> Plan:
    release = Release("sums", "discrete-gaussian", "l2", sensitivity, Gaussian(Decimal(str(noise))))
    return Plan(((release, count),))


def textbook(mu: float, epsilon: float) -> float:
    """Balle and Wang 2018."""
    return norm.sf(epsilon / mu - mu / 2) - exp(epsilon + norm.logsf(epsilon / mu + mu / 2))


def on_the_integers(noise: float, shift: tuple[int, ...], count: int, epsilon: float) -> float:
    """Exact delta of `count` draws of the discrete Gaussian whose means lie `shift` apart, with sensitivity |shift|.

    The loss is (2 <w, shift> + |shift|^2) / (2 sigma^2) for noise w, and <w, shift> is a sum of independent integers.
    """
    square = sum(step * step for step in shift)
    sigma = noise * sqrt(square)
    reach = int(40 * sigma)
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    law, one = np.ones(1), one / one.sum()
    for step in list(shift) * count:
        spread = np.zeros(2 * reach * abs(step) + 1)
        spread[:: abs(step)] = one
        law = np.convolve(law, spread)
    w = np.arange(law.size) - law.size // 2
    loss = (2 * w + count * square) / (2 * sigma**2)
    return float(law @ np.maximum(0, -np.expm1(epsilon - loss)))


@pytest.mark.parametrize("delta", ["0.01", "0.000001", "0.0000000001"])
@pytest.mark.parametrize(
    ("noise", "shift", "count"),
    [(2.1, (1,), 1), (3, (1,), 1), (5, (1,), 6), (9, (1,), 30), (4, (1, 1), 1), (1.5, (1, 1, 1, 1), 2), (0.9, (3,), 1)],
)
def test_the_claim_holds_for_the_sampler_that_draws(noise, shift, count, delta):
    plan = gaussians(noise, count, int(sum(step * step for step in shift) ** 0.5 + 0.999))
    found = gdp.epsilon_of(plan, Decimal(delta))
    assert on_the_integers(noise, shift, count, float(found)) <= float(delta)
    if count > 1:
        assert on_the_integers(noise / 2, shift, count, float(found)) > float(delta)  # half the noise would show


def test_the_discrete_gaussian_is_not_gaussian_dp():
    """Why the correction stands: at the textbook's epsilon the exact delta of the integers is above delta."""
    worse = 0
    for delta in np.geomspace(1e-8, 1e-3, 30):
        epsilon = brentq(lambda x, delta=delta: textbook(1 / 2.5, x) - delta, 0, 20)
        worse += on_the_integers(2.5, (1,), 1, epsilon) > delta * 1.001
    assert worse >= 3


@pytest.mark.parametrize("noise", ["0.6", "3", "30", "400"])
@pytest.mark.parametrize("count", [1, 17, 400])
def test_on_a_fine_grid_it_is_the_textbook_rounded_up(noise, count):
    found = gdp.epsilon_of(gaussians(noise, count, 2**20), DELTA)
    mu = sqrt(count) / float(noise)
    exact = brentq(lambda x: log(max(textbook(mu, x), 1e-300)) - log(1e-6), 0, 10 + 10 * mu**2)
    assert -1e-9 <= float(found) - exact <= 1.1e-6 + 1e-8 * exact


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "count"), [("2", 1), ("30", 20), ("9", 300)])
def test_it_lies_between_dp_accounting_and_renyi(dp, noise, count):
    plan = gaussians(noise, count, 2**20)
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    event = dp.GaussianDpEvent(float(noise))
    exact = dp.pld.PLDAccountant(relation, 1e-4).compose(event, count).get_epsilon(1e-6)
    found = claim(plan, DELTA)
    assert found.bound == GAUSSIAN
    assert float(found.epsilon) <= exact * 1.001
    assert exact * 0.99 <= float(found.epsilon) < float(claim(plan, DELTA, (RENYI,)).epsilon)


def test_what_the_rounding_costs_is_two_grid_units_of_sigma():
    for noise, sensitivity in ((9, 1), (3, 3), (Decimal("0.5"), 100)):
        expected = Fraction(sensitivity**2) / (Fraction(noise) ** 2 * sensitivity**2 - 4)
        assert gdp.squared_mu(gaussians(noise, 1, sensitivity)) == expected
        assert discrete_gaussian_mu(Decimal(noise), sensitivity) == expected


def test_gaussians_add_up_by_squares():
    """compose(e, n) is n times compose(e), whatever the order and the split."""
    one, many = gaussians("9", 1, 100), gaussians("9", 60, 100)
    assert gdp.squared_mu(many) == 60 * gdp.squared_mu(one)
    mixed = Plan((*gaussians("9", 30, 100).runs, *gaussians("5", 2, 7).runs, *gaussians("9", 30, 100).runs))
    assert gdp.squared_mu(mixed) == gdp.squared_mu(many) + 2 * gdp.squared_mu(gaussians("5", 1, 7))
    assert gdp.epsilon_of(mixed, DELTA) > gdp.epsilon_of(many, DELTA)


@pytest.mark.parametrize("mu", [1e-6, 0.01, 0.3, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0, 3.0, 6.0])
def test_the_curve_is_never_below_the_truth(mu, share):
    epsilon = share * mu + mu * mu / 2 * (share > 0)
    assert gdp.delta_of(mu, epsilon) >= textbook(mu, epsilon) * (1 - 1e-9) - 1e-16
    assert gdp.delta_of(mu, epsilon) == pytest.approx(gaussian_delta(mu * mu, epsilon), rel=1e-6)


@pytest.mark.parametrize("x", [0.0, 0.5, 4.9, 5.0, 5.1, 9.0, 30.0])
def test_mills_ratio_is_bounded_from_both_sides(x):
    truth = exp(norm.logsf(x) - norm.logpdf(x))
    assert gdp.mills(x, upper=False) <= truth * (1 + 1e-12)
    assert truth * (1 - 1e-12) <= gdp.mills(x, upper=True) <= truth * (1 + 2e-12)


@pytest.mark.parametrize(
    "plan",
    [
        gaussians("2"),  # two grid units: nothing is left for the continuous part
        gaussians("0.001", 1, 1999),
        gaussians("0.001", 1, 10**6),  # epsilon beyond sense
        Plan((*gaussians("9").runs, (Release("t", "exponential", "range", 1, BoundedRange(Decimal(1))), 1))),
        Plan(()),
    ],
)
def test_where_it_does_not_apply_the_others_stand(plan):
    assert gdp.epsilon_of(plan, DELTA) is None
    assert claim(plan, DELTA).bound != GAUSSIAN
    assert claim(plan, DELTA) == claim(plan, DELTA, CHEAP_BOUNDS) == claim(plan, DELTA, BOUNDS)


def test_without_delta_there_is_no_gaussian_claim():
    assert gdp.epsilon_of(gaussians("9"), Decimal(0)) is None

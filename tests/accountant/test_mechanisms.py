"""Draws follow the exact law their price is computed from. The right scale is accepted, a scale wrong by two rejected.

Statistical tests compare draws with the exact law by chi-square at 1e-6: the chance of a false alarm is 1e-6 for each,
and the wrong scales lie so far off that missing one is less likely still. 20,000 draws see a scale that is off by a
tenth; where something gross is looked for, FEW do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from math import inf, nextafter

import numpy as np
import pytest
from exact_laws import exponential_law, permute_and_flip_law
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from accountant.noise import mechanisms
from accountant.noise.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialSelection,
    PermuteAndFlip,
)
from dpserve_verify.privacy.events import BoundedRange, Gaussian, PureDp

DRAWS = 20_000
FEW = 6_000
FALSE_ALARM = 1e-6
SCORES = np.array([7, 3, 3, 0, -9, 5], dtype=np.int64)
TOP = np.iinfo(np.int64).max
SELECTIONS = [(ExponentialSelection, exponential_law), (PermuteAndFlip, permute_and_flip_law)]
EPSILON, SENSITIVITY = Decimal("1.5"), 6
RATE = 0.25


def p_value(seen: Counter[int], law: dict[int, float]) -> float:
    """Chi-square of the counts against `law`; outcomes expected fewer than 10 times are taken together."""
    draws = seen.total()
    often = [outcome for outcome, p in law.items() if p * draws >= 10]
    counts = [seen[outcome] for outcome in often]
    chances = [law[outcome] for outcome in often]
    rest, left = draws - sum(counts), max(0.0, 1 - sum(chances))
    if left * draws >= 1:
        counts, chances = [*counts, rest], [*chances, left]
    elif rest > 20:
        return 0.0
    expected = np.array(chances) / sum(chances) * sum(counts)
    return float(chisquare(counts, expected).pvalue)


def noise_law(exponent) -> dict[int, float]:
    weights = {z: float(np.exp(exponent(z))) for z in range(-400, 401)}
    total = sum(weights.values())
    return {z: weight / total for z, weight in weights.items()}


def selection_draws(kind, scores, draws=DRAWS) -> Counter[int]:
    mechanism = kind(EPSILON)
    return Counter(mechanism.draw(scores, SENSITIVITY) for _ in range(draws))


def assert_right_scale_only(seen: Counter[int], law_at) -> None:
    """`law_at(factor)`: the law if the noise's scale were the true one times 1 / factor."""
    assert p_value(seen, law_at(1)) > FALSE_ALARM, f"false alarm with probability {FALSE_ALARM}"
    assert p_value(seen, law_at(2)) < FALSE_ALARM, "a scale half as large is not told apart"
    assert p_value(seen, law_at(0.5)) < FALSE_ALARM, "a scale twice as large is not told apart"


@pytest.mark.statistical
@pytest.mark.parametrize(("kind", "law"), SELECTIONS)
def test_law_of_a_selection(kind, law):
    """False alarm: 1e-6."""
    seen = selection_draws(kind, SCORES)
    assert_right_scale_only(seen, lambda factor: dict(enumerate(np.exp(law(SCORES, RATE * factor)))))


@pytest.mark.statistical
@pytest.mark.parametrize(("kind", "law"), SELECTIONS)
@pytest.mark.parametrize("shift", [TOP - 7, -TOP + 9])
def test_law_of_a_selection_at_the_ends_of_the_integers(kind, law, shift):
    """Scores of 63 bits differ in their last digits: a float would not see it. False alarm: 1e-6."""
    seen = selection_draws(kind, SCORES + shift, FEW)
    assert p_value(seen, dict(enumerate(np.exp(law(SCORES, RATE))))) > FALSE_ALARM


@pytest.mark.statistical
def test_the_two_selections_differ():
    """Each is told apart from the other's law: missing it is less likely than 1e-7."""
    seen = selection_draws(PermuteAndFlip, SCORES, FEW)
    assert p_value(seen, dict(enumerate(np.exp(exponential_law(SCORES, RATE))))) < FALSE_ALARM


@pytest.mark.statistical
@pytest.mark.parametrize("centre", [0, 41, -(10**15)])
def test_law_of_discrete_laplace(centre):
    """False alarm: 1e-6."""
    drawn = DiscreteLaplace(EPSILON).draw(np.full(DRAWS, centre, dtype=np.int64), SENSITIVITY)
    seen = Counter((drawn - centre).tolist())
    assert_right_scale_only(seen, lambda factor: noise_law(lambda z: -factor * RATE * abs(z)))


@pytest.mark.statistical
@pytest.mark.parametrize("centre", [0, -(10**15)])
def test_law_of_discrete_gaussian(centre):
    """False alarm: 1e-6."""
    drawn = DiscreteGaussian(Decimal("0.75")).draw(np.full(DRAWS, centre, dtype=np.int64), 4)
    seen = Counter((drawn - centre).tolist())
    assert_right_scale_only(seen, lambda factor: noise_law(lambda z: -(z**2) / 2 * (factor / 3) ** 2))


@pytest.mark.parametrize("kind", [ExponentialSelection, PermuteAndFlip])
@pytest.mark.parametrize("epsilon", ["0.000000001", "1", "100"])
@pytest.mark.parametrize("sensitivity", [1, 2**38, 2**62])
def test_extreme_scores_break_no_selection(kind, epsilon, sensitivity):
    for scores in ([TOP, -TOP - 1], [-TOP - 1] * 3, [TOP] * 3, [0]):
        pick = kind(Decimal(epsilon)).draw(np.array(scores, dtype=np.int64), sensitivity)
        assert type(pick) is int
        assert 0 <= pick < len(scores)
    far = np.array([0, TOP], dtype=np.int64)
    assert kind(Decimal(1)).draw(far, 1) == 1  # else with probability e^-9e18


@pytest.mark.parametrize("mechanism", [DiscreteLaplace(Decimal("0.000000001")), DiscreteGaussian(Decimal(10**9))])
def test_extreme_counts_are_clamped_and_not_wrapped(mechanism):
    drawn = mechanism.draw(np.array([TOP, -TOP - 1] * 50, dtype=np.int64), 1)
    assert drawn.dtype == np.int64
    assert (drawn[::2] > 0).all()
    assert (drawn[1::2] < 0).all()


@given(st.integers(1, 2**80), st.integers(1, 10**11))
def test_scales_are_never_rounded_towards_less_noise(sensitivity, units):
    """The float is the smallest one that is not below the exact quotient."""
    epsilon = Decimal(units) / 10**9
    exact, scale = Fraction(sensitivity) / Fraction(epsilon), mechanisms.scale_of(sensitivity, epsilon)
    assert Fraction(scale) >= exact > Fraction(nextafter(scale, -inf))


def test_a_scale_that_is_no_float_is_rounded_up():
    third = mechanisms.scale_of(1, Decimal(3))
    assert Fraction(third) > Fraction(1, 3)
    assert mechanisms.scale_of(6, Decimal("1.5")) == 4.0


@pytest.mark.parametrize(
    ("kind", "event", "norm"),
    [
        (ExponentialSelection, BoundedRange, "range"),
        (PermuteAndFlip, PureDp, "range"),
        (DiscreteLaplace, PureDp, "l1"),
        (DiscreteGaussian, Gaussian, "l2"),
    ],
)
def test_price_and_draw_read_one_number(kind, event, norm):
    assert kind(Decimal("0.25")).event == event(Decimal("0.25"))
    assert kind.norm == norm
    assert len(fields(kind)) == 1
    assert kind.__dataclass_params__.frozen


def test_numpy_seed_has_no_say():
    """Two sequences of 100 draws under one seed agree with probability below 1e-50."""
    sequences = []
    for _ in range(2):
        np.random.seed(0)
        sequences.append([ExponentialSelection(Decimal(1)).draw(np.zeros(10, np.int64), 1) for _ in range(100)])
    assert sequences[0] != sequences[1]

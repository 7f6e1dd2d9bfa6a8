"""How a budget is laid out over the histograms and the sums of DP-EBM: two mechanisms that grow with one unit."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, sqrt

from accountant import gdp
from accountant.budget import MAX_EPSILON, NANO, from_nano, nano
from accountant.events import MAX_NOISE
from accountant.mechanisms import DiscreteGaussian, DiscreteLaplace
from training.learners.ebm_defaults import EbmDefaults
from training.learners.ebm_queries import Norm
from training.session import Public


@dataclass(frozen=True)
class Noise:
    """`counting` for the histograms, `summing` for the rest; `spread`: the standard deviation of the latter's noise,
    as a multiple of a query's sensitivity.
    """

    counting: DiscreteGaussian | DiscreteLaplace
    summing: DiscreteGaussian | DiscreteLaplace
    norm: Norm
    spread: float


def noise_of(public: Public, unit: Decimal, settings: EbmDefaults) -> Noise:
    """Sums get `unit`: epsilon where delta is 0, else mu = 1 / noise multiplier. Histograms get `share` of the total:
    of epsilon, or of mu^2. A larger unit never has more noise.
    """
    ratio = _ratio(settings)
    if public.pure:
        part = from_nano(min(max(1, int(ratio * nano(unit))), nano(MAX_EPSILON)))
        return Noise(DiscreteLaplace(part), DiscreteLaplace(unit), "l1", sqrt(2) / float(unit))
    summing, counting = _multiplier(1 / Fraction(unit)), _multiplier(Fraction(1 / sqrt(ratio)) / Fraction(unit))
    return Noise(DiscreteGaussian(counting), DiscreteGaussian(summing), "l2", float(summing))


def unit_near(public: Public, settings: EbmDefaults) -> Decimal:
    """A unit a little below the largest that the budget carries: where calibration starts, and need not search."""
    epsilon, features = float(public.budget.epsilon), len(public.features)
    units = 1 + features * (settings.epochs + float(_ratio(settings)))
    found = epsilon / units if public.pure else _mu(epsilon, float(public.budget.delta)) / sqrt(units)
    return from_nano(int(found * (1 - 1e-7) * NANO))


def _mu(epsilon: float, delta: float) -> float:
    """The largest mu whose Gaussian is (epsilon, delta)-DP."""
    low, high = 0.0, 2 * sqrt(epsilon) + 2 * epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gdp.delta_of(middle, epsilon) <= delta else (low, middle)
    return low


def _ratio(settings: EbmDefaults) -> Fraction:
    """What a histogram gets, of epsilon or of mu^2, where a sum gets 1."""
    share = Fraction(settings.share)
    return share * settings.epochs / (1 - share)


def _multiplier(exact: Fraction) -> Decimal:
    return min(MAX_NOISE, from_nano(ceil(exact * NANO)))

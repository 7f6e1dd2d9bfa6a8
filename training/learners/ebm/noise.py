"""How a budget is laid out over the releases of DP-EBM: mechanisms that all grow with one unit."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, sqrt

from accountant.budget import MAX_EPSILON, NANO, from_nano, nano
from accountant.mechanisms import DiscreteGaussian, DiscreteLaplace
from accountant.privacy.events import MAX_NOISE
from training.learners.ebm.defaults import EbmDefaults, mu_of
from training.learners.leaf_sensitivity import Norm
from training.session import Public

Mechanism = DiscreteGaussian | DiscreteLaplace
START = Fraction(1, 100)  # of the budget, for each sum that a model starts from


@dataclass(frozen=True)
class Noise:
    """`counting` for the histograms, `starting` for what a model starts from and ends with, `summing` for the rest."""

    counting: Mechanism
    starting: Mechanism
    summing: Mechanism
    norm: Norm


def noise_of(public: Public, unit: Decimal, settings: EbmDefaults) -> Noise:
    """A sum gets `unit`: epsilon where delta is 0, else mu = 1 / noise multiplier. More of it is never more noise."""
    of = _pure if public.pure else _gaussian
    counting, starting = (of(unit, ratio) for ratio in _ratios(public, settings))
    return Noise(counting, starting, of(unit, Fraction(1)), "l1" if public.pure else "l2")


def starts(public: Public, settings: EbmDefaults) -> int:
    """How many sums a model starts from, or ends with: of the target, and for the clip of a number's residuals, or of
    two classes' residuals in the end.
    """
    return 2 if public.classes is not None or settings.spread else 1


def unit_near(public: Public, settings: EbmDefaults) -> Decimal:
    """A unit a little below the largest that the budget carries: where calibration starts, and need not search."""
    epsilon, features = float(public.budget.epsilon), len(public.features)
    counting, starting = _ratios(public, settings)
    units = features * (settings.epochs + counting) + starts(public, settings) * starting
    found = epsilon / units if public.pure else mu_of(public.budget) / sqrt(units)
    return from_nano(int(found * (1 - 1e-7) * NANO))


def _ratios(public: Public, settings: EbmDefaults) -> tuple[Fraction, Fraction]:
    """What a histogram and a starting sum get, of epsilon or of mu^2, where any other sum gets 1."""
    share, sums = Fraction(settings.share), settings.epochs * len(public.features)
    return share * settings.epochs / (1 - share), max(Fraction(1), START * sums)


def _pure(unit: Decimal, ratio: Fraction) -> DiscreteLaplace:
    return DiscreteLaplace(from_nano(min(max(1, int(ratio * nano(unit))), nano(MAX_EPSILON))))


def _gaussian(unit: Decimal, ratio: Fraction) -> DiscreteGaussian:
    exact = Fraction(1 / sqrt(ratio)) / Fraction(unit)
    return DiscreteGaussian(min(MAX_NOISE, from_nano(ceil(exact * NANO))))

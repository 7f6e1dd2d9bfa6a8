"""The only place where noise exists. Price and draw read one number; samplers are OpenDP's exact ones over OS entropy.

Every mechanism takes exact integers (fixed-point statistics) and the query's integer sensitivity, so no float order
and no float rounding can betray a row. Floating point appears once, in the scale, and is rounded towards more noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from math import inf, nextafter
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace, make_noisy_max
from opendp.measures import max_divergence, zero_concentrated_divergence
from opendp.metrics import l1_distance, l2_distance, linf_distance
from opendp.mod import enable_features

from accountant.events import BoundedRange, Gaussian, PureDp

enable_features("contrib")  # OpenDP's word for parts whose proof documents are public but not yet vetted

LIBRARY = f"opendp {version('opendp')}"
Integers = NDArray[np.int64]


class Mechanism(Protocol):
    """What a session can play: a name, the kind of sensitivity it needs, one event and one draw."""

    name: ClassVar[str]
    norm: ClassVar[str]

    @property
    def event(self) -> BoundedRange | PureDp | Gaussian: ...

    def draw(self, values: Integers, sensitivity: int) -> Any: ...


@dataclass(frozen=True)
class ExponentialSelection:
    """The exponential mechanism: index h with P(h) ~ exp(epsilon * values[h] / sensitivity).

    `sensitivity` is the range over neighbours, max_h dq - min_h dq. Bounded range of `epsilon` (Durfee and Rogers
    2019), so epsilon-DP and much cheaper than that when composed. Drawn as noisy max with exact Gumbel noise.
    """

    name: ClassVar[str] = "exponential"
    norm: ClassVar[str] = "range"
    epsilon: Decimal

    @property
    def event(self) -> BoundedRange:
        return BoundedRange(self.epsilon)

    def draw(self, values: Integers, sensitivity: int) -> int:
        return int(_noisy_max(_scale(sensitivity, self.epsilon), "gumbel")(np.ascontiguousarray(values, np.int64)))


@dataclass(frozen=True)
class PermuteAndFlip:
    """Permute-and-flip (McKenna and Sheldon 2020), drawn as noisy max with exponential noise: epsilon-DP, never worse
    than the exponential mechanism in utility, but NOT of bounded range. For datasets registered with delta = 0."""

    name: ClassVar[str] = "permute-and-flip"
    norm: ClassVar[str] = "range"
    epsilon: Decimal

    @property
    def event(self) -> PureDp:
        return PureDp(self.epsilon)

    def draw(self, values: Integers, sensitivity: int) -> int:
        return int(_noisy_max(_scale(sensitivity, self.epsilon), "exponential")(np.ascontiguousarray(values, np.int64)))


@dataclass(frozen=True)
class DiscreteLaplace:
    """values + integer noise, P(z) ~ exp(-epsilon |z| / sensitivity); `sensitivity` in L1. epsilon-DP (Ghosh et al.
    2012).
    """

    name: ClassVar[str] = "discrete-laplace"
    norm: ClassVar[str] = "l1"
    epsilon: Decimal

    @property
    def event(self) -> PureDp:
        return PureDp(self.epsilon)

    def draw(self, values: Integers, sensitivity: int) -> Integers:
        return np.asarray(_laplace(_scale(sensitivity, self.epsilon))(np.ascontiguousarray(values, np.int64)), np.int64)


@dataclass(frozen=True)
class DiscreteGaussian:
    """values + integer noise, P(z) ~ exp(-z^2 / (2 (noise_multiplier * sensitivity)^2)); `sensitivity` in L2, rounded
    up.

    Its Renyi curve is at most the continuous Gaussian's (Canonne, Kamath and Steinke 2020, Theorem 14).
    """

    name: ClassVar[str] = "discrete-gaussian"
    norm: ClassVar[str] = "l2"
    noise_multiplier: Decimal

    @property
    def event(self) -> Gaussian:
        return Gaussian(self.noise_multiplier)

    def draw(self, values: Integers, sensitivity: int) -> Integers:
        scale = _round_up(Fraction(self.noise_multiplier) * sensitivity)
        return np.asarray(_gaussian(scale)(np.ascontiguousarray(values, np.int64)), np.int64)


def _scale(sensitivity: int, epsilon: Decimal) -> float:
    return _round_up(Fraction(sensitivity) / Fraction(epsilon))


def _round_up(exact: Fraction) -> float:
    """The smallest float that is not below `exact`: rounding may only add noise."""
    near = float(exact)
    return near if Fraction(near) >= exact else nextafter(near, inf)


@lru_cache(maxsize=256)
def _noisy_max(scale: float, noise: str) -> Any:
    measure = zero_concentrated_divergence() if noise == "gumbel" else max_divergence()
    space = vector_domain(atom_domain(T="i64")), linf_distance(T="i64", monotonic=True)
    return make_noisy_max(*space, measure, scale=scale)


@lru_cache(maxsize=256)
def _laplace(scale: float) -> Any:
    return make_laplace(vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=scale)


@lru_cache(maxsize=256)
def _gaussian(scale: float) -> Any:
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=scale)

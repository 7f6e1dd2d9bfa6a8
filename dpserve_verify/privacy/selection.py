"""Private selection: run a release a random number of times and keep the best outcome (Liu and Talwar 2019; Papernot
and Steinke 2022). What that costs, from what one run costs.

The number of runs is never released, nor anything that depends on it. One run's outcome holds the score it is compared
by, so the score is released under the run's own price.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import exp, expm1, log, log1p
from typing import Any, ClassVar

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string, parse_decimal
from dpserve_verify.privacy.budget import from_nano, nano

Curve = Callable[[float], float]
ORDERS = tuple(1 + 2.0 ** (j / 4) for j in range(-16, 61))
MAX_MEAN = 10**6


@dataclass(frozen=True)
class TruncatedNegativeBinomial:
    """P(k) ~ (1 - gamma)^k * product over l < k of (l + shape) / (l + 1), k >= 1; shape 1: geometric, 0: logarithmic.

    -1 < shape <= 100 and 0 < gamma < 1, at most 9 decimals each, and at most 10^6 runs on average.
    """

    type: ClassVar[str] = "truncated-negative-binomial"
    shape: Decimal
    gamma: Decimal

    def __post_init__(self) -> None:
        _require("shape", self.shape, lambda x: -1 < x <= 100, "above -1 and at most 100")
        _require("gamma", self.gamma, lambda x: 0 < x < 1, "above 0 and below 1")
        _require("gamma", self.gamma, lambda x: self.mean <= MAX_MEAN, f"such that the mean is at most {MAX_MEAN} runs")

    @property
    def mean(self) -> float:
        """Compute E K = shape (1 - gamma) / (gamma (1 - gamma^shape)), and its limit at shape 0."""
        eta, gamma = float(self.shape), float(self.gamma)
        spread = eta / -expm1(eta * self._log_gamma) if eta else -1 / self._log_gamma
        return spread * float(1 - self.gamma) / gamma

    @property
    def _log_gamma(self) -> float:
        return log(float(self.gamma)) if self.gamma < Decimal("0.5") else log1p(-float(1 - self.gamma))

    def pure(self, epsilon: Fraction) -> Fraction:
        """Return (2 + shape) epsilon: Papernot and Steinke, Corollary 3."""
        return (2 + Fraction(self.shape)) * epsilon

    def penalty(self, curve: Curve, pure: float) -> Curve:
        """Return what is added to `curve(order)`: Papernot and Steinke, Theorem 2, at the best second order (1 and
        infinity included).
        """
        second, _ = least(lambda a: ((a - 1) * curve(a) - self._log_gamma) / a)
        constant = (1 + float(self.shape)) * min(second, -self._log_gamma, pure)
        return lambda order: constant + log(self.mean) / (order - 1)

    def to_json(self) -> dict[str, str]:
        """Return the stored form."""
        return {"type": self.type, "shape": decimal_string(self.shape), "gamma": decimal_string(self.gamma)}


@dataclass(frozen=True)
class Poisson:
    """A Poisson number of runs; none at all gives a fixed outcome. 1 <= mean <= 10^6, at most 9 decimals."""

    type: ClassVar[str] = "poisson"
    mean: Decimal

    def __post_init__(self) -> None:
        _require("mean", self.mean, lambda x: 1 <= x <= MAX_MEAN, f"at least 1 and at most {MAX_MEAN}")

    def pure(self, epsilon: Fraction) -> None:
        """Return None: there is no finite pure price, however small that of one run is."""

    def penalty(self, curve: Curve, pure: float) -> Curve:
        """Return what is added to `curve(order)`: Papernot and Steinke, Theorem 6."""
        mean = float(self.mean)
        return lambda order: mean * delta_at(log1p(1 / (order - 1)), curve, pure) + log(mean) / (order - 1)

    def to_json(self) -> dict[str, str]:
        """Return the stored form."""
        return {"type": self.type, "mean": decimal_string(self.mean)}


Distribution = TruncatedNegativeBinomial | Poisson


def geometric(gamma: Decimal) -> TruncatedNegativeBinomial:
    """Return the distribution where each further run is made with chance 1 - gamma."""
    return TruncatedNegativeBinomial(Decimal(1), gamma)


def logarithmic(gamma: Decimal) -> TruncatedNegativeBinomial:
    """Return the logarithmic distribution: P(k) ~ (1 - gamma)^k / k."""
    return TruncatedNegativeBinomial(Decimal(0), gamma)


def selection_curve(distribution: Distribution, curve: Curve, pure: float) -> Curve:
    """Return the Renyi curve of the selection, from the curve and the pure price (or infinity) of one run.

    Every order above is a bound as well, since Renyi divergence grows with its order.
    """
    penalty = distribution.penalty(curve, pure)
    above = [(curve(order) + penalty(order), order) for order in ORDERS]
    above.append(least(lambda order: curve(order) + penalty(order)))

    def price(order: float) -> float:
        return min([curve(order) + penalty(order), *(figure for figure, other in above if other >= order)])

    return price


def delta_at(epsilon: float, curve: Curve, pure: float) -> float:
    """Return a delta for which one run is (epsilon, delta)-DP: Canonne, Kamath and Steinke 2020, Proposition 12."""
    if pure <= epsilon:
        return 0.0
    exponent, _ = least(lambda a: (a - 1) * (curve(a) - epsilon + log1p(-1 / a)) - log(a))
    return exp(min(0.0, exponent))


def least(function: Curve) -> tuple[float, float]:
    """Return a small value of `function` and its order above 1: the best of ORDERS, then thirds about it. Any is
    valid.
    """
    found, best = min((function(order), j) for j, order in enumerate(ORDERS))
    at, low, high = ORDERS[best], ORDERS[max(best - 1, 0)], ORDERS[min(best + 1, len(ORDERS) - 1)]
    for _ in range(40):
        left, right = (2 * low + high) / 3, (low + 2 * high) / 3
        better = min((function(left), left), (function(right), right))
        found, at = min((found, at), better)
        low, high = (low, right) if better[1] == left else (left, high)
    return found, at


def distribution_from_json(body: object) -> Distribution:
    """Read what `to_json` wrote; anything else raises InputError."""
    if isinstance(body, Mapping):
        found: Mapping[Any, Any] = body
        if set(found) == {"type", "shape", "gamma"} and found["type"] == TruncatedNegativeBinomial.type:
            return TruncatedNegativeBinomial(
                parse_decimal(found["shape"], negative=True), parse_decimal(found["gamma"])
            )
        if set(found) == {"type", "mean"} and found["type"] == Poisson.type:
            return Poisson(parse_decimal(found["mean"]))
    raise InputError(f"distribution={body!r:.200}: must be {TruncatedNegativeBinomial.type} or {Poisson.type}")


def _require(name: str, value: Decimal, holds: Callable[[Decimal], bool], words: str) -> None:
    if not (value.is_finite() and holds(value) and value == from_nano(nano(value))):
        raise InputError(f"{name}={value}: must be {words}, with at most 9 decimals")

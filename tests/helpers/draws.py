"""What draws say against a claim: intervals for the chance of one event on two neighbours."""

from __future__ import annotations

from math import exp

from scipy.stats import beta

ALARM = 1e-4


def interval(count: int, runs: int) -> tuple[float, float]:
    """Each end is wrong with probability at most ALARM / 4: four ends are looked at."""
    side = ALARM / 4
    low = float(beta.ppf(side, count, runs - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - side, count + 1, runs - count)) if count < runs else 1.0
    return low, high


def refuted(one: int, other: int, epsilon: float, runs: int) -> bool:
    (low_one, high_one), (low_other, high_other) = interval(one, runs), interval(other, runs)
    return low_one > exp(epsilon) * high_other or low_other > exp(epsilon) * high_one

"""Figures of a table from noisy counts, each with an interval: docs/privacy/counts.md has the argument.

A figure t of the rows solves sum(a_j(t) * counts_j) = 0. With noise in the counts the sum has a known variance v(t),
and the interval holds each t with sum^2 <= z^2 v(t) (Fieller 1954): linear in t here, so its ends solve a quadratic.
Where the noise drowns the counts no t is refused, and the interval is all there can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.privacy.events import Gaussian, PureDp, Release
from models.features.features import NumericFeature
from models.profile.columns import Column

Floats = NDArray[np.float64]
LEVEL = "0.95"
LEVELS = ("0.05", "0.25", "0.5", "0.75", "0.95")  # of the quantiles
Figure = tuple[float | None, float, float]  # value, low, high


@dataclass(frozen=True)
class Noise:
    """Independent noise in every count, of this variance in rows squared. `laplace`: else Gaussian.

    `z`: a weighted sum of such noise lies within z standard deviations at LEVEL, whatever the weights. Sums of several
    Laplace variables have lighter tails than one, of which e^-(sqrt 2 z) lie outside;
    studies/statements/profile.md measured that for the weights that are used.
    """

    variance: float
    laplace: bool

    @property
    def z(self) -> float:
        """Return how many standard deviations an interval reaches to either side."""
        return self.reach(1 - float(LEVEL))

    def reach(self, outside: float) -> float:
        """Return beyond how many standard deviations, to either side, the noise lies with this chance at most."""
        return log(1 / outside) / sqrt(2) if self.laplace else NormalDist().inv_cdf(1 - outside / 2)

    @classmethod
    def of_release(cls, release: Release, grid: int, draws: int = 1) -> Noise:
        """Return the noise of a release of counts in 1 / grid rows, `draws` times where it is Gaussian.
        CertificateInvalid for a release of another mechanism.
        """
        event, size = release.event, release.sensitivity
        if isinstance(event, PureDp) and release.mechanism == "discrete-laplace":
            return cls(laplace_variance(float(event.epsilon), size) / grid**2, True)
        if isinstance(event, Gaussian) and release.mechanism == "discrete-gaussian":
            return cls(draws * (float(event.noise_multiplier) * size / grid) ** 2, False)
        raise CertificateInvalid("mechanisms: are not those of noisy counts")


def laplace_variance(epsilon: float, sensitivity: int) -> float:
    """Return the variance of discrete Laplace noise at this price."""
    rate = epsilon / sensitivity
    return float(2 * np.exp(-rate) / expm1(-rate) ** 2)


@dataclass(frozen=True)
class Records:
    """How many rows there are: `count`, its `variance`, and how it goes together with a count of each column: by its
    `weight` in the mean of the columns' totals times the noise's variance.
    """

    count: float
    variance: float
    weights: tuple[float, ...]

    @classmethod
    def of(cls, columns: Sequence[Column], counts: Sequence[Floats], noise: Noise, known: int | None) -> Records:
        """Return the mean of the columns' totals, by the inverse of their variances; `known`: the number itself, if
        public.
        """
        if known is not None:
            return cls(float(known), 0.0, (0.0,) * len(columns))
        shares = np.array([1 / column.bins for column in columns])
        weights = shares / shares.sum()
        total = float(sum(weight * own.sum() for weight, own in zip(weights, counts, strict=True)))
        return cls(total, noise.variance / float(shares.sum()), tuple(weights.tolist()))

    def figure(self, noise: Noise) -> Figure:
        """Return the number of rows with its interval."""
        width = noise.z * sqrt(self.variance)
        return max(0.0, self.count), max(0.0, self.count - width), max(0.0, self.count + width)


def table(
    columns: Sequence[Column], counts: Sequence[Floats], pairs: dict[tuple[str, str], Floats], noise: Noise,
    known: int | None, grid: int,
) -> dict[str, Any]:  # fmt: skip
    """Return all figures, as a statement has them. `counts`: noisy rows per bin of each column, in rows; `known`: the
    number of rows, where it is public.
    """
    records = Records.of(columns, counts, noise, known)
    bodies = []
    for column, own, weight in zip(columns, counts, records.weights, strict=True):
        shares = [share(float(count), weight, records, noise) for count in own]
        body = column.to_json() | {"counts": _whole(own, grid), "missing": _texts(shares[-1])}
        if isinstance(column.feature, NumericFeature):
            body["mean"] = _texts(mean(column, own[:-1], noise))
            body["quantiles"] = [_texts(quantile(column, own[:-1], float(level), noise)) for level in LEVELS]
        else:
            body["shares"] = [_texts(each) for each in shares[:-1]]
        bodies.append(body)
    return {
        "columns": bodies,
        "pairs": [{"columns": [*names], "counts": _whole(own, grid)} for names, own in pairs.items()],
        "records": _texts(records.figure(noise)),
        "variance": number(noise.variance),
        "level": LEVEL,
        "levels": [*LEVELS],
    }


def share(count: float, weight: float, records: Records, noise: Noise) -> Figure:
    """count / records: the t with (count - t n)^2 <= z^2 Var(count - t n)."""
    n, z2, v = records.count, noise.z**2, noise.variance
    value = min(max(count / n, 0.0), 1.0) if n > 0 else None
    low, high = roots(
        n * n - z2 * records.variance, count * n - z2 * v * weight, count * count - z2 * v, (0.0, 1.0)
    )  # fmt: skip
    return _widened(value, low, high) if n > 0 else (None, 0.0, 1.0)


def mean(column: Column, counts: Floats, noise: Noise) -> Figure:
    """Estimate the mean of the numbers, clipped to the column's ends: it is between the means of the lowest and of the
    highest values of their bins.
    """
    low, high = column.ends
    width = (high - low) or 1.0
    ends = [(each - low) / width for each in column.limits]
    total = float(counts.sum())
    if total <= 0:
        return None, low, high
    zv = noise.z**2 * noise.variance
    sums = [(float(values @ counts), values) for values in ends]
    ends_of_means = [
        roots(
            total**2 - zv * len(counts),
            own * total - zv * float(values.sum()),
            own * own - zv * float(values @ values),
            (0.0, 1.0),
        )
        for own, values in sums
    ]
    middle = float((ends[0] + ends[1]) / 2 @ counts) / total
    value = min(max(middle, 0.0), 1.0)
    return _widened(low + width * value, low + width * ends_of_means[0][0], low + width * ends_of_means[1][1])


def quantile(column: Column, counts: Floats, level: float, noise: Noise) -> Figure:
    """Return the smallest number that at least a share `level` of the numbers is not above.

    It lies in the first bin up to which at least so many are counted: bins whose two sides are not refused, one at a
    time at (1 - LEVEL) / 2, are kept, so that the right one is with a chance of LEVEL.
    """
    low, high = column.limits
    below, total = np.cumsum(counts), float(counts.sum())
    bins = np.arange(1, len(counts) + 1)
    over = below - level * total  # at least 0, but for noise, from the right bin on
    spread = noise.z * np.sqrt(noise.variance * ((1 - level) ** 2 * bins + level**2 * (len(counts) - bins)))
    before = np.concatenate([[-np.inf], over[:-1] - spread[:-1]])
    after = np.concatenate([over[:-1] + spread[:-1], [np.inf]])
    kept = np.flatnonzero((before < 0) & (after >= 0))
    if total <= 0 or not len(kept):
        return None, *column.ends
    rising = np.maximum.accumulate(np.concatenate([[0.0], below]))
    at = int(np.argmax(rising[1:] >= level * total))
    step = rising[at + 1] - rising[at]
    part = (level * total - rising[at]) / step if step > 0 else 0.0
    value = float(low[at] + (high[at] - low[at]) * part)
    return _widened(value, float(low[kept[0]]), float(high[kept[-1]]))


def roots(square: float, half: float, rest: float, ends: tuple[float, float]) -> tuple[float, float]:
    """Return where square t^2 - 2 half t + rest <= 0, within `ends`; all of them where that has no end."""
    if square <= 0:
        return ends
    spread = sqrt(max(half * half - square * rest, 0.0))
    low, high = (half - spread) / square, (half + spread) / square
    return min(max(low, ends[0]), ends[1]), min(max(high, ends[0]), ends[1])


def _widened(value: float | None, low: float, high: float) -> Figure:
    """Widen the interval, where it must be, so that the value lies in it."""
    return (None, low, high) if value is None else (value, min(low, value), max(high, value))


def _whole(counts: Floats, grid: int) -> list[int]:
    return [int(each) for each in np.rint(counts * grid)]


def _texts(figure: Figure) -> list[str | None]:
    return [None if each is None else number(each) for each in figure]


def number(value: float) -> str:
    """Write a number with seven digits."""
    return f"{value:.7g}" if value else "0"

"""Objective perturbation: the minimum of a convex loss of rows, plus noise in the loss, plus a little on the answer.

Redberg, Koskela and Wang 2023, with the constants and the finite arithmetic of docs/privacy/ebm.md. The noise in the
loss is a continuous Gaussian, drawn to 44 binary digits; that a minimum is near enough is checked in whole numbers
before anything is released, and how near is part of the price.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import isqrt
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from accountant.noise.exact_weights import MIN_WEIGHT, ROUGH_ERROR, rough_weights, weight
from accountant.noise.mechanisms import DiscreteGaussian, sample_noise
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.drawing import scale_of
from dpserve_verify.privacy.events import Gaussian, PureDp, SimpleEvent

Integers = NDArray[np.int64]
SLOPE_UNIT = 8  # binary digits of the unit that a row's slope, and so the sensitivity, is counted in
DIGITS = 32  # more of them, of noise in the loss
FINE = 42  # binary digits of a coordinate where slopes are summed
STEP = 20  # more of them, of a sum of slopes: what a row's slope changes by one fine step is so many parts of it, whole
RIDGE = 10  # of the ridge
RELEASED = 28  # of a coordinate that is released
NEAR = 6  # the gradient at what counts as a minimum is at most 2^-NEAR long
STEEPEST = Fraction(1, 4)  # no slope of a row's loss rises faster
MOST_CURVATURE = Decimal(1)  # the proof's range
WIDEST_SCALE = 2.0**25  # of the noise, in its unit: 64 bits hold 2^6 times as much, with DIGITS


class Objective(Protocol):
    """A convex loss of rows, of coordinates that each row adds up, each times a public weight. A row's weights,
    squared, add up to at most the mechanism's `square`. No row's slope changes by more than STEEPEST of what its score
    changes.
    """

    def __len__(self) -> int:
        """Return how many coordinates there are."""

    def slopes(self, theta: Sequence[int], bits: int) -> Sequence[int]:
        """Sum the slopes of rows by each coordinate of theta, which is in 2^-bits, exactly, in 2^-(bits + STEP)."""

    def candidates(self, noise: Integers, ridge: int) -> Iterator[tuple[Sequence[int], int]]:
        """Yield what may be a minimum and the binary digits that it is in, until one is taken: whatever the rows and
        the noise, one of a public number of them is.

        `noise`: of each coordinate, in 2^-(SLOPE_UNIT + DIGITS); `ridge`: in 2^-RIDGE.
        """


@dataclass(frozen=True)
class Charge:
    """One more thing that a release costs: what a plan says of it, its sensitivity, and its event."""

    words: str
    sensitivity: int
    event: SimpleEvent


@dataclass(frozen=True)
class ObjectivePerturbation:
    """The minimum of the sum of rows' losses + ridge / 2 |theta|^2 + b theta, b Gaussian, released on a public grid.

    `noise_multiplier`: of b, times the length of a row's gradient; `curvature`: what the ridge leaves of the change of
    volume by one row, which sets the ridge; `closeness`: noise multiplier of what is added to the minimum found.
    `square`: of how long a row's weights are, at most; of at most `most` coordinates.
    """

    name: ClassVar[str] = "objective-perturbation"
    norm: ClassVar[str] = "l2"
    noise_multiplier: Decimal
    curvature: Decimal
    closeness: Decimal
    square: int
    most: int

    def __post_init__(self) -> None:
        if self.curvature > MOST_CURVATURE:
            raise InputError(f"curvature={self.curvature}: at most {MOST_CURVATURE} is proved")

    @property
    def event(self) -> Gaussian:
        """Return what the noise in the loss costs."""
        return Gaussian(self.noise_multiplier)

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Return what the release costs besides: its curvature, and that the minimum is not quite one."""
        curved = Charge("how the loss curves", 1, PureDp(self.curvature))
        return curved, Charge("how near the minimum is", self.apart, Gaussian(self.closeness))

    @property
    def ridge(self) -> int:
        """Return the ridge in 2^-RIDGE, rounded up: a row's curvature is at most `curvature` of it."""
        return -int(-self.square * STEEPEST * (1 << RIDGE) // Fraction(self.curvature))

    @property
    def apart(self) -> int:
        """Bound how far apart the answers of neighbours are where their exact minima are the same, in released steps.

        Either is off by the gradient that is left, that of the digits of noise that were not drawn included, over the
        ridge, and by being rounded.
        """
        root = isqrt(self.most - 1) + 1
        left = (1 << FINE + STEP - NEAR) + (root << FINE + STEP - SLOPE_UNIT - DIGITS)
        return -(-2 * left // (self.ridge << FINE - RELEASED + STEP - RIDGE)) + root

    def check_scale(self, sensitivity: int) -> float:
        """Return the scale of b in its unit. InputError where 64 bits do not hold such noise."""
        scale = scale_of(sensitivity, self.noise_multiplier, 1)
        if scale > WIDEST_SCALE:
            raise InputError(f"noise_multiplier={self.noise_multiplier}: too much noise for a convex fit; ask for more")
        return scale

    def draw(self, objective: Objective, sensitivity: int) -> Integers:
        """Draw the noise, take the first candidate that is a minimum, as checked in whole numbers, and release it."""
        noise = sample_normals(self.check_scale(sensitivity), len(objective))
        for theta, bits in objective.candidates(noise, self.ridge):
            left = gradient(objective.slopes(theta, bits), theta, bits, noise, self.ridge)
            if sum(each * each for each in left) <= 1 << 2 * (bits + STEP - NEAR):
                break
        else:
            raise RuntimeError("objective: its candidates ended without a minimum")
        shift = bits - RELEASED
        rounded = [(each + (1 << shift - 1)) >> shift for each in map(int, theta)]
        return DiscreteGaussian(self.closeness).draw(np.array(rounded, np.int64), self.apart)


def gradient(slopes: Sequence[int], theta: Sequence[int], bits: int, noise: Integers, ridge: int) -> list[int]:
    """Return the gradient of the whole objective, exactly, in 2^-(bits + STEP)."""
    shift = bits + STEP - SLOPE_UNIT - DIGITS
    parts, steep = zip(map(int, slopes), map(int, theta), map(int, noise), strict=True), ridge << STEP - RIDGE
    return [slope + steep * at + (drawn << shift) for slope, at, drawn in parts]


def sample_normals(scale: float, count: int) -> Integers:
    """Draw (count,) independent normal numbers of deviation `scale` in units of 2^-DIGITS, digits beyond cut off.

    Half of the line by rejection: z = 0, 1, .. with P(z) ~ exp(-z^2 / (2 scale^2)), a place t in [0, 1) behind it, and
    z + t is kept with chance exp(-((z + t)^2 - z^2) / (2 scale^2)). No step is rounded: of t and of the coin, as many
    digits are drawn as tell.
    """
    kept = np.empty(0, np.int64)
    while kept.size < count:
        whole = sample_noise(scale, 2 * (count - kept.size) + 16)
        whole = whole[whole >= 0]  # 0 as often as any of them should be
        words = np.frombuffer(os.urandom(16 * whole.size), np.uint64)
        places, coins = words[: whole.size], words[whole.size :]
        behind = (places & np.uint64((1 << DIGITS) - 1)).view(np.int64)
        size = (whole << DIGITS) + behind
        negative = places >> np.uint64(63) > 0
        heads = _accept(whole, behind, coins, scale)
        kept = np.concatenate([kept, np.where(negative, -size, size)[heads]])
    return kept[:count]


def _accept(whole: Integers, behind: Integers, coins: NDArray[np.uint64], scale: float) -> NDArray[np.bool_]:
    ends = [t * (2.0 * whole + t) for t in (behind * 2.0**-DIGITS, (behind + 1) * 2.0**-DIGITS)]
    high, low = (rough_weights(end, 2 * scale * scale) for end in ends)
    uniforms = coins * 2.0**-64
    heads = uniforms * (1 + 1e-12) + 2.0**-63 <= low * (1 - ROUGH_ERROR)
    doubtful = ~heads & (uniforms * (1 - 1e-12) - 2.0**-63 < high * (1 + ROUGH_ERROR) + MIN_WEIGHT)
    for i in doubtful.nonzero()[0]:
        heads[i] = _decide(int(whole[i]), int(behind[i]), int(coins[i]), scale)
    return np.asarray(heads)


def _decide(whole: int, behind: int, coin: int, scale: float) -> bool:
    """Decide one coin by more and more digits of it and of the place."""
    digits, bits = DIGITS, 64
    while True:
        unit = 2 * Fraction(scale) ** 2 * 4**digits
        high = weight(behind * ((whole << digits + 1) + behind), unit, bits + 64)[1]
        low = weight((behind + 1) * ((whole << digits + 1) + behind + 1), unit, bits + 64)[0]
        if coin + 1 <= low * 2**bits:
            return True
        if coin >= high * 2**bits:
            return False
        digits, behind = digits + 64, behind << 64 | int.from_bytes(os.urandom(8), "big")
        bits, coin = bits + 64, coin << 64 | int.from_bytes(os.urandom(8), "big")

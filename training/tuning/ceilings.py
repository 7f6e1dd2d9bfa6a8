"""What a run of any setting may cost at most: one kind of event, so often, below which the plans of all settings stay.

The price of a private selection reads the pure price and the Renyi curve of one run alone. A plan below a ceiling has a
smaller pure price, and a smaller figure at every order (docs/privacy/prices.md); `load` decides that in whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, inf, isqrt
from typing import assert_never

from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import MAX_EPSILON, NANO, from_nano, nano
from dpserve_verify.privacy.events import (
    MAX_COUNT,
    MAX_NOISE,
    BoundedRange,
    Event,
    Gaussian,
    Plan,
    PureDp,
    RepeatAndSelect,
)
from dpserve_verify.privacy.renyi import compose_pure

Score = DiscreteLaplace | DiscreteGaussian
Load = Fraction | float


@dataclass(frozen=True)
class Ceiling:
    """`count` times `event`: what a run is charged for all but its score."""

    event: BoundedRange | PureDp | Gaussian
    count: int

    def load(self, plan: Plan) -> Load:
        """Return at most 1 where the plan is below this ceiling; infinity where no smaller unit could bring it there.

        Widths of losses, squared, add up; a width below the ceiling's own counts as that one. A ceiling of one pure
        figure is held against the sum of pure figures.
        """
        least = self.event.squared_width
        match self.event:
            case PureDp():
                pure_sum = compose_pure(plan.events)
                return inf if pure_sum is None else Fraction(pure_sum, nano(self.event.epsilon))
            case Gaussian():
                return sum((n * _squared_width(event) for event, n in plan.events), Fraction(0)) / least
            case BoundedRange():
                if any(event.pure is None for event, _ in plan.events):
                    return inf
                widths = (n * max(least, _squared_width(event)) for event, n in plan.events)
                return sum(widths, Fraction(0)) / (self.count * least)
            case _:
                assert_never(self.event)

    def score(self, share: Fraction) -> Score:
        """Return the mechanism of a score that takes `share` of the run, what the ceiling holds being the rest."""
        part = share / (1 - share)
        if isinstance(self.event, PureDp):
            return DiscreteLaplace(from_nano(max(1, int(part * nano(self.event.epsilon)))))
        square = self.count * self.event.squared_width * part  # (2 / noise multiplier)^2
        noise = isqrt(ceil(4 * NANO**2 / square)) + 1
        return DiscreteGaussian(min(MAX_NOISE, from_nano(noise)))


@dataclass(frozen=True)
class Shape:
    """Ceilings of every height: at unit 1 an event of size `size`, `count` times."""

    kind: type[BoundedRange | PureDp | Gaussian]
    size: Fraction
    count: int

    def at(self, unit: Decimal) -> Ceiling:
        """Return the ceiling at `unit`: it grows with the unit, rounded down, within the limits of an event."""
        if self.kind is Gaussian:
            noise = ceil(self.size / Fraction(unit) * NANO)
            return Ceiling(Gaussian(min(MAX_NOISE, from_nano(noise))), self.count)
        kind = PureDp if self.kind is PureDp else BoundedRange
        size = min(nano(MAX_EPSILON), max(1, int(self.size * nano(unit))))
        return Ceiling(kind(from_nano(size)), self.count)


def shape_of(plans: Sequence[Plan], pure: bool) -> Shape:
    """Return the shape for the plans of all settings at unit 1: as high as the dearest, in steps as fine as the finest.

    `pure`: the dataset adds up nothing but pure figures. Else a release without a pure price makes all a Gaussian.
    """
    if pure:
        sums = [pure_sum for plan in plans if (pure_sum := compose_pure(plan.events)) is not None]
        if len(sums) < len(plans):
            raise InputError("delta=0: a setting of the grid makes releases that have no pure price")
        return Shape(PureDp, Fraction(max(sums), NANO), 1)
    most = max(sum((n * _squared_width(event) for event, n in plan.events), Fraction(0)) for plan in plans)
    if any(event.pure is None for plan in plans for event, _ in plan.events):
        return Shape(Gaussian, Fraction(isqrt(ceil(4 * NANO**4 / most)) + 1, NANO**2), 1)
    finest = min(_squared_width(event) for plan in plans for event, _ in plan.events)
    count = ceil(most / finest)
    if count > MAX_COUNT:
        raise InputError("grid: the releases of its settings differ too much in size to be charged alike")
    return Shape(BoundedRange, Fraction(isqrt(int(finest * NANO**2)), NANO), count)


def _squared_width(event: Event) -> Fraction:
    if isinstance(event, RepeatAndSelect):
        raise InputError("learner: selects privately itself; there is no selection within a selection")
    return event.squared_width

"""Two models on the same records: which of them is right, or by how much nearer, counted in one table.

Of classes: whether the model is right, by whether the other is. Of a number: the difference of the squared errors, each
at most that of a quarter of the range. A record's difference lies between two public ones, and is shared out between
their cells so that its mean stays: no bin's width moves the figures. The other's squared error is shared out likewise,
in a quarter of the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.parts.answers import Scores
from models.worth.intervals import Interval, Noise, difference, ratio
from models.worth.layout import AboutLayout, Layout
from models.worth.metrics import Metric, records, scale_interval

Floats = NDArray[np.float64]
PARTS = 1024  # in which a record's difference is shared out
OTHERS = PARTS // 4  # in which the other's squared error is
MOST = 0.25  # of the range: an error above it counts as that
SIZES = np.concatenate([[0.0], 2.0 ** np.arange(-7, 1)])  # of squared errors, in the square of MOST
STEPS = np.concatenate([-SIZES[:0:-1], SIZES])


@dataclass(frozen=True)
class PairedLayout(AboutLayout):
    """Of a model and another one, which answer the same question."""

    own: Layout
    other: Layout

    @property
    def kind(self) -> str:
        """Return paired-classes or paired-number."""
        return "paired-number" if self.own.target_range else "paired-classes"

    @property
    def shape(self) -> tuple[int, int]:
        """Return rows and columns: (wrong, right) by the other's (wrong, right); for a number one row, the differences
        and then the other's errors.
        """
        return (1, len(STEPS) + len(SIZES)) if self.own.target_range else (2, 2)

    @property
    def cells_per_record(self) -> int:
        """Return what one record adds to all cells together."""
        return PARTS + OTHERS if self.own.target_range else 1

    @cached_property
    def unit(self) -> float:
        """Return what a squared error of 1 stands for, in the square of the target's unit."""
        low, high = self.own.target_range or (0.0, 1.0)
        return ((high - low) * MOST) ** 2

    def count(self, scores: tuple[Scores, Scores], answers: NDArray[Any]) -> NDArray[np.int64]:
        """Return counts (size,) of records with these scores of both (n, outputs) and answers, as in `Layout.cells`."""
        answered, answered_by_other = (
            layout.answers_of(scores_of_model)
            for layout, scores_of_model in zip((self.own, self.other), scores, strict=True)
        )
        if not self.own.target_range:
            return np.bincount(2 * (answered == answers) + (answered_by_other == answers), minlength=4).astype(np.int64)
        squares = [np.minimum(((values - answers) / MOST) ** 2, 1.0) for values in (answered, answered_by_other)]
        parts = (
            share_between_steps(squares[0] - squares[1], STEPS, PARTS),
            share_between_steps(squares[1], SIZES, OTHERS),
        )
        return np.concatenate(parts)


def share_between_steps(values: Floats, steps: Floats, parts: int) -> NDArray[np.int64]:
    """Return counts (len(steps),): each value (n,), from the first step to the last, adds `parts` to the two steps
    beside it, to the nearer one more, so that their mean is the value.
    """
    low = np.clip(np.searchsorted(steps, values, side="right") - 1, 0, len(steps) - 2)
    upper = np.rint((values - steps[low]) / (steps[low + 1] - steps[low]) * parts).astype(np.int64)
    upper = np.clip(upper, 0, parts)
    counts = np.zeros(len(steps), np.int64)
    np.add.at(counts, low, parts - upper)
    np.add.at(counts, low + 1, upper)
    return counts


def paired_metrics(layout: PairedLayout, counts: Sequence[float], noise: Noise) -> list[Metric]:
    """Compute the metrics of released counts (layout.size,). The first one is what is judged by: above 0 the model is
    better in accuracy, below 0 in squared error.
    """
    noisy = np.array(counts, np.float64)
    if len(noisy) != layout.size:
        raise ValueError("counts")
    return [*(_number(layout, noisy, noise) if layout.own.target_range else _classes(noisy, noise))]


def _classes(counts: Floats, noise: Noise) -> Iterator[Metric]:
    ones = np.ones(4)
    yield Metric("accuracy_difference", difference(counts, np.array([0.0, -1.0, 1.0, 0.0]), noise))
    yield Metric("accuracy", ratio(counts, np.array([0.0, 0.0, 1.0, 1.0]), ones, noise))
    yield Metric("accuracy_of_other", ratio(counts, np.array([0.0, 1.0, 0.0, 1.0]), ones, noise))
    yield records(counts, noise)


def _number(layout: PairedLayout, counts: Floats, noise: Noise) -> Iterator[Metric]:
    differences, of_other = counts[: len(STEPS)] / PARTS, counts[len(STEPS) :] / OTHERS
    noise_of_parts = replace(noise, variance=noise.variance / PARTS**2)
    yield Metric("mse_difference", scale_interval(difference(differences, STEPS, noise_of_parts), layout.unit))
    # Of the roots: from what both of these hold, each missed half as often. Where the other's is larger, less follows.
    both = replace(noise_of_parts, level=(1 + noise.level) / 2)
    interval = difference(differences, STEPS, both)
    square = ratio(of_other, SIZES, np.ones(len(SIZES)), replace(both, variance=noise.variance / OTHERS**2))

    def roots(by: float, other: float) -> float:
        return float(layout.unit**0.5 * (max(other + by, 0.0) ** 0.5 - other**0.5))

    # For a difference below 0 the roots are furthest apart where the other's is just as large as that, and ours is 0.
    ends = [
        (by, min(max(at, square.low), square.high)) for by in (interval.low, interval.high) for at in (0.0, -by, np.inf)
    ]
    distances = [roots(by, square_of_other) for by, square_of_other in ends]
    value = None if interval.value is None or square.value is None else roots(interval.value, square.value)
    whole = interval.is_whole or square.is_whole
    yield Metric("rmse_difference", Interval(value, min(distances), max(distances), whole))
    yield records(differences, noise_of_parts)

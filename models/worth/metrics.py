"""Every figure that one released histogram gives, each with its interval. Free: nothing but the counts is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.parts.answers import ClassLabel
from models.worth.intervals import Interval, Noise, auroc, average_precision, ratio, smooth
from models.worth.layout import ERROR_STEPS, VALUE_BINS, Layout

Floats = NDArray[np.float64]
DIGITS = 6
OF_BINS = "log_loss_of_bins", "average_precision_of_bins"  # of probabilities as they are counted: a bin's middle


@dataclass(frozen=True)
class Metric:
    """`of`: the class that it speaks of, where it speaks of one; `group`: the group of people; `groups`: of a gap,
    those that it is the largest one between.
    """

    name: str
    found: Interval
    of: ClassLabel | None = None
    group: str | None = None
    groups: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what statements and programs have: decimals as texts; `value` None where the counts do not tell, which
        is so where the interval is the whole scale.
        """
        value = None if self.found.is_whole or self.found.value is None else _text(self.found.value)
        body = {"metric": self.name, "value": value, "low": _text(self.found.low), "high": _text(self.found.high)}
        of = {} if self.of is None else {"class": str(self.of)}
        who = {"group": self.group} if self.group is not None else {"groups": [*self.groups]} if self.groups else {}
        return {**body, **of, **who}


def _text(value: float) -> str:
    return f"{value:.{DIGITS}f}".replace("-0.000000", "0.000000")


def metrics(layout: Layout, counts: Sequence[float], noise: Noise) -> list[Metric]:
    """Compute the metrics of released counts (layout.size,). The first one is what the model is judged by."""
    return [*each_metric(layout, counts, noise)]


def each_metric(layout: Layout, counts: Sequence[float], noise: Noise) -> Iterator[Metric]:
    """Yield the same one after another: who needs the first ones alone waits for no more."""
    yield from {"binary": _binary, "classes": _classes, "number": _number}[layout.kind](
        layout, layout.table(counts), noise
    )


def name_of_figure(figure: Mapping[str, Any]) -> str:
    """Return what a figure is of, for people: its name, class and group."""
    of = f" of {figure['class']}" if "class" in figure else ""
    where = f", {figure['group']}" if "group" in figure else ""
    return f"{figure['metric']}{of}{where}" + (f" among {len(figure['groups'])} groups" if "groups" in figure else "")


def _binary(layout: Layout, table: Floats, noise: Noise) -> Iterator[Metric]:
    counts, bins, ones = table.ravel(), layout.bins, np.ones(table.size)
    answered, true = np.tile(np.arange(bins) >= bins // 2, 2), np.repeat([False, True], bins)
    yield Metric("auroc", auroc(table, noise))
    yield Metric("accuracy", ratio(counts, (answered == true).astype(float), ones, noise))
    both = (answered & true).astype(float)
    yield Metric("precision", ratio(counts, both, answered.astype(float), noise))
    yield Metric("recall", ratio(counts, both, true.astype(float), noise))
    yield Metric("specificity", ratio(counts, (~answered & ~true).astype(float), (~true).astype(float), noise))
    yield Metric("f1", ratio(counts, 2 * both, answered.astype(float) + true, noise))
    chance = np.concatenate([1 - layout.middles, layout.middles])  # of the true answer
    yield Metric("brier", ratio(counts, (1 - chance) ** 2, ones, noise))
    yield Metric("prevalence", ratio(counts, true.astype(float), ones, noise))
    losses = -np.log(chance)
    yield Metric(OF_BINS[0], scale_interval(ratio(counts, losses / losses.max(), ones, noise), float(losses.max())))
    yield Metric(OF_BINS[1], average_precision(table, noise))
    yield records(counts, noise)


def _classes(layout: Layout, table: Floats, noise: Noise) -> Iterator[Metric]:
    counts, k = table.ravel(), len(layout.classes)
    true, answered = np.repeat(np.arange(k), k), np.tile(np.arange(k), k)
    is_right = (true == answered).astype(float)
    most = (true == int(table.sum(axis=1).argmax())).astype(float)
    yield Metric("accuracy", ratio(counts, is_right, np.ones(k * k), noise))
    yield Metric(
        "advantage", smooth(lambda n: float((is_right - most) @ n / max(n.sum(), 1e-9)), counts, noise, -1.0, 1.0)
    )

    def balanced(counts: Floats) -> float:
        table = counts.reshape(k, k)
        return float(np.clip(table.diagonal() / np.maximum(table.sum(axis=1), 1e-9), 0.0, 1.0).mean())

    yield Metric("balanced_accuracy", smooth(balanced, counts, noise, 0.0, 1.0))
    for number, label in enumerate(layout.classes):
        is_true, is_said = (true == number).astype(float), (answered == number).astype(float)
        yield Metric("precision", ratio(counts, is_true * is_said, is_said, noise), label)
        yield Metric("recall", ratio(counts, is_true * is_said, is_true, noise), label)
        yield Metric("f1", ratio(counts, 2 * is_true * is_said, is_true + is_said, noise), label)
    yield records(counts, noise)


def _number(layout: Layout, table: Floats, noise: Noise) -> Iterator[Metric]:
    assert layout.target_range is not None
    width = layout.target_range[1] - layout.target_range[0]
    low, high = layout.error_ends[:-1], layout.error_ends[1:]
    errors, values = table[0], table[1, :VALUE_BINS]
    squared, size = (low**2 + low * high + high**2) / 3, np.abs(low + high) / 2
    mean = ratio(errors, squared, np.ones(len(errors)), noise)
    roots = [None if value is None else width * value**0.5 for value in (mean.value, mean.low, mean.high)]
    yield Metric("rmse", Interval(roots[0], roots[1] or 0.0, roots[2] or 0.0, mean.is_whole))
    yield Metric("mae", scale_interval(ratio(errors, size, np.ones(len(errors)), noise), width))
    places = (np.arange(VALUE_BINS) + 0.5) / VALUE_BINS

    def r2(counts: Floats) -> float:
        of_errors, true = counts[: len(errors)], counts[len(errors) :]
        total = max(float(true.sum()), 1e-9)
        middle = float(places @ true) / total
        spread = float((places - middle) ** 2 @ true) / total
        return 1 - float(squared @ of_errors) / max(float(of_errors.sum()), 1e-9) / spread if spread > 0 else -np.inf

    yield Metric("r2", smooth(r2, np.concatenate([errors, values]), noise, -1.0, 1.0))
    sizes = np.abs(np.concatenate([low[: ERROR_STEPS + 1], high[ERROR_STEPS + 1 :]]))
    for name, share in (("median_error", 0.5), ("error_90", 0.9)):
        yield Metric(name, _quantile(errors, sizes, share, width, noise))
    yield records(errors, noise)


def _quantile(errors: Floats, sizes: Floats, share: float, width: float, noise: Noise) -> Interval:
    """Return the size that a share of the errors stays within: ends of bins, told apart by the shares within them."""
    ends = np.unique(sizes)
    within = [ratio(errors, (sizes <= end).astype(float), np.ones(len(errors)), noise) for end in ends]
    low = next((end for end, interval in zip(ends, within, strict=True) if interval.high >= share), ends[-1])
    high = next((end for end, interval in zip(ends, within, strict=True) if interval.low >= share), ends[-1])
    value = next(
        (end for end, interval in zip(ends, within, strict=True) if (interval.value or 0.0) >= share), ends[-1]
    )
    below = ends[max(int(np.searchsorted(ends, low)) - 1, 0)] if low > ends[0] else 0.0
    return Interval(width * float(value), width * float(below), width * float(high), below == 0 and high == ends[-1])


def scale_interval(interval: Interval, by: float) -> Interval:
    """Return the interval in another unit."""
    value = None if interval.value is None else by * interval.value
    return Interval(value, by * interval.low, by * interval.high, interval.is_whole)


def records(counts: Floats, noise: Noise) -> Metric:
    """Return how many records the part has; of that only the noise is uncertain."""
    value, width = float(counts.sum()), noise.z * (noise.variance * len(counts)) ** 0.5
    return Metric("records", Interval(value, max(0.0, value - width), max(0.0, value + width)))

"""What a model is worth in each public group, and how far apart the groups are: one histogram for each, in one release.

A record is counted in the histogram of its own group alone, so that groups cost nothing more. The intervals of a figure
in all groups hold at once (Bonferroni); what they leave a gap, the largest figure less the smallest one, is then the
gap's interval, of whichever groups it is asked: here of those that are shown to have records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.features.features import BooleanFeature, CategoricalFeature, Feature, number_text
from models.parts.answers import ClassLabel
from models.worth.cover import CoverLayout, cover_metrics
from models.worth.intervals import Interval, Noise, auroc, ratio
from models.worth.layout import AboutLayout, Layout
from models.worth.metrics import Metric, metrics, records

Floats = NDArray[np.float64]
NONE_OF_THESE = "other or missing"
OF_NUMBERS = ("rmse", "mae")
BEYOND = 5.0  # standard deviations of the noise in how many records a group has


def group_names(feature: Feature) -> tuple[str, ...]:
    """Return the names of public bins, in the order of `group_places`."""
    if isinstance(feature, CategoricalFeature):
        return (*feature.values, NONE_OF_THESE)
    if isinstance(feature, BooleanFeature):
        return ("false", "true", "missing")
    ends = [*map(number_text, feature.edges)]
    between = [f"above {low}, up to {high}" for low, high in pairwise(ends)]
    return (f"up to {ends[0]}", *between, f"above {ends[-1]}", "missing")


def group_places(names: Sequence[str], codes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the places among `names` for codes (n,) of the feature: values that it does not list and missing ones
    share the last.
    """
    return np.asarray(np.minimum(codes, len(names) - 1), np.intp)


@dataclass(frozen=True)
class GroupedLayout(AboutLayout):
    """The cells of `own` for each of the groups `names` of a column."""

    own: Layout | CoverLayout
    column: str
    names: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Return the kind that the layout has without groups."""
        return self.own.kind

    @property
    def shape(self) -> tuple[int, int]:
        """Return how many rows (of the first group, of the second, and so on) and how many columns, which are as
        without groups.
        """
        return len(self.names) * self.own.shape[0], self.own.shape[1]

    @property
    def cells_per_record(self) -> int:
        """Count the cells to which one record adds: all of them are its own group's."""
        return self.own.cells_per_record

    def table(self, counts: Sequence[int]) -> Floats:
        """Return the released counts by group: (groups, own.size)."""
        return np.array(counts, np.float64).reshape(len(self.names), self.own.size)


def grouped_metrics(layout: GroupedLayout, counts: Sequence[int], noise: Noise) -> list[Metric]:
    """Compute the metrics of released counts (layout.size,): of all records first, which the noise of every group has
    moved, then of each group, then the gaps, of which answers that cover have none.
    """
    tables, groups, own = layout.table(counts), len(layout.names), layout.own
    of_all_noise = replace(noise, variance=groups * noise.variance)
    at_once = replace(noise, level=1 - (1 - noise.level) / groups)
    if isinstance(own, CoverLayout):
        of_each = [[*cover_metrics(own, table, at_once)] for table in tables]
        of_all = [*cover_metrics(own, tables.sum(axis=0), of_all_noise)]
    else:
        of_each = [[*_figures(own, table, at_once)] for table in tables]
        of_all = metrics(own, [*tables.sum(axis=0)], of_all_noise)
    of_groups = [
        replace(figure, group=name) for name, figures in zip(layout.names, of_each, strict=True) for figure in figures
    ]  # fmt: skip
    if isinstance(own, CoverLayout):
        return [*of_all, *of_groups]
    records = [figures[-1].found for figures in of_each]
    present = [  # groups that are shown to have records: more than the noise alone makes once in a million
        place
        for place, each in enumerate(records)
        if each.value is not None and each.value > BEYOND * (each.high - each.value) / at_once.z
    ]
    return [*of_all, *of_groups, *_gaps(layout, of_each, present)]


def _gaps(layout: GroupedLayout, of_each: list[list[Metric]], present: list[int]) -> Iterator[Metric]:
    names = tuple(layout.names[at] for at in present)
    if len(present) < 2:
        return
    for place, first in enumerate(of_each[0][:-1]):  # the last says how many records there are
        intervals = [of_each[at][place].found for at in present]
        pairs = [*permutations(intervals, 2)]
        values = [interval.value for interval in intervals if interval.value is not None]
        value = max(values) - min(values) if len(values) == len(intervals) else None
        low = max(0.0, *(upper.low - lower.high for upper, lower in pairs))
        high = max(upper.high - lower.low for upper, lower in pairs)
        whole = any(interval.is_whole for interval in intervals)
        yield Metric(f"{first.name}_gap", Interval(value, low, high, whole), first.of, groups=names)


def _figures(layout: Layout, counts: Floats, noise: Noise) -> Iterator[Metric]:
    """Yield, for one group, rates that are compared, then how many records it has."""
    if layout.kind == "number":
        by_name = {metric.name: metric for metric in metrics(layout, [*counts], noise)}
        yield from (by_name[name] for name in (*OF_NUMBERS, "records"))
        return
    table = counts.reshape(layout.shape)
    rows, columns = layout.shape
    true = np.repeat(np.arange(rows), columns)
    answered = (
        np.tile(np.arange(columns) >= columns // 2, rows) if layout.kind == "binary" else np.tile(np.arange(rows), rows)
    )
    ones = np.ones(len(counts))

    def share(name: str, part: NDArray[np.bool_], whole: NDArray[Any], of: ClassLabel | None = None) -> Metric:
        of_whole = whole.astype(float)
        return Metric(name, ratio(counts, part * of_whole, of_whole, noise), of)

    yield share("accuracy", true == answered, ones)
    if layout.kind == "binary":
        yield share("selection_rate", answered == 1, ones)
        yield share("true_positive_rate", answered == 1, true == 1)
        yield share("false_positive_rate", answered == 1, true == 0)
        yield share("precision", true == 1, answered == 1)
        yield share("prevalence", true == 1, ones)
        yield Metric("auroc", auroc(table, noise))
    else:
        for number, label in enumerate(layout.classes):
            yield share("selection_rate", answered == number, ones, label)
            yield share("true_positive_rate", answered == number, true == number, label)
    yield records(counts, noise)

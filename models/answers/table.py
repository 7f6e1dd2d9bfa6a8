"""The figures of a query from noisy sums in public cells, and whether what was released before answers another.

Every figure is a function of released numbers: docs/privacy/answers.md has the intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.certificates.answer import Answer
from accountant.certificates.profile import Profile
from dpserve_verify.certificates.certificate import plan_of
from dpserve_verify.errors import CertificateInvalid
from models.answers.question import Condition, Measure, Output, Question
from models.features.features import NumericFeature
from models.profile.columns import Column, column_of, labels
from models.profile.figures import LEVEL, Noise, number, roots
from models.profile.stated import noise_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Released:
    """Noisy sums of `measures` in the cells of columns `by`, over rows that meet `where`: shape (measures, *bins)."""

    by: tuple[Column, ...]
    where: tuple[Condition, ...]
    measures: tuple[Measure, ...]
    sums: Floats
    noise: Noise

    def answer(self, question: Question) -> Table | None:
        """Return the table of a question that follows from these cells; None where it does not."""
        chosen = self._chosen(question)
        if chosen is None:
            return None
        names = [column.name for column in self.by]
        axes = tuple(names.index(column.name) for column in question.by)
        figures = []
        for output in question.outputs:
            figure = self._figure(output, chosen, axes)
            if figure is None:
                return None
            figures.append(figure)
        cells = prod(len(codes) for axis, codes in enumerate(chosen) if axis not in axes)
        spread = self.noise.z**2 * self.noise.variance * cells
        return Table(question, _keys(question.by, [chosen[axis] for axis in axes]), tuple(figures), spread)

    def _chosen(self, question: Question) -> list[list[int]] | None:
        """Return, of each column of the cells, the bins that the question counts. None where no cells are its own."""
        own, asked = ({each.column.name: each for each in where} for where in (self.where, question.where))
        if {column.name for column in question.by} - {column.name for column in self.by}:
            return None
        if any(asked.get(name) != condition for name, condition in own.items()):
            return None
        chosen = []
        for column in self.by:
            condition = asked.pop(column.name, None)
            codes = range(column.bins) if condition is None else condition.codes_in_bins()
            if codes is None and condition != own.get(column.name):
                return None
            chosen.append(sorted(range(column.bins) if codes is None else codes))
        return None if asked.keys() - own.keys() else chosen

    def _figure(self, output: Output, chosen: list[list[int]], axes: tuple[int, ...]) -> list[Figure] | None:
        name = None if output.column is None else output.column.name
        counts = self._summed(Measure(name), chosen, axes)
        if counts is None and name is not None:  # rows where it is there, of all rows by its own bins
            counts = self._summed(Measure(None), self._without_missing(name, chosen), axes)
        if counts is None:
            return None
        if output.kind == "count":
            widths = self.noise.z * np.sqrt(counts[1] * self.noise.variance)
            ends = np.maximum(0.0, np.stack([counts[0], counts[0] - widths, counts[0] + widths], axis=1))
            return [_spell(*each) for each in ends.tolist()]
        measure = next((each for each in self.measures if each.is_sum and each.column == name), None)
        sums = None if measure is None else self._summed(measure, chosen, axes)
        if measure is None or sums is None:
            return None
        pairs = zip(sums[0], counts[0], counts[1], strict=True)
        figure = self._sum if output.kind == "sum" else self._mean
        return [figure(measure, *each) for each in pairs]

    def _without_missing(self, name: str, chosen: list[list[int]]) -> list[list[int]] | None:
        names = [column.name for column in self.by]
        if name not in names:
            return None
        last = self.by[names.index(name)].bins - 1
        return [[c for c in codes if own != name or c != last] for own, codes in zip(names, chosen, strict=True)]

    def _summed(
        self, measure: Measure, chosen: list[list[int]] | None, axes: tuple[int, ...]
    ) -> tuple[Floats, Floats] | None:
        """Return the sums of a measure by group, and how many cells went into each."""
        places = [
            at for at, own in enumerate(self.measures) if (own.column, own.is_sum) == (measure.column, measure.is_sum)
        ]
        if not places or chosen is None:
            return None
        values = self.sums[places[0]][np.ix_(*chosen)] if chosen else self.sums[places[0]]
        others = tuple(axis for axis in range(len(self.by)) if axis not in axes)
        cells = float(prod(len(chosen[axis]) for axis in others))
        order = np.argsort(np.argsort(axes)) if axes else ()
        grouped = np.transpose(values.sum(axis=others), order).reshape(-1) if axes else values.sum().reshape(1)
        return grouped, np.full(grouped.size, cells)

    def _sum(self, measure: Measure, total: float, count: float, cells: float) -> Figure:
        middle, half = _middle(measure)
        width = self.noise.z * sqrt(cells * self.noise.variance * (middle**2 + half**2))
        most = max(0.0, count + self.noise.z * sqrt(cells * self.noise.variance)) * measure.within
        value = half * total + middle * count
        return _spell(value, value - width - most, value + width + most)

    def _mean(self, measure: Measure, total: float, count: float, cells: float) -> Figure:
        """Return the mean t of the numbers, by the t with (total - t count)^2 <= z^2 v (1 + t^2)."""
        (middle, half), v = _middle(measure), self.noise.z**2 * cells * self.noise.variance
        low, high = roots(count * count - v, total * count, total * total - v, (-1.0, 1.0))
        value = None if count <= 0 else middle + half * min(1.0, max(-1.0, total / count))
        ends = [middle + half * low - measure.within, middle + half * high + measure.within]
        if value is not None:
            ends = [min(ends[0], value), max(ends[1], value)]
        return _spell(value, max(ends[0], middle - half), min(ends[1], middle + half))


Figure = list[str | None]  # value, low end, high end


@dataclass(frozen=True)
class Table:
    """The answer to a question: of each group its `keys`, and its figures, output after output. `spread`: the square of
    how far off a count may be that most noise went into.
    """

    question: Question
    keys: list[list[str]]
    figures: tuple[list[Figure], ...]
    spread: float

    def to_json(self) -> dict[str, Any]:
        """Return it for programs: one record a group."""
        names = [output.name for output in self.question.outputs]
        rows = [
            {"group": keys, **dict(zip(names, figures, strict=True))}
            for keys, figures in zip(self.keys, zip(*self.figures, strict=True), strict=True)
        ]
        return {"question": self.question.to_json(), "rows": rows}


def released_by_answer(answer: Answer) -> Released:
    """Return the cells of a verified statement. CertificateInvalid where they are not of its form."""
    form = answer.form
    by = tuple(map(column_of, form.by))
    where = tuple(map(Condition.from_form, form.where))
    measures = tuple(map(Measure.from_form, form.measures))
    shape = (len(measures), *(column.bins for column in by))
    if len({column.name for column in by}) < len(by) or prod(shape) != len(form.counts):
        raise CertificateInvalid("counts: are not as many as measures times cells")
    try:
        noise = noise_of(plan_of(form.mechanisms), form.grid)
    except ArithmeticError:
        raise CertificateInvalid("mechanisms: are not those of an answer") from None
    if form.level != LEVEL or form.variance != number(noise.variance):
        raise CertificateInvalid("variance: does not follow from the mechanism")
    return Released(by, where, measures, np.array(form.counts, np.float64).reshape(shape) / form.grid, noise)


def released_by_profile(profile: Profile) -> list[Released]:
    """Return each column and each pair of columns of a verified profile as cells of counts."""
    form = profile.form
    noise, columns = noise_of(plan_of(form.mechanisms), form.grid), {}
    for each in form.columns:
        columns[each.name] = column_of(each)
    counted: list[tuple[Sequence[Column], Sequence[int]]] = [
        ([columns[each.name]], each.counts) for each in form.columns
    ]
    if form.chosen is None:  # chosen pairs are counted in cells of several bins
        counted += [([columns[name] for name in each.columns], each.counts) for each in form.pairs]
    return [
        Released(
            tuple(by), (), (Measure(),),
            np.array(counts, np.float64).reshape(1, *(column.bins for column in by)) / form.grid, noise,
        )
        for by, counts in counted
    ]  # fmt: skip


def best_answer(released: Sequence[Released], question: Question) -> Table | None:
    """Return the narrowest table of a question that follows from any of these; None where none does."""
    tables = [table for each in released if (table := each.answer(question)) is not None]
    return min(tables, key=lambda table: table.spread, default=None)


def _middle(measure: Measure) -> tuple[float, float]:
    assert measure.ends is not None
    low, high = measure.ends
    return low / 2 + high / 2, high / 2 - low / 2


def _keys(by: Sequence[Column], chosen: Sequence[Sequence[int]]) -> list[list[str]]:
    keys: list[list[str]] = [[]]
    for column, codes in zip(by, chosen, strict=True):
        names = bin_words(column)
        keys = [[*key, names[code]] for key in keys for code in codes]
    return keys


def bin_words(column: Column) -> list[str]:
    """Return what each bin of a column holds, in words; of a date as a date."""
    feature = column.feature
    if not isinstance(feature, NumericFeature):
        return labels(column.to_json())
    return labels({"type": "numeric", "edges": [feature.text(edge) for edge in feature.edges]})


def _spell(value: float | None, low: float, high: float) -> Figure:
    return [None if each is None else number(each) for each in (value, low, high)]

"""The figures of a query from noisy sums in public cells, and whether what was released before answers another.

Every figure is a function of released numbers: docs/privacy/counts.md has the intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.certificates.answer import Answer
from accountant.certificates.profile import Profile
from dpserve_verify.certificates.certificate import plan_of
from dpserve_verify.certificates.stated import ANSWER, Stated
from dpserve_verify.errors import CertificateInvalid
from models.answers.question import ENDS, SIGNS, Condition, Conditions, Measure, Output, Question, merge
from models.answers.sampled import HALF, Sampled
from models.features.calendar import text_of
from models.features.features import NumericFeature
from models.profile.columns import Column, column_of, labels
from models.profile.figures import LEVEL, Noise, number, roots
from models.profile.stated import noise_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Released:
    """Noisy sums of `measures` in the cells of columns `by`, over rows that meet `where`: shape (measures, *bins); of
    a number's two sums both.
    `sampled`: of which units, where they are a part of all. `most`: what a row counts that weighs the most.
    """

    by: tuple[Column, ...]
    where: tuple[Condition, ...]
    measures: tuple[Measure, ...]
    sums: Floats
    noise: Noise
    sampled: Sampled | None = None
    most: float = 1.0

    @classmethod
    def promised(
        cls, by: tuple[Column, ...], where: tuple[Condition, ...], measures: tuple[Measure, ...], noise: Noise
    ) -> Released:
        """Return these cells with nothing in them."""
        shape = len(measures), *(column.bins for column in by)
        return cls(by, where, measures, np.broadcast_to(0.0, shape), noise)

    def answer(self, question: Question) -> Table | None:
        """Return the table of a question that follows from these cells; None where it does not."""
        groups, summed = self._summed(question)
        if groups is None or summed is None:
            return None
        figures = tuple(self._figures(*each) for each in zip(question.outputs, summed, strict=True))
        scaled = tuple(map(self._scaled, summed))
        return Table(question, _keys(question.by, [*groups.values()]), figures, self._spread(summed), scaled)

    def _scaled(self, summed: Summed) -> list[Figure] | None:
        """Return a count of each group as one of all units; None of a sum or mean, or where they are of all units."""
        if self.sampled is None or summed.totals is not None:
            return None
        widths = self.noise.reach(HALF) * np.sqrt(summed.cells * self.noise.variance)
        pairs = zip(summed.counts.tolist(), widths.tolist(), strict=True)
        return [self._spell(*self.sampled.scale(count, width)) for count, width in pairs]

    def spread_of(self, question: Question) -> float | None:
        """Return the `spread` of the table of a question, whatever the sums are; None where none follows."""
        summed = self._summed(question)[1]
        return None if summed is None else self._spread(summed)

    def _spread(self, summed: Sequence[Summed]) -> float:
        return self.noise.z**2 * self.noise.variance * max(float(each.cells.max(initial=0)) for each in summed)

    def _summed(self, question: Question) -> tuple[Groups | None, list[Summed] | None]:
        """Return the codes of each axis that is grouped by, and what each output is made of; None where it does not
        follow.
        """
        names = [column.name for column in self.by]
        if any(not any(column.has_bins_of(own) for own in self.by) for column in question.by):
            return None, None
        groups = {
            names.index(column.name): codes for column, codes in zip(question.by, question.group_codes(), strict=True)
        }
        summed = []
        for output in question.outputs:
            of_output = self._sums_of(output, question, groups)
            if of_output is None:
                return groups, None
            summed.append(of_output)
        return groups, summed

    def _sums_of(self, output: Output, question: Question, groups: Groups) -> Summed | None:
        """Return the sums that an output is made of, in each group."""
        name = None if output.column is None else output.column.name
        wanted = merge(question.where, output.where)
        is_share = name is None and output.kind == "avg"
        of_rows = name is None or output.column.is_everywhere  # type: ignore[union-attr]  # there is one
        counts = self._sums(None if of_rows else name, False, merge(question.where) if is_share else wanted, groups)
        if counts is None and output.column is not None:  # rows where it is there, of all rows by its own bins
            there = Condition.by_missing(output.column, False)
            counts = self._sums(None, False, merge((wanted or {}).values(), (there,)), groups)
        if counts is None or output.kind == "count":
            return None if counts is None else Summed(*counts)
        sums = self._sums(name, not is_share, wanted, groups)
        return None if sums is None else Summed(counts[0], np.maximum(sums[1], counts[1]), sums[0])

    def _figures(self, output: Output, summed: Summed) -> list[Figure]:
        """Return a figure of each group."""
        if summed.totals is None:
            widths = self.noise.z * np.sqrt(summed.cells * self.noise.variance)
            counts = summed.counts
            ends = np.maximum(0.0, np.stack([counts, counts - widths, counts + widths], axis=1))
            return [self._spell(*each) for each in ends.tolist()]
        name = None if output.column is None else output.column.name
        measure = next((each for each in self.measures if each.is_sum and each.column == name), SHARE)
        figure = self._sum if output.kind == "sum" else self._mean
        rows = zip(summed.totals.tolist(), summed.counts.tolist(), summed.cells.tolist(), strict=True)
        return [figure(measure, *each) for each in rows]

    def _sums(
        self, name: str | None, is_sum: bool, wanted: Conditions | None, groups: Groups
    ) -> tuple[Floats, Floats] | None:
        """Return counts of rows, of rows where a column is there, or its sums about the middle, over rows that meet
        `wanted`, by group, and how many released numbers went into each: none where no row of a group can meet them.
        None where they do not follow.
        """
        best: tuple[Floats, Floats] | None = None
        for own, values, draws in self._figures_of_cells:
            chosen = self._chosen(wanted, own.where) if (own.column, own.is_sum) == (name, is_sum) else None
            if chosen is None:
                continue
            others = tuple(axis for axis in range(len(self.by)) if axis not in groups)
            sums = values[np.ix_(*(groups.get(axis, codes) for axis, codes in enumerate(chosen)))].sum(axis=others)
            sums = np.transpose(sums, np.argsort(np.argsort([*groups]))) if groups else sums
            met: NDArray[Any] = np.array(float(prod(len(chosen[axis]) for axis in others)))
            for axis, codes in groups.items():
                met = np.multiply.outer(met, np.isin(codes, chosen[axis]))
            summed = np.where(met > 0, sums, 0.0).reshape(-1), draws * met.reshape(-1)
            if best is None or summed[1].max(initial=0) < best[1].max(initial=0):
                best = summed
        return best

    @cached_property
    def _figures_of_cells(self) -> list[tuple[Measure, Floats, int]]:
        """Return each count and each sum about the middle, in each cell, and of how many released numbers it is made:
        the two sums of a number add up to the count of its rows, of all rows where none is without it.
        """
        figures: list[tuple[Measure, Floats, int]] = []
        released = dict(zip(self.measures, self.sums, strict=True))
        for own, values in released.items():
            if not own.is_sum:
                figures.append((own, values, 1))
            elif own.end == ENDS[1]:
                below = released[replace(own, end=ENDS[0])]
                count = Measure(None if own.everywhere else own.column, where=own.where)
                figures += [(count, below + values, 2), (own, values - below, 2)]
        return figures

    def _chosen(self, wanted: Conditions | None, of_measure: Sequence[Condition]) -> list[list[int]] | None:
        """Return, of each column of the cells, the bins that hold exactly the rows that meet `wanted`, of a measure
        with conditions of its own; None where no bins do.
        """
        own, axes = merge(self.where, of_measure), {column.name for column in self.by}
        if own is None or wanted is None:
            return None
        if any(name not in axes and not _equal(wanted.get(name), own.get(name)) for name in {*wanted, *own}):
            return None
        chosen = []
        for column in self.by:
            condition, stated = wanted.get(column.name), own.get(column.name)
            if _equal(condition, stated):
                codes = [*column.codes] if stated is None else stated.bins_met(column)
            elif (
                condition is None
                or not condition.is_of_bins(column)
                or (stated is not None and not condition.implies(stated))
            ):
                return None
            else:
                codes = condition.bins_met(column)
            chosen.append([code for code in codes if code in column.codes])
        return chosen

    def _spell(self, *figure: float) -> Figure:
        """Spell a count or a sum, with its interval: of rows with weights, what they weigh."""
        return _spell(*(each * self.most for each in figure))

    def _sum(self, measure: Measure, total: float, count: float, cells: float) -> Figure:
        middle, half = _middle(measure)
        width = self.noise.z * sqrt(cells * self.noise.variance * (middle**2 + half**2))
        most = max(0.0, count + self.noise.z * sqrt(cells * self.noise.variance)) * measure.within
        value = half * total + middle * count
        return self._spell(value, value - width - most, value + width + most)

    def _mean(self, measure: Measure, total: float, count: float, cells: float) -> Figure:
        """Return the mean t of the numbers, by the t with (total - t count)^2 <= z^2 v (1 + t^2). A share is that of
        zeros and ones, from 0 to 1.
        """
        (middle, half), v = _middle(measure), self.noise.z**2 * cells * self.noise.variance
        least = -middle / half if measure is SHARE else -1.0
        if not cells:  # no row can be in this group
            return _spell(None, middle + half * least, middle + half)
        low, high = roots(count * count - v, total * count, total * total - v, (least, 1.0))
        value = None if count <= 0 else middle + half * min(1.0, max(least, total / count))
        ends = [middle + half * low - measure.within, middle + half * high + measure.within]
        if value is not None:
            ends = [min(ends[0], value), max(ends[1], value)]
        return _spell(value, max(ends[0], middle + half * least), min(ends[1], middle + half))


@dataclass(frozen=True)
class Summed:
    """What an output is made of, by group: noisy `counts` of rows, of how many `cells` each sum is at most, and the
    noisy `totals` of its numbers; None of a count.
    """

    counts: Floats
    cells: Floats
    totals: Floats | None = None


SHARE = Measure(None, True, (-1.0, 1.0))
Groups = dict[int, list[int]]  # of each axis that is grouped by, in the question's order: the bins that are shown
Figure = list[str | None]  # value, low end, high end


@dataclass(frozen=True)
class Table:
    """The answer to a question: of each group its `keys`, and its figures, output after output. `spread`: the square of
    how far off a count may be that most noise went into. `scaled`: by output, the counts as counts of all units, where
    the rows are of a part of them.
    """

    question: Question
    keys: list[list[str]]
    figures: tuple[list[Figure], ...]
    spread: float
    scaled: tuple[list[Figure] | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it for programs: one record a group, those that the question shows, in its order."""
        outputs = self.question.outputs
        rows = [
            {
                "group": self.keys[at],
                **{each.name: _as_dates(own[at], each) for each, own in zip(outputs, self.figures, strict=True)},
            }
            for at in self._shown()
        ]
        counts = [(each.name, own) for each, own in zip(outputs, self.scaled, strict=True) if own is not None]
        scaled = {"scaled": [{name: own[at] for name, own in counts} for at in self._shown()]} if counts else {}
        return {"question": self.question.to_json(), "rows": rows, **scaled}

    def _shown(self) -> list[int]:
        """Return which groups are shown, by their noisy figures alone."""
        question, order = self.question, range(len(self.keys))
        values = {
            output.name: [None if each[0] is None else float(each[0]) for each in own]
            for output, own in zip(question.outputs, self.figures, strict=True)
        }
        shown = [
            at for at in order
            if all((own := values[each.name][at]) is not None and SIGNS[each.sign](own, each.value)
                   for each in question.having)
        ]  # fmt: skip
        for name, falls in reversed(question.order):
            if name in values:
                of_group = values[name]
                shown.sort(key=lambda at: (of_group[at] is None, (-1 if falls else 1) * (of_group[at] or 0.0)))
                continue
            column = [each.name for each in question.by].index(name)
            places = {key: place for place, key in enumerate(dict.fromkeys(key[column] for key in self.keys))}
            shown.sort(key=lambda at: places[self.keys[at][column]], reverse=falls)
        return shown[: question.limit]


def released_by(stated: Stated[Any]) -> list[Released]:
    """Return the tables of cells of a verified answer or profile. CertificateInvalid where they are not of its form."""
    return [released_by_answer(stated)] if stated.rule is ANSWER else released_by_profile(stated)


def released_by_answer(answer: Answer) -> Released:
    """Return the cells of a verified statement. CertificateInvalid where they are not of its form."""
    form = answer.form
    by = tuple(map(column_of, form.by))
    where = tuple(map(Condition.from_form, form.where))
    measures = tuple(map(Measure.from_form, form.measures))
    shape = (len(measures), *(column.bins for column in by))
    if any(len({each.end for each in measures if replace(each, end=None) == replace(own, end=None)}) != 2
           for own in measures if own.is_sum) or len({*measures}) < len(measures):  # fmt: skip
        raise CertificateInvalid("measures: of a number both ends are counted, each once")
    if len({column.name for column in by}) < len(by) or prod(shape) != len(form.counts):
        raise CertificateInvalid("counts: are not as many as measures times cells")
    try:
        noise = noise_of(plan_of(form.mechanisms), form.grid)
    except ArithmeticError:
        raise CertificateInvalid("mechanisms: are not those of an answer") from None
    if form.level != LEVEL or form.variance != number(noise.variance):
        raise CertificateInvalid("variance: does not follow from the mechanism")
    return Released(
        by,
        where,
        measures,
        np.array(form.counts, np.float64).reshape(shape) / form.grid,
        noise,
        Sampled.of_rows(form.rows),
        _most(form.rows),
    )


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
            Sampled.of_rows(form.rows), _most(form.rows),
        )
        for by, counts in counted
    ]  # fmt: skip


def _most(rows: Any) -> float:
    return 1.0 if rows.weight is None else float(rows.weight.most)


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
        feature, about = column.feature, column.to_json()
        if isinstance(feature, NumericFeature):  # in few digits, and dates as dates
            about = {"type": NumericFeature.kind, "edges": [feature.text(edge) for edge in feature.edges]}
        names = labels(about)
        keys = [[*key, names[code]] for key in keys for code in codes]
    return keys


def _spell(value: float | None, low: float, high: float) -> Figure:
    return [None if each is None else number(each) for each in (value, low, high)]


def _equal(one: Condition | None, other: Condition | None) -> bool:
    return one is other if one is None or other is None else one.equals(other)


def _as_dates(figure: Figure, output: Output) -> Figure:
    """Return a mean of dates as dates: the ends of its interval are no nearer than they were."""
    kind = output.calendar
    if kind is None:
        return figure
    wholes: list[Callable[[float], int]] = [round, floor, ceil]
    return [
        None if each is None else text_of(kind, to_whole(float(each)))
        for each, to_whole in zip(figure, wholes, strict=True)
    ]

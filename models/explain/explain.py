"""What an ensemble says, for people: how much each feature matters; of one whose scores are sums of what each feature
adds, the shape of each feature and one record's account; of votes their table, of trees their text.

All of it is arithmetic on released numbers. Of two classes, scores speak for classes[1]; of K, each for its class; of a
number, for the number. A voting ensemble's shapes are in votes; an additive one's in its own unit: log odds of
classes[1], or the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.features.features import Feature, NumericFeature, RawColumns, encode_columns
from models.parts.answers import ClassLabel, middle
from models.parts.pairs import PairTerm, term_names
from models.parts.released import FeatureSum, Released


@dataclass(frozen=True)
class Row:
    """One line of the vote table: so many votes for `label` where `test` holds, and as many against where not."""

    votes: int
    feature: str
    test: str
    label: ClassLabel


@dataclass(frozen=True)
class Bin:
    """One value, or interval of values (low, high] of a numeric feature, and what it adds to the score.

    `error`: the standard error that the noise alone gives it. `count`: the released, noisy number of its records, which
    may be negative. None where these were not released.
    """

    label: str
    votes: float
    low: float | None = None
    high: float | None = None
    error: float | None = None
    count: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Open ends are null: JSON has no infinity."""
        low, high = (None if end is None or abs(end) == inf else end for end in (self.low, self.high))
        numbers = {"adds": self.votes, "error": self.error, "count": self.count}
        return {"label": self.label, "low": low, "high": high, **numbers}


@dataclass(frozen=True)
class Shape:
    """What one feature adds to the score for `label` (the target, if that is a number), bin by bin.

    Centred: with released counts, the mean over these is 0; else the largest and the smallest are equally far from 0.
    """

    feature: str
    kind: str
    label: ClassLabel
    bins: tuple[Bin, ...]

    @property
    def importance(self) -> float:
        """Return the mean of what the feature adds or takes away, over the released counts; without counts, the most
        that it can add or take away.
        """
        return _importance(self.bins)


@dataclass(frozen=True)
class PairShape:
    """What two features add together to the score for `label`, beside what each adds by itself, cell by cell: a row for
    each group of the first, a column for each of the second. Centred as a `Shape` is."""

    feature: str  # both names
    features: tuple[str, str]
    label: ClassLabel
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    bins: tuple[Bin, ...]  # row by row
    several: bool = False  # whether the model has other classes, with shapes of their own

    @property
    def title(self) -> str:
        """Return both names, and the class where there are several."""
        return f"{self.feature}: {self.label}" if self.several else self.feature

    @property
    def importance(self) -> float:
        """Return the same as `Shape.importance`, for the cells of the pair."""
        return _importance(self.bins)

    def to_json(self) -> dict[str, Any]:
        """Return the names, groups and cells of the pair for programs."""
        groups: dict[str, Any] = {"rows": list(self.rows), "columns": list(self.columns)}
        groups |= {"class": self.label} if self.several else {}
        return {"features": list(self.features), **groups, "cells": [cell.to_json() for cell in self.bins]}


@dataclass(frozen=True)
class Contributions:
    """scores of record i = base + sum over features, and then pairs of them, of votes[i]. `votes`: (n, features and
    pairs, outputs), `base`: (outputs,); of votes both in halves at the smallest; of an additive ensemble in its own
    unit, a number's before it is clipped to the target's range. `features`: their names, and the pairs'."""

    base: NDArray[np.float64]
    features: tuple[str, ...]
    votes: NDArray[np.float64]


def spoken_for(ensemble: Released) -> tuple[ClassLabel, ...]:
    """Return the class that each output speaks for; of a number, the target."""
    return ensemble.classes[-ensemble.outputs :] if ensemble.classes else (ensemble.target,)


def unit(ensemble: Released) -> str:
    """Return what one more in `link` x score is."""
    if not ensemble.classes:
        return ensemble.target
    if ensemble.outputs != 1:
        return "logits"
    return f"{'score' if ensemble.bends else 'log odds'} of {ensemble.classes[1]}"  # which bend beyond some scores


def shapes(ensemble: Released) -> list[Shape]:
    """Return the features that move a score, the most important first; of each, one shape per class that it moves."""
    additive = ensemble.as_sum()
    tables, _ = centre_tables(additive)
    labels = spoken_for(additive)
    groups = [
        [_shape(additive, at, label, votes) for label, votes in zip(labels, table.T, strict=True) if votes.any()]
        for at, table in enumerate(tables[: len(additive.features)])
        if table.any()
    ]
    groups.sort(key=lambda group: -max(shape.importance for shape in group))
    return [shape for group in groups for shape in group]


def pair_shapes(ensemble: Released) -> list[PairShape]:
    """Return the pairs of features that move a score together, the most important first; of each, one shape per class
    that it moves.
    """
    additive = ensemble.as_sum()
    if not additive.pairs:
        return []
    tables, _ = centre_tables(additive)
    pair_tables = tables[len(additive.features) :]
    drawn = [
        _pair_shape(additive, pair, label, votes.tolist())
        for pair, table in zip(additive.pairs, pair_tables, strict=True)
        for label, votes in zip(spoken_for(additive), table.T, strict=True)
        if votes.any()
    ]
    return sorted(drawn, key=lambda shape: -shape.importance)


def unused_of(ensemble: Released) -> list[str]:
    """Return the features that move no score, neither by themselves nor together with another."""
    used = set(ensemble.importances())
    for pair in getattr(ensemble, "pairs", ()):
        if pair.name(ensemble.features) in used:
            used.update(ensemble.features[at].name for at in pair.features)
    return [feature.name for feature in ensemble.features if feature.name not in used]


def contributions(ensemble: Released, columns: RawColumns) -> Contributions:
    """Return what each feature, and each pair, adds to the scores of each record."""
    additive = ensemble.as_sum()
    tables, base = centre_tables(additive)
    codes = encode_columns(ensemble.features, columns)
    places: list[NDArray[Any]] = [*codes, *(pair.cells(codes) for pair in additive.pairs)]
    votes = [table[place] for table, place in zip(tables, places, strict=True)]
    return Contributions(base, term_names(additive.features, additive.pairs), np.stack(votes, axis=1))


def logits(ensemble: Released, columns: RawColumns) -> Contributions:
    """Return `contributions` in `unit(ensemble)` whatever the form."""
    account = contributions(ensemble, columns)
    scale = ensemble.link if ensemble.as_sum().in_votes else 1.0
    return Contributions(account.base * scale, account.features, account.votes * scale)


def terms(ensemble: Released) -> list[NDArray[np.float64]]:
    """Return what each feature adds, as released and not centred, in `unit(ensemble)`: (bins, outputs) each."""
    return [np.asarray(table * ensemble.link, np.float64) for table in ensemble.as_sum().tables()[0]]


def errors(ensemble: Released) -> list[NDArray[np.float64]] | None:
    """Return the standard error of each term from the noise alone, in `unit(ensemble)`: (bins,) each; None where not
    known.
    """
    released = ensemble.as_sum().errors
    return [np.asarray(row) * ensemble.link for row in released] if released else None


def weights(ensemble: Released, feature: int) -> NDArray[np.float64] | None:
    """Return the share of the records in each bin of a feature by the released counts; None where there are none."""
    counts = ensemble.as_sum().counts
    return _weights(counts[feature]) if counts else None


def _importance(bins: Sequence[Bin]) -> float:
    weights = _weights(tuple(bin.count or 0 for bin in bins))
    sizes = [abs(bin.votes) for bin in bins]
    return max(sizes) if weights is None else float(weights @ sizes)


def _weights(counts: Sequence[int]) -> NDArray[np.float64] | None:
    """Return noisy counts as shares; below 0 is none. None where nothing is left."""
    positive = np.maximum(np.asarray(counts, np.float64), 0)
    return positive / positive.sum() if positive.sum() > 0 else None


def centre_tables(ensemble: FeatureSum) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Return tables of features, and then of pairs, (bins or cells, outputs), with their middles moved into the
    constant: votes as they are, in halves: exact; terms in their unit.

    The middle is the mean over the released counts, or the midpoint: the mean over the rows would be a statistic of
    private data.
    """
    tables, constant = ensemble.tables()
    counts: Sequence[tuple[int, ...]] = ensemble.counts or [()] * len(tables)
    tables = [*tables, *(pair.table for pair in ensemble.pairs)]
    counts = [*counts, *(tuple(count for row in pair.counts for count in row) for pair in ensemble.pairs)]
    middles = [_middle(counts_of_table, table) for counts_of_table, table in zip(counts, tables, strict=True)]
    moved = [table - middle for table, middle in zip(tables, middles, strict=True)]
    base = constant + np.sum(middles, axis=0)
    if ensemble.in_votes:
        return moved, base
    offset = middle(ensemble.target_range) if ensemble.target_range else 0.0
    return [table * ensemble.link for table in moved], base * ensemble.link + offset


def _middle(counts: Sequence[int], table: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the middle (outputs,), in integers up to one division: the exported file holds it, the same on every
    machine.
    """
    positive = [max(count, 0) for count in counts]
    if not any(positive):
        return np.asarray((table.max(axis=0) + table.min(axis=0)) / 2, np.float64)
    sums = [sum(n * term for n, term in zip(positive, column, strict=True)) for column in table.T.tolist()]
    return np.array([total / sum(positive) for total in sums])


def _shape(ensemble: FeatureSum, at: int, label: ClassLabel, table: NDArray[np.float64]) -> Shape:
    feature, votes = ensemble.features[at], [float(vote) for vote in table]
    if not ensemble.in_votes:
        return Shape(feature.name, feature.kind, label, tuple(_released_bins(ensemble, at, votes)))
    if isinstance(feature, NumericFeature):
        return Shape(feature.name, feature.kind, label, tuple(_intervals(feature, votes)))
    bins = tuple(Bin(feature.label(code), vote) for code, vote in enumerate(votes))
    return Shape(feature.name, feature.kind, label, bins)


def _pair_shape(ensemble: FeatureSum, pair: PairTerm, label: ClassLabel, votes: list[float]) -> PairShape:
    names = [ensemble.features[at].name for at in pair.features]
    rows, columns = (pair.labels(ensemble.features, side) for side in (0, 1))
    words = [f"{names[0]} {one}, {names[1]} {column}" for one in rows for column in columns]
    errors: list[float | None] = [each * ensemble.link for row in pair.errors for each in row] or [None] * len(words)
    counts: list[int | None] = [each for row in pair.counts for each in row] or [None] * len(words)
    cells = zip(words, votes, errors, counts, strict=True)
    bins = (Bin(word, each, error=error, count=count) for word, each, error, count in cells)
    both, several = (names[0], names[1]), ensemble.outputs > 1
    name = pair.name(ensemble.features)
    return PairShape(name, both, label, tuple(rows), tuple(columns), tuple(bins), several)


def _released_bins(ensemble: FeatureSum, at: int, votes: list[float]) -> list[Bin]:
    """Return every bin by itself, with its error and count."""
    nothing = [None] * len(votes)
    errors = [vote * ensemble.link for vote in ensemble.errors[at]] if ensemble.errors else nothing
    counts = ensemble.counts[at] if ensemble.counts else nothing
    parts = zip(places(ensemble.features[at]), votes, errors, counts, strict=True)
    return [Bin(label, vote, low, high, error, count) for (label, low, high), vote, error, count in parts]


def places(feature: Feature) -> list[tuple[str, float | None, float | None]]:
    """Label, low and high of each code."""
    if not isinstance(feature, NumericFeature):
        return [(feature.label(code), None, None) for code in range(feature.bins)]
    ends = pairwise((-inf, *feature.edges, inf))
    return [*((_interval(feature, low, high), low, high) for low, high in ends), ("missing", None, None)]


def share_cuts(feature: Feature, group: Sequence[Shape]) -> list[Shape]:
    """Return the shapes of one feature, of a number on all the cut points that any of them has."""
    if not isinstance(feature, NumericFeature) or len(group) == 1:
        return list(group)
    ends = sorted({end for shape in group for bin in shape.bins for end in (bin.low, bin.high) if end is not None})
    pieces = [(_interval(feature, low, high), low, high) for low, high in pairwise(ends)]
    return [replace(shape, bins=(*_cut(shape.bins, pieces), shape.bins[-1])) for shape in group]


def _cut(bins: Sequence[Bin], pieces: Sequence[tuple[str, float, float]]) -> list[Bin]:
    """Return the value of the bin around each piece (label, low, high)."""
    inner = [(bin.high, bin) for bin in bins if bin.high is not None]
    around = [next(bin for end, bin in inner if high <= end) for _, _, high in pieces]
    return [
        replace(bin, label=label, low=low, high=high) for bin, (label, low, high) in zip(around, pieces, strict=True)
    ]


def _intervals(feature: NumericFeature, votes: list[float]) -> list[Bin]:
    """Merge neighbouring intervals of equal votes; the missing bin comes last."""
    ends = (*feature.edges, inf)
    merged: list[Bin] = []
    low = -inf
    for j, high in enumerate(ends):
        if high < inf and votes[j] == votes[j + 1]:
            continue
        merged.append(Bin(_interval(feature, low, high), votes[j], low, high))
        low = high
    return [*merged, Bin("missing", votes[-1])]


def _interval(feature: NumericFeature, low: float, high: float) -> str:
    if low == -inf:
        return f"any {feature.noun}" if high == inf else f"up to {feature.text(high)}"
    above = f"above {feature.text(low)}"
    return above if high == inf else f"{above}, up to {feature.text(high)}"

"""What a voting ensemble says, for people: the table of its votes, the shape of each feature, and one record's account.

All of it is arithmetic on released numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from models.ensemble import Vote, VotingEnsemble, describe
from models.features import Columns, Feature, NumericFeature, encode_columns, number_text


@dataclass(frozen=True)
class Row:
    """One line of the vote table: so many votes for classes[1] where `test` holds, and as many against where not."""

    votes: int
    feature: str
    test: str


@dataclass(frozen=True)
class Bin:
    """One value, or interval of values (low, high] of a numeric feature, and what it adds to the score."""

    label: str
    votes: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Shape:
    """What one feature adds to the score, bin by bin, centred: the largest and the smallest are equally far from 0."""

    feature: str
    kind: str
    bins: tuple[Bin, ...]

    @property
    def importance(self) -> float:
        """The most that this feature can add or take away."""
        return max(abs(each.votes) for each in self.bins)


@dataclass(frozen=True)
class Contributions:
    """score of record i = base + sum of votes[i]. `votes`: (n, features), in halves at the smallest."""

    base: float
    features: tuple[str, ...]
    votes: NDArray[np.float64]


def vote_table(ensemble: VotingEnsemble) -> list[Row]:
    """Votes on the same test added up, the heaviest first (Table 4 of the LazyBB paper); nothing that cancels out."""
    totals: dict[Vote, int] = defaultdict(int)
    for vote in ensemble.votes:
        test = Vote(vote.test, vote.feature, vote.code, 0) if vote.test != "always" else Vote("always", 0, 0, 0)
        totals[test] += vote.weight
    kept = [(test, votes) for test, votes in totals.items() if votes]
    kept.sort(key=lambda item: (-abs(item[1]), item[0].feature, item[0].code))
    return [Row(votes, _owner(test, ensemble.features), describe(test, ensemble.features)) for test, votes in kept]


def _owner(test: Vote, features: Sequence[Feature]) -> str:
    return "" if test.test == "always" else features[test.feature].name


def shapes(ensemble: VotingEnsemble) -> list[Shape]:
    """The features that move the score, the most important first."""
    tables, _ = _centred(ensemble)
    found = [_shape(f, table) for f, table in zip(ensemble.features, tables, strict=True) if table.any()]
    return sorted(found, key=lambda shape: -shape.importance)


def contributions(ensemble: VotingEnsemble, columns: Columns) -> Contributions:
    """What each feature adds to the score of each record."""
    tables, base = _centred(ensemble)
    codes = encode_columns(ensemble.features, columns)
    votes = [table[code] for table, code in zip(tables, codes, strict=True)]
    return Contributions(base, tuple(feature.name for feature in ensemble.features), np.column_stack(votes))


def _centred(ensemble: VotingEnsemble) -> tuple[list[NDArray[np.float64]], float]:
    """Tables with their midpoints moved into the constant. Halves of integers: exact.

    The midpoint, and not the mean over the rows, because the latter would be a statistic of private data.
    """
    tables, constant = ensemble.tables()
    middles = [(int(table.max()) + int(table.min())) / 2 for table in tables]
    centred = [table.astype(np.float64) - middle for table, middle in zip(tables, middles, strict=True)]
    return centred, constant + sum(middles)


def _shape(feature: Feature, table: NDArray[np.float64]) -> Shape:
    votes = [float(each) for each in table]
    if isinstance(feature, NumericFeature):
        return Shape(feature.name, feature.kind, tuple(_intervals(feature.edges, votes)))
    bins = tuple(Bin(feature.label(code), each) for code, each in enumerate(votes))
    return Shape(feature.name, feature.kind, bins)


def _intervals(edges: tuple[float, ...], votes: list[float]) -> list[Bin]:
    """Neighbouring intervals of equal votes merged; the missing bin last."""
    ends = (*edges, inf)
    merged: list[Bin] = []
    low = -inf
    for j, high in enumerate(ends):
        if high < inf and votes[j] == votes[j + 1]:
            continue
        merged.append(Bin(_interval(low, high), votes[j], low, high))
        low = high
    return [*merged, Bin("missing", votes[-1])]


def _interval(low: float, high: float) -> str:
    if low == -inf:
        return "any number" if high == inf else f"up to {number_text(high)}"
    return f"above {number_text(low)}" if high == inf else f"above {number_text(low)}, up to {number_text(high)}"

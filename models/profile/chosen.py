"""Which columns a profile counts together, where that was chosen privately, and in which cells: a function of what was
released before, so that anybody can choose again.

Every other column is counted with one column, `around`; and the others along a tree, the heaviest by noisy scores, in
which a column has one parent, or two that are counted together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from models.features.features import NumericFeature
from models.profile.columns import Column

MOST_COLUMNS = 64
MOST_CELLS = 1 << 14  # of all pairs together
FINENESS = (16, 12, 8, 6, 4)  # cells of a column in its pairs, at most
Integers = NDArray[np.int64]
Places = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Choice:
    """`pairs`: places of columns that are counted together. `cells`: of each column, the cell of each of its bins."""

    pairs: Places
    cells: tuple[NDArray[np.intp], ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Return how many cells each column has."""
        return tuple(int(own.max()) + 1 for own in self.cells)


def count_pairs(columns: int, parents: int) -> int:
    """Return how many pairs are counted: of each column with `around`, and of each but the first with its parents."""
    return columns - 1 + (columns - 2 if parents == 1 else 2 * columns - 5)


def count_parents(columns: int, pairs: int) -> int:
    """Return how many parents a column has where so many pairs were counted."""
    return 1 if pairs == count_pairs(columns, 1) else 2


def most_counts(widths: Sequence[int], around: int, fineness: int, parents: int) -> int:
    """Return the most counts that all pairs can have, whatever is chosen."""
    fine = [min(width, fineness) for width in widths]
    others = fine[:around] + fine[around + 1 :]
    return fine[around] * sum(others) + (count_pairs(len(fine), parents) - len(others)) * max(others) ** 2


def fineness_of(widths: Sequence[int], around: int, parents: int) -> int | None:
    """Return how many cells a column has at most: as many as there is room for, by public numbers. None: no room."""
    return next((each for each in FINENESS if most_counts(widths, around, each, parents) <= MOST_CELLS), None)


def scored_pairs(columns: int, around: int) -> Places:
    """Return the pairs that are scored: of all columns but `around`, in their order."""
    return tuple(combinations([at for at in range(columns) if at != around], 2))


def cells_of(columns: Sequence[Column], counts: Sequence[Integers], fineness: int) -> tuple[NDArray[np.intp], ...]:
    """Return the cell of each bin of each column. Of a number neighbouring bins are joined, so that cells have about
    the same sum of roots of counts, and missing ones stand alone; of categories the rarest are one cell.
    """
    return tuple(_cells(column, own, fineness) for column, own in zip(columns, counts, strict=True))


def _cells(column: Column, counts: Integers, fineness: int) -> NDArray[np.intp]:
    bins = len(counts)
    if bins <= fineness:
        return np.arange(bins)
    if isinstance(column.feature, NumericFeature):
        weights = [isqrt(max(int(count), 0)) + 1 for count in counts[:-1]]
        total, below, cells = sum(weights), 0, []
        for weight in weights:
            cells.append((2 * below + weight) * (fineness - 1) // (2 * total))
            below += weight
        joined = np.unique(cells, return_inverse=True)[1]
        return np.append(joined, joined.max() + 1).astype(np.intp)
    frequent = np.sort(np.argsort(-counts, kind="stable")[: fineness - 1])
    places = np.full(bins, fineness - 1)
    places[frequent] = np.arange(fineness - 1)
    return places


def heaviest_tree(columns: int, around: int, scores: Sequence[int], parents: int) -> Places:
    """Return the tree over all columns but `around` with a large sum of scores, for one parent the largest: parent and
    child, parents first; of equal ones the first. Each column is added where its scores with its parents are largest.
    """
    score: dict[tuple[int, ...], int] = dict(zip(scored_pairs(columns, around), scores, strict=True))
    others = [at for at in range(columns) if at != around]
    start = max(combinations(others, parents), key=lambda places: score.get(places, 0))
    tree, parts, outside = [*combinations(start, 2)], [start], [at for at in others if at not in start]
    while outside:
        additions = [(part, child) for part in parts for child in outside]
        part, child = max(additions, key=lambda each: sum(score[min(at, each[1]), max(at, each[1])] for at in each[0]))
        tree += [(parent, child) for parent in part]
        parts += [(*rest, child) for rest in combinations(part, parents - 1)]
        outside.remove(child)
    return tuple(tree)


def choose(
    columns: Sequence[Column],
    counts: Sequence[Integers],
    scores: Sequence[int],
    around: int,
    fineness: int,
    parents: int,
) -> Choice:
    """Choose the pairs and their cells by what was released: counts of each column, and scores of pairs."""
    star = [(at, around) for at in range(len(columns)) if at != around]
    tree = heaviest_tree(len(columns), around, scores, parents)
    return Choice((*star, *tree), cells_of(columns, counts, fineness))

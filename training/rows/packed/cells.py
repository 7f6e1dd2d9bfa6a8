"""Fine cells: a number with a declared range is packed twice, in the bins of its schema and in a public grid of many
cells. Other bins are merged from the cells, so that where it is cut need not be decided when rows are registered.

The grid follows from the schema alone: UNIFORM cells of one width over the range; on either side of 0, or of the end
that is nearest to it, OCTAVES that halve on and on from a share FIRST of the range, of WITHIN cells each, by which
values far below a wide range's end are told apart, as floating numbers are; and the declared cut points. PARTS of the
range hold as many uniform cells each, and are parted further by narrower octaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from models.features.features import (
    CategoricalFeature,
    Codes,
    Feature,
    NumericFeature,
    OrderedFeature,
    has_two_values,
)
from training.rows import kernels

UNIFORM, PARTS = 4096, 64
OCTAVES, WITHIN, FIRST, OCTAVES_EVEN = 20, 512, 0.125, 0.05
MOST_NUMBERS = 1024  # of more of them no single one is worth counting, and none is packed twice
Span = tuple[float, float]


def declared_ranges(features: Sequence[Feature], ends: Mapping[str, Span]) -> tuple[Span | None, ...]:
    """Return the declared range of each feature whose rows are packed in fine cells; None where it is no number, a
    date, its cut points were declared, it has two values, or there are more than MOST_NUMBERS. `ends`: as a schema has
    them.
    """
    ranges = tuple(
        ends[feature.name]
        if type(feature) is NumericFeature and not has_two_values(feature) and ends[feature.name][1] > feature.edges[-1]
        else None
        for feature in features
    )
    return ranges if sum(span is not None for span in ranges) <= MOST_NUMBERS else (None,) * len(ranges)


@dataclass(frozen=True, eq=False)
class Grid:
    """The fine cells of a number: cell i holds values above edges[i - 1], up to edges[i]; a missing one is in the last
    of `size`. Of each cell of values the `part` it lies in. `starts`: of each uniform cell, the edges before it;
    `declared`: of each cell, its bin.
    """

    name: str
    edges: NDArray[np.float64]
    part: NDArray[np.int16]
    starts: NDArray[np.int32]
    declared: Codes
    span: Span

    @property
    def even(self) -> NDArray[np.float64]:
        """Return how much of all there is up to each cell's end: nearly all by the range's width, the rest by the
        octaves.
        """
        (low, high), octaves = self.span, _distinct(_octaves(self.span))
        within = np.append((self.edges - low) / (high - low), 1.0)
        halved = np.append(np.searchsorted(octaves, self.edges, side="right") / octaves.size, 1.0)
        return np.asarray((1 - OCTAVES_EVEN) * within + OCTAVES_EVEN * halved)

    @property
    def size(self) -> int:
        """Count the cells, including the one for missing values."""
        return self.edges.size + 2

    def encode(self, numbers: NDArray[np.float64]) -> Codes:
        """Return the cells of values: their place in the range says nearly which, and few edges are to be compared."""
        low, high = self.span
        place = self.edges, low, UNIFORM / (high - low), self.starts
        codes: Codes = kernels.cells.encode(numbers, *place, self.edges.size + 1)
        return codes


@lru_cache(maxsize=MOST_NUMBERS)  # all of one dataset, each of them 180 to 300 KB
def grid_of(feature: NumericFeature, span: Span) -> Grid:
    """Return the grid of a number whose declared range is `span`."""
    low, high = span
    even = low + (high - low) * (np.arange(UNIFORM) / UNIFORM)
    edges = _distinct(np.concatenate([feature.edges, _octaves(span, WITHIN), even]))
    edges = edges[(edges >= low) & (edges < high)]
    place, octaves = _place(edges, span), _octaves(span)
    narrow = octaves[np.abs(octaves - octaves[0]) <= (high - low) / PARTS]
    bounds = np.concatenate([narrow, even[:: UNIFORM // PARTS]])
    begins = np.zeros(edges.size + 1, np.int16)
    begins[np.searchsorted(edges, bounds[(bounds >= low) & (bounds < high)]) + 1] = 1
    return Grid(
        feature.name,
        edges,
        begins.cumsum(dtype=np.int16),
        np.searchsorted(place, np.arange(UNIFORM + 1)).astype(np.int32),
        merging(feature.name, edges, feature),
        span,
    )


def _octaves(span: Span, cells: int = 1) -> NDArray[np.float64]:
    """Return the ends of octaves on either side, and of the middle between them, each octave in so many cells."""
    low, high = span
    middle, width = min(max(low, 0.0), high), high - low
    sides = [side for side, room in ((1.0, high - middle), (-1.0, middle - low)) if room > 0]
    steps = width * FIRST / 2.0 ** np.arange(1, OCTAVES + 1)
    inside = np.append(np.outer(steps, 1 + np.arange(cells) / cells), width * FIRST)
    return np.concatenate([[middle], *(middle + side * inside for side in sides)])


def _distinct(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sort values, each once, without `np.unique`, which would load numpy's masked arrays first while commands wait."""
    ascending = np.sort(values, kind="stable")  # of runs that ascend it is merged
    first: NDArray[np.bool_] = np.append(True, ascending[1:] != ascending[:-1])
    return ascending[first]


def _place(values: NDArray[np.float64], span: Span) -> NDArray[np.int64]:
    """Return the uniform cell of a value, nearly: it never falls as the value grows. By the arithmetic of the
    kernel.
    """
    with np.errstate(all="ignore"):
        place = (values - span[0]) * (UNIFORM / (span[1] - span[0]))
    return np.where(place > 0, np.minimum(place, UNIFORM - 1), 0).astype(np.int64)


def merging(name: str, edges: NDArray[np.float64], bins: NumericFeature) -> Codes:
    """Return the bin of each cell, the missing value's last. InputError where a cut point is none of the cells'
    `edges`.
    """
    cuts = np.array(bins.edges)
    places = np.searchsorted(edges, cuts)
    if name != bins.name or (cuts.size and (cuts[-1] > edges[-1] or (edges[places] != cuts).any())):
        raise InputError(f"{bins.name}: its cut points are not among those that its rows are packed by")
    table = np.zeros(edges.size + 2, np.uint16)
    table[1:-1] = np.bincount(places, minlength=edges.size).cumsum()
    table[-1] = bins.missing
    return table


@dataclass(frozen=True)
class Cells:
    """How rows stand in fine cells: the `features` as declared, the `spans` of those that have cells, and `load`, which
    gives the codes, (rows,) uint16, of one of these, counted from 0: they are many, and are not held.
    """

    features: tuple[Feature, ...]
    spans: tuple[Span | None, ...]
    load: Callable[[int], Codes]

    def at(self, feature: int) -> Codes:
        """Return the codes of one feature."""
        return self.load(sum(span is not None for span in self.spans[:feature]))

    def tables(self, features: Sequence[Feature]) -> list[tuple[int, Codes | None]]:
        """Return, of each of these features, its place among the rows' own, and the bin of each of its cells; None
        where it is as declared. InputError where rows do not stand in such bins.
        """
        return tables(self.features, self.spans, features)


def places_of(feature: OrderedFeature, stored: Feature) -> Codes:
    """Return the code in its order of each code of a category. InputError where it is another category."""
    if not isinstance(stored, CategoricalFeature) or stored.values != feature.values or stored.name != feature.name:
        raise InputError(f"{feature.name}: its values are not those that its rows are packed by")
    return order_of(feature)


def order_of(feature: OrderedFeature) -> Codes:
    """Return the code in its order of each declared code."""
    return np.array([*feature.ranks, feature.missing], np.uint16)


def tables(
    own: Sequence[Feature], spans: Sequence[Span | None], wanted: Sequence[Feature]
) -> list[tuple[int, Codes | None]]:
    """Return `Cells.tables` of rows whose features are `own`, with cells by `spans`. A model may read some of them, in
    their order.
    """
    places = {feature.name: at for at, feature in enumerate(own)}
    pairs: list[tuple[int, Codes | None]] = []
    for feature in wanted:
        at = places.get(feature.name, -1)
        if at <= (pairs[-1][0] if pairs else -1):
            raise InputError(f"{feature.name}: rows have no such feature, or stand in another order")
        stored, span = own[at], spans[at]
        if feature == stored:
            pairs.append((at, None))
        elif isinstance(feature, OrderedFeature):
            pairs.append((at, places_of(feature, stored)))
        elif span is not None and isinstance(stored, NumericFeature) and isinstance(feature, NumericFeature):
            pairs.append((at, merging(stored.name, grid_of(stored, span).edges, feature)))
        else:
            raise InputError(f"{feature.name}: rows are packed by other bins of it")
    return pairs

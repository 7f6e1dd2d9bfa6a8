"""Where numbers are cut: as the schema says, or in more bins, evenly for nothing, or where noisy counts of rows per
fine cell find the rows. What follows from the counts is post-processing (docs/privacy/cells.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import pairwise
from math import sqrt
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from accountant.noise.mechanisms import Mechanism
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Relation
from models.features.features import Feature, NumericFeature
from training.learners.base.checks import check_whole, check_word
from training.rows.packed.cells import PARTS, UNIFORM, Grid, grid_of
from training.rows.partitions.rows import Rows
from training.session.reach import Norm, OnePlace, reach
from training.session.session import Public, Query, Releaser

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Where = Literal["declared", "even", "found"]
MOST_BINS = 255  # of values: with the missing one's they are told apart by one byte
BINS = 32
FOUND_FROM, MANY_FROM = 250.0, 16_000.0  # strength over the root of the numbers there are, see `cutting`
SHARE, FAINT_SHARE, FAINT = Fraction(1, 20), Fraction(1, 10), 500.0  # of the budget, for all counts; and below FAINT
FINER = 8  # cells are counted for each bin that shall come of them
MUCH_NOISE = 0.05  # of the records: from there on wider parts are counted first, which noise hides less
MASS = 0.75  # of the cut points fall where rows are found, the others evenly
EACH = 64  # cells, at least, that a part is counted in where rows are seen
BLOCKS = 16  # of a part of more cells, which are judged before their cells
CLEAR = 10.0  # times what noise adds up to in the cells of a part, its rows are: so many cells it may have
UNSEEN = 0.05  # of what is cut evenly elsewhere, where no rows are seen
ABOVE = 3.0  # standard deviations of noise that a cell stands above its neighbours where rows share its value
TIMES = 3.0  # and as many times what its neighbours hold
NEIGHBOURS = 10  # on either side
MOST_ALONE = 24  # values of a number that stand alone


@dataclass(frozen=True, eq=False)
class CellCounts(OnePlace):
    """Rows by what `of` says of each fine cell of a number, in `one` parts of a row. A row counts once, in one place:
    one more or less moves the counts by one row in L1 and L2, and one that is replaced by 2 in L1 and sqrt(2) in L2.
    """

    feature: int
    of: Integers
    norm: Norm = "l1"
    one: int = 1
    purpose: ClassVar[str] = "count rows per fine cell"

    @property
    def size(self) -> int:
        """Return how many counts it answers with."""
        return int(self.of.max()) + 1

    def __call__(self, rows: Rows) -> Integers:
        return np.bincount(self.of, rows.cell_counts(self.feature, self.of.size)).astype(np.int64) * self.one


@dataclass(frozen=True)
class InBins:
    """A query of rows in other bins than those that are declared, which are merged from the cells row by row: its
    sensitivity is the query's own.
    """

    query: Query
    features: tuple[Feature, ...]

    @property
    def by_weight(self) -> bool:
        """Return whether rows of the inner query may have weights."""
        return getattr(self.query, "by_weight", False)

    @property
    def purpose(self) -> str:
        """Return the purpose of the inner query."""
        return self.query.purpose

    @property
    def norm(self) -> str:
        """Return the norm of the inner query."""
        return self.query.norm

    @property
    def size(self) -> int:
        """Return the size of the inner query."""
        return self.query.size

    def sensitivity(self, relation: Relation) -> int:
        """Return the sensitivity of the query."""
        return self.query.sensitivity(relation)

    def __call__(self, rows: Rows) -> Any:
        return self.query(rows.binned(self.features))


@dataclass(frozen=True)
class Cutting:
    """`where` numbers are cut, and in how many `bins` of values; 0: as many as declared."""

    where: Where = "declared"
    bins: int = 0


def cutting(public: Public, strength: float, most: int, where: Where | Literal["auto"], bins: int | None) -> Cutting:
    """Read the parameters `where` and `bins` say, and by a public rule where they do not: cut points are found where a
    noisy count of each number tells where its rows are; in `most` bins where there is much to tell, else in BINS.

    InputError where they are to be found, or more, and rows stand in no fine cells.
    """
    if where == "declared" and bins is not None:
        raise InputError(f"bins={bins}: only where cuts are even or found; declared ones are as many as declared")
    count = counted_numbers(public)
    if not count and (where in ("even", "found") or bins is not None):
        raise InputError(f"cuts={where!r}, bins={bins}: no number has a range here whose rows stand in fine cells")
    if not count or where == "declared":
        return Cutting()
    signal = strength / sqrt(count)
    if where == "auto":
        where = "found" if signal >= FOUND_FROM else "declared" if bins is None else "even"
    return Cutting() if where == "declared" else Cutting(where, bins or (most if signal >= MANY_FROM else BINS))


def counts_share(public: Public, strength: float) -> Fraction:
    """Return the share of the budget that all counts have together where cut points are found by them."""
    return SHARE if strength >= FAINT * sqrt(counted_numbers(public)) else FAINT_SHARE


def check_cuts(where: object, bins: object) -> None:
    """Raise InputError where a parameter is out of range."""
    check_word("cuts", where, ("auto", "declared", "even", "found"))
    if bins is not None:
        check_whole("bins", bins, 2, MOST_BINS)


class Recut:
    """A session on the same rows in other bins: what is asked of it is asked there."""

    def __init__(self, session: Releaser, features: tuple[Feature, ...]) -> None:
        self.public, self.unit, self._session = (
            replace(session.public, features=features, spans=()),
            session.unit,
            session,
        )

    def release(self, query: Query, mechanism: Mechanism) -> Any:
        """Release as the session does, in these bins."""
        return self._session.release(InBins(query, self.public.features), mechanism)


class Counting(Protocol):
    """Noisy counts of rows by what `of` says of each fine cell of a feature, the missing value's last."""

    def __call__(self, feature: int, of: Integers) -> Floats: ...


def numbers(public: Public) -> list[tuple[int, Grid]]:
    """List the features that have fine cells: their place, and their grid."""
    spans = zip(public.features, public.spans, strict=True) if public.spans else ()
    return [
        (at, grid_of(feature, span))
        for at, (feature, span) in enumerate(spans)
        if span is not None and isinstance(feature, NumericFeature)
    ]


def counted_numbers(public: Public) -> int:
    """Return how many features have fine cells."""
    return sum(span is not None for span in public.spans)


def recut(public: Public, bins: int, counted: Counting | None = None, noise: float = 0.0) -> tuple[Feature, ...]:
    """Return the features with every number that has fine cells in at most `bins` bins of values: of as much of the
    range each, or, where rows are `counted`, of about as many rows, and beside them bins of single values that many
    rows share. `noise`: the standard deviation of a count, in rows.
    """
    features = list(public.features)
    parts = PARTS if noise < MUCH_NOISE * public.records else PARTS // 2
    for at, grid in numbers(public):
        edges = evenly(grid, bins) if counted is None else by_rows(grid, bins, partial(counted, at), noise, parts)
        features[at] = NumericFeature(grid.name, edges)
    return tuple(features)


def cut_numbers(
    session: Releaser, cuts: Cutting, noise: Mechanism, norm: Norm = "l1", one: int = 1
) -> tuple[Feature, ...]:
    """Return the features with numbers cut so: where they are to be found, by counts of rows with this noise, in `one`
    parts of a row.
    """

    def counted(feature: int, of: Integers) -> Floats:
        return np.asarray(session.release(CellCounts(feature, of, norm, one), noise), np.float64) / one

    in_rows = counts_noise(session.public, noise, norm)
    return recut(session.public, cuts.bins, counted if cuts.where == "found" else None, in_rows)


@lru_cache(maxsize=4096)  # every rehearsal does
def evenly(grid: Grid, bins: int) -> tuple[float, ...]:
    """Return the edges that cut the cells into min(bins, cells) bins evenly."""
    return halve_bins(np.arange(1, grid.even.size + 1), grid, bins, grid.even)


def by_rows(
    grid: Grid, bins: int, counted: Callable[[Integers], Floats], noise: float, parts: int = PARTS
) -> tuple[float, ...]:
    """Return the same by noisy rows: a share MASS of what bins have alike is rows, and the rest as if evenly. Rows are
    counted in `parts` of the range, and then in the more cells of a part the more rows it has: in all that there are
    where noise does not hide them, so that values which many rows share are seen there, and stand alone. `noise`: the
    standard deviation of a count, in rows.
    """
    part, width = grid.part // (PARTS // parts), (grid.span[1] - grid.span[0]) / UNIFORM
    first = np.append(part, part[-1] + 1)
    sums = rising(_without_faint(counted(first)[:-1], grid, part, noise))
    if not sums[-1]:
        counted(first)
        return evenly(grid, min(bins + 2 * MOST_ALONE, MOST_BINS))  # as many as a model may have
    sizes, even = np.bincount(part), np.diff(grid.even, prepend=0.0)
    pieces = _pieces(sizes, sums, np.add.reduceat(even, np.cumsum(sizes) - sizes), bins, noise)
    of = _places(sizes, pieces)
    cell_counts = counted(np.append(of, of[-1] + 1))[:-1]
    ends = np.cumsum(np.bincount(of))
    rows, cells = np.empty(cell_counts.size), pairwise(np.append(0, np.cumsum(pieces)).tolist())
    for (low, high), (start, end) in zip(cells, pairwise([0.0, *sums.tolist()]), strict=True):
        rows[low:high] = end
        if end > start:
            rows[low:high] = start + (end - start) * within_part(cell_counts[low:high], end - start, noise)
    seen = _seen(rows, pieces, noise)
    even *= np.where(seen, 1.0, max(UNSEEN, 1 - np.diff(rows, prepend=0.0)[seen].sum() / rows[-1]))[of]
    narrow = np.diff(np.append(grid.edges, grid.span[1])[ends - 1], prepend=grid.span[0]) <= 1.001 * width
    alone = shared_values(np.where(narrow, cell_counts, 0.0), noise)
    bins, every = min(bins, MOST_BINS - 2 * alone.size), np.arange(1, of.size + 1)
    rows = np.interp(every, np.append(0, ends), np.append(0.0, rows))  # within what was counted, evenly
    edges = halve_bins(every, grid, bins, mix_shares(rows, np.cumsum(even) / even.sum()))
    beside = cuts_beside(alone, cell_counts, ends, np.searchsorted(grid.edges, edges))
    return tuple(sorted({*edges, *grid.edges[beside].tolist()}))


def _without_faint(counts: Floats, grid: Grid, part: NDArray[Any], noise: float) -> Floats:
    """Return noisy counts of parts, with none in such octaves, narrower than a uniform part, as show no rows: they are
    many, and what noise alone adds in them is no reason to cut there.
    """
    last = np.append(grid.edges, grid.span[1])[np.flatnonzero(np.diff(part, append=part[-1] + 1))]
    narrow = np.diff(last, prepend=grid.span[0]) < 0.6 * (grid.span[1] - grid.span[0]) / PARTS
    return np.where(narrow & (counts <= ABOVE * noise), 0.0, counts)


def _pieces(sizes: Integers, sums: Floats, even: Floats, bins: int, noise: float) -> Integers:
    """Return in how many pieces each part is counted, of `sizes` cells: in EACH or more where rows are seen, as long as
    noise adds up to little beside them, and else in the more the more rows it has. `sums`: noisy rows up to its end.
    """
    rows = np.diff(sums, prepend=0.0)
    told = np.minimum(rows / (CLEAR * noise) if noise else np.inf, UNIFORM)
    few = np.ceil(FINER * bins * np.diff(mix_shares(sums, np.cumsum(even)), prepend=0.0))
    seen = np.maximum(told**2, EACH)
    return np.minimum(np.where(rows > ABOVE * noise, seen, np.maximum(few, 1)), sizes).astype(np.int64)


def _places(sizes: Integers, pieces: Integers) -> Integers:
    """Return the piece of each cell, where parts of `sizes` cells are cut into so many `pieces` of as many cells."""
    many, before = pieces.repeat(sizes), (np.cumsum(pieces) - pieces).repeat(sizes)
    inside = np.arange(sizes.sum()) - (np.cumsum(sizes) - sizes).repeat(sizes)
    return np.asarray(before + inside * many // sizes.repeat(sizes), np.int64)


def _seen(rows: Floats, pieces: Integers, noise: float) -> NDArray[np.bool_]:
    """Return of each piece whether rows are seen about it: in its part, or in its block of a part of many pieces.
    `rows`: up to each one's end.
    """
    blocks = np.where(pieces > EACH, BLOCKS, 1)
    block = _places(pieces, blocks)
    sizes = np.bincount(block)
    each = np.bincount(block, np.diff(rows, prepend=0.0))
    return (each > ABOVE * noise * np.where(blocks.repeat(blocks) > 1, np.sqrt(sizes), 1.0))[block]


def within_part(counts: Floats, rows: float, noise: float) -> Floats:
    """Return the share of a part's `rows` up to each of its cells: by their noisy counts, drawn towards as many rows in
    each cell by as much of their spread as the noise alone makes (James and Stein's estimate).
    """
    if not counts.size:
        return counts
    if counts.size > EACH:  # blocks first, which are told of more surely than their cells
        block = np.arange(counts.size) * BLOCKS // counts.size
        sums = np.asarray(np.bincount(block, counts), np.float64)
        upto = np.append(0.0, within_part(sums, rows, noise * sqrt(counts.size / BLOCKS)))
        shares = enumerate(np.diff(upto).tolist())
        inner = [within_part(counts[block == at], rows * share, noise) * share for at, share in shares]
        return np.asarray(np.concatenate(inner) + upto[block])
    level = rows / counts.size
    spread = float(((counts - level) ** 2).sum())
    weight = max(0.0, 1 - counts.size * noise**2 / spread) if spread else 0.0
    below = rising(level + weight * (counts - level))
    return np.asarray(below / below[-1] if below[-1] else np.arange(1, counts.size + 1) / counts.size)


def cuts_beside(alone: Integers, cell_counts: Floats, ends: Integers, cuts: Integers) -> Integers:
    """Return the places, among a grid's edges, of cuts that part the cells which stand `alone` from all others. Two
    that have less than half of the lesser's rows between them are parted once: by one of the `cuts` that there are, or
    halfway. `ends`: of each count, the cells up to its end.
    """
    low, high, counts = ends[alone] - 2, ends[alone] - 1, cell_counts[alone]
    running = np.cumsum(cell_counts)
    near = running[alone[1:] - 1] - running[alone[:-1]] < np.minimum(counts[:-1], counts[1:]) / 2
    there = np.append(cuts, ends[-1])[np.searchsorted(cuts, high[:-1])]
    once = np.where(there <= low[1:], there, (high[:-1] + low[1:]) // 2)
    low[1:], high[:-1] = np.where(near, once, low[1:]), np.where(near, once, high[:-1])
    return np.concatenate([low, high]).clip(0, ends[-1] - 2)


def shared_values(cell_counts: Floats, noise: float) -> Integers:
    """Return the cells, MOST_ALONE at most, that stand ABOVE deviations, of the noise and of chance among rows, over
    their neighbours' median, and TIMES as high: a value that many rows share is in each.
    """
    high = np.flatnonzero(cell_counts > ABOVE * noise)
    around = np.append(np.arange(-NEIGHBOURS, 0), np.arange(1, NEIGHBOURS + 1))
    level = np.median(np.pad(cell_counts, NEIGHBOURS)[high[:, None] + NEIGHBOURS + around], axis=1).clip(0.0)
    over = cell_counts[high] - level
    clear = (over > ABOVE * np.sqrt(noise**2 + level)) & (over > (TIMES - 1) * level)
    most = np.argsort(-over[clear], kind="stable")[:MOST_ALONE]
    return np.sort(high[clear][most])


def mix_shares(rows: Floats, even: Floats) -> Floats:
    """Return the share to divide evenly among bins, up to each place."""
    return np.asarray(MASS * rows / rows[-1] + (1 - MASS) * even)


def counts_noise(public: Public, mechanism: Mechanism, norm: Norm = "l1") -> float:
    """Return the standard deviation of one count's noise, in rows."""
    moved = reach(1, 0, public.relation, norm) * public.contributions
    return (mechanism.event.deviation or 0.0) * public.widening * moved


def rising(counts: Floats) -> Floats:
    """Sum noisy counts up to each place, so that the sums never fall and are never below 0: the mean of the largest sum
    up to a place and the least from there on. Where there are no rows, what noise alone adds is small beside a sum of
    its positive parts.
    """
    below = np.cumsum(counts)
    most, least = np.maximum.accumulate(below), np.minimum.accumulate(below[::-1])[::-1]
    return np.asarray(np.maximum((most + least) / 2, 0.0))


def halve_bins(ends: Integers, grid: Grid, bins: int, share: Floats) -> tuple[float, ...]:
    """Return the edges of at most `bins` bins, by the `share` up to each of the `ends`, in cells: the bin that has most
    is cut where half of it lies on either side, on and on.
    """
    upto = np.append(0.0, share)
    cuts: list[int] = []
    wide = [(upto[0] - upto[-1], 0, len(share))]
    while wide and len(cuts) + 1 < bins:
        _, low, high = heappop(wide)
        at = low + int(np.searchsorted(upto[low : high + 1], (upto[low] + upto[high]) / 2))
        at = min(max(at, low + 1), high - 1)
        if at - 1 > low and upto[at] - upto[low] > upto[high] - upto[at - 1]:  # the nearer of the two
            at -= 1
        cuts.append(at)
        for start, end in ((low, at), (at, high)):
            if end - start > 1:
                heappush(wide, (upto[start] - upto[end], start, end))
    return tuple(grid.edges[ends[np.array(sorted(cuts), np.int64) - 1] - 1].tolist())

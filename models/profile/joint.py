"""A joint law of all columns from released counts: post-processing, free. docs/privacy/counts.md has the argument.

Each column's counts are brought together with the sums of its pairs, by the inverse of their variances, and projected
onto counts that are not negative; each pair is fitted to its columns by iterative proportional fitting. The law is a
product of small tables along the tree: of a column with its parents and, where each was counted with it, one column
more; each the one of the largest entropy that has its pairs and what the tables before it say of these columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Uniform = Callable[[str, int], Floats]
SWEEPS = 60  # of proportional fitting; no pair of Adult is off by a tenth of a row after 20
FAINT = 1e-9  # share of independent columns in each pair, so that no cell that its columns need is empty for good


@dataclass(frozen=True)
class Counts:
    """What was released. `bins`: noisy rows per bin of each column; `cells`: the cell of each bin in the pairs;
    `tables`: noisy rows of each pair, by cells; `variances`: of a count of a column, and of one of a pair.
    """

    bins: Sequence[Floats]
    cells: Sequence[NDArray[np.intp]]
    tables: dict[tuple[int, int], Floats]
    variances: tuple[float, float]
    around: int | None = None


@dataclass(frozen=True)
class Step:
    """One column's cell, drawn given the cells of its `parents`: (parents' cells .., own cells), rows."""

    column: int
    parents: tuple[int, ...]
    table: Floats


@dataclass(frozen=True)
class Joint:
    """The law: `steps` in the order in which cells are drawn, then of each column `within`, rows per bin."""

    steps: tuple[Step, ...]
    within: tuple[Floats, ...]
    cells: tuple[NDArray[np.intp], ...]
    rows: float


def fit(counts: Counts) -> Joint:
    """Fit the law to what was released."""
    sums = _sums(counts)
    tables = {pair: _fitted(table, sums[pair[0]], sums[pair[1]]) for pair, table in counts.tables.items()}
    tables |= {(b, a): table.T for (a, b), table in tables.items()}
    steps: list[Step] = [] if counts.around is None else [Step(counts.around, (), sums[counts.around])]
    for parents, child in _order(counts):
        given = parents if counts.around is None else (*parents, counts.around)
        if len(given) < 2:
            steps.append(Step(child, given, tables[given[0], child] if given else sums[child]))
        else:
            law = _joined(_given(steps, given), [tables[parent, child] for parent in given])
            steps.append(Step(child, given, law))
    rows = max(float(sums[0].sum()), 1.0)
    within = [_not_negative(own, rows) for own in counts.bins]
    return Joint(tuple(steps), tuple(within), tuple(counts.cells), rows)


def _given(steps: Sequence[Step], columns: tuple[int, ...]) -> Floats:
    """Return the law's rows by cell of columns that one of the tables has."""
    for step in steps:
        places = (*step.parents, step.column)
        if set(columns) <= set(places):
            rest = tuple(axis for axis, at in enumerate(places) if at not in columns)
            left = [at for at in places if at in columns]
            return np.asarray(step.table.sum(rest).transpose([left.index(at) for at in columns]))
    raise KeyError(columns)


def _sums(counts: Counts) -> list[Floats]:
    """Return the rows per cell of each column: the means of what was released, none negative, all of one total."""
    alone, paired = counts.variances
    seen: list[list[tuple[Floats, Floats]]] = []
    for own, cells in zip(counts.bins, counts.cells, strict=True):
        bins = np.bincount(cells)
        seen.append([(np.asarray(np.bincount(cells, own), np.float64), np.asarray(alone * bins, np.float64))])
    for (a, b), table in counts.tables.items():
        for column, axis in ((a, 1), (b, 0)):
            seen[column].append((table.sum(axis), np.full(table.shape[1 - axis], paired * table.shape[axis])))
    weights = [1 / float(parts[0][1].sum()) for parts in seen]
    rows = max(sum(w * float(parts[0][0].sum()) for w, parts in zip(weights, seen, strict=True)) / sum(weights), 1.0)
    sums = []
    for parts in seen:
        mean = sum(value / spread for value, spread in parts) / sum(1 / spread for _, spread in parts)
        sums.append(_not_negative(np.asarray(mean), rows))
    return sums


def _order(counts: Counts) -> list[tuple[tuple[int, ...], int]]:
    """Return parents and child, parents first, of every column but `around`: as they were chosen; else along a forest
    of the pairs, of which those count first that are farthest from independent.
    """
    edges = [pair for pair in counts.tables if counts.around not in pair]
    if counts.around is not None:
        chosen = dict.fromkeys([edges[0][0], *(child for _, child in edges)])
        return [(tuple(parent for parent, own in edges if own == child), child) for child in chosen]
    noise = (counts.variances[1] * 2 / np.pi) ** 0.5  # in a count, on average

    def apart(pair: tuple[int, int]) -> float:
        table = counts.tables[pair]
        expected = np.outer(table.sum(1), table.sum(0)) / max(float(table.sum()), 1.0)
        return float(np.abs(table - expected).sum() - table.size * noise)

    edges.sort(key=apart, reverse=True)
    neighbours, root = dict[int, list[int]](), {at: at for at in range(len(counts.bins))}
    for a, b in edges:
        if root[a] != root[b]:
            gone = root[b]
            root = {at: root[a] if own == gone else own for at, own in root.items()}
            neighbours.setdefault(a, []).append(b)
            neighbours.setdefault(b, []).append(a)
    order, left = list[tuple[tuple[int, ...], int]](), dict.fromkeys(root)
    while left:
        todo: list[tuple[tuple[int, ...], int]] = [((), next(iter(left)))]
        while todo:
            parents, child = todo.pop()
            del left[child]
            order.append((parents, child))
            todo += [((child,), near) for near in neighbours.get(child, ()) if near in left]
    return order


def _not_negative(counts: Floats, total: float) -> Floats:
    """Return the nearest counts that are not negative and have this total: all less the same, those below it none."""
    falling = np.sort(counts.ravel())[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, counts.size + 1)
    return np.asarray(np.maximum(counts - excess[np.flatnonzero(falling > excess)[-1]], 0.0))


def _fitted(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """Return the pair's counts, none negative, with the sums of its two columns."""
    total = float(rows.sum())
    law = _not_negative(table, total) + FAINT * np.outer(rows, columns) / total
    for _ in range(SWEEPS):
        law = law * _ratio(rows, law.sum(1))[:, None]
        law = law * _ratio(columns, law.sum(0))
    return law


def _joined(given: Floats, tables: Sequence[Floats]) -> Floats:
    """Return the law of the parents and a child that has `given`, the law of the parents, and comes near to each table
    of a parent and the child. These may contradict one another by their noise: all are fitted at once, a part of the
    way each, so that what no law has is between them; in turns the last one would have its way alone.
    """
    child = given.ndim
    law = np.repeat(given[..., None], tables[0].shape[1], child)
    wanted: list[tuple[Floats, tuple[int, ...]]] = [(given[..., None], (child,))]
    for at, table in enumerate(tables):
        others = tuple(each for each in range(child) if each != at)
        wanted.append((np.expand_dims(table, others), others))
    for _ in range(SWEEPS):
        steps = [_ratio(own, law.sum(axes, keepdims=True)) ** (1 / len(wanted)) for own, axes in wanted]
        for step in steps:
            law = law * step
    return np.asarray(law * _ratio(wanted[0][0], law.sum(child, keepdims=True)))


def _ratio(wanted: Floats, sums: Floats) -> Floats:
    return np.divide(wanted, sums, out=np.zeros_like(wanted), where=sums > 0)


def draw(joint: Joint, rows: int, uniform: Uniform) -> list[NDArray[np.intp]]:
    """Draw so many rows: of each column, its bins. `uniform(name, size)` gives numbers from 0 up to 1.

    Rows with the same parents get each cell as often as the law says, but for one row: spread, then shuffled.
    """
    cells = dict[int, NDArray[np.intp]]()
    for step in joint.steps:
        keys, size = np.zeros(rows, np.intp), 1
        for parent, width in zip(step.parents, step.table.shape, strict=False):
            keys, size = keys * width + cells[parent], size * width
        cells[step.column] = _spread(step.table.reshape(size, -1), keys, uniform, f"cell {step.column}")
    bins = []
    for column, own in enumerate(joint.cells):
        table = np.zeros((int(own.max()) + 1, own.size))
        table[own, np.arange(own.size)] = joint.within[column]
        bins.append(_spread(table, cells[column], uniform, f"bin {column}"))
    return bins


def _spread(table: Floats, keys: NDArray[np.intp], uniform: Uniform, name: str) -> NDArray[np.intp]:
    """Draw a value for each row by the line of the table that its key names; evenly where that line is empty."""
    held = table.sum(1) > 0
    chance = np.where(held[:, None], table, table.sum(0) if held.any() else 1.0)
    upto = np.cumsum(chance, 1) / chance.sum(1)[:, None]
    order = np.lexsort((uniform(f"order of {name}", keys.size), keys))
    count = np.bincount(keys, minlength=len(table))
    rank = np.arange(keys.size) - np.repeat(np.cumsum(count) - count, count)
    start = uniform(f"start of {name}", len(table))
    place = (rank + start[keys[order]]) / count[keys[order]]
    flat = (np.arange(len(table))[:, None] + upto).ravel()
    at = np.searchsorted(flat, keys[order] + place, side="right") - keys[order] * table.shape[1]
    values = np.empty(keys.size, np.intp)
    values[order] = np.clip(at, 0, table.shape[1] - 1)
    return values

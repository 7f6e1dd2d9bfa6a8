"""A joint law of all columns from released counts: post-processing, free. docs/privacy/profiles.md has the argument.

Each column's counts are brought together with the sums of its pairs, by the inverse of their variances, and projected
onto counts that are not negative; each pair is fitted to its columns by iterative proportional fitting. Among all laws
with these columns and pairs, the one of the largest entropy is a product of small tables: along a tree of pairs, or,
where each column was counted with one column as well, along triangles with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Uniform = Callable[[str, int], Floats]
SWEEPS = 50  # of proportional fitting; no pair of Adult is off by a tenth of a row after 20
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

    def pair(self, first: int, second: int) -> Floats:
        """Return the law's rows by cell of two columns of which one is a parent of the other."""
        for step in self.steps:
            for one, other in ((first, second), (second, first)):
                if step.column == other and one in step.parents:
                    keep = step.parents.index(one)
                    axes = tuple(at for at in range(len(step.parents)) if at != keep)
                    table = step.table.sum(axes)
                    return np.asarray(table if (one, other) == (first, second) else table.T)
        raise KeyError((first, second))


def fit(counts: Counts) -> Joint:
    """Fit the law to what was released."""
    sums = _sums(counts)
    rows = max(float(sums[0].sum()), 1.0)
    tables = {pair: _fitted(table, sums[pair[0]], sums[pair[1]]) for pair, table in counts.tables.items()}
    tables |= {(b, a): table.T for (a, b), table in tables.items()}
    around, steps, known = counts.around, [], dict[int, Floats]()  # of each column its rows with `around`
    if around is not None:
        steps.append(Step(around, (), sums[around]))
    for parent, child in _order(counts):
        if parent is None and around is None:
            steps.append(Step(child, (), sums[child]))
        elif around is None:
            assert parent is not None
            steps.append(Step(child, (parent,), tables[parent, child]))
        elif parent is None:
            known[child] = tables[child, around]
            steps.append(Step(child, (around,), tables[around, child]))
        else:
            triangle = _triangle(known[parent], tables[parent, child], tables[around, child])
            known[child] = triangle.sum(0).T
            steps.append(Step(child, (parent, around), triangle))
    within = [_not_negative(own, max(rows, 1.0)) for own in counts.bins]
    return Joint(tuple(steps), tuple(within), tuple(counts.cells), rows)


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
    found = []
    for parts in seen:
        mean = sum(value / spread for value, spread in parts) / sum(1 / spread for _, spread in parts)
        found.append(_not_negative(np.asarray(mean), rows))
    return found


def _order(counts: Counts) -> list[tuple[int | None, int]]:
    """Return parent and child, parents first, of every column but `around`: along a forest of the pairs, of which
    those count first that are farthest from independent.
    """
    others = [at for at in range(len(counts.bins)) if at != counts.around]
    edges = [pair for pair in counts.tables if counts.around not in pair]
    noise = (counts.variances[1] * 2 / np.pi) ** 0.5  # in a count, on average

    def apart(pair: tuple[int, int]) -> float:
        table = counts.tables[pair]
        expected = np.outer(table.sum(1), table.sum(0)) / max(float(table.sum()), 1.0)
        return float(np.abs(table - expected).sum() - table.size * noise)

    edges.sort(key=apart, reverse=True)
    neighbours, root = dict[int, list[int]](), {at: at for at in others}
    for a, b in edges:
        if root[a] != root[b]:
            gone = root[b]
            root = {at: root[a] if own == gone else own for at, own in root.items()}
            neighbours.setdefault(a, []).append(b)
            neighbours.setdefault(b, []).append(a)
    order, left = list[tuple[int | None, int]](), dict.fromkeys(others)
    while left:
        todo: list[tuple[int | None, int]] = [(None, next(iter(left)))]
        while todo:
            parent, child = todo.pop()
            del left[child]
            order.append((parent, child))
            todo += [(child, near) for near in neighbours.get(child, ()) if near in left]
    return order


def _not_negative(counts: Floats, total: float) -> Floats:
    """Return the nearest counts that are not negative and have this total: all less the same, those below it none."""
    falling = np.sort(counts.ravel())[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, counts.size + 1)
    return np.asarray(np.maximum(counts - excess[np.flatnonzero(falling > excess)[-1]], 0.0))


def _fitted(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """Return the pair's counts, none negative, with the sums of its two columns."""
    total = float(rows.sum())
    found = _not_negative(table, total) + FAINT * np.outer(rows, columns) / total
    for _ in range(SWEEPS):
        found = found * _ratio(rows, found.sum(1))[:, None]
        found = found * _ratio(columns, found.sum(0))
    return found


def _triangle(parent_around: Floats, parent_child: Floats, around_child: Floats) -> Floats:
    """Return (parent, around, child) with these three sums and otherwise of the largest entropy."""
    found = np.ones((*parent_around.shape, parent_child.shape[1]))
    for _ in range(SWEEPS):
        found = found * _ratio(around_child, found.sum(0))
        found = found * _ratio(parent_child, found.sum(1))[:, None, :]
        found = found * _ratio(parent_around, found.sum(2))[:, :, None]
    return found


def _ratio(wanted: Floats, found: Floats) -> Floats:
    return np.divide(wanted, found, out=np.zeros_like(wanted), where=found > 0)


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
    found = np.empty(keys.size, np.intp)
    found[order] = np.clip(at, 0, table.shape[1] - 1)
    return found

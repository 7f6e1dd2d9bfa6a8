"""Columns of two files that hold the same values, whatever they are called: by how often each value stands in either.

Of each column the values with the smallest fingerprints are looked at, the same ones in both files.
docs/privacy/rows.md has why a choice of columns that is made by looking at values keeps the error rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.rows import kernels
from training.rows.people.fingerprints import Hashes, mix, unmix

MOST_KEPT = 256  # values of a column
ROOM = 2048  # for values, of which a quarter is used
LOOKED_AT = 2048  # cells, at least, among which they are found
ALIKE = 0.5  # of what stands in both columns, so much must be the same
CLEAR = 2  # times as much must be different in every other pair with one of the two columns


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """The distinct values of a column with the smallest words under a common key, ascending; `rates`: the share of its
    rows that has each. `is_whole`: there are no others.
    """

    words: Hashes
    rates: NDArray[np.float64]
    is_whole: bool

    @classmethod
    def of(cls, cells: Hashes, key: np.uint64, common: np.uint64) -> ColumnValues:
        """Take the smallest values of a column's fingerprints under its own `key`."""
        words = mix(unmix(cells, key), common)
        values, counts = np.empty(ROOM, np.uint64), np.empty(ROOM, np.int64)
        size = kernels.words.count_few(words, values, counts)
        if size >= 0:
            order = np.argsort(values[:size])
            values, counts = values[order], counts[order]
        else:
            few = words[words <= np.partition(words, LOOKED_AT)[LOOKED_AT]] if len(words) > LOOKED_AT else words
            values, counts = np.unique(few, return_counts=True)
            if len(values) <= MOST_KEPT:  # of few, one stands in many cells
                values, counts = np.unique(words, return_counts=True)
        is_whole = len(values) <= MOST_KEPT
        return cls(values[:MOST_KEPT], counts[:MOST_KEPT] / max(1, len(words)), is_whole)


def likeness(known: Sequence[ColumnValues], own: Sequence[ColumnValues]) -> NDArray[np.float64]:
    """Return (known, own), from 0 to 1: of the rows whose values were looked at in both columns, the share that has the
    same ones.
    """
    same = np.zeros((len(known), len(own)))
    words, rates, columns = _all_values(own)
    order = np.argsort(words, kind="stable")
    words, rates, columns = words[order], rates[order], columns[order]
    theirs, shares, rows = _all_values(known)
    first = np.searchsorted(words, theirs)
    times = np.searchsorted(words, theirs, "right") - first  # in how many columns each of their values stands
    value = np.repeat(np.arange(len(theirs)), times)
    places = first[value] + np.arange(len(value)) - np.repeat(np.cumsum(times) - times, times)
    np.add.at(same, (rows[value], columns[places]), np.minimum(shares[value], rates[places]))
    for row, column in np.argwhere(same):
        both = known[row], own[column]
        ends = [values.words[-1] for values in both if not values.is_whole]
        if not ends:  # all values of both are looked at, and their rates sum to one
            continue
        limit = min(ends)  # up to it, all values of both are looked at
        same[row, column] /= max(
            float(values.rates[: np.searchsorted(values.words, limit, "right")].sum()) for values in both
        )
    return same


def _all_values(columns: Sequence[ColumnValues]) -> tuple[Hashes, NDArray[np.float64], NDArray[np.int64]]:
    """Join the values of all columns: their words, their rates, and which column each is of."""
    words = np.concatenate([np.zeros(0, np.uint64), *(values.words for values in columns)])
    rates = np.concatenate([np.zeros(0), *(values.rates for values in columns)])
    return words, rates, np.repeat(np.arange(len(columns)), [len(values.words) for values in columns])


def match_columns(known: Mapping[str, ColumnValues], own: Mapping[str, ColumnValues]) -> dict[str, str]:
    """Match each known column to one of its own that holds the same values, each used once: known name -> own name.
    Columns of one name are matched where they are alike; of the others the most alike first, and only where no other
    column comes near: two that are equally like a third are left out, since rows would then be compared with those
    columns exchanged. Columns of a single value tell nothing and are left out.
    """
    names = [name for name, values in known.items() if len(values.words) > 1]
    candidates = [name for name, values in own.items() if len(values.words) > 1]
    alike = likeness([known[name] for name in names], [own[name] for name in candidates])
    matches: dict[str, str] = {}
    for place, name in enumerate(names):
        if name in candidates and alike[place, candidates.index(name)] >= ALIKE:
            matches[name] = name
    alike[[place for place, name in enumerate(names) if name in matches]] = 0
    alike[:, [place for place, name in enumerate(candidates) if name in matches]] = 0
    likely = np.argwhere(alike >= ALIKE)
    for row, column in likely[np.argsort(-alike[tuple(likely.T)], kind="stable")]:
        if (best := alike[row, column]) < ALIKE:
            continue
        rivals = [*np.delete(alike[row], column), *np.delete(alike[:, column], row)]
        if CLEAR * (1 - best) <= 1 - max(rivals, default=0.0):
            matches[names[row]] = candidates[column]
            alike[row], alike[:, column] = 0, 0
    return matches


def count_matches(known: int, own: int) -> float:
    """Return at most so many ways there are to give each of `known` columns one of `own` columns, or none."""
    return float(own + 1) ** known


def pack_values(columns: Sequence[ColumnValues]) -> dict[str, NDArray[Any]]:
    """Pack columns into arrays for a file; no arrays where there are no columns."""
    if not columns:
        return {}
    return {
        "values": np.concatenate([column.words for column in columns]),
        "rates": np.concatenate([column.rates for column in columns]),
        "sizes": np.array([len(column.words) for column in columns]),
        "whole": np.array([column.is_whole for column in columns]),
    }


def unpack_values(arrays: Mapping[str, NDArray[Any]]) -> list[ColumnValues]:
    """Read what `pack_values` wrote. ValueError where the arrays do not go together."""
    sizes, words, rates = arrays["sizes"], arrays["values"], arrays["rates"]
    if sizes.sum() != len(words) or len(words) != len(rates) or (sizes < 0).any():
        raise ValueError
    places = np.cumsum(sizes)[:-1]
    parts = zip(np.split(words, places), np.split(rates, places), arrays["whole"].tolist(), strict=True)
    return [ColumnValues(these, shares, is_whole) for these, shares, is_whole in parts]

"""Rows that an earlier version packed in fine cells of another grid: nearly all of one width. Each of these cells is
read as that cell of today's grid which holds its upper end, so that rows are in the same declared bins, and where a
number is cut is found as finely as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accountant.system.numpy_files import map_array
from models.features.features import Codes, Feature, NumericFeature
from training.rows.packed.cells import MOST_NUMBERS, UNIFORM, Span, declared_ranges, grid_of
from training.rows.packed.names import EARLIER_GRID, cells_file

OCTAVES, FIRST = 24, 512


def map_cells(
    folder: Path, part: str | None, place: int, features: Sequence[Feature], ends: Mapping[str, Span]
) -> Codes:
    """Return the fine cells of the rows of a folder, (rows,) uint16, of the feature at this place, which has a declared
    range.
    """
    spans = declared_ranges(features, ends)
    name, span, number = cells_file(part, folder), spans[place], features[place]
    codes: Codes = map_array(folder / name)
    if not name.endswith(EARLIER_GRID):
        return np.asarray(codes[sum(each is not None for each in spans[:place])])
    assert isinstance(number, NumericFeature)
    assert span is not None
    packed = [type(each) is NumericFeature and ends[each.name][1] > each.edges[-1] for each in features[:place]]
    return np.asarray(cells_of_earlier(number, span)[codes[sum(packed)]])


@lru_cache(maxsize=MOST_NUMBERS)
def cells_of_earlier(feature: NumericFeature, span: Span) -> Codes:
    """Return today's cell of each earlier one, the missing value's last."""
    today = grid_of(feature, span)
    values = np.searchsorted(today.edges, [*earlier_edges(feature, span), span[1]])
    return np.append(values, today.size - 1).astype(np.uint16)


def earlier_edges(feature: NumericFeature, span: Span) -> NDArray[np.float64]:
    """Return the upper ends of the earlier cells but the last."""
    low, high = span
    middle, width = min(max(low, 0.0), high), high - low
    sides = [side for side, room in ((1.0, high - middle), (-1.0, middle - low)) if room > 0]
    steps = width / FIRST / 2.0 ** np.arange(1, OCTAVES // len(sides) + 1)
    ends = [[middle], *(middle + side * steps for side in sides), feature.edges]
    edges = np.unique(np.concatenate([*ends, low + width * (np.arange(UNIFORM) / UNIFORM)]))
    return edges[(edges >= low) & (edges < high)]

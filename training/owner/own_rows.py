"""The owner's own rows: a .csv (or .parquet, where pyarrow is at hand), read without anything that trains or serves."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.errors import DataError
from models.features import CategoricalFeature, Feature, NumericFeature, RawColumns
from training.local.corners import corners

MOST_BYTES = 1 << 28
TRUE, FALSE, MISSING = {"true", "1", "yes"}, {"false", "0", "no"}, {"", "na", "nan", "null"}


def read_rows(path: Path, features: Sequence[Feature], target: str) -> tuple[RawColumns, list[str]]:
    """Raw columns by name, and the answers. DataError names the column, never a value."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"rows={path.name}: more than {MOST_BYTES} bytes")
        columns = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"rows={path.name}: cannot be read ({type(error).__name__})") from None
    absent = [name for name in (*(feature.name for feature in features), target) if name not in columns]
    if absent:
        raise DataError(f"columns {absent}: the campaign asks about them, and {path.name} has them not")
    if not columns[target]:
        raise DataError(f"rows={path.name}: has no rows")
    return {feature.name: _values(feature, columns[feature.name]) for feature in features}, columns[target]


def labels(answers: Sequence[str], classes: Sequence[str]) -> NDArray[np.float64]:
    """Each answer as its class's corner (n, K - 1): of two classes -1 of the first, 1 of the second. DataError where an
    answer is none of them.
    """
    places = {label: at for at, label in enumerate(classes)}
    if not set(answers) <= places.keys():
        raise DataError(f"answers: every row must have one of {list(classes)}")
    return corners(len(classes))[[places[answer] for answer in answers]]


def numbers(answers: Sequence[str], ends: tuple[float, float]) -> NDArray[np.float64]:
    """Each answer's place in [-1, 1] of its public range; else the nearer end. DataError where one is no number."""
    try:
        found = np.array([float(answer) for answer in answers])
    except ValueError:
        found = np.array([nan])
    if np.isnan(found).any():
        raise DataError("answers: every row must have a number")
    low, high = ends
    return np.clip((2 * found - low - high) / (high - low), -1, 1)


def _csv(path: Path) -> dict[str, list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file, strict=True)
        names = next(reader, [])
        rows = list(reader)
    if len(set(names)) != len(names) or any(len(row) != len(names) for row in rows):
        raise DataError(f"rows={path.name}: every row must have one value for each of the header's names")
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _parquet(path: Path) -> dict[str, list[str]]:
    import pyarrow.parquet as pq  # a .csv needs none of it

    table = pq.read_table(path)
    return {
        name: ["" if value is None else str(value) for value in table[name].to_pylist()] for name in table.column_names
    }


def _values(feature: Feature, texts: list[str]) -> NDArray[Any]:
    if isinstance(feature, CategoricalFeature):
        return np.array(texts, dtype=object)
    try:
        if isinstance(feature, NumericFeature):
            return np.array([nan if text.strip().lower() in MISSING else float(text) for text in texts])
        return np.array([_truth(text.strip().lower()) for text in texts])
    except ValueError:
        raise DataError(f"column {feature.name!r}: holds what is not of its type") from None


def _truth(text: str) -> float:
    if text in MISSING:
        return nan
    if text not in TRUE | FALSE:
        raise ValueError
    return float(text in TRUE)

"""Public coordinates: a linear map from codes of features to a few directions, learnt from unlabelled public rows.

A score that is linear in them is a sum over features of a number for each code: an additive model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import exact_object
from models.features.features import CategoricalFeature, Feature, NumericFeature

Floats = NDArray[np.float64]
GRID = 2**20  # weights and offsets are whole multiples of 1 / GRID
MAX_NUMBERS = 1 << 23  # in the tables of all codes: 64 MB
FLAT = 1e-3  # of the largest variance: directions in which public rows hardly differ say nothing


def embedding(feature: Feature) -> Floats:
    """Return numbers (codes, width) for a feature's codes: of a number, its bin's place in [-1, 1], missing in the
    middle; of a category, one of each code; of a truth, -1, 1 or, missing, 0.
    """
    if isinstance(feature, CategoricalFeature):
        return np.eye(feature.bins)
    if isinstance(feature, NumericFeature):
        return np.append(np.linspace(-1, 1, feature.bins - 1), 0.0)[:, np.newaxis]
    return np.array([[-1.0], [1.0], [0.0]])


def embedding_width(feature: Feature) -> int:
    """Return how many numbers `embedding` gives each code, without making them."""
    return feature.bins if isinstance(feature, CategoricalFeature) else 1


@dataclass(frozen=True)
class Coordinates:
    """z(x) = (sum over features of embedding[code] weights - offset) / GRID, of `size` numbers. Integers throughout."""

    features: tuple[Feature, ...]
    weights: tuple[tuple[int, ...], ...]  # one row for each number of the embeddings, in the features' order
    offset: tuple[int, ...]

    def __post_init__(self) -> None:
        widths = sum(map(embedding_width, self.features))
        if len(self.weights) != widths or any(len(row) != self.size for row in self.weights) or not self.size:
            raise InputError(f"coordinates: must be {widths} rows of as many numbers as the offset has, at least one")
        if any(type(value) is not int for row in (*self.weights, self.offset) for value in row):
            raise InputError("coordinates: must be integers")
        if sum(feature.bins for feature in self.features) * self.size > MAX_NUMBERS:
            raise InputError(f"coordinates: too many codes and directions; at most {MAX_NUMBERS} numbers in all")

    @property
    def size(self) -> int:
        """Return how many numbers z has."""
        return len(self.offset)

    @cached_property
    def tables(self) -> list[Floats]:
        """Compute what each code of each feature adds to z: one array (codes, size) for each feature."""
        tables, start = [], 0
        for feature in self.features:
            width = embedding_width(feature)
            rows = np.array(self.weights[start : start + width], np.float64)
            tables.append((rows if width == feature.bins else embedding(feature) @ rows) / GRID)
            start += width
        return tables

    @cached_property
    def shift(self) -> Floats:
        """Return the offset (size,) in the unit of z."""
        return np.array(self.offset, np.float64) / GRID

    def of(self, codes: Sequence[NDArray[Any]]) -> Floats:
        """Return z (n, size) of rows given by their codes, one array (n,) a feature."""
        total = np.tile(-self.shift, (len(codes[0]), 1))
        for table, code in zip(self.tables, codes, strict=True):
            total += table[code]
        return total

    def to_json(self) -> dict[str, Any]:
        """Return the integers, for a statement. Inverse: `coordinates_from_json`."""
        return {"weights": [list(row) for row in self.weights], "offset": list(self.offset)}


def coordinates_from_json(features: tuple[Feature, ...], body: Any) -> Coordinates:
    """Read what `Coordinates.to_json` wrote. InputError for anything else."""
    fields: Mapping[str, Any] = exact_object(body, ("weights", "offset"), "coordinates")
    if not all(isinstance(fields[name], list) for name in fields) or not all(
        isinstance(row, list) for row in fields["weights"]
    ):
        raise InputError("coordinates: must be lists of integers")
    return Coordinates(features, tuple(map(tuple, fields["weights"])), tuple(fields["offset"]))


def whitened_coordinates(features: tuple[Feature, ...], codes: Sequence[NDArray[Any]], most: int) -> Coordinates:
    """Find the `most` directions in which public rows differ most, each of variance 1 among them and of mean 0.

    Numbers are scaled to variance 1 before, so that no unit of measurement decides. InputError where no direction is
    left.
    """
    raw = np.concatenate([embedding(f)[code] for f, code in zip(features, codes, strict=True)], axis=1)
    width = [embedding(f).shape[1] for f in features]
    numeric = np.repeat([numbers == 1 for numbers in width], width)
    mean, spread = raw.mean(axis=0), raw.std(axis=0)
    scale = np.where(numeric & (spread > 0), 1 / np.where(spread > 0, spread, 1.0), 1.0)
    values, vectors = np.linalg.eigh(np.cov(((raw - mean) * scale).T).reshape(len(scale), len(scale)))
    order = [at for at in np.argsort(-values)[:most] if values[at] > FLAT * max(values.max(), FLAT)]
    if not order:
        raise InputError("public_rows: all alike; coordinates need rows that differ")
    weights = np.rint(scale[:, np.newaxis] * vectors[:, order] / np.sqrt(values[order]) * GRID).astype(np.int64)
    offset = np.rint(mean @ weights).astype(np.int64)
    return Coordinates(features, tuple(tuple(map(int, row)) for row in weights), tuple(map(int, offset)))

"""Lines that owners are asked for in a turn: nearest centroids, or own regressions, in public coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import JSON, exact_integer, exact_object
from local.reports.coordinates import GRID, Coordinates, coordinates_from_json, embedding_width
from local.reports.corners import corners, multiply_by_corners
from local.reports.statistics import fit_regression
from local.turns.weights import Floats, Owned
from models.features.features import Feature, NumericFeature
from models.parts.lines import LARGEST, Choice, Line

PLAIN = 0.5  # what the means count beside the sums that labels turn: they move a line, and hardly turn it
LEAST_ROWS = {"centroids": 1, "regression": 20}
FURTHEST = 0.9  # of a mean label, on the scale where 1 is one class alone: beyond, another is too rare for a centroid


@dataclass(frozen=True)
class Lines:
    """`own`: what an owner's rows come to. `centroids`: sums of x, of y x and of y; `regression`: a direction.
    `radius`: a public length of such sums, in units of 1 / GRID; longer ones are cut to it.
    """

    coordinates: Coordinates
    own: str
    radius: int

    def dimension(self, wide: int) -> int:
        """Return how many numbers an owner's own vector has, where a label is of so many numbers."""
        size = self.coordinates.size
        return size + (size + 1) * wide if self.own == "centroids" else (size + 1) * wide

    @property
    def least_rows(self) -> int:
        """Return how many rows an owner must have at least."""
        return LEAST_ROWS[self.own]

    def check(self, features: Sequence[Feature]) -> None:
        """Raise InputError where it is not of these features, or asks for what is not known."""
        if self.own not in LEAST_ROWS or not 0 < self.radius < 1 << 40 or self.coordinates.features != tuple(features):
            raise InputError(f"basis: own must be one of {', '.join(LEAST_ROWS)}, its radius above 0")

    def vectors(self, features: Sequence[Feature], codes: Sequence[NDArray[Any]], of: Owned) -> Floats:
        """Compute own vectors (owners, dimension), in the weights; of lengths that are cut to 1 later."""
        z = self.coordinates.of(codes)
        if self.own == "centroids":
            both = [of.total(multiply_by_corners(z, of.y)), PLAIN * of.total(z), PLAIN * of.total(of.y)]
            return np.concatenate(both, axis=1) * GRID / self.radius
        columns, ends = np.concatenate([z, np.ones((len(z), 1))], axis=1), np.cumsum(of.rows)
        vectors = []
        for end, n, size, fitting in zip(ends, of.rows, of.size, of.fitting, strict=True):
            own_rows = slice(end - n, end)
            theta = fit_regression(columns[own_rows], of.y[own_rows], of.share[own_rows] * fitting)
            length = float(np.linalg.norm(theta))
            vectors.append(size * theta / (length if isfinite(length) and length > 0 else 1.0))
        return np.array(vectors)

    def line_of(self, mean: Floats, weight: int, classes: int = 2) -> Line | Choice:
        """Make the voter of this mean (dimension,) of own vectors: the nearest centroid, or the class in the mean
        direction.

        Its integers are as fine as exported models add exactly.
        """
        size, wide = self.coordinates.size, classes - 1
        table = corners(classes).T  # (wide, classes)
        if self.own == "centroids":
            sums = mean * self.radius / GRID
            turned, plain = sums[: size * wide].reshape(size, wide) @ table, sums[size * wide :][:size] / PLAIN
            counts = np.clip(1 + wide * (sums[-wide:] / PLAIN @ table), 1 - FURTHEST, 1 + wide * FURTHEST)
            along = (plain[:, np.newaxis] + wide * turned) / counts  # centroids (size, classes)
            shift = -np.square(along).sum(axis=0) / 2
        else:
            along, shift = mean.reshape(size + 1, wide)[:-1] @ table, mean.reshape(size + 1, wide)[-1] @ table
        if classes == 2:  # what speaks for the second, less what speaks for the first
            along, shift = along[:, 1:] - along[:, :1], shift[1:] - shift[:1]
        terms = [tab @ along for tab in self.coordinates.tables]
        constant = shift - self.coordinates.shift @ along
        most = max(1e-12, float((np.abs(constant) + sum(np.abs(term).max(axis=0) for term in terms)).max()))
        scale = (LARGEST // 2) / most
        start = tuple(map(int, np.rint(constant * scale)))
        rounded = [tuple(tuple(map(int, of_class)) for of_class in np.rint(term * scale).T) for term in terms]
        lines = tuple(zip(*rounded, strict=True))  # of each class, a term for each code of each feature
        return Line(weight, start[0], lines[0]) if classes == 2 else Choice(weight, start, lines)

    def to_json(self) -> dict[str, JSON]:
        """Return the basis as JSON. Inverse: `lines_from_json`."""
        return {**self.coordinates.to_json(), "own": self.own, "radius": self.radius}


def lines_from_json(features: tuple[Feature, ...], body: Any) -> Lines:
    """Read what `Lines.to_json` wrote. InputError for anything else."""
    fields: Mapping[str, Any] = exact_object(body, ("weights", "offset", "own", "radius"), "basis")
    coordinates = coordinates_from_json(features, {name: fields[name] for name in ("weights", "offset")})
    return Lines(coordinates, str(fields["own"]), exact_integer(fields["radius"], "radius"))


def plain_coordinates(features: Sequence[Feature]) -> Coordinates:
    """Take every number of the features' embeddings by itself: from the schema alone."""
    widths = sum(map(embedding_width, features))
    weights = GRID * np.eye(widths, dtype=np.int64)
    return Coordinates(tuple(features), tuple(tuple(map(int, row)) for row in weights), (0,) * widths)


def radius_for(coordinates: Coordinates, codes: Sequence[NDArray[Any]] | None) -> int:
    """Choose a public length for `centroids`: the median of one public row; without these, of a row whose numbers are
    uniform in their ranges.
    """
    if codes is None:
        parts = (1 / 3 if isinstance(feature, NumericFeature) else 1.0 for feature in coordinates.features)
        squares = sum(parts)
    else:
        squares = float(np.median((coordinates.of(codes) ** 2).sum(axis=1)))
    return max(1, round(sqrt((1 + PLAIN**2) * squares + PLAIN**2) * GRID))

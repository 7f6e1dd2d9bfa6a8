"""Lines that owners are asked for in a turn: nearest centroids, or own regressions, in public coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.canonical import JSON, exact_integer, exact_object
from accountant.errors import InputError
from models.features import Feature, NumericFeature
from models.lines import LARGEST, Line
from training.local.boosted.weights import Floats, Owned
from training.local.coordinates import GRID, Coordinates, coordinates_from_json, embedding

PLAIN = 0.5  # what the means count beside the sums that labels turn: they move a line, and hardly turn it
RIDGE, STEPS = 1.0, 8  # of an owner's own logistic regression: the penalty in rows, and Newton steps
LEAST_ROWS = {"centroids": 1, "regression": 20}
FURTHEST = 0.9  # of a mean label: beyond, a class is too rare to have a centroid


@dataclass(frozen=True)
class Lines:
    """`own`: what an owner's rows come to. `centroids`: sums of x, of y x and of y; `regression`: a direction.
    `radius`: a public length of such sums, in units of 1 / GRID; longer ones are cut to it.
    """

    coordinates: Coordinates
    own: str
    radius: int

    @property
    def dimension(self) -> int:
        """Of an owner's own vector."""
        return 2 * self.coordinates.size + 1 if self.own == "centroids" else self.coordinates.size + 1

    @property
    def least_rows(self) -> int:
        """That an owner must have."""
        return LEAST_ROWS[self.own]

    def check(self, features: Sequence[Feature]) -> None:
        """InputError where it is not of these features, or asks for what is not known."""
        if self.own not in LEAST_ROWS or not 0 < self.radius < 1 << 40 or self.coordinates.features != tuple(features):
            raise InputError(f"basis: own must be one of {', '.join(LEAST_ROWS)}, its radius above 0")

    def vectors(self, features: Sequence[Feature], codes: Sequence[NDArray[Any]], of: Owned) -> Floats:
        """Own vectors (owners, dimension), in the weights; of lengths that are cut to 1 later."""
        z = self.coordinates.of(codes)
        if self.own == "centroids":
            turned = of.total(z * of.y[:, np.newaxis])
            both = [turned, PLAIN * of.total(z), PLAIN * of.total(of.y)[:, np.newaxis]]
            return np.concatenate(both, axis=1) * GRID / self.radius
        known, ends = np.concatenate([z, np.ones((len(z), 1))], axis=1), np.cumsum(of.rows)
        found = []
        for end, n, size in zip(ends, of.rows, of.size, strict=True):
            here = slice(end - n, end)
            theta = _regression(known[here], of.y[here], of.share[here] * n)
            length = float(np.linalg.norm(theta))
            found.append(size * theta / (length if isfinite(length) and length > 0 else 1.0))
        return np.array(found)

    def line_of(self, mean: Floats, weight: int) -> Line:
        """The voter of this mean (dimension,) of own vectors: the nearer centroid, or the side of the mean direction.

        Its integers are as fine as exported models add exactly.
        """
        size = self.coordinates.size
        if self.own == "centroids":
            turned, plain = mean[:size] * self.radius / GRID, mean[size : 2 * size] * self.radius / GRID / PLAIN
            label = float(np.clip(mean[-1] * self.radius / GRID / PLAIN, -FURTHEST, FURTHEST))
            second, first = (plain + turned) / (1 + label), (plain - turned) / (1 - label)
            along, shift = second - first, -float(second @ second - first @ first) / 2
        else:
            along, shift = mean[:-1], float(mean[-1])
        terms = [table @ along for table in self.coordinates.tables]
        constant = shift - float(self.coordinates.shift @ along)
        most = max(1e-12, abs(constant) + sum(float(np.abs(term).max()) for term in terms))
        scale = (LARGEST // 2) / most
        rounded = tuple(tuple(int(value) for value in np.rint(term * scale)) for term in terms)
        return Line(weight, round(constant * scale), rounded)

    def to_json(self) -> dict[str, JSON]:
        """Inverse: `lines_from_json`."""
        return {**self.coordinates.to_json(), "own": self.own, "radius": self.radius}


def lines_from_json(features: tuple[Feature, ...], body: Any) -> Lines:
    """Inverse of `Lines.to_json`; InputError for anything else."""
    found: Mapping[str, Any] = exact_object(body, ("weights", "offset", "own", "radius"), "basis")
    coordinates = coordinates_from_json(features, {name: found[name] for name in ("weights", "offset")})
    return Lines(coordinates, str(found["own"]), exact_integer(found["radius"], "radius"))


def plain_coordinates(features: Sequence[Feature]) -> Coordinates:
    """Every number of the features' embeddings by itself: from the schema alone."""
    widths = sum(embedding(feature).shape[1] for feature in features)
    weights = GRID * np.eye(widths, dtype=np.int64)
    return Coordinates(tuple(features), tuple(tuple(map(int, row)) for row in weights), (0,) * widths)


def radius_for(coordinates: Coordinates, codes: Sequence[NDArray[Any]] | None) -> int:
    """A public length for `centroids`: the median of one public row; without these, of a row whose numbers are uniform
    in their ranges.
    """
    if codes is None:
        parts = (1 / 3 if isinstance(feature, NumericFeature) else 1.0 for feature in coordinates.features)
        squares = sum(parts)
    else:
        squares = float(np.median((coordinates.of(codes) ** 2).sum(axis=1)))
    return max(1, round(sqrt((1 + PLAIN**2) * squares + PLAIN**2) * GRID))


def _regression(known: Floats, y: Floats, weight: Floats) -> Floats:
    """Weighted ridge logistic regression by Newton's method: an owner of one class has one too."""
    theta = np.zeros(known.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(known @ theta, -30, 30)))
        slope = known.T @ (weight * (chance - (y + 1) / 2)) + RIDGE * theta
        curve = (known * (weight * chance * (1 - chance))[:, np.newaxis]).T @ known + RIDGE * np.eye(len(theta))
        theta = theta - np.linalg.solve(curve, slope)
    return theta

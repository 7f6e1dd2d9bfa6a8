"""From reports to a model: post-processing, free."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from local.reports.coordinates import Coordinates, whitened_coordinates
from local.reports.corners import corners
from local.reports.definition import Definition
from local.reports.directions import best_favoured, gains, mean_of_reports
from local.reports.question import Question
from models.forms.additive import AdditiveEnsemble
from models.forms.classes import round_to_classes
from models.forms.ensemble import Ensemble

Floats = NDArray[np.float64]
CANDIDATES = 64
FEWEST, MOST_DIRECTIONS = 8, 32
LARGEST = 1 << 20  # of a term
PER_SIGNAL = 1.0


def directions_for(owners: int, epsilon: float) -> int:
    """Return how many public directions so many reports can tell apart: a public rule, the fourth root of owners
    epsilon^2.

    An estimate of D numbers from n reports has an error of about D / (epsilon sqrt(n)) a number; further directions are
    worth their error only as it falls.
    """
    return int(np.clip(round(PER_SIGNAL * (owners * epsilon**2) ** 0.25), FEWEST, MOST_DIRECTIONS))


def coordinates_for(features: Any, codes: Any, owners: int, epsilon: float) -> Coordinates:
    """Choose the coordinates of a campaign by the rule, from the codes of unlabelled public rows."""
    return whitened_coordinates(features, codes, directions_for(owners, epsilon))


def favoured_for(coordinates: Coordinates, epsilon: float, classes: int = 2) -> int:
    """Return the m of the least variance."""
    return best_favoured((coordinates.size + 1) * (classes - 1), CANDIDATES, epsilon)


def estimate_direction(definition: Definition, owners: NDArray[np.int64], reports: NDArray[np.int64]) -> Floats:
    """Estimate, without bias, the mean (dimension,) of the owners' own vectors."""
    gain = gains(definition.dimension, definition.candidates, float(definition.epsilon))[definition.favoured - 1]
    seed = bytes.fromhex(definition.seed)
    return mean_of_reports(seed, owners, reports, definition.candidates, definition.dimension, float(gain))


def learn_from_reports(definition: Definition, owners: NDArray[np.int64], reports: NDArray[np.int64]) -> Ensemble:
    """Learn a model from reports (n,) that were drawn by the owners of these numbers (n,)."""
    return ensemble_of(definition, estimate_direction(definition, owners, reports))


def ensemble_of(definition: Definition, along: Floats) -> Ensemble:
    """Spell the linear score z . along[:-1] + along[-1] as a sum over features, for each class along its corner.

    The lengths of own vectors were forgotten, so the score has the right direction but a guessed unit: that of owners
    of one row each. Ranks and labels do not depend on it; probabilities are as sure as that guess.
    """
    coordinates, weights = (
        definition.coordinates,
        along.reshape(-1, definition.wide) * sqrt(definition.coordinates.size + 1),
    )
    terms = [table @ weights[:-1] for table in coordinates.tables]
    return additive_of(definition, terms, weights[-1] - coordinates.shift @ weights[:-1])


def additive_of(definition: Question, terms: Sequence[Floats], constant: Floats, unit: float | None = None) -> Ensemble:
    """Release f = E[y | x], y a label's corner, as a sum over features, in integers: of two classes, or a number, one
    score; of more, one score a class, along its corner.

    Args:
        terms: (codes, wide) of each feature.
        constant: (wide,).
        unit: what 1 of f is in the answer; None: log odds, which are about K f of what is nearly even.
    """
    classes = len(definition.classes)
    if classes > 2:
        table = corners(classes).T
        return round_to_classes(
            definition.features, definition.target, definition.classes, classes - 1.0,
            constant @ table, [term @ table for term in terms],
        )  # fmt: skip
    largest = max(1e-12, float(np.abs(constant).max()), *(float(np.abs(term).max()) for term in terms))
    step = largest / LARGEST
    return AdditiveEnsemble(
        definition.features,
        definition.target,
        definition.classes,
        getattr(definition, "bounded", None),
        step * (2 if unit is None else unit),  # of f = E[y | x], log odds are about 2 f
        round(float(constant[0]) / step),
        tuple(tuple(int(value) for value in np.rint(term[:, 0] / step)) for term in terms),
    )

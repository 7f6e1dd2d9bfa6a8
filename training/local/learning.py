"""From reports to a model: post-processing, free."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.forms.additive import AdditiveEnsemble
from training.local.coordinates import Coordinates, whitened
from training.local.definition import Definition
from training.local.directions import best_favoured, gains, mean_of_reports

Floats = NDArray[np.float64]
CANDIDATES = 64
FEWEST, MOST_DIRECTIONS = 8, 32
LARGEST = 1 << 20  # of a term
PER_SIGNAL = 1.0


def directions_for(owners: int, epsilon: float) -> int:
    """How many public directions so many reports can tell apart: a public rule, the fourth root of owners epsilon^2.

    An estimate of D numbers from n reports has an error of about D / (epsilon sqrt(n)) a number; further directions are
    worth their error only as it falls.
    """
    return int(np.clip(round(PER_SIGNAL * (owners * epsilon**2) ** 0.25), FEWEST, MOST_DIRECTIONS))


def coordinates_for(features: Any, codes: Any, owners: int, epsilon: float) -> Coordinates:
    """The coordinates of a campaign: by the rule, from the codes of unlabelled public rows."""
    return whitened(features, codes, directions_for(owners, epsilon))


def favoured_for(coordinates: Coordinates, epsilon: float) -> int:
    """The m of the least variance."""
    return best_favoured(coordinates.size + 1, CANDIDATES, epsilon)


def direction_of(definition: Definition, owners: NDArray[np.int64], reports: NDArray[np.int64]) -> Floats:
    """The unbiased estimate (size + 1,) of the mean of the owners' own vectors."""
    gain = gains(definition.dimension, definition.candidates, float(definition.epsilon))[definition.favoured - 1]
    seed = bytes.fromhex(definition.seed)
    return mean_of_reports(seed, owners, reports, definition.candidates, definition.dimension, float(gain))


def learn(definition: Definition, owners: NDArray[np.int64], reports: NDArray[np.int64]) -> AdditiveEnsemble:
    """The model of these reports (n,), drawn by the owners of these numbers (n,)."""
    return ensemble_of(definition, direction_of(definition, owners, reports))


def ensemble_of(definition: Definition, along: Floats) -> AdditiveEnsemble:
    """The linear score z . along[:-1] + along[-1] as a sum over features of integers, one for each code.

    The lengths of own vectors were forgotten, so the score has the right direction but a guessed unit: that of owners
    of one row each. Ranks and labels do not depend on it; probabilities are as sure as that guess.
    """
    weights = along[:-1] * sqrt(definition.dimension)
    coordinates = definition.coordinates
    terms = [table @ weights for table in coordinates.tables]
    constant = float(along[-1] * sqrt(definition.dimension) - coordinates.shift @ weights)
    largest = max(1e-12, abs(constant), *(float(np.abs(term).max()) for term in terms))
    unit = largest / LARGEST
    return AdditiveEnsemble(
        coordinates.features,
        definition.target,
        definition.classes,
        None,
        2 * unit,  # of f = E[y | x], log odds are about 2 f
        round(constant / unit),
        tuple(tuple(int(value) for value in np.rint(term / unit)) for term in terms),
    )

"""From the noisy sums of all owners' statistics to an additive model: least squares on groups, post-processing."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from local.reports.groups import GRID, Groups
from local.reports.learning import additive_of
from local.reports.shared import AGGREGATORS, SharedDefinition
from models.forms.ensemble import Ensemble

Floats = NDArray[np.float64]
RIDGE = 2.0  # in the length of the noise of a direction
COARSE, FINE, ENOUGH = 8, 16, 12_000


def groups_for(owners: int, epsilon: float) -> int:
    """Return how many groups a feature has at most: a public rule. Finer ones need more owners than noise hides."""
    return FINE if owners * epsilon >= ENOUGH else COARSE


def learn_shared(definition: SharedDefinition, total: NDArray[np.int64], owners: int) -> Ensemble:
    """Learn a model from the noisy sum (numbers,) of so many owners' statistics."""
    groups = definition.layout
    noise = sqrt(AGGREGATORS) * float(definition.noise_multiplier) * groups.sensitivity
    constant, weights = solve_groups(groups, total.astype(np.float64), owners, noise)
    ends = definition.bounded
    return additive_of(
        definition, [weights[table] for table in groups.tables], constant,
        None if ends is None else (ends[1] - ends[0]) / 2,
    )  # fmt: skip


def solve_groups(groups: Groups, total: Floats, owners: int, noise: float) -> tuple[Floats, Floats]:
    """Solve for the constant (wide,) and the weights (size, wide) of each group: of the score that is nearest to the
    answers, in [-1, 1] or labels' corners.

    Args:
        total: the noisy sum (numbers,) of the statistics.
        owners: how many they are of: public, for who takes part is.
        noise: standard deviation of each of its numbers.
    """
    counts, answers = groups.moments(total)
    sizes = np.diag(counts).copy()
    features = len(groups.features)
    mean = answers.sum(axis=0) / (features * owners)
    wanted = answers - np.outer(sizes, mean)
    centred = counts - np.outer(sizes, sizes) / owners
    values, vectors = np.linalg.eigh(centred)
    ridge = RIDGE * noise / GRID * sqrt(groups.size)
    weights = vectors @ ((vectors.T @ wanted) / (np.maximum(values, 0) + ridge + 1e-9)[:, np.newaxis])
    return mean - sizes @ weights / owners, weights

"""From the noisy sums of all owners' statistics to an additive model: least squares on groups, post-processing."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from models.forms.additive import AdditiveEnsemble
from training.local.groups import GRID, Groups
from training.local.learning import LARGEST
from training.local.shared import AGGREGATORS, SharedDefinition

Floats = NDArray[np.float64]
RIDGE = 2.0  # in the length of the noise of a direction
COARSE, FINE, ENOUGH = 8, 16, 12_000


def groups_for(owners: int, epsilon: float) -> int:
    """At most so many groups of a feature: a public rule. Finer ones need more owners than noise hides."""
    return FINE if owners * epsilon >= ENOUGH else COARSE


def learn_shared(definition: SharedDefinition, total: NDArray[np.int64], owners: int) -> AdditiveEnsemble:
    """The model of the noisy sum (numbers,) of so many owners' statistics."""
    groups = definition.layout
    noise = sqrt(AGGREGATORS) * float(definition.noise_multiplier) * groups.sensitivity
    constant, weights = solved(groups, total.astype(np.float64), owners, noise)
    terms = [weights[table] for table in groups.tables]
    largest = max(1e-12, abs(constant), *(float(np.abs(term).max()) for term in terms))
    unit = largest / LARGEST
    low, high = definition.bounded or (-1.0, 1.0)
    return AdditiveEnsemble(
        definition.features,
        definition.target,
        definition.classes,
        definition.bounded,
        2 * unit if definition.bounded is None else unit * (high - low) / 2,  # log odds of f = E[y | x] are about 2 f
        round(constant / unit),
        tuple(tuple(int(value) for value in np.rint(term / unit)) for term in terms),
    )


def solved(groups: Groups, total: Floats, owners: int, noise: float) -> tuple[float, Floats]:
    """The constant and one weight (size,) for each group: of the score that is nearest to the answers, in [-1, 1].

    Args:
        total: the noisy sum (numbers,) of the statistics.
        owners: how many they are of: public, for who takes part is.
        noise: standard deviation of each of its numbers.
    """
    counts, answers = groups.moments(total)
    held = np.diag(counts).copy()
    features = len(groups.features)
    mean = answers.sum() / (features * owners)
    wanted = answers - mean * held
    centred = counts - np.outer(held, held) / owners
    values, vectors = np.linalg.eigh(centred)
    ridge = RIDGE * noise / GRID * sqrt(groups.size)
    weights = vectors @ ((vectors.T @ wanted) / (np.maximum(values, 0) + ridge + 1e-9))
    return float(mean - weights @ held / owners), weights

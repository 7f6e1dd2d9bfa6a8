"""What an owner's rows come to: one vector of length at most 1, in which label and weight are both inside."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accountant.errors import InputError

Floats = NDArray[np.float64]
STEPS, RIDGE = 8, 1.0  # of an owner's own logistic regression: Newton steps, and the penalty in rows
LEAST_ROWS = {"local-linear": 1, "local-lr": 20}


def own_vectors(learner: str, z: Floats, y: Floats, rows: NDArray[np.int64]) -> Floats:
    """Unit vectors (owners, size + 1) of owners who hold `rows` (owners,) rows each, one after the other; 0 where all
    of a vector is 0.

    Args:
        learner: which statistic; each is a function of one owner's rows alone.
        z: public coordinates (n, size).
        y: labels (n,), -1 or 1.
        rows: how many rows each owner has; InputError where that is fewer than the learner asks for.
    """
    if rows.min(initial=MOST_ROWS) < LEAST_ROWS[learner]:
        raise InputError(f"rows: {learner} asks an owner for at least {LEAST_ROWS[learner]} rows")
    known = np.concatenate([z, np.ones((len(z), 1))], axis=1)
    if learner == "local-linear":  # the mean of (y z, y): least squares, where z is white
        starts = np.concatenate([[0], np.cumsum(rows)[:-1]])
        found = np.add.reduceat(known * y[:, np.newaxis], starts, axis=0)
    else:
        ends = np.cumsum(rows)
        found = np.array([_logistic(known[end - n : end], y[end - n : end]) for n, end in zip(rows, ends, strict=True)])
    length = np.linalg.norm(found, axis=1, keepdims=True)
    safe = np.where(np.isfinite(length) & (length > 0), length, 1.0)
    return np.where(np.isfinite(found) & np.isfinite(length), found, 0.0) / safe


MOST_ROWS = np.iinfo(np.int64).max


def _logistic(known: Floats, y: Floats) -> Floats:
    """Ridge logistic regression by Newton's method: an owner of one class, or of constant features, has one too."""
    theta = np.zeros(known.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(known @ theta, -30, 30)))
        slope = known.T @ (chance - (y + 1) / 2) + RIDGE * theta
        curve = (known * (chance * (1 - chance))[:, np.newaxis]).T @ known + RIDGE * np.eye(len(theta))
        theta = theta - np.linalg.solve(curve, slope)
    return theta

"""What an owner's rows come to: one vector of length at most 1, in which label and weight are both inside.

It is a vector of every owner. Rows that do not fit what is asked weigh nothing, and an owner of too few others has the
vector 0: no owner can be told from another by having none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from local.reports.corners import as_corners, corners, multiply_by_corners

Floats = NDArray[np.float64]
STEPS, RIDGE = 8, 1.0  # of an own ridge logistic regression: Newton steps, and the penalty in rows
LEAST_ROWS = {"local-linear": 1, "local-lr": 20}


def own_vectors(
    learner: str, z: Floats, y: Floats, rows: NDArray[np.int64], fits: NDArray[np.bool_] | None = None
) -> Floats:
    """Compute unit vectors (owners, (size + 1) (K - 1)) of owners who hold `rows` (owners,) rows each, one after the
    other; 0 where all of a vector is 0, and of owners of whose rows fewer fit than the learner needs.

    Args:
        learner: which statistic; each is a function of one owner's rows alone.
        z: public coordinates (n, size).
        y: labels as corners (n, K - 1); of two classes (n,), -1 or 1.
        rows: how many rows each owner has, at least one.
        fits: which rows count (n,); None: all of them. The time does not depend on it.
    """
    columns, y, ends = np.concatenate([z, np.ones((len(z), 1))], axis=1), as_corners(y), np.cumsum(rows)
    weight = np.ones(len(z)) if fits is None else fits.astype(np.float64)
    if learner == "local-linear":  # the mean of (y z, y): least squares, where z is white
        vectors = np.add.reduceat(multiply_by_corners(columns, y * weight[:, np.newaxis]), ends - rows, axis=0)
    else:
        parts = [slice(end - n, end) for n, end in zip(rows, ends, strict=True)]
        vectors = np.array([fit_regression(columns[part], y[part], weight[part]) for part in parts])
    enough = np.add.reduceat(weight, ends - rows) >= LEAST_ROWS[learner]
    vectors = np.where(enough[:, np.newaxis], vectors, 0.0)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    safe = np.where(np.isfinite(length) & (length > 0), length, 1.0)
    return np.where(np.isfinite(vectors) & np.isfinite(length), vectors, 0.0) / safe


def fit_regression(columns: Floats, y: Floats, weight: Floats) -> Floats:
    """Fit theta (D (K - 1),): log odds of a class are those of the product of its corner and known @ theta, but for a
    factor that is 1 of two classes. An owner of one class, or of constant features, has one too.

    Args:
        known: (n, D).
        y: labels as corners, (n, K - 1).
        weight: of the rows, (n,).
    """
    wide, width = y.shape[1], columns.shape[1]
    share = wide / (wide + 1)
    table, theta = share * corners(wide + 1), np.zeros((width, wide))
    for _ in range(STEPS):
        power = columns @ theta @ table.T
        chance = np.exp(np.clip(power - power.max(axis=1, keepdims=True), -30, 0))
        chance /= chance.sum(axis=1, keepdims=True)
        mean = chance @ table
        slope = columns.T @ (weight[:, np.newaxis] * (mean - share * y)) + RIDGE * theta
        spread = np.einsum("nk,ki,kj->nij", chance, table, table) - mean[:, :, np.newaxis] * mean[:, np.newaxis, :]
        curved = columns[:, :, np.newaxis, np.newaxis] * (weight[:, np.newaxis, np.newaxis] * spread)[:, np.newaxis]
        curve = np.tensordot(columns, curved, axes=(0, 0)).transpose(0, 2, 1, 3).reshape(width * wide, width * wide)
        theta = theta - np.linalg.solve(curve + RIDGE * np.eye(width * wide), slope.ravel()).reshape(width, wide)
    return theta.ravel()

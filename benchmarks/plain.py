"""Two private logistic regressions of a few lines each, as papers give them: what a statistician would write herself.

Two classes. `rows` (records, columns) are numbers in [0, 1]; each is cut to norm 1 with its constant, so that one row's
part of any gradient has at most norm 1. Neighbours differ by one row added or removed. That categories are not centred
was chosen on five of the sets, which flatters them. Draws are floats of numpy: a benchmark's, no service's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import expit

from dpserve_verify.privacy.second_opinion import gaussian_delta

Numbers = NDArray[np.float64]
STEPS, RATE = 60, 2.0


def gaussian_strength(epsilon: float, delta: float) -> float:
    """Return the largest mu whose Gaussian mechanism is (epsilon, delta)-private."""
    return float(brentq(lambda mu: gaussian_delta(mu**2, epsilon) - delta, 1e-6, 100.0))


def with_constant(rows: Numbers) -> Numbers:
    """Return rows with a column of ones, none of a norm above 1."""
    wide = np.column_stack([rows, np.ones(len(rows))])
    return np.asarray(wide / np.maximum(1.0, np.linalg.norm(wide, axis=1))[:, None])


def descend(
    rows: Numbers, labels: Numbers, epsilon: float, delta: float, draw: np.random.Generator, records: int
) -> Numbers:
    """Return coefficients by STEPS gradients of all rows, each with Gaussian noise. `records`: their public number."""
    noise, weights = STEPS**0.5 / gaussian_strength(epsilon, delta), np.zeros(rows.shape[1])
    for _ in range(STEPS):
        gradient = rows.T @ (expit(rows @ weights) - labels) + noise * draw.normal(size=weights.size)
        weights = weights - RATE * rows.shape[1] ** 0.5 * gradient / records
    return weights


def perturb(
    rows: Numbers, labels: Numbers, epsilon: float, delta: float, draw: np.random.Generator, _records: int
) -> Numbers:
    """Return coefficients of least loss with a random linear term (Kifer, Smith and Thakurta 2012, theorem 2): a loss
    whose gradient has norm 1 and whose curvature is at most 1/4.
    """
    spread, ridge = (8 * np.log(2 / delta) + 4 * epsilon) ** 0.5 / epsilon, 2 * 0.25 / epsilon
    tilt = spread * draw.normal(size=rows.shape[1])

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        odds = rows @ weights
        value = np.logaddexp(0, odds).sum() - labels @ odds + ridge / 2 * weights @ weights + tilt @ weights
        return float(value), rows.T @ (expit(odds) - labels) + ridge * weights + tilt

    return np.asarray(minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", tol=1e-10).x)

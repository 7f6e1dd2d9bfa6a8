"""The paper's simplest peer, logistic regression by objective perturbation (DP-LR), and its estimate of test accuracy
from margins and Rademacher complexity (Table 11). Over floats, and with parameters picked by the error on held-out
rows, as the paper picks them: neither private nor certified, and on public benchmark rows alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from studies.lazybb.paper_fits import OURS, Cell, digest_of, fit, planner
from studies.lazybb.paper_published import SETTINGS
from studies.lazybb.paper_sets import Coded, coded

Floats = NDArray[np.float64]
EPSILONS = ("0.1", "0.5", "1", "5")
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
CURVATURE = 0.25  # of the logistic loss, at most
SIGNS = 20  # draws of random signs
CONFIDENCE = 0.05
SETS = ("adult", "codrna, observed range", "mushroom")


@cache
def matrix(name: str, folder: str | Path | None) -> csr_matrix:
    """One-hot columns and a constant (n, columns), each row of length 1."""
    data = coded(name, "paper", folder)
    starts = np.cumsum([0, *data.widths[:-1]])
    places = np.vstack([data.bins.astype(np.int64) + starts[:, None], np.full((1, data.labels.size), sum(data.widths))])
    ends = np.arange(data.labels.size + 1) * len(places)
    values = np.full(places.size, len(places) ** -0.5)
    return csr_matrix((values, places.T.ravel(), ends), (data.labels.size, sum(data.widths) + 1))


def noisy_regression(X: csr_matrix, y: Floats, epsilon: float, ridge: float, rng: np.random.Generator) -> Floats:
    """Weights of objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2), replacing a row of
    length at most 1. `y` is -1 or 1.
    """
    n, width = X.shape
    left = epsilon - np.log(1 + 2 * CURVATURE / (n * ridge) + (CURVATURE / (n * ridge)) ** 2)
    if left <= 0:
        left, ridge = epsilon / 2, CURVATURE / (n * (np.exp(epsilon / 4) - 1))
    drawn = rng.standard_normal(width)
    drawn *= rng.gamma(width, 2 / left) / np.linalg.norm(drawn)

    def loss(weights: Floats) -> tuple[float, Floats]:
        margins = y * (X @ weights)
        slopes = -y / (1 + np.exp(np.clip(margins, -500, 500)))
        value = np.logaddexp(0, -margins).mean() + ridge / 2 * weights @ weights + drawn @ weights / n
        return float(value), X.T @ slopes / n + ridge * weights + drawn / n

    return np.asarray(minimize(loss, np.zeros(width), jac=True, method="L-BFGS-B").x)


def regression_record(name: str, epsilon: str, folder: str | Path | None) -> dict[str, Any]:
    """Accuracy of five fits with the ridge of the best mean."""
    data, X, rng = coded(name, "paper", folder), matrix(name, folder), np.random.default_rng(0)
    signs, found = np.where(data.labels > 0, 1.0, -1.0), {}
    for ridge in RIDGES:
        found[ridge] = []
        for train, test in data.splits(1):
            weights = noisy_regression(X[train], signs[train], float(epsilon), ridge, rng)
            found[ridge].append(round(float(np.mean((X[test] @ weights > 0) == (signs[test] > 0))), 5))
    best = max(found, key=lambda ridge: float(np.mean(found[ridge])))
    return {"key": f"peers|{name}|DP-LR|{epsilon}|0", "accuracy_of_fits": found[best], "ridge": best}


def rademacher_record(name: str, folder: str | Path | None) -> dict[str, Any]:
    """The accuracy that margins promise: of one fit at epsilon 1, with probability .95, the best over margins."""
    data, base = coded(name, "paper", folder), name.partition(",")[0]
    cell = Cell("peers", name, OURS, "1", "0", SETTINGS[base]["1"])
    train, _ = next(data.splits(1))
    votes = fit(planner(cell, folder)(train.size), data, train).votes
    complexity = rademacher(data, train, np.random.default_rng(0))
    margins = np.zeros(train.size)
    for vote in votes:
        margins += vote.table(data.widths[vote.feature])[data.bins[vote.feature][train]]
    margins *= np.where(data.labels[train] > 0, 1, -1) / len(votes)
    slack = (np.log(1 / CONFIDENCE) / (2 * train.size)) ** 0.5
    errors = [float(np.mean(margins <= theta)) + 2 * complexity / theta + slack for theta in np.linspace(0.01, 1, 100)]
    bound = {"complexity": round(complexity, 5), "accuracy": round(1 - min(errors), 4)}
    return {"key": f"peers|{name}|rademacher|1|0", "digest": digest_of(OURS, "0"), **bound}


def rademacher(data: Coded, train: NDArray[np.intp], rng: np.random.Generator) -> float:
    """The mean over random signs of the best agreement of a 1-rule, either way round, or of a constant."""
    best = []
    for _ in range(SIGNS):
        signs = rng.choice((-1.0, 1.0), train.size)
        sums = [np.bincount(codes[train], signs, width) for codes, width in zip(data.bins, data.widths, strict=True)]
        scores = 2 * np.concatenate(sums) - signs.sum()
        best.append(max(np.abs(scores).max(), abs(signs.sum())) / train.size)
    return float(np.mean(best))

"""The mechanisms of the local literature, for comparison alone: they emit floats, and those betray what they are of.

    python -m studies.owners.local_mechanisms

For a random unit vector of D numbers: the mean squared error of one report as an estimate of it. All are unbiased.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, gammaln

from accountant.noise.one_of_k import OneOfK
from local.reports.directions import best_favoured, directions, gains, scores

Floats = NDArray[np.float64]
Mechanism = Callable[[Floats, float], Floats]  # numbers (n, D) within [-1, 1], epsilon -> unbiased estimates (n, D)
RNG = np.random.default_rng(0)
REPORTS = 40_000


@lru_cache(maxsize=256)
def privunit_best(dimension: int, epsilon: float) -> tuple[float, float, float]:
    """Of PrivUnit2 (Bhowmick et al. 2018) at its best: the gain c, for its noise has variance 1 / c^2; the chance p of
    the cap; and the share q of the sphere that the cap is.
    """
    p, half = np.linspace(0.5, 0.9999, 400), (dimension - 1) / 2
    q = p / ((1 - p) * np.exp(epsilon) + p)
    cap = 2 * betaincinv(half, half, 1 - q) - 1
    area = np.exp(gammaln(dimension / 2) - gammaln(half)) / np.sqrt(np.pi)
    mean = area * np.maximum(0.0, 1 - cap * cap) ** half / (dimension - 1)
    gain = (p / q - (1 - p) / (1 - q)) * mean
    at = int(gain.argmax())
    return float(gain[at]), float(p[at]), float(q[at])


def privunit_gain(dimension: int, epsilon: float) -> float:
    """The largest c of PrivUnit2."""
    return privunit_best(dimension, epsilon)[0]


def privunit(x: Floats, epsilon: float) -> Floats:
    """PrivUnit2 of unit vectors: a direction, in the cap around the own one with chance p, else outside it."""
    n, dimension = x.shape
    gain, p, q = privunit_best(dimension, epsilon)
    half = (dimension - 1) / 2
    edge = betainc(half, half, betaincinv(half, half, 1 - q))
    place = np.where(RNG.random(n) < p, edge + (1 - edge) * RNG.random(n), edge * RNG.random(n))
    cosine = np.clip(2 * betaincinv(half, half, place) - 1, -1, 1)[:, np.newaxis]
    aside = RNG.standard_normal(x.shape)
    aside -= (aside * x).sum(axis=1, keepdims=True) * x
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    return np.asarray((cosine * x + np.sqrt(1 - cosine**2) * aside) / gain, np.float64)


def laplace(x: Floats, epsilon: float) -> Floats:
    """Every number of [-1, 1] at a share of epsilon."""
    return x + RNG.laplace(0, 2 * x.shape[1] / epsilon, x.shape)


def piecewise(x: Floats, epsilon: float) -> Floats:
    """Algorithm 2 of the paper (Wang et al. 2019), number by number: unbiased, in [-C, C]."""
    t = np.exp(epsilon / 2)
    most = (t + 1) / (t - 1)
    left = (most + 1) / 2 * x - (most - 1) / 2
    right = left + most - 1
    near = left + RNG.random(x.shape) * (most - 1)
    far = -most + RNG.random(x.shape) * (left + most + most - right)
    far = np.where(far < left, far, far + (right - left))
    return np.where(RNG.random(x.shape) < t / (t + 1), near, far)


def hybrid(x: Floats, epsilon: float) -> Floats:
    """Piecewise or, else, one bit of Duchi's, by the share that is best (Wang et al. 2019, section III-C)."""
    share = 1 - np.exp(-epsilon / 2) if epsilon > 0.61 else 0.0
    grown = np.exp(epsilon)
    most = (grown + 1) / (grown - 1)
    bit = np.where(RNG.random(x.shape) < 0.5 + x / most / 2, most, -most)
    return np.where(RNG.random(x.shape) < share, piecewise(x, epsilon), bit)


def sampled(one: Mechanism) -> Mechanism:
    """Algorithm 3: k of the numbers, each at epsilon / k, scaled by D / k."""

    def many(x: Floats, epsilon: float) -> Floats:
        n, dimension = x.shape
        k = max(1, min(dimension, int(epsilon / 2.5)))
        chosen = np.argsort(RNG.random(x.shape), axis=1)[:, :k]
        found, rows = np.zeros_like(x), np.arange(n)[:, np.newaxis]
        found[rows, chosen] = dimension / k * one(x[rows, chosen], epsilon / k)
        return found

    return many


def duchi(x: Floats, epsilon: float) -> Floats:
    """Duchi, Jordan and Wainwright 2018 for [-1, 1]^D: a corner of a cube, on the side of a random corner's or not.

    For even D half of the corners at an angle of 90 degrees would be on both sides: only those with t . v > 0 are
    drawn from, which the scale knows.
    """
    n, dimension = x.shape
    corner = np.where(RNG.random(x.shape) < 0.5 + x / 2, 1.0, -1.0)
    signs = RNG.choice([-1.0, 1.0], (n, dimension))
    side = (signs * corner).sum(axis=1)
    while (side == 0).any():
        again = side == 0
        signs[again] = RNG.choice([-1.0, 1.0], (int(again.sum()), dimension))
        side = (signs * corner).sum(axis=1)
    towards = np.where(RNG.random(n) < np.exp(epsilon) / (np.exp(epsilon) + 1), 1.0, -1.0)
    found = signs * (np.sign(side) * towards)[:, np.newaxis]
    even = comb(dimension, dimension // 2) / 2**dimension if dimension % 2 == 0 else 0.0
    cosine = comb(dimension - 1, (dimension - 1) // 2) / 2 ** (dimension - 1) / (1 - even)  # mean |t . v| / D of those
    return found * (np.exp(epsilon) + 1) / (np.exp(epsilon) - 1) / cosine


def one_of_k(x: Floats, epsilon: float, candidates: int = 64) -> Floats:
    """Ours."""
    n, dimension = x.shape
    favoured = best_favoured(dimension, candidates, epsilon)
    vectors = directions(bytes(32), np.arange(n), candidates, dimension)
    reports = OneOfK(Decimal(str(epsilon)), candidates, favoured).draw(scores(vectors, x))
    gain = gains(dimension, candidates, epsilon)[favoured - 1]
    return np.asarray(vectors[np.arange(n), reports] / gain, np.float64)


def main() -> None:
    named = {
        "Laplace": laplace, "Duchi": duchi, "Piecewise": sampled(piecewise), "hybrid": sampled(hybrid),
        "one of 64": one_of_k, "PrivUnit2": privunit,
    }  # fmt: skip
    print("mean squared error of one report; the last is what PrivUnit2's comes to by its formula")
    print(f"{'D':>3} {'epsilon':>7} " + " ".join(f"{name:>10}" for name in (*named, "(formula)")))
    for dimension in (9, 21):
        x = RNG.standard_normal((REPORTS, dimension))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        for epsilon in (0.5, 1.0, 2.0, 5.0):
            errors = [((one(x, epsilon) - x) ** 2).sum(axis=1).mean() for one in named.values()]
            errors.append(privunit_gain(dimension, epsilon) ** -2 - 1)
            print(f"{dimension:>3} {epsilon:>7} " + " ".join(f"{error:>10.1f}" for error in errors), flush=True)


if __name__ == "__main__":
    main()

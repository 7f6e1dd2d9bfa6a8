"""The public vectors of one of K, the same on every machine, and what a report is worth.

Every owner has vectors of its own, from the campaign's seed and the owner's number: vectors that all owners shared
would leave an error that no number of owners takes away.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from math import lgamma, pi
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SCALE = 2**20  # of a score on the grid of integers
STEPS = 20_000  # of the angle, in the integral of `gains`


@lru_cache(maxsize=1)
def quantiles() -> NDArray[np.float32]:
    """Return standard normal quantiles at the middles of 2^16 equal shares, on a grid of 2^-12: (65536,)."""
    upper = [NormalDist().inv_cdf(0.5 + (at + 0.5) / 2**16) for at in range(2**15)]
    half = np.rint(np.array(upper) * 4096).astype(np.float32)
    return np.asarray(np.concatenate([-half[::-1], half]), np.float32)


def directions(seed: bytes, owners: NDArray[np.int64], candidates: int, dimension: int) -> NDArray[np.float32]:
    """Derive unit vectors (owners, candidates, dimension), independent and uniform: SHAKE-256 of the seed and each
    number.
    """
    return _unit(_places(seed, owners, candidates, dimension))


def _places(seed: bytes, owners: NDArray[np.int64], candidates: int, dimension: int) -> NDArray[np.uint16]:
    heads = [seed + int(owner).to_bytes(8, "big") for owner in owners]
    stream = b"".join([hashlib.shake_256(head).digest(2 * candidates * dimension) for head in heads])
    return np.frombuffer(stream, "<u2").reshape(len(owners), candidates, dimension)


def _unit(places: NDArray[np.uint16]) -> NDArray[np.float32]:
    vectors = quantiles()[places]
    vectors /= np.sqrt(np.einsum("...d,...d->...", vectors, vectors))[..., np.newaxis]
    return vectors


def scores(vectors: NDArray[np.float32], own: Floats) -> NDArray[np.int64]:
    """Score how near each vector is to its owner's own (owners, dimension), of length at most 1: integers (owners,
    K).
    """
    cosines = np.einsum("nkd,nd->nk", vectors, own.astype(np.float32))
    return np.asarray(np.rint(cosines * SCALE), np.int64)


@lru_cache(maxsize=64)
def gains(dimension: int, candidates: int, epsilon: float) -> Floats:
    """Return, for m = 1 .. K - 1, the mean of the reported vector along a unit vector of the owner's, whatever that one
    is.

    The cosine t of a uniform direction has density ~ (1 - t^2)^((D - 3) / 2); the m nearest of K have together the
    mean cosine K times the integral of t over P(fewer than m of K - 1 others are nearer).
    """
    angle = (np.arange(STEPS) + 0.5) * pi / STEPS
    weight = np.sin(angle) ** (dimension - 2)
    weight /= weight.sum()
    nearer = np.clip(np.cumsum(weight) - weight / 2, 0, 1)
    m = np.arange(1, candidates)
    others = candidates - 1
    ways = np.array([lgamma(others + 1) - lgamma(k + 1) - lgamma(others - k + 1) for k in m - 1])[:, np.newaxis]
    near, k = np.clip(nearer, 1e-300, 1 - 2**-53)[np.newaxis, :], (m - 1)[:, np.newaxis]
    few = np.exp(ways + k * np.log(near) + (others - k) * np.log1p(-near)).cumsum(axis=0)  # binomial: at most m - 1
    together = candidates * few @ (np.cos(angle) * weight)
    grown = np.expm1(epsilon)
    return np.asarray(grown * together / (m * (grown + 1) + candidates - m), np.float64)


def best_favoured(dimension: int, candidates: int, epsilon: float) -> int:
    """Return the m of the largest gain: public, for it depends on nothing else."""
    return int(gains(dimension, candidates, epsilon).argmax()) + 1


def mean_of_reports(
    seed: bytes, owners: NDArray[np.int64], reports: NDArray[np.int64], candidates: int, dimension: int, gain: float
) -> Floats:
    """Estimate, without bias, the mean (dimension,) of the owners' own vectors."""
    total = np.zeros(dimension)
    for start in range(0, len(owners), CHUNK):
        part = slice(start, start + CHUNK)
        places = _places(seed, owners[part], candidates, dimension)
        total += _unit(places[np.arange(len(places)), reports[part]]).sum(axis=0, dtype=np.float64)
    return total / max(1, len(owners)) / gain


CHUNK = 4096  # owners whose vectors are held at once

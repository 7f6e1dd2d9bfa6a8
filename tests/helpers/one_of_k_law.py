"""The exact law of one of K, counted from the integers that lead to each rank."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from accountant.noise.one_of_k import OneOfK


def law(mechanism: OneOfK, scores: list[int]) -> list[Fraction]:
    """The exact chance of every index: found by the edges of the integers that lead to each rank."""
    high, low = mechanism.weights
    edges = [rank * high for rank in range(mechanism.favoured + 1)]
    edges += [edges[-1] + each * low for each in range(1, mechanism.candidates - mechanism.favoured + 1)]
    assert edges[-1] == mechanism.total < 2**63
    first, last = np.array(edges[:-1], np.int64), np.array(edges[1:], np.int64) - 1
    ranks = np.arange(mechanism.candidates)
    assert (mechanism.places(first) == ranks).all()
    assert (mechanism.places(last) == ranks).all()  # and monotone between: counts are exact
    near = set(np.argsort(-np.array(scores), kind="stable")[: mechanism.favoured])
    return [Fraction(high if index in near else low, mechanism.total) for index in range(mechanism.candidates)]

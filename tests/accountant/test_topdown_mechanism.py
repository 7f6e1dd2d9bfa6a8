"""Selection in every row of a matrix of scores: drawn row by row, it is one exponential mechanism on sums."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import product

import numpy as np
import pytest
from scipy.stats import beta
from topdown_laws import joint_law

from accountant.noise.mechanisms import ExponentialSelections, PermuteAndFlips
from dpserve_verify.privacy.events import BoundedRange, PureDp

VALUES = np.array([[0, 8, 3], [5, 0, 0]])
SENSITIVITY, EPSILON, RUNS, ALARM = 10, Decimal(2), 4000, 1e-6
EVERY = pytest.mark.parametrize("kind", [ExponentialSelections, PermuteAndFlips])


@pytest.mark.slow
@EVERY
def test_draws_follow_the_joint_law(kind):
    """Every combination of one index per row, each count in its own interval. False alarm: 9e-6."""
    mechanism = kind(EPSILON)
    found = Counter(tuple(int(i) for i in mechanism.draw(VALUES, SENSITIVITY)) for _ in range(RUNS))
    law = np.exp(joint_law(mechanism, VALUES, SENSITIVITY))
    for pair, chance in zip(product(range(3), repeat=2), law, strict=True):
        count = found[pair]
        assert beta.ppf(ALARM / 2, count, RUNS - count + 1) < chance < beta.ppf(1 - ALARM / 2, count + 1, RUNS - count)


@pytest.mark.slow
@EVERY
def test_the_law_of_another_scale_would_be_noticed(kind):
    mechanism = kind(EPSILON)
    found = Counter(int(mechanism.draw(VALUES, SENSITIVITY)[0]) for _ in range(RUNS))
    wrong = np.exp(joint_law(mechanism, VALUES[:1], SENSITIVITY // 2))
    count = found[1]
    assert (
        not beta.ppf(ALARM / 2, count, RUNS - count + 1) < wrong[1] < beta.ppf(1 - ALARM / 2, count + 1, RUNS - count)
    )


def test_one_price_whatever_the_number_of_rows():
    assert ExponentialSelections(EPSILON).event == BoundedRange(EPSILON)
    assert PermuteAndFlips(EPSILON).event == PureDp(EPSILON)


@EVERY
@pytest.mark.parametrize("rows", [1, 2, 64])
def test_one_index_per_row(kind, rows):
    picks = kind(EPSILON).draw(np.tile([0, 10**9], (rows, 1)), 1)
    assert picks.tolist() == [1] * rows

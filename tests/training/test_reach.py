"""How far one row moves sums over cells: the formula beside the true maximum over all neighbours."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import isqrt

import numpy as np
import pytest

from dpserve_verify.privacy.budget import Relation
from training.session.reach import reach

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
CELLS = 3  # of a group: a row leaves one, enters another, and a third shows that it moves no more
CASES = list(product(range(12), range(12), (ADD, REPLACE), ("l1", "l2"), range(1, 5)))


@cache
def moved_groups(up: int, down: int, relation: Relation) -> tuple[tuple[int, int], ...]:
    """Every (L1, squared L2) that a neighbour moves one group by, from all rows that there can be, one by one."""
    rows = np.array([value * np.eye(CELLS, dtype=int)[cell] for value in range(-down, up + 1) for cell in range(CELLS)])
    moves = rows if relation is ADD else (rows[:, None] - rows[None]).reshape(-1, CELLS)
    return tuple({(int(abs(move).sum()), int((move**2).sum())) for move in moves})


def true_most(up: int, down: int, relation: Relation, norm: str, groups: int) -> int:
    """The longest move of all neighbours, rounded up: a row moves each group in any way, whatever it does elsewhere."""
    lengths = {0}
    for _ in range(groups):
        sizes = {pair[norm == "l2"] for pair in moved_groups(up, down, relation)}
        lengths = {length + size for length in lengths for size in sizes}
    return max(lengths) if norm == "l1" else isqrt(max(lengths)) + (isqrt(max(lengths)) ** 2 < max(lengths))


def wrong_cases(formula) -> list[tuple]:
    return [case for case in CASES if formula(*case) != true_most(*case)]


def test_it_is_the_true_maximum_over_all_neighbours():
    assert len(CASES) == 2304
    assert wrong_cases(reach) == []


@pytest.mark.parametrize(
    "formula",
    [
        lambda *case: reach(*case) + 2,
        lambda *case: max(0, reach(*case) - 2),
        lambda up, down, relation, norm, groups: reach(up, down, relation, norm, groups + 2),
        lambda up, down, relation, norm, groups: reach(
            up, down, ADD, norm, groups
        ),  # a row replaced taken for one more
        lambda up, down, relation, norm, groups: reach(max(up, down), 0, relation, norm, groups),  # one sign for both
    ],
)
def test_another_formula_is_caught(formula):
    assert wrong_cases(formula)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_no_range_is_longer_than_what_it_counts_as(relation):
    for one, two in product(range(1, 9), range(9)):
        rows = [value * np.eye(CELLS, dtype=int)[cell] for value in range(-two, one + 1) for cell in range(CELLS)]
        moves = rows if relation is ADD else [first - second for first in rows for second in rows]
        assert max(int(np.ptp(move)) for move in moves) <= reach(one, two, relation, "range")
        if not two:
            assert max(int(np.ptp(move)) for move in moves) == reach(one, 0, relation, "range")

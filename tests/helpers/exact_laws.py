"""Exact laws of selections, and of whole transcripts of small runs: what the tests of privacy compare with the claims.

Nothing here knows a sensitivity or a price: both are read from the query and the mechanism under test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from itertools import combinations_with_replacement

import numpy as np

from accountant.noise.mechanisms import ExponentialSelection, PermuteAndFlip
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, Feature
from training.rows.partitions.rows import Rows
from training.session.session import Public, sensitivity_of

BOOLEAN: tuple[Feature, ...] = (BooleanFeature("x"),)
Row = tuple[int, ...]  # codes of the features, then the class index
Dataset = tuple[Row, ...]
nodes_and_weights = cache(np.polynomial.legendre.leggauss)
EVERY_ROW: tuple[Row, ...] = ((0, 0), (0, 1), (1, 0), (1, 1))


def public_of(relation, records=4, pure=False, features=BOOLEAN, classes=("no", "yes")) -> Public:
    budget = Budget.of("1", "0" if pure else "0.000001")
    return Public(features, "y", classes, records, relation, budget, pure)


def rows_of(data: Sequence[Row], features=BOOLEAN, classes=2) -> Rows:
    table = np.array(data, dtype=np.uint8).reshape(len(data), len(features) + 1)
    widths = [feature.bins for feature in features]
    return Rows(np.ascontiguousarray(table[:, :-1].T), table[:, -1].copy(), widths, classes)


def log_sum(logs):
    """log of the sum of exp over the first axis."""
    most = logs.max(axis=0)
    return most + np.log(np.exp(logs - most).sum(axis=0))


def exponential_law(values, rate: float):
    """log P(h), P(h) ~ exp(rate * values[h])."""
    exponent = (values - values.max()).astype(float) * rate
    return exponent - np.log(np.exp(exponent).sum())


def permute_and_flip_law(values, rate: float):
    """log P(h): candidates come in random order, each wins with chance p_h = exp(rate (values[h] - max)).

    With uniform arrival times, P(h) = p_h * integral over t in [0, 1] of the product over j != h of (1 - p_j t), a
    polynomial, which Gauss and Legendre integrate exactly.
    """
    exponent = (values - values.max()).astype(float) * rate
    nodes, weights = nodes_and_weights(len(values) // 2 + 1)
    terms = 1 - np.exp(exponent)[:, None] * (nodes + 1) / 2
    return exponent + np.log((terms.prod(axis=0) / terms) @ weights / 2)


def law_of(mechanism, values, sensitivity: int):
    """log P(h) of a selection, from the mechanism's own epsilon and the query's own sensitivity."""
    law = {ExponentialSelection: exponential_law, PermuteAndFlip: permute_and_flip_law}[type(mechanism)]
    return law(np.asarray(values), float(mechanism.epsilon) / sensitivity)


class _Branch(Exception):
    pass


class Enumerating:
    """A session which draws nothing: it follows a script of answers, and at its end hands out the next exact law."""

    def __init__(self, public: Public, unit: Decimal, rows: Rows) -> None:
        self.public, self.unit, self._rows = public, unit, rows
        self._script: tuple[int, ...] = ()
        self._place = 0

    def release(self, query, mechanism):
        if self._place < len(self._script):
            self._place += 1
            return self._script[self._place - 1]
        raise _Branch(law_of(mechanism, query(self._rows), sensitivity_of(query, self.public)))

    def next_law(self, learner, script: tuple[int, ...]):
        """log P of every answer after `script`, or None where the learner asks for nothing more."""
        self._script, self._place = script, 0
        try:
            learner.learn(self)
        except _Branch as branch:
            return branch.args[0]
        return None


def transcript_law(learner, public: Public, unit: Decimal, rows: Rows, releases: int):
    """log P of every transcript of `releases` answers, in the order of their answers."""
    session = Enumerating(public, unit, rows)

    def below(script: tuple[int, ...]):
        law = session.next_law(learner, script)
        if len(script) + 1 == releases:
            return law
        return np.concatenate([step + below((*script, answer)) for answer, step in enumerate(law)])

    found = below(())
    assert np.isclose(np.exp(found).sum(), 1)
    return found


def datasets(size: int, rows: Sequence[Row] = EVERY_ROW) -> Iterator[Dataset]:
    """Every multiset of `size` rows."""
    yield from combinations_with_replacement(rows, size)


def neighbours(relation: Relation, size: int, rows: Sequence[Row] = EVERY_ROW) -> Iterator[tuple[Dataset, Dataset]]:
    """Every pair of neighbours with `size` rows in common."""
    for shared in datasets(size, rows):
        if relation is Relation.ADD_REMOVE:
            yield from ((shared, (*shared, row)) for row in rows)
        else:
            pairs = ((a, b) for a in range(len(rows)) for b in range(a))
            yield from (((*shared, rows[a]), (*shared, rows[b])) for a, b in pairs)


def canonical(data: Dataset) -> Dataset:
    return tuple(sorted(data))

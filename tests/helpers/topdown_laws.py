"""Exact laws of runs of boosted trees: releases that answer one index per row of scores are joint draws."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce

import numpy as np
from exact_laws import exponential_law, permute_and_flip_law, public_of, rows_of

from accountant.noise.mechanisms import ExponentialSelection, ExponentialSelections, PermuteAndFlip, PermuteAndFlips
from models.features.features import BooleanFeature
from training.session.session import sensitivity_of

FLAGS = tuple(BooleanFeature(f"x{number}") for number in (1, 2, 3))
LAWS = {
    ExponentialSelection: exponential_law,
    ExponentialSelections: exponential_law,
    PermuteAndFlip: permute_and_flip_law,
    PermuteAndFlips: permute_and_flip_law,
}


def people(*kinds: tuple[str, int, int]):
    """Data of three flags: ("101", class, how many)."""
    return tuple((*map(int, flags), label) for flags, label, count in kinds for _ in range(count))


def flags_of(data):
    return rows_of(data, FLAGS)


def public(relation, records: int, pure: bool = False):
    return public_of(relation, records, pure, FLAGS)


def joint_law(mechanism, values, sensitivity: int):
    """log P of every combination of one index per row of `values`, the last row's index running fastest."""
    rate = float(mechanism.epsilon) / sensitivity
    laws = [LAWS[type(mechanism)](row, rate) for row in np.atleast_2d(values)]
    return reduce(lambda one, other: np.add.outer(one, other).ravel(), laws)


class _Branch(Exception):
    pass


class Walk:
    """A session that follows a script of answers, and hands out the exact law of what is asked next."""

    def __init__(self, facts, unit: Decimal, rows) -> None:
        self.public, self.unit, self._rows = facts, unit, rows
        self._left: list = []

    def release(self, query, mechanism):
        if self._left:
            return self._left.pop(0)
        values = query(self._rows)
        raise _Branch(joint_law(mechanism, values, sensitivity_of(query, self.public)), values.shape)

    def next_law(self, learner, script):
        """(log P, shape of the scores) of the release after `script`."""
        self._left = list(script)
        try:
            learner.learn(self)
        except _Branch as branch:
            return branch.args
        raise AssertionError("the learner asks for nothing more")

    def transcripts(self, learner, releases: int, script=()):
        """log P of every way in which the next `releases` releases may come out after `script`."""
        law, shape = self.next_law(learner, script)
        if releases == 1:
            return law
        parts = []
        for index, step in enumerate(law):
            answer = np.array(np.unravel_index(index, shape[1:] * shape[0])) if len(shape) == 2 else index
            parts.append(step + self.transcripts(learner, releases - 1, (*script, answer)))
        return np.concatenate(parts)

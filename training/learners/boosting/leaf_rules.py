"""1-rules: the public candidate set of a schema, and their scores from signed sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from models.features.features import Feature
from models.parts.votes import Test, Vote

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class OneRules:
    """Every ordered test `value > cut`, every test `value is code`, and the constant; each also negated.

    Candidate k < size / 2 is a rule, candidate k + size / 2 its negation. The set comes from the schema alone.
    """

    tests: tuple[tuple[Test, int, int], ...]
    above: NDArray[np.intp]
    single: NDArray[np.intp]
    missing: NDArray[np.intp]

    @property
    def size(self) -> int:
        """Count the candidates: every test and its negation."""
        return 2 * len(self.tests)

    def vote(self, candidate: int, weight: int, output: int = 0) -> Vote:
        """Return the candidate as a vote of `weight`; its negation has -weight."""
        test, feature, code = self.tests[candidate % len(self.tests)]
        return Vote(test, feature, code, weight if candidate < len(self.tests) else -weight, output)

    def scores(self, sums: Integers) -> Integers:
        """Sum w y h(x) over rows for each candidate h, (size,), from `sums` (features, width) of w y per feature and
        code.

        h = 2 [test holds] - 1, so this is 2 * (sum where the test holds) - (sum over all rows).
        """
        total = int(sums[0].sum())
        running = np.cumsum(sums, axis=1)
        feature, code = self.above.T
        over = running[feature, self.missing[feature] - 1] - running[feature, code]
        single = sums[self.single[:, 0], self.single[:, 1]]
        rules = np.concatenate([2 * over - total, 2 * single - total, [total]])
        return np.concatenate([rules, -rules])


@lru_cache(maxsize=64)
def one_rules(features: tuple[Feature, ...]) -> OneRules:
    """Return the candidates of these features: `above` and `is` tests feature by feature, then the constant."""
    above = [(index, code) for index, feature in enumerate(features) for code in range(feature.cuts)]
    single = [(index, code) for index, feature in enumerate(features) for code in feature.single_codes]
    tests: Sequence[tuple[Test, int, int]] = [
        *(("above", *pair) for pair in above),
        *(("is", *pair) for pair in single),
        ("always", 0, 0),
    ]
    missing = np.array([feature.missing for feature in features], dtype=np.intp)
    return OneRules(tuple(tests), _pairs(above), _pairs(single), missing)


def _pairs(pairs: list[tuple[int, int]]) -> NDArray[np.intp]:
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)

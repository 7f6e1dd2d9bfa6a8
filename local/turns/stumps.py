"""Stumps that owners are asked about in a turn: public tests of one feature each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import JSON, exact_object
from local.reports.corners import multiply_by_corners
from local.turns.weights import Floats, Owned
from models.features.features import BooleanFeature, CategoricalFeature, Feature, NumericFeature
from models.parts.votes import OneTest, holds

CUTS = 3  # of a number, by the public rule
MAX_TESTS = 1 << 11


@dataclass(frozen=True)
class Stumps:
    """Public tests, each of one feature; a stump votes one way where its test holds, and the other way else."""

    tests: tuple[OneTest, ...]

    def dimension(self, wide: int) -> int:
        """Return how many numbers an owner's own vector has: a label, of so many numbers, for the vote of everybody and
        for each test.
        """
        return (len(self.tests) + 1) * wide

    @property
    def least_rows(self) -> int:
        """Return how many rows an owner must have at least."""
        return 1

    def check(self, features: Sequence[Feature]) -> None:
        """Raise InputError where a test is not of these features."""
        if not 1 <= len(self.tests) <= MAX_TESTS or len(set(self.tests)) != len(self.tests):
            raise InputError(f"tests: {len(self.tests)}; must be from 1 to {MAX_TESTS}, each once")
        for test, feature, code in self.tests:
            in_range = type(feature) is int and type(code) is int and 0 <= feature < len(features)
            limit = {"above": features[feature].cuts, "is": features[feature].bins}.get(test, 0) if in_range else 0
            if not in_range or not 0 <= code < limit:
                raise InputError(f"tests: {[test, feature, code]!r:.80} is none of the campaign's features")

    def answers(self, features: Sequence[Feature], codes: Sequence[NDArray[Any]]) -> Floats:
        """Return +-1 of every vote (n, tests + 1): of everybody, and of each test."""
        tables = [np.where(holds(test, code, features[at].bins), 1.0, -1.0) for test, at, code in self.tests]
        columns = [table[codes[at]] for table, (_, at, _) in zip(tables, self.tests, strict=True)]
        return np.stack([np.ones(len(codes[0])), *columns], axis=1)

    def vectors(self, features: Sequence[Feature], codes: Sequence[NDArray[Any]], of: Owned) -> Floats:
        """Compute own vectors (owners, dimension), of length at most 1: labels where each test holds less those where
        it does not, in the weights; of two classes how far its vote is right.
        """
        return of.total(multiply_by_corners(self.answers(features, codes), of.y)) / sqrt(len(self.tests) + 1)

    def to_json(self) -> dict[str, JSON]:
        """Return the tests as JSON. Inverse: `stumps_from_json`."""
        return {"tests": [list(test) for test in self.tests]}


def stumps_from_json(body: Any) -> Stumps:
    """Read what `Stumps.to_json` wrote. InputError, TypeError or ValueError for anything else."""
    fields: Mapping[str, Any] = exact_object(body, ("tests",), "basis")
    return Stumps(tuple((test, feature, code) for test, feature, code in fields["tests"]))


def tests_for(features: Sequence[Feature], codes: Sequence[NDArray[Any]] | None) -> Stumps:
    """Choose the tests by a public rule: of a number at most CUTS cuts, at even shares of public rows, or, without
    these, of its bins; each value of a category; of a truth whether it holds.
    """
    tests: list[OneTest] = []
    for at, feature in enumerate(features):
        if isinstance(feature, NumericFeature) and feature.cuts:
            shares = (np.arange(min(CUTS, feature.cuts)) + 1) / (min(CUTS, feature.cuts) + 1)
            present = np.zeros(0) if codes is None else codes[at][codes[at] != feature.missing].astype(np.float64)
            places = shares * feature.cuts if not present.size else np.quantile(present, shares)
            cuts = np.unique(np.clip(np.floor(places), 0, feature.cuts - 1).astype(int))
            tests += [("above", at, int(code)) for code in cuts]
        elif isinstance(feature, CategoricalFeature):
            tests += [("is", at, code) for code in range(len(feature.values))]
        elif isinstance(feature, BooleanFeature):
            tests.append(("is", at, 1))
    if not tests:
        raise InputError("features: none has a test to ask about")
    return Stumps(tuple(tests))

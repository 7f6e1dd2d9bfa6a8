"""Tests of one feature's code, which votes and the splits of trees ask alike, and votes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from models.features.features import Feature, NumericFeature, OrderedFeature

Test = Literal["above", "is", "always"]
OneTest = tuple[Literal["above", "is"], int, int]  # test, feature, code


class Asks(Protocol):
    """A test of one feature: a vote's or a split's."""

    @property
    def test(self) -> str:
        """Return the test: `above`: code > `code` of an ordered feature; `is`: code == `code`; `always`: holds for
        everybody.
        """

    @property
    def feature(self) -> int:
        """Return the position of the feature."""

    @property
    def code(self) -> int:
        """Return the code that the test compares with."""


def holds(test: str, code: int, bins: int) -> NDArray[np.bool_]:
    """Return, for every code of a feature, whether the test holds: (bins,). The last code is the missing value's, which
    is never `above`.
    """
    codes = np.arange(bins)
    if test == "above":
        return (codes > code) & (codes < bins - 1)
    return codes == code if test == "is" else np.ones(bins, dtype=bool)


def describe(asks: Asks, features: Sequence[Feature]) -> str:
    """Return the test in words: `age > 27.5`, `education is Bachelors`, `always`."""
    if asks.test == "always":
        return "always"
    feature = features[asks.feature]
    if asks.test == "above" and isinstance(feature, NumericFeature):
        return f"{feature.name} > {feature.text(feature.edges[asks.code])}"
    if asks.test == "above" and isinstance(feature, OrderedFeature):
        return f"{feature.name} {feature.text_above(asks.code)}"
    return f"{feature.name} is {feature.label(asks.code)}"


def every_test(features: Sequence[Feature]) -> Iterator[OneTest]:
    """Yield tests without end, (test, feature, code): one of each feature after the other, texts first, then the next
    one of each. The first test of a text is the one that tells all listed values from others.
    """
    order = sorted(range(len(features)), key=lambda i: features[i].kind != "categorical")
    return ((test, i, code) for turn in count() for i in order for test, code in [_test(features[i], turn)])


def _test(feature: Feature, turn: int) -> tuple[Literal["above", "is"], int]:
    if feature.kind == "categorical" and not feature.cuts:
        return "is", (feature.bins - 2 + turn) % feature.bins
    at = turn % (feature.cuts + len(feature.single_codes))
    return ("above", at) if at < feature.cuts else ("is", feature.single_codes[at - feature.cuts])


@dataclass(frozen=True)
class Vote:
    """One released 1-rule for one output: adds `weight` to its score where the test holds, and takes it away else."""

    test: Test
    feature: int
    code: int
    weight: int
    output: int = 0

    def table(self, bins: int) -> NDArray[np.int64]:
        """Return what the vote adds for every code of its feature: (bins,) of +-weight."""
        return np.where(holds(self.test, self.code, bins), self.weight, -self.weight).astype(np.int64)

"""The paper's three sets as packed codes, in the paper's one-hot encoding or in that of our public schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from benchmarks.datasets import load
from models.features.features import CategoricalFeature, Feature, NumericFeature, number_text
from models.parts.answers import ClassLabel
from studies import digests
from studies.lazybb.paper_published import RECORDS
from training.rows.schema.schema import Schema, parse_schema
from training.rows.tables.data import encode_column, encode_labels

BINS = 10  # equal intervals per number, as in the authors' public code
FOLDS = 5
NAMES = ("adult", "codrna", "codrna, observed range", "mushroom")


class Listed(CategoricalFeature):
    """One 1-rule per listed value, and none for unlisted and missing values: the one-hot columns of the paper."""

    @property
    def single_codes(self) -> tuple[int, ...]:
        return tuple(range(len(self.values)))


@dataclass(frozen=True)
class Coded:
    """`bins` (features, n) codes, `labels` (n,); the rows from `test` on are the publisher's own test file, if any."""

    features: tuple[Feature, ...]
    target: str
    classes: tuple[ClassLabel, ...]
    bins: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    test: int | None

    @property
    def widths(self) -> list[int]:
        return [feature.bins for feature in self.features]

    @property
    def literals(self) -> int:
        return sum(feature.cuts + len(feature.single_codes) for feature in self.features)

    def splits(self, repeats: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """(train, test) indices: the publisher's split FOLDS * repeats times, or five stratified folds `repeats` times.

        Folds of public benchmark rows come from a fixed seed: the noise of a fit does not.
        """
        every = np.arange(self.labels.size)
        if self.test is not None:
            yield from [(every[: self.test], every[self.test :])] * (FOLDS * repeats)
            return
        for repeat in range(repeats):
            yield from StratifiedKFold(FOLDS, shuffle=True, random_state=repeat).split(every, self.labels)

    def folds(self, repeats: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Cross-validation on the training rows alone."""
        train = replace(self, labels=self.labels[: self.test], test=None)
        yield from train.splits(repeats)


@cache
def sources(name: str, folder: str | Path | None) -> tuple[bytes, pa.Table]:
    """The public schema, and the rows; of Adult the publisher's test rows are the last."""
    base = name.partition(", ")[0]
    parts = [load(part, folder) for part in ((base, "adult_test") if base == "adult" else (base,))]
    return parts[0].schema_bytes, pa.concat_tables(part.table for part in parts)


@cache
def coded(name: str, encoding: str, folder: str | Path | None) -> Coded:
    """`encoding`: "paper" (one-hot, BINS intervals) or "schema" (the public schema's cut points and categories).

    "codrna, observed range" takes the intervals from the rows' own minimum and maximum, as the authors' code does for
    every set. That leaks both; it stands here for the comparison only.
    """
    schema, table = sources(name, folder)
    test = RECORDS["adult"] if name == "adult" else None
    return _coded(parse_schema(schema), table, encoding, ", " in name, test)


def made_up() -> Coded:
    """The table that digests are of."""
    schema, table = digests.table("classes")
    return _coded(schema, table, "schema", observed=False, test=None)


def _coded(schema: Schema, table: pa.Table, encoding: str, observed: bool, test: int | None) -> Coded:
    labels = encode_labels(schema, table[schema.target].combine_chunks())
    pairs = [_encoded(feature, schema, table, encoding, observed) for feature in schema.features]
    features, bins = zip(*pairs, strict=True)
    assert schema.classes is not None
    return Coded(features, schema.target, schema.classes, np.array(bins, np.uint8), labels, test)


def _encoded(
    feature: Feature, schema: Schema, table: pa.Table, encoding: str, observed: bool
) -> tuple[Feature, NDArray[np.uint16]]:
    column = table[feature.name].combine_chunks()
    if encoding == "schema":
        return feature, encode_column(feature, column)
    if isinstance(feature, CategoricalFeature):
        return Listed(feature.name, feature.values), encode_column(feature, column)
    assert isinstance(feature, NumericFeature)
    numbers = column.to_numpy(zero_copy_only=False).astype(float)
    low, high = (numbers.min(), numbers.max()) if observed else _range(feature)
    cuts = np.linspace(low, high, BINS + 1)
    codes = np.searchsorted(cuts[1:-1], numbers, side="right").astype(np.uint16)
    return Listed(feature.name, tuple(_intervals(cuts))), codes


def _range(feature: NumericFeature) -> tuple[float, float]:
    """The public range that the schema's cut points divide: they start at its low end, and the high end is one step
    beyond the last of them."""
    step = max(b - a for a, b in pairwise(feature.edges))
    return feature.edges[0], feature.edges[-1] + step


def _intervals(cuts: NDArray[np.float64]) -> list[str]:
    ends = [number_text(float(cut)) for cut in cuts]
    return [f"[{a}, {b}{')' if b != ends[-1] else ']'}" for a, b in pairwise(ends)]

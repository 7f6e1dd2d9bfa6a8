"""In which order the values of a category stand: by noisy counts of rows per class and value, shrunk by their known
noise, so that ranks can be compared as numbers are. What follows from the counts is post-processing
(docs/privacy/cells.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from models.features.features import FEW_VALUES, CategoricalFeature, Feature, OrderedFeature
from training.learners.base.checks import check_word
from training.rows.partitions.rows import Rows
from training.session.reach import OnePlace
from training.session.session import Public

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Order = Literal["auto", "none", "found"]
ORDER_SHARE = 0.1  # of the budget, for the counts of all ordered categories together
ORDER_FROM = 20_000.0  # strength from which categories of few values are ordered as well
LEAST_VALUES = 3
EFFECT = 0.5  # logits, the standard deviation of what a value does, before any row is seen
RARE = 0.01  # the share of a class is taken to be at least so far from 0 and 1


@dataclass(frozen=True)
class ClassCounts(OnePlace):
    """Rows per class and value of a category, class 0 first: `values` counts "other" and missing. A row counts once, in
    one place: one more or less moves the counts by 1 in L1, one that is replaced by 2.
    """

    feature: int
    values: int
    purpose: ClassVar[str] = "count rows per class and value of a category"
    norm: ClassVar[str] = "l1"
    one: ClassVar[int] = 1

    @property
    def size(self) -> int:
        """Return how many counts it answers with."""
        return 2 * self.values

    def __call__(self, rows: Rows) -> Integers:
        return rows.class_counts(self.feature).ravel()


def check_order(order: object, public: Public) -> None:
    """Raise InputError where the parameter is none of its words, or asks for what there is not."""
    check_word("order", order, ("auto", "none", "found"))
    if order == "found":
        if len(public.classes or ()) != 2:
            raise InputError("order='found': by counts of two classes; leave it out")
        if not ordered_places(public, 0.0, "found"):
            raise InputError(f"order='found': no category has {LEAST_VALUES} values or more; leave it out")


def ordered_places(public: Public, strength: float, order: Order) -> list[int]:
    """Return the places of the categories that are ordered: all of LEAST_VALUES or more where that is asked for, or the
    `strength` suffices; else, by the public rule, those that have more than FEW_VALUES. None but for two classes.
    """
    if order == "none" or len(public.classes or ()) != 2:
        return []
    least = LEAST_VALUES if order == "found" or strength >= ORDER_FROM else FEW_VALUES + 1
    return [
        at
        for at, feature in enumerate(public.features)
        if isinstance(feature, CategoricalFeature) and len(feature.values) >= least
    ]


def order_categories(
    features: tuple[Feature, ...], places: list[int], counted: Callable[[ClassCounts], Any], noise: float
) -> tuple[Feature, ...]:
    """Return the features with the categories at `places` in the order of their counted classes. `noise`: standard
    deviation of each count.
    """
    found = list(features)
    for at in places:
        feature = found[at]
        assert isinstance(feature, CategoricalFeature)
        counts = np.asarray(counted(ClassCounts(at, feature.bins)), np.float64).reshape(2, feature.bins)
        found[at] = OrderedFeature(feature.name, feature.values, ranks_of(counts[:, :-1], noise))
    return tuple(found)


def ranks_of(counts: Floats, noise: float) -> tuple[int, ...]:
    """Return the rank of each value, (values,), by noisy counts (2, values) per class: by how far its share of class 1
    is from that of all rows, in the mean of what its counts leave possible. Rare values stand in the middle, and where
    nothing is told all stand as declared.
    """
    rows = np.maximum(counts.sum(axis=0), 0)
    total = max(float(counts.sum()), 1.0)
    share = min(max(float(counts[1].sum()) / total, RARE), 1 - RARE)
    beyond = counts[1] - share * counts.sum(axis=0)
    effect = (EFFECT * share * (1 - share)) ** 2
    spread = noise**2 * ((1 - share) ** 2 + share**2) + rows * share * (1 - share)
    shrunk = beyond * rows * effect / (rows**2 * effect + spread + 1e-9)
    order = np.argsort(shrunk, kind="stable")
    ranks = np.empty(order.size, np.int64)
    ranks[order] = np.arange(order.size)
    return tuple(ranks.tolist())

"""What learners with noisy leaves ask of rows, and what they make of the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace, ExponentialSelections, PermuteAndFlips
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import MAX_EPSILON, NANO, Relation, from_nano
from dpserve_verify.privacy.events import MAX_NOISE
from training.learners.base.class_weights import ONE, Balance, words_of
from training.learners.boosting.tree_queries import Cuts
from training.rows.partitions.rows import Rows
from training.rows.statistics.tree_rows import Grown, TreeRows
from training.session.reach import Norm, OnePlace, root_above
from training.session.session import Public

Integers = NDArray[np.int64]
LeafNoise = DiscreteLaplace | DiscreteGaussian


@dataclass(frozen=True)
class ClassWeights(OnePlace):
    """Weight of each class in each leaf of a tree, in units of `one`: (2 leaves,), class 0 and class 1 of leaf after
    leaf. `table`: weight of a row by its margin under `trees`, none above `one`; the row count where it is all ones.

    A row has its weight in one place. Add/remove: `one` in L1 and L2. Replace-one: a row goes from one to another,
    2 `one` in L1 and sqrt(2) `one`, rounded up, in L2.
    """

    cuts: Cuts
    trees: tuple[Grown, ...]
    table: tuple[int, ...] | Integers
    one: int
    norm: Norm
    purpose: str = "weigh the classes in every leaf"

    @property
    def size(self) -> int:
        """Count the answers: two for each leaf."""
        return 2 * (len(self.cuts) + 1)

    def __call__(self, rows: Rows) -> Integers:
        return TreeRows(rows).leaf_sums(self.trees, self.cuts, np.asarray(self.table, np.int64)).ravel()


@dataclass(frozen=True, eq=False)
class LeafResiduals:
    """Weight of class 1 less that of class 0 in each leaf of a tree, in units of `one`, and then rows of each leaf, in
    units of `count`: (2 leaves,). `table`: weight of a row by its margin under `trees`, from 0 to `one`.

    A row adds something in -one..one to one leaf, and `count` to its count. Add/remove: one + count in L1, the root of
    their squares' sum in L2. Replace-one: twice as much in L1, where it changes leaf; in L2 2 one, where it changes its
    class in one leaf, or sqrt(2 one^2 + 2 count^2), which is no more.
    """

    cuts: Cuts
    trees: tuple[Grown, ...]
    table: Integers
    one: int
    norm: Norm
    by_weight: ClassVar[bool] = True
    purpose: ClassVar[str] = "sum residuals and count rows per leaf"

    @property
    def size(self) -> int:
        """Count the answers: two for each leaf."""
        return 2 * (len(self.cuts) + 1)

    @property
    def count(self) -> int:
        """Return what a row counts for, beside its residual of at most `one`."""
        return self.one // 6

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves all answers, in its norm and units of weight."""
        added = relation is Relation.ADD_REMOVE
        if self.norm == "l1":
            return (self.one + self.count) * (1 if added else 2)
        return root_above(self.one**2 + self.count**2) if added else 2 * self.one

    def __call__(self, rows: Rows) -> Integers:
        """Answer; the bound is decided in whole numbers, before a row is looked at."""
        if self.table.min() < 0 or self.table.max() > self.one:
            raise InputError(f"sensitivity={self.one}: a row could weigh {self.table.min()} to {self.table.max()}")
        seen = TreeRows(rows)
        sums = seen.leaf_sums(self.trees, self.cuts, self.table)
        counts = seen.leaf_sums(self.trees, self.cuts, np.full_like(self.table, self.count))
        return np.concatenate([sums[:, 1] - sums[:, 0], counts.sum(axis=1)])


@dataclass(frozen=True)
class LeafLabels(OnePlace):
    """For every leaf, how many rows have class 0 and class 1, times `one`, or less where their class is `weighed`:
    (leaves, 2). One more row raises one number by at most `one`: range `one` under add/remove, 2 `one` under
    replace-one, for all leaves together.
    """

    cuts: Cuts
    weighed: Balance | None = None
    norm: ClassVar[str] = "range"

    @property
    def one(self) -> int:
        """Return the most that a row weighs."""
        return ONE if self.weighed else 1

    @property
    def purpose(self) -> str:
        """Return what a plan says of it, including class weights."""
        return f"select the class of every leaf by its rows{words_of(self.weighed)}"

    @property
    def size(self) -> int:
        """Count the answers: two for each leaf."""
        return 2 * (len(self.cuts) + 1)

    def __call__(self, rows: Rows) -> Integers:
        weights = np.full(1, self.one)
        return TreeRows(rows).leaf_sums((), self.cuts, self.weighed.of_two(weights) if self.weighed else weights)


def check_two_classes(name: str, public: Public) -> None:
    """Raise InputError where the target has not exactly two classes."""
    if public.classes is None or len(public.classes) != 2:
        raise InputError(f"learner {name}: {public.target!r} needs exactly two classes")


def norm_of(public: Public) -> Norm:
    """Return the norm of sums: L1 where delta is 0 (Laplace noise), else L2 (Gaussian)."""
    return "l1" if public.pure else "l2"


def leaf_noise(public: Public, epsilon: float) -> LeafNoise:
    """Return the noise for class weights. Where delta is 0, Laplace at `epsilon`; else Gaussian of the same Renyi curve
    as a selection of bounded range `epsilon` has at most: epsilon^2 / 8 = 1 / (2 sigma^2).
    """
    if public.pure:
        return DiscreteLaplace(stated_epsilon(epsilon))
    return DiscreteGaussian(min(from_nano(-int(-2 / epsilon * NANO // 1)), MAX_NOISE))


def stated_epsilon(epsilon: float | Decimal) -> Decimal:
    """Return epsilon as an event may state it: whole nano-units, rounded down, at least one, at most MAX_EPSILON."""
    return min(MAX_EPSILON, from_nano(max(1, int(Decimal(epsilon) * NANO))))


def per_row(public: Public, epsilon: Decimal) -> ExponentialSelections | PermuteAndFlips:
    """Return a private selection in every row of scores at once, at `epsilon` for all of them together."""
    return PermuteAndFlips(epsilon) if public.pure else ExponentialSelections(epsilon)


def per_leaf(picks: Any, cuts: Cuts) -> list[int]:
    """Return one answer for each of the leaves that `cuts` make: a rehearsal gives one blank for all of them."""
    leaves = len(cuts) + 1
    return [picks] * leaves if isinstance(picks, int) else [int(pick) for pick in np.broadcast_to(picks, leaves)]


def shares(noisy: Integers | Sequence[int], one: int, smoothing: float, towards: float = 0.5) -> list[float]:
    """Return class 1's share in every leaf, from noisy class weights: (b + 2 s p) / (a + b + 2 s), where p is the share
    that it is smoothed `towards`; negative weights count 0."""
    sums = np.maximum(np.asarray(noisy, np.float64).reshape(-1, 2) / one, 0.0)
    return [float((b + 2 * smoothing * towards) / (a + b + 2 * smoothing)) for a, b in sums]

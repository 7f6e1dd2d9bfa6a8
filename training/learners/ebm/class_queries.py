"""What `ebm` asks of rows where there are three classes or more, in whole numbers, and how far one row moves the
answers (docs/privacy/ebm.md, "Three classes or more").

What is left to explain of a row is a vector, a number for each class: 1 in its own, less the chances. Every row adds
one such vector to one leaf of a feature, no longer than GRID by a public scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isqrt, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.errors import PlanMismatch
from dpserve_verify.privacy.budget import Relation
from training.learners.base.class_weights import ONE, Balance, words_of
from training.learners.ebm.queries import GRID, SCORES
from training.rows.partitions.rows import Rows
from training.rows.statistics.additive_rows import Joint
from training.rows.statistics.softmax_rows import Softmax, SoftmaxRows
from training.session.reach import Norm, reach

Integers = NDArray[np.int64]
CHANCE = 1 << 20  # steps of a chance in a row's residual
SHIFT, TAIL = 2, 17  # scores are rounded to 2^SHIFT before they are exponents, and chances are 0 so many logits below
FARTHEST = 4  # logits: what a row says of the slope is clipped to it


@lru_cache(maxsize=1)
def exponentials() -> NDArray[np.int32]:
    """Return exp(-d) by d / 2^SHIFT in 2^-24, d in scores."""
    steps = np.arange(TAIL * SCORES >> SHIFT)
    return np.asarray((1 << 24) * np.exp(-steps * (1 << SHIFT) / SCORES), np.int32)


def softmax_of(constant: Integers) -> Softmax:
    """Return how scores with this constant become chances."""
    return Softmax(constant, exponentials(), SHIFT, SCORES.bit_length() - 1)


@dataclass(frozen=True, eq=False)
class ClassVectors:
    """What is left to explain: for each class [it is the row's] - p, p the softmax of scores that are known to lie in
    lows..highs (`constant` included). No longer than `clip` times what any could be, sqrt(2) in L2 and 2 in L1; then
    times what a row's class is `weighed`, at most 1.
    """

    constant: Integers
    lows: Integers
    highs: Integers
    clip: float
    relation: Relation
    norm: Norm
    weighed: Balance | None = None

    @property
    def words(self) -> str:
        """Return what a plan says of class weights."""
        return words_of(self.weighed)

    @cached_property
    def length(self) -> int:
        """Return the length beyond which a row's numbers are shortened, in steps of a chance: the clip, or what public
        bounds of the scores allow, if that is less. Were it too small, rows would be shortened more: no row's numbers
        are ever longer.
        """
        least, most = _bounds(self.lows), _bounds(self.highs)
        others = most.sum() - most
        left = others / (least + others)  # of a row of each class at most, which is 1 - p of its class
        far = most / (most + least.sum() - least)  # the largest chance of each class
        if self.norm == "l1":
            whole, limit = 2 * left.max(), 2.0
        else:
            whole, limit = float(np.sqrt(left**2 + left * np.minimum(left, far.max())).max()), sqrt(2)
        return max(1, int(CHANCE * min(self.clip * limit, whole)) + 1)

    @property
    def longest(self) -> int:
        """Return the length that no row's numbers exceed, in grid steps: a row replaced is one taken away and one
        added, which may point the other way.
        """
        return GRID if self.relation is Relation.ADD_REMOVE else GRID // 2

    @cached_property
    def worth(self) -> float:
        """Return the worth of one grid step of a sum, in logits."""
        return self.length / CHANCE / self.longest

    @property
    def most(self) -> Integers:
        """Return the length that a row of each class does not exceed, in grid steps."""
        count = self.constant.size
        weights = [pair[1] for pair in self.weighed.pairs] if self.weighed else [ONE] * count
        return np.array([self.longest * weight // ONE for weight in weights], np.int64)

    def check(self) -> None:
        """Raise PlanMismatch if a row could move sums over leaves by more than GRID, in whole numbers: any two rows'
        vectors, in one leaf or in two, are as far apart as both are long at most.
        """
        moved = int(self.most.max()) * (1 if self.relation is Relation.ADD_REMOVE else 2)
        if moved > GRID:
            raise PlanMismatch(f"sensitivity={GRID}: a row could move these sums by {moved}")


def _bounds(scores: Integers) -> NDArray[np.float64]:
    """Return exp(scores), on one scale for bounds that are compared."""
    return np.asarray(np.exp(np.clip(scores / SCORES, -300.0, 300.0)))


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Sums of these vectors over the leaves of a public partition of a feature's bins, leaf by leaf; `leaves`: (bins,),
    the leaf of each. `terms`: the released ones, (bins, classes) each, without the constant. Behind the features stand
    the `joints`, whose bins are cells.
    """

    vectors: ClassVectors
    terms: tuple[Integers, ...]
    feature: int
    leaves: Integers
    joints: tuple[Joint, ...] = ()

    @property
    def norm(self) -> Norm:
        """Return the norm that the vectors are held to."""
        return self.vectors.norm

    @property
    def purpose(self) -> str:
        """Return what a plan says of it."""
        return f"sum residuals per leaf and class{self.vectors.words}"

    @property
    def size(self) -> int:
        """Count the answers: one for each leaf and class."""
        return (int(self.leaves.max()) + 1) * self.vectors.constant.size

    def sensitivity(self, relation: Relation) -> int:
        """Return GRID, the scale to which `__call__` holds the vectors. PlanMismatch for another relation."""
        if relation is not self.vectors.relation:
            raise PlanMismatch(f"relation={relation}: the residuals were scaled for {self.vectors.relation}")
        return GRID

    def __call__(self, rows: Rows) -> Integers:
        """Answer; the bound is decided in whole numbers, before a row is looked at."""
        vectors = self.vectors
        vectors.check()
        seen, softmax = SoftmaxRows(rows, self.terms, self.joints), softmax_of(vectors.constant)
        taxicab = self.norm == "l1"
        return seen.sums(self.feature, self.leaves, softmax, vectors.length, vectors.most, taxicab).ravel()


@dataclass(frozen=True, eq=False)
class ClassPairScores:
    """How much two features together leave to explain, of each of the `joints`, in grid steps: the lengths of the sums
    of vectors over its cells, added up, less those over its rows or its columns, whichever are more.

    A row moves one such score by twice the length of its vector at most, and by two steps, for lengths are rounded
    down; one that is replaced by twice that; and all of them at once, together by as much times their number in L1,
    times its root in L2.
    """

    vectors: ClassVectors
    terms: tuple[Integers, ...]
    joints: tuple[Joint, ...]
    most: ClassVar[int] = 2 * GRID + 4

    @property
    def norm(self) -> Norm:
        """Return the norm of the noise."""
        return self.vectors.norm

    @property
    def purpose(self) -> str:
        """Return what a plan says of it."""
        return f"score pairs of features{self.vectors.words}"

    @property
    def size(self) -> int:
        """Count the answers: one for each pair."""
        return len(self.joints)

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves all scores, in their norm and grid steps, rounded up."""
        if relation is not self.vectors.relation:
            raise PlanMismatch(f"relation={relation}: the residuals were scaled for {self.vectors.relation}")
        return reach(self.most, 0, Relation.ADD_REMOVE, self.norm, self.size)

    def __call__(self, rows: Rows) -> Integers:
        """Answer; the bound is decided in whole numbers, before a row is looked at."""
        vectors = self.vectors
        vectors.check()
        seen, softmax = SoftmaxRows(rows, self.terms), softmax_of(vectors.constant)
        found = seen.cells(self.joints, softmax, vectors.length, vectors.most, self.norm == "l1")
        tables = (sums[: joint.cells].reshape(*joint.shape, -1) for joint, sums in zip(self.joints, found, strict=True))
        return np.array([together(table) for table in tables], np.int64)


@dataclass(frozen=True, eq=False)
class ClassPairSums:
    """Sums of vectors over the cells of each of the `joints`, cell by cell, one pair after the other: as `PairSums` of
    two classes.
    """

    vectors: ClassVectors
    terms: tuple[Integers, ...]
    joints: tuple[Joint, ...]

    @property
    def norm(self) -> Norm:
        """Return the norm that the vectors are held to."""
        return self.vectors.norm

    @property
    def purpose(self) -> str:
        """Return what a plan says of it."""
        return f"sum residuals per cell of pairs and class{self.vectors.words}"

    @property
    def size(self) -> int:
        """Count the answers: one for each cell and class."""
        return sum(joint.cells for joint in self.joints) * self.vectors.constant.size

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves all sums, in their norm and grid steps, rounded up."""
        if relation is not self.vectors.relation:
            raise PlanMismatch(f"relation={relation}: the residuals were scaled for {self.vectors.relation}")
        return reach(GRID, 0, Relation.ADD_REMOVE, self.norm, len(self.joints))

    def __call__(self, rows: Rows) -> Integers:
        """Answer; the bound is decided in whole numbers, before a row is looked at."""
        vectors = self.vectors
        vectors.check()
        seen, softmax = SoftmaxRows(rows, self.terms), softmax_of(vectors.constant)
        found = seen.cells(self.joints, softmax, vectors.length, vectors.most, self.norm == "l1")
        return np.concatenate([sums[: joint.cells].ravel() for joint, sums in zip(self.joints, found, strict=True)])


def together(table: Integers) -> int:
    """Sum the lengths of a table's vectors, (rows, columns, classes), less those of its rows' or of its columns' sums,
    whichever are more.
    """
    return lengths(table) - max(lengths(table.sum(axis=side)) for side in (0, 1))


def lengths(vectors: Integers) -> int:
    """Sum the lengths in L2 of the vectors along the last axis, each rounded down, in whole numbers."""
    return sum(isqrt(sum(part * part for part in vector)) for vector in vectors.reshape(-1, vectors.shape[-1]).tolist())


@dataclass(frozen=True, eq=False)
class SlopeSums:
    """How the log likelihood rises with the slope of the scores, and how that bends: two sums over rows, whose parts
    are a rise in -FARTHEST..FARTHEST logits and a variance in 0..FARTHEST, at most `part` grid steps each.
    """

    constant: Integers
    terms: tuple[Integers, ...]
    joints: tuple[Joint, ...]
    norm: Norm
    relation: Relation
    purpose: ClassVar[str] = "sum how chances follow the slope of scores"
    size: ClassVar[int] = 2

    @property
    def part(self) -> int:
        """Return the largest part of a row, in grid steps: rises of two rows may be twice as far apart, variances not,
        so together they move by 2 or 3 parts in L1, and by sqrt(2) or sqrt(5) in L2.
        """
        across, bend = (1 if self.relation is Relation.ADD_REMOVE else 2), 1
        if self.norm == "l1":
            return GRID // (across + bend)
        return isqrt(GRID**2 // (across**2 + bend**2))

    @property
    def worth(self) -> float:
        """Return the worth of one grid step, in logits of a row."""
        return FARTHEST / self.part

    def sensitivity(self, relation: Relation) -> int:
        """Return GRID, which `part` keeps to. PlanMismatch for another relation."""
        if relation is not self.relation:
            raise PlanMismatch(f"relation={relation}: the parts were scaled for {self.relation}")
        return GRID

    def __call__(self, rows: Rows) -> Integers:
        return SoftmaxRows(rows, self.terms, self.joints).slopes(softmax_of(self.constant), FARTHEST, self.part)


def class_balance(shares: tuple[float, ...], power: float) -> Balance | None:
    """Return what rows of each of three classes or more weigh by the declared shares: the rarest 1, others less, so
    that classes are alike as far as `power` says. None where all weigh the same.
    """
    weights = [max(1, round(float((min(shares) / share) ** power) * ONE)) for share in shares] if power else []
    if all(weight == ONE for weight in weights):
        return None
    logs = [power * np.log(share) for share in shares]
    offsets = tuple(float(each - np.mean(logs)) for each in logs)
    return Balance(tuple((weight, weight) for weight in weights), offsets, power)

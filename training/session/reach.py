"""How far one row moves sums over cells (docs/privacy/ebm.md, theorem 1): histograms, residuals, class weights.

Law. A row adds something in -down..up to one cell of each of `groups`. A row more or less moves each group by at most
the larger of both. A row replaced moves one cell by up + down, or two cells by the larger each: 2 in L1, sqrt 2 in L2.
Rows with weights (docs/privacy/rows.md): a row adds its part of that, so it reaches no further, counted in PARTS.
"""

from __future__ import annotations

from math import isqrt
from typing import ClassVar, Literal, Protocol

from dpserve_verify.privacy.budget import Relation

Norm = Literal["l1", "l2"]


def reach(up: int, down: int, relation: Relation, norm: str, groups: int = 1) -> int:
    """Return how far one row moves all sums, in the norm, rounded up. Any norm but "l2", "range" too, counts as "l1":
    none is longer.
    """
    most, is_replaced = max(up, down), relation is Relation.REPLACE_ONE
    if norm != "l2":
        return groups * most * (2 if is_replaced else 1)
    return root_above(groups * (max((up + down) ** 2, 2 * most**2) if is_replaced else most**2))


def root_above(square: int) -> int:
    """Return the root of a whole number, rounded up."""
    root = isqrt(square)
    return root + (root * root < square)


class _Counts(Protocol):
    @property
    def norm(self) -> str: ...

    @property
    def one(self) -> int: ...


class OnePlace:
    """A query of counts: a row counts in one place, by at most `one`; of rows with weights, by its part of that."""

    by_weight: ClassVar[bool] = True

    def sensitivity(self: _Counts, relation: Relation) -> int:
        """Return how far one row moves all counts, in its norm, in the units that `one` is in."""
        return reach(self.one, 0, relation, self.norm)

"""How far one row moves sums over disjoint leaves (docs/privacy/ebm.md, theorem 1): for histograms, residuals and class
weights alike.
"""

from __future__ import annotations

from math import isqrt
from typing import Literal

from dpserve_verify.privacy.budget import Relation

Norm = Literal["l1", "l2"]


def reach(up: int, down: int, relation: Relation, norm: Norm) -> int:
    """Return how far sums over disjoint leaves move, rounded up, where a row adds something in -down..up to one of
    them.

    A row more or less: the larger of both. A row replaced: up + down within one leaf; between two leaves each moves by
    its own, which is twice the larger in L1 and sqrt 2 times it in L2.
    """
    most = max(up, down)
    if relation is Relation.ADD_REMOVE:
        return most
    return 2 * most if norm == "l1" else max(up + down, isqrt(2 * most * most - 1) + 1 if most else 0)

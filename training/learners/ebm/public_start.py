"""The choice whether boosting begins from a public score or from nothing: what it asks of rows, how far one row moves
the answer, and what follows from it (docs/privacy/ebm.md, "A public start").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import isqrt
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from accountant.errors import PlanMismatch
from dpserve_verify.privacy.budget import Relation
from training.learners.ebm.defaults import LESS_TOLD, strength
from training.learners.ebm.noise import Noise
from training.learners.ebm.residuals import CHANCE, CLIP, GRID, SCORES
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.rows.statistics.additive_rows import AdditiveRows
from training.rows.statistics.residuals import ClassAgreement, LeafSums, NumberAgreement, TableResiduals
from training.session.reach import Norm
from training.session.session import Public, Releaser, Start

FARTHEST = 7.0  # logits: a public start's constant is at most so far from 0
CLIPPED = 0.5  # logits: what a row says of a start is clipped to it
GAIN = 0.1  # of that, what rows say of a start which is worth it, in the mean
SPREAD = 0.5  # standard deviation of it, from row to row
TRUST = 1.5  # logits: how likely a start is thought to be worth it
PLAIN = 50.0  # strength from which on steps are as large as without a start: below, noise adds more than is left
OFF_LOGITS, OFF_RANGES = 1.0, 0.1  # how far a start's constant is thought to be off, in logits and in half ranges
MOST_MOVED = 2.0  # that it is moved by
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StartSum(ABC):
    """How far rows go along with a public start: the sum of what is left to explain by its constant alone, times what
    the start adds to that, each product clipped to -1..1. A start that says nothing of them has 0, however far its
    constant is off. `terms`, `constant`: the start, in scores.
    """

    terms: tuple[Integers, ...]
    constant: Any
    norm: Norm
    relation: Relation
    by_weight: ClassVar[bool] = True
    purpose: ClassVar[str] = "compare the public start with none"
    size: ClassVar[int] = 1

    @property
    def most(self) -> int:
        """Return what a row adds at most, in grid steps: a row replaced moves the sum by twice as much."""
        return GRID if self.relation is Relation.ADD_REMOVE else GRID // 2

    def sensitivity(self, relation: Relation) -> int:
        """Return how far one row moves the sum, in either norm. PlanMismatch for another relation."""
        if relation is not self.relation:
            raise PlanMismatch(f"relation={relation}: the parts were scaled for {self.relation}")
        return GRID

    @abstractmethod
    def __call__(self, rows: Rows) -> Integers: ...


class ChanceSum(StartSum):
    """Two classes, from a table by class and score."""

    def __call__(self, rows: Rows) -> Integers:
        low = max(sum(int(term.min()) for term in self.terms), -CLIP)
        high = max(low, min(sum(int(term.max()) for term in self.terms), CLIP))
        chance = 1 / (1 + np.exp(-self.constant / SCORES))
        products = np.array([[-chance], [1 - chance]]) * np.arange(low, high + 1) / (CLIPPED * SCORES)
        table = np.trunc(np.clip(products, -1, 1) * self.most).astype(np.int32)
        whole = np.zeros(self.terms[0].size, np.int64)
        return AdditiveRows(rows, self.terms).ask(LeafSums(TableResiduals(table, low), 0, whole))


class ClassSum(StartSum):
    """Three classes or more: the products of all classes together."""

    def __call__(self, rows: Rows) -> Integers:
        chances = np.exp((self.constant - self.constant.max()) / SCORES)
        parts = np.rint(chances / chances.sum() * CHANCE).astype(np.int64)
        return AdditiveRows(rows, self.terms).ask(ClassAgreement(parts, round(CLIPPED * SCORES) * CHANCE, self.most))


class NumberSum(StartSum):
    """A number: what is left is clipped to half of what independent terms of such ranges vary by at most, and what the
    start adds to half of that.
    """

    def __call__(self, rows: Rows) -> Integers:
        far = min(isqrt(sum(int(np.ptp(term)) ** 2 for term in self.terms)) // 4, TARGET_GRID) + 2
        return AdditiveRows(rows, self.terms).ask(NumberAgreement(self.constant, far, far // 2, self.most))


def in_scores(start: Start, grid: int, limit: int) -> tuple[list[Integers], Integers]:
    """Return a start's terms, (bins, outputs) each, and its constant, (outputs,), in 1 / `grid`, no term over
    `limit`.
    """
    terms = [np.rint(np.array(term) * grid).astype(np.int64) for term in start.terms]
    constant = np.clip(np.rint(np.array(start.constant) * grid), -FARTHEST * grid, FARTHEST * grid)
    return [np.clip(term, -limit, limit) for term in terms], constant.astype(np.int64)


class Beginner(Protocol):
    """A model before its first round."""

    public: Public
    noise: Noise

    def begin(self, start: Start) -> StartSum:
        """Begin from a public score. Return what asks how far rows go along with it."""

    def leave(self) -> None:
        """Begin from the start's constant alone."""


def choose(session: Releaser, model: Beginner, start: Start) -> None:
    """Begin from a start, and leave all but its constant where it is less likely, by what rows say with noise, to
    be worth it than to say nothing of them.
    """
    query, public = model.begin(start), model.public
    answer = float(session.release(query, model.noise.choosing)[0]) / query.most
    noise = model.noise.choosing.event.deviation * public.widening * public.contributions * GRID / query.most
    hoped, variance = GAIN * public.records, noise**2 + SPREAD**2 * public.records
    if answer < hoped / 2 - TRUST * variance / hoped:
        model.leave()


def caution(public: Public) -> float:
    """Return what steps from a start are times."""
    plain = PLAIN * (1.0 if len(public.classes or ()) == 2 else LESS_TOLD)
    return min(1.0, (strength(public) / plain) ** 2)


def moved_by(sums: Any, curved: Any, noise: float, off: float) -> Any:
    """Return how far a start's constant moves: one Newton step by what is left to explain over all rows, weighed by
    what the noise does to it.
    """
    weight = 1 / (1 + (noise / (np.maximum(curved, 1e-9) * off)) ** 2)
    return np.clip(weight * sums / np.maximum(curved, 1e-9), -MOST_MOVED, MOST_MOVED)

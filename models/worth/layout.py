"""The cells of an evaluation's histogram: what is counted of a record, its true answer and what the model says of it.

Two classes: the true class and one of `bins` public bins of the probability, fewer where noise would drown many. More:
the true class and the one that is answered. A number: a bin of the error, and, counted again, a bin of the true value.
All of it is public before a row is read, and follows from what the model answers and from the numbers of the plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.parts.answers import Bends, ClassLabel, Range, Scores, probabilities_of

BINS = 32  # of the probability, an even number: a half, where the answer changes, is between two
FEWER_BINS = ((100.0, 8), (600.0, 16))  # below this strength, so many: docs/privacy/counts.md
BIN_CHOICES = (*(bins for _, bins in FEWER_BINS), BINS)
ERROR_STEPS = 20  # of the size of an error: each bin is 1 / sqrt 2 of the next, the last one ends at the range's width
VALUE_BINS = 16
Floats = NDArray[np.float64]


def choose_bins(strength: float) -> int:
    """Return how many bins of the probability are counted, from public numbers alone. `strength`: records times
    epsilon, over the records of one unit and over the groups that each have noise of their own.
    """
    return next((bins for below, bins in FEWER_BINS if strength < below), BINS)


@dataclass(frozen=True)
class Layout:
    """Of a model with these classes (none: a number of `target_range`), whose scores mean what `link` says. `bins`: of
    the probability, one of BIN_CHOICES.
    """

    classes: tuple[ClassLabel, ...]
    link: float
    target_range: Range | None = None
    bends: Bends = ()
    bins: int = BINS

    @property
    def kind(self) -> str:
        """Return what is answered: binary, classes or number."""
        return "number" if self.target_range else "binary" if len(self.classes) == 2 else "classes"

    @property
    def shape(self) -> tuple[int, int]:
        """Return rows and columns of the histogram; for a number two rows, errors and values, both as long as the
        longer one.
        """
        if self.kind == "number":
            return 2, 2 * (ERROR_STEPS + 1)
        return len(self.classes), self.bins if self.kind == "binary" else len(self.classes)

    @property
    def size(self) -> int:
        """Count the cells."""
        return self.shape[0] * self.shape[1]

    @property
    def cells_per_record(self) -> int:
        """Count the cells that one record moves, each by one."""
        return 2 if self.kind == "number" else 1

    @cached_property
    def edges(self) -> Floats:
        """Return the edges between the bins of the probability: closer near 0 and 1, where it says more."""
        inner: Floats = np.sin(np.linspace(0, pi / 2, self.bins + 1)[1:-1]) ** 2
        inner[self.bins // 2 - 1] = 0.5
        return inner

    @cached_property
    def middles(self) -> Floats:
        """Return the probability that each bin stands for."""
        ends = np.concatenate([[0.0], self.edges, [1.0]])
        return np.asarray((ends[1:] + ends[:-1]) / 2, np.float64)

    @cached_property
    def error_ends(self) -> Floats:
        """Return the ends of the bins of the error, (2 ERROR_STEPS + 3,), in widths of the range, from -1 to 1."""
        sizes = np.concatenate([[0.0], 2.0 ** (-np.arange(ERROR_STEPS, -1, -1) / 2)])
        return np.concatenate([-sizes[:0:-1], sizes])

    def answers_of(self, scores: Scores) -> NDArray[Any]:
        """Return what the model answers with these scores (n, outputs): class indices, or a number's place in its
        range.
        """
        if self.target_range is not None:
            low, high = self.target_range
            return np.asarray(np.clip(self.link * scores[:, 0] / (high - low) + 0.5, 0.0, 1.0))
        return np.asarray(scores.argmax(axis=1) if len(self.classes) > 2 else scores[:, 0] > 0, np.intp)

    def cells(self, scores: Scores, answers: NDArray[Any]) -> NDArray[np.intp]:
        """Return in which cells (cells_per_record, n) records with these scores (n, outputs) and true answers are
        counted. `answers`: class indices, or a number's place in its range, from 0 to 1.
        """
        if self.kind == "number":
            error = np.searchsorted(self.error_ends[1:-1], self.answers_of(scores) - answers, side="left")
            value = np.minimum((answers * VALUE_BINS).astype(np.intp), VALUE_BINS - 1)
            return np.stack([error, self.shape[1] + value])
        if self.kind == "binary":
            chance = probabilities_of(scores, self.link, self.bends)[:, 1]
            column = np.searchsorted(self.edges, chance, side="left")
            positive = self.answers_of(scores) == 1  # what is answered is told by the score itself
            half = self.bins // 2
            column = np.where(positive, np.maximum(column, half), np.minimum(column, half - 1))
        else:
            column = self.answers_of(scores)
        return np.asarray(answers.astype(np.intp) * self.shape[1] + column)[None]

    def table(self, counts: Sequence[float]) -> NDArray[np.float64]:
        """Return the released counts in the shape of the histogram."""
        return np.array(counts, np.float64).reshape(self.shape)


class AboutLayout(ABC):
    """A layout about that of a model, `own`: it counts something else of the same answers."""

    own: Any

    @property
    def link(self) -> float:
        """Return the link of the model."""
        return float(self.own.link)

    @property
    def target_range(self) -> Range | None:
        """Return the range of a number; None of classes."""
        ends: Range | None = self.own.target_range
        return ends

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Return rows and columns."""

    @property
    def size(self) -> int:
        """Count the cells."""
        return self.shape[0] * self.shape[1]

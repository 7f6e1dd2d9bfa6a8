"""Three or more classes, with what the scores say: the confusion matrix, each class against the rest by its
probability, and the log loss, in one release.

Each record is counted in PARTS parts: K times as many in its cell of the confusion matrix, PARTS in a cell of each of
the K classes' histograms, and K times as many shared out between the two public steps beside its log loss, so that its
mean stays: no bin's width moves it. Three times K PARTS in all, whatever the record is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.parts.answers import Scores, probabilities_of
from models.worth.intervals import Interval, Noise, auroc, ratio
from models.worth.layout import BINS, Layout
from models.worth.metrics import Metric, metrics, scaled
from models.worth.paired import shared

Floats = NDArray[np.float64]
PARTS = 64
MOST_LOSS = float(np.log(1024))  # a probability below 1 in 1,024 counts as that
STEPS = np.concatenate([[0.0], 2.0 ** (np.arange(-12, 1) / 2)])  # of the loss, in MOST_LOSS


@dataclass(frozen=True)
class ScoredLayout:
    """Of a model of three or more classes."""

    own: Layout

    @property
    def kind(self) -> str:
        """classes-scores."""
        return "classes-scores"

    @property
    def link(self) -> float:
        """Of the model."""
        return self.own.link

    @property
    def shape(self) -> tuple[int, int]:
        """One row: the confusion matrix, then for each class (others, itself) by bin, then the steps of the loss."""
        classes = len(self.own.classes)
        return 1, self.own.size + 2 * BINS * classes + len(STEPS)

    @property
    def size(self) -> int:
        """How many cells."""
        return self.shape[1]

    @property
    def counted(self) -> int:
        """What one record adds to all cells together."""
        return 3 * PARTS * len(self.own.classes)

    def count(self, scores: Scores, answers: NDArray[Any]) -> NDArray[np.int64]:
        """(size,) counts of records with these scores (n, K) and class indices."""
        classes, parts = len(self.own.classes), PARTS * len(self.own.classes)
        matrix = np.bincount(self.own.cells(scores, answers).ravel(), minlength=self.own.size)
        chance = probabilities_of(scores, self.link)
        edges = Layout(("others", "itself"), self.link).edges
        column = np.searchsorted(edges, chance, side="left")  # (n, K)
        cells = (np.arange(classes) * 2 + (answers[:, None] == np.arange(classes))) * BINS + column
        ranks = np.bincount(cells.ravel(), minlength=2 * BINS * classes)
        true = np.take_along_axis(chance, answers.astype(np.intp)[:, None], axis=1)[:, 0]
        loss = np.minimum(-np.log(np.maximum(true, 1 / 1024)) / MOST_LOSS, 1.0)
        return np.concatenate([parts * matrix, PARTS * ranks, shared(loss, STEPS, parts)]).astype(np.int64)


def scored_metrics(layout: ScoredLayout, counts: Sequence[int], noise: Noise) -> list[Metric]:
    """Of released counts (layout.size,): all that the confusion matrix says, then what the scores say."""
    given, own = np.array(counts, np.float64), layout.own
    if len(given) != layout.size:
        raise ValueError("counts")
    parts, start = PARTS * len(own.classes), own.size
    by_record = replace(noise, variance=noise.variance / parts**2)
    found = metrics(own, [*(given[:start] / parts)], by_record)
    return [*found[:-1], *_of_scores(layout, given[start:], noise, by_record), found[-1]]


def _of_scores(layout: ScoredLayout, given: Floats, noise: Noise, by_record: Noise) -> Iterator[Metric]:
    """`auroc` alone is the mean over classes; its interval is the mean of theirs, as wide as if all erred together."""
    classes = layout.own.classes
    tables = given[: -len(STEPS)].reshape(len(classes), 2, BINS) / PARTS
    own = replace(noise, variance=noise.variance / PARTS**2)
    ends = [auroc(table, own) for table in tables]
    values = [each.value for each in ends if each.value is not None]
    mean = float(np.mean(values)) if len(values) == len(ends) else None
    low, high = (float(np.mean([getattr(each, end) for each in ends])) for end in ("low", "high"))
    yield Metric("auroc", Interval(mean, low, high))
    for found, label in zip(ends, classes, strict=True):
        yield Metric("auroc", found, label)
    losses = given[-len(STEPS) :] / (PARTS * len(classes))
    yield Metric("log_loss", scaled(ratio(losses, STEPS, np.ones(len(STEPS)), by_record), MOST_LOSS))

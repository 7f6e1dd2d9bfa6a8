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
from models.worth.layout import AboutLayout, Layout
from models.worth.metrics import Metric, metrics, scale_interval
from models.worth.paired import share_between_steps

Floats = NDArray[np.float64]
PARTS = 64
MOST_LOSS = float(np.log(1024))  # a probability below 1 in 1,024 counts as that
STEPS = np.concatenate([[0.0], 2.0 ** (np.arange(-12, 1) / 2)])  # of the loss, in MOST_LOSS


@dataclass(frozen=True)
class ScoredLayout(AboutLayout):
    """Of a model of three or more classes, whose probabilities are counted in `own.bins` bins."""

    own: Layout

    @property
    def kind(self) -> str:
        """Return classes-scores."""
        return "classes-scores"

    @property
    def shape(self) -> tuple[int, int]:
        """Return one row: the confusion matrix, then for each class (others, itself) by bin, then the steps of the
        loss.
        """
        classes = len(self.own.classes)
        return 1, self.own.size + 2 * self.own.bins * classes + len(STEPS)

    @property
    def cells_per_record(self) -> int:
        """Return what one record adds to all cells together."""
        return 3 * PARTS * len(self.own.classes)

    def count(self, scores: Scores, answers: NDArray[Any]) -> NDArray[np.int64]:
        """Return counts (size,) of records with these scores (n, K) and class indices."""
        classes, parts = len(self.own.classes), PARTS * len(self.own.classes)
        matrix = np.bincount(self.own.cells(scores, answers).ravel(), minlength=self.own.size)
        chance = probabilities_of(scores, self.link)
        edges, bins = self.own.edges, self.own.bins
        column = np.searchsorted(edges, chance, side="left")  # (n, K)
        cells = (np.arange(classes) * 2 + (answers[:, None] == np.arange(classes))) * bins + column
        ranks = np.bincount(cells.ravel(), minlength=2 * bins * classes)
        true = np.take_along_axis(chance, answers.astype(np.intp)[:, None], axis=1)[:, 0]
        loss = np.minimum(-np.log(np.maximum(true, 1 / 1024)) / MOST_LOSS, 1.0)
        return np.concatenate([parts * matrix, PARTS * ranks, share_between_steps(loss, STEPS, parts)]).astype(np.int64)


def scored_metrics(layout: ScoredLayout, counts: Sequence[float], noise: Noise) -> list[Metric]:
    """Compute the metrics of released counts (layout.size,): all that the confusion matrix says, then what the scores
    say.
    """
    noisy, confusion = np.array(counts, np.float64), layout.own
    if len(noisy) != layout.size:
        raise ValueError("counts")
    parts, start = PARTS * len(confusion.classes), confusion.size
    by_record = replace(noise, variance=noise.variance / parts**2)
    figures = metrics(confusion, [*(noisy[:start] / parts)], by_record)
    return [*figures[:-1], *_of_scores(layout, noisy[start:], noise, by_record), figures[-1]]


def _of_scores(layout: ScoredLayout, noisy: Floats, noise: Noise, by_record: Noise) -> Iterator[Metric]:
    """Yield AUROC and log loss. `auroc` without a class is the mean over classes; its interval is the mean of theirs,
    as wide as if all erred together.
    """
    classes = layout.own.classes
    tables = noisy[: -len(STEPS)].reshape(len(classes), 2, layout.own.bins) / PARTS
    noise_of_parts = replace(noise, variance=noise.variance / PARTS**2)
    ends = [auroc(table, noise_of_parts) for table in tables]
    values = [interval.value for interval in ends if interval.value is not None]
    mean = float(np.mean(values)) if len(values) == len(ends) else None
    low, high = (float(np.mean([getattr(interval, end) for interval in ends])) for end in ("low", "high"))
    yield Metric("auroc", Interval(mean, low, high, all(interval.is_whole for interval in ends)))
    for interval_of_class, label in zip(ends, classes, strict=True):
        yield Metric("auroc", interval_of_class, label)
    losses = noisy[-len(STEPS) :] / (PARTS * len(classes))
    yield Metric("log_loss", scale_interval(ratio(losses, STEPS, np.ones(len(STEPS)), by_record), MOST_LOSS))

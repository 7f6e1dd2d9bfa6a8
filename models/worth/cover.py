"""Sets of classes, and intervals of a number, that hold the truth as often as was asked: split conformal prediction
from noisy counts. docs/privacy/counts.md has the proof.

A record's score says how far the model is from the truth: 1 less the chance of the true class, or the error's size in
widths of the range. It is counted PARTS times in one of the public bins of the score, and once in a cell of its own, so
that how many records there are is told by other noise than the bins. An answer holds all that scores no more than the
first bin at which the noisy counts reach the level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.parts.answers import Scores, probabilities_of
from models.worth.intervals import Interval, Noise
from models.worth.layout import AboutLayout, Layout
from models.worth.metrics import Metric

Floats = NDArray[np.float64]
PARTS = 6
FEWER_COVER_BINS = ((1000.0, 64), (2000.0, 128))  # below this strength, so many
COVER_BINS = (*(bins for _, bins in FEWER_COVER_BINS), 256)
OCTAVES = 8  # of the size of an error: the first bin ends at 1 / 256 of the range's width
LEVELS = (0.8, 0.9, 0.95)  # that a statement tells; any other follows from the same counts
ENOUGH = 3.0  # standard deviations of the noise in all counts that the records beyond the level must come to


def choose_cover_bins(strength: float) -> int:
    """Return how many bins of the score are counted; `strength` as `models.worth.layout.choose_bins` has it."""
    return next((bins for below, bins in FEWER_COVER_BINS if strength < below), COVER_BINS[-1])


@dataclass(frozen=True)
class CoverLayout(AboutLayout):
    """Of a model whose scores of records are counted in `own.bins` public bins, one of COVER_BINS."""

    own: Layout

    @property
    def kind(self) -> str:
        """Return cover-number or cover-classes."""
        return "cover-number" if self.own.target_range else "cover-classes"

    @property
    def shape(self) -> tuple[int, int]:
        """Return one row: the bins of the score, then the cell of all records."""
        return 1, self.own.bins + 1

    @property
    def cells_per_record(self) -> int:
        """Return what one record adds to all cells together."""
        return PARTS + 1

    @property
    def ends(self) -> Floats:
        """Return the upper ends of the bins (own.bins,): of chances finer towards 0 and 1, of errors towards 0."""
        if self.target_range is not None:
            return np.asarray(2.0 ** (OCTAVES * (np.arange(1, self.own.bins + 1) / self.own.bins - 1)))
        return np.concatenate([self.own.edges, [1.0]])

    def places(self, distances: Floats) -> NDArray[np.intp]:
        """Return the bins in which these scores of records, of any shape, stand."""
        return np.asarray(np.searchsorted(self.ends[:-1], distances, side="left"))

    def class_places(self, scores: Scores) -> NDArray[np.intp]:
        """Return the bins in which records would stand if each class were the true one: (n, classes)."""
        return self.places(1 - probabilities_of(scores, self.link, self.own.bends))

    def cells(self, scores: Scores, answers: NDArray[Any]) -> NDArray[np.intp]:
        """Return the cells (cells_per_record, n) of records with these scores (n, outputs) and true answers: class
        indices, or a number's place in its range, from 0 to 1.
        """
        if self.target_range is not None:
            bins = self.places(np.abs(self.own.answers_of(scores) - answers))
        else:
            each = self.class_places(scores)
            bins = np.take_along_axis(each, answers.astype(np.intp)[:, None], axis=1)[:, 0]
        return np.stack([*[bins] * PARTS, np.full(len(bins), self.own.bins, np.intp)])

    def last_place(self, counts: Sequence[float] | Floats, level: float, variance: float) -> int | None:
        """Return the last bin of what an answer of this level holds, by released counts (size,) whose noise has this
        variance each: the last one of all where their sums never reach the level. None where the records beyond the
        level are too few beside the noise.
        """
        sums, records = self._sums(counts)
        spread = (level**2 * variance + self.own.bins * variance / PARTS**2) ** 0.5
        if (1 - level) * (records + 1) < ENOUGH * spread:
            return None
        return self._first(sums - level * (records + 1))

    def _sums(self, counts: Sequence[float] | Floats) -> tuple[Floats, float]:
        """Return how many records stand up to each bin, and in all, as far as the counts tell."""
        noisy = np.array(counts, np.float64)
        if len(noisy) != self.size:
            raise ValueError("counts")
        return np.cumsum(noisy[:-1]) / PARTS, float(noisy[-1])

    @staticmethod
    def _first(beyond: Floats) -> int:
        return int(np.argmax(np.append(beyond[:-1] >= 0, True)))

    def tell(self, place: int) -> float:
        """Return what a bin means to people: the least chance of a class in a set, or half of an interval's width."""
        end = float(self.ends[place])
        return 1 - end if self.target_range is None else end * (self.target_range[1] - self.target_range[0])

    def figure(self, counts: Sequence[float] | Floats, level: float, noise: Noise) -> Interval:
        """Return what `last_place` means, and between which ends it would lie by all records there are."""
        sums, records = self._sums(counts)
        beyond, bins = sums - level * (records + 1), np.arange(1, self.own.bins + 1)
        added = noise.variance * (bins / PARTS**2 + level**2)
        drawn = noise.grouped * max(records, 0.0) * level * (1 - level)
        reach = noise.z * np.sqrt(added + drawn)
        place = self.last_place(counts, level, noise.variance)
        ends = (0, self.own.bins - 1) if place is None else (self._first(beyond + reach), self._first(beyond - reach))
        low, high = sorted(map(self.tell, ends))
        return Interval(None if place is None else self.tell(place), low, high, place is None)


def cover_metrics(layout: CoverLayout, counts: Sequence[float] | Floats, noise: Noise) -> Iterator[Metric]:
    """Yield, for each of LEVELS, what an answer of that level holds, then about how many records there are."""
    name = "half_width" if layout.target_range is not None else "least_chance"
    for level in reversed(LEVELS):
        yield Metric(f"{name}_{level * 100:.0f}", layout.figure(counts, level, noise))
    records, reach = max(float(counts[-1]), 0.0), noise.z * noise.variance**0.5
    yield Metric("records", Interval(records, max(records - reach, 0.0), records + reach))

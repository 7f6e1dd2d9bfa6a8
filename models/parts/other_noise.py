"""How far a prediction might have lain elsewhere had the noise of its model been drawn again: by refits of made-up rows
under other noise.

Of the log-odds of two classes, or of a number: the spread of what refits answer, by Student's law for so few of them,
times the root of 2, for both the model and another have noise. Rows that are made up know nothing of how features go
together; WIDER makes up for it, and is public: docs/evaluation.md has how it was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.features.features import RawColumns
from models.parts.answers import Bends, Range, Scores, middle, probabilities_of

WIDER = 1.1
SURE = 1e-12  # chances are taken to be no nearer to 0 and 1
Floats = NDArray[np.float64]


class Scoring(Protocol):
    """A model whose scores mean chances of two classes, or a number."""

    @property
    def target_range(self) -> Range | None:
        """Return the public range of a number; None of classes."""

    @property
    def link(self) -> float:
        """Return what a point of score is worth near 0."""

    @property
    def bends(self) -> Bends:
        """Return where a point of score is worth something else."""

    def scores(self, columns: RawColumns) -> Scores:
        """Score raw columns: (n, 1)."""


def student_quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's law, of 8 degrees of freedom or more: the normal one and four corrections
    (Abramowitz and Stegun 1964, 26.7.5), to a thousandth.
    """
    z = NormalDist().inv_cdf(share)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    terms = (first, second, third, fourth)
    return float(z + sum(term / freedom**power for power, term in enumerate(terms, 1)))


def noise_interval(model: Scoring, refits: Sequence[Scoring], columns: RawColumns, level: float) -> Floats:
    """Return the lower and the upper end for each record, of the chance of the second class or of the number: (n, 2).

    They hold what the same rows would have given under other noise, about so often in all as `level` says.
    """
    middles = _position(model, columns)
    spread = np.std([_position(refit, columns) for refit in refits], axis=0, ddof=1)
    factor = WIDER * np.sqrt(2) * student_quantile((1 + level) / 2, len(refits) - 1)
    ends = np.stack([middles - factor * spread, middles + factor * spread], axis=1)
    if model.target_range is not None:
        return np.asarray(np.clip(ends, *model.target_range))
    return np.asarray(1 / (1 + np.exp(-ends)))


def _position(model: Scoring, columns: RawColumns) -> Floats:
    """Return log-odds (n,), or a number (n,) that may lie outside of the range."""
    scores = model.scores(columns)
    if model.target_range is not None:
        return np.asarray(middle(model.target_range) + model.link * scores[:, 0])
    chances = np.clip(probabilities_of(scores, model.link, model.bends)[:, 1], SURE, 1 - SURE)
    return np.asarray(np.log(chances) - np.log1p(-chances))

"""How steep and where probabilities are: one noisy count of rows by class and score, after the last round, and what it
says of 1 / (1 + exp(-link * score)), or of log-odds that bend. What follows is arithmetic on what was released. `ebm`
counts so, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.noise.mechanisms import DiscreteLaplace
from dpserve_verify.privacy.budget import MAX_EPSILON
from models.parts.answers import Bends
from training.rows.partitions.rows import Rows
from training.session.reach import OnePlace
from training.session.session import Public

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
EDGES = np.arange(-3.0, 4.0)  # log-odds of the public rule, less its offset, between which rows are counted
MIDDLES = np.arange(-3.5, 4.0)
CLASSES = 2
PRIOR = 0.3  # how far, in log-odds and as a share of the slope, the public rule is thought to be off
MOST_MOVED, LEAST_SLOPE, MOST_SLOPE = 3.0, 0.3, 2.5
STEPS = 4
KNOTS = np.arange(-2.0, 3.0)  # log-odds of the public rule where a model may bend: studies/defaults/bends.md
LEAST_PIECE, MOST_PIECE = 0.3, 4.0  # slopes between them
EXACT = (1 << 24) - 1  # scores that float32 holds, and so a model's graph


@dataclass(frozen=True)
class ScoreCounts(OnePlace, ABC):
    """Rows per class and band of scores: (2 bands,), class 0 first. A row counts once, in one place: a row more or less
    moves the counts by 1 in L1, and one that is replaced by 2. `link`: log-odds per point of score by the public rule.
    """

    bound: int
    link: float
    purpose: ClassVar[str] = "count rows by class and score"
    norm: ClassVar[str] = "l1"
    one: ClassVar[int] = 1
    size: ClassVar[int] = CLASSES * MIDDLES.size

    @abstractmethod
    def __call__(self, rows: Rows) -> Integers:
        """Return what is `banded`, of these rows."""

    def banded(self, counts: Integers) -> Integers:
        """Sum `counts` (2, 2 bound + 1), rows per class and score, by band: (size,)."""
        running = np.concatenate([np.zeros((CLASSES, 1), np.int64), np.cumsum(counts, axis=1)], axis=1)
        ends = np.clip(last_scores(self.link), -self.bound - 1, self.bound).astype(np.int64) + self.bound + 1
        return np.diff(running[:, [0, *ends, 2 * self.bound + 1]], axis=1).ravel()


def last_scores(link: float) -> Floats:
    """Return the last score of every band but the highest."""
    return np.asarray(np.floor(EDGES / link))


def counting(unit: Decimal) -> DiscreteLaplace:
    """Return the noise: of the price, in squares, of four of the rounds."""
    return DiscreteLaplace(min(MAX_EPSILON, unit))


def fit_link(noisy: Integers, link: float, noise: float, offset: float = 0.0, most: int = EXACT) -> tuple[float, int]:
    """Fit the link, and the constant to add to every score, to the counts. `noise`: its standard deviation in rows;
    `offset`: what the public rule would add, in log-odds; `most`: the largest constant, for where a tiny rate makes
    scores say nothing beside it.
    """
    moved = _fit_steps(noisy, noise, offset, np.stack([np.ones(MIDDLES.size), MIDDLES]))
    fitted_link = link * float(1 + moved[1])
    return fitted_link, _within(most, (offset + float(moved[0])) / fitted_link)


def _within(most: int, constant: float) -> int:
    return max(-most, min(round(constant), most))


def fit_bends(
    noisy: NDArray[Any], link: float, noise: float, offset: float = 0.0, most: int = EXACT
) -> tuple[float, int, Bends]:
    """Fit the same with log-odds that rise otherwise below, between and above KNOTS: link and constant, as of scores
    near 0, and the bends of scores with that constant.
    """
    over = np.maximum(MIDDLES - KNOTS[:, None], 0.0)
    moved = _fit_steps(noisy, noise, offset, np.vstack([np.ones(MIDDLES.size), MIDDLES, over]))
    slopes = np.clip(1 + np.cumsum(moved[1:]), LEAST_PIECE, MOST_PIECE)
    # log-odds at the knots, and where they are 0
    at = (
        offset
        + moved[0]
        + np.append(slopes[0] * KNOTS[0], slopes[0] * KNOTS[0] + np.cumsum(slopes[1:-1] * np.diff(KNOTS)))
    )
    piece = int(np.searchsorted(at, 0.0))
    knot_index = min(piece, KNOTS.size - 1)
    constant = _within(most, float(at[knot_index] / slopes[piece] - KNOTS[knot_index]) / link)
    bends: dict[int, float] = {}
    for number, knot in enumerate(KNOTS):
        score = round(float(knot) / link) + constant
        score = min(score, -1) if number < piece else max(score, 1)
        if abs(score) <= EXACT:  # no score is beyond
            bends.setdefault(score, float(slopes[number + (number >= piece)]) * link)
    return float(slopes[piece]) * link, constant, tuple(sorted(bends.items()))


def _fit_steps(noisy: NDArray[Any], noise: float, offset: float, design: Floats) -> Floats:
    """Fit by how much of each row of `design` (an intercept, a slope, bends) log-odds differ from the public rule's.

    Steps of weighted least squares on the gradient of the log loss, each weighed by what noise and sampling do to it,
    and drawn towards the public rule: where noise drowns the rows, that rule stands.
    """
    first, second = np.asarray(noisy, np.float64).reshape(CLASSES, -1)
    rows, moved, none = np.maximum(first + second, 0.0), np.zeros(len(design)), np.eye(len(design))
    least = np.full(len(design), -MOST_MOVED)
    least[1] = LEAST_SLOPE - 1
    most = np.full(len(design), MOST_MOVED)
    most[1] = MOST_SLOPE - 1
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-(MIDDLES + offset + moved @ design)))
        pull = design @ (second * (1 - chance) - first * chance)
        curved = (design * (rows * chance * (1 - chance))) @ design.T
        doubt = curved + (design * (noise**2 * ((1 - chance) ** 2 + chance**2))) @ design.T
        weighed = curved @ np.linalg.inv(doubt + 1e-6 * none)
        wanted = np.linalg.solve(weighed @ curved + none / PRIOR**2, weighed @ pull - moved / PRIOR**2)
        moved = np.clip(moved + wanted, least, most)
    return moved


def noise_in_rows(query: ScoreCounts, mechanism: DiscreteLaplace, public: Public) -> float:
    """Return the standard deviation of a count's noise."""
    return mechanism.event.deviation * query.sensitivity(public.relation) * public.contributions

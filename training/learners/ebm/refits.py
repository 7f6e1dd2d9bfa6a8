"""What a model of `ebm` might have been under other noise: refits, by its own plan, of made-up rows that are as it
says.

Post-processing of public numbers: no row of anybody is read, and nothing is spent. A made-up row has each value by the
model's released counts and an answer by the model; its values are independent of one another, of two classes within
each class, by what each adds to the log-odds (so that values which speak for one class stand together). A refit differs
from the next one by fresh noise of the plan's own laws, which reaches all that noise reaches: cut points, pairs, steps,
calibration. Everything comes from SHAKE-256: the same model has the same refits whenever it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from hashlib import shake_256
from math import log, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.noise.mechanisms import Mechanism
from accountant.noise.objective import DIGITS, RELEASED, ObjectivePerturbation
from dpserve_verify.privacy.budget import Relation
from models.features.features import NumericFeature
from models.forms.additive import AdditiveEnsemble
from models.forms.registry import ensemble_bytes
from models.parts.answers import probabilities_of
from training.learners.ebm.ebm import DPEBM
from training.rows.packed.cells import Cells, grid_of, merging
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.session.session import Public, Query, sensitivity_of

MOST_ROWS = 1 << 15  # that are made up: what is asked of them is multiplied up to as many as the model learnt from
AROUND = 0.25  # of half the range, a number's made-up answers lie about the model's
STEPS = 40  # of a bisection
LEAST = 1e-4  # share of a class
FAR = 60.0  # log-odds
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Draws:
    """Numbers that a seed and a label give."""

    seed: bytes

    def uniform(self, label: str, count: int) -> Floats:
        """Return numbers above 0 and below 1: (count,)."""
        raw = shake_256(self.seed + label.encode()).digest(8 * count)
        return np.asarray((np.frombuffer(raw, dtype="<u8") >> 11) + 0.5) / 2.0**53

    def noise(self, label: str, count: int, is_laplace: bool) -> Floats:
        """Return noise of standard deviation 1: (count,), Laplace or Gaussian."""
        at, more = self.uniform(label, 2 * count).reshape(2, count)
        if is_laplace:
            return np.asarray(-np.sign(at - 0.5) * np.log1p(-2 * np.abs(at - 0.5)) / sqrt(2))
        return np.asarray(np.sqrt(-2 * np.log(at)) * np.cos(2 * pi * more))  # Box and Muller 1958


class MadeUpSession:
    """What a learner is given in place of a session: made-up rows, each of which stands for `weight` rows, and noise by
    the laws of its mechanisms, which protects nobody."""

    def __init__(self, public: Public, unit: Decimal, rows: Rows, weight: float, draws: Draws) -> None:
        self.public, self.unit = public, unit
        self._rows, self._weight, self._draws = rows, weight, draws
        self._released = 0

    def release(self, query: Query, mechanism: Mechanism) -> Any:
        """Return the answer of the made-up rows with noise."""
        self._released += 1
        if isinstance(mechanism, ObjectivePerturbation):
            return self._minimum(query(self._rows), mechanism, sensitivity_of(query, self.public))
        size = (mechanism.event.deviation or 0.0) * sensitivity_of(query, self.public)
        noise = size * self._draws.noise(f"release {self._released}", query.size, mechanism.norm == "l1")
        return np.rint(query(self._rows) * self._weight + noise).astype(np.int64)

    def _minimum(self, loss: Any, mechanism: ObjectivePerturbation, sensitivity: int) -> Integers:
        """Return the minimum of the rows' loss, of which each counts `weight` times, with noise in it."""
        drawn = self._draws.noise(f"release {self._released}", len(loss), is_laplace=False)
        noise = np.rint(mechanism.check_scale(sensitivity) * 2.0**DIGITS / self._weight * drawn).astype(np.int64)
        theta, bits = next(loss.candidates(noise, max(1, round(mechanism.ridge / self._weight))))
        return np.array([each >> bits - RELEASED for each in theta], np.int64)


def refits(learner: DPEBM, public: Public, unit: Decimal, model: AdditiveEnsemble) -> Iterator[AdditiveEnsemble]:
    """Yield refits of made-up rows, without an end: each costs about as much time as a fit of MOST_ROWS rows.

    learner, public, unit: what the model was learnt by.
    """
    seed = shake_256(ensemble_bytes(model)).digest(32)
    records = _records(public, model)
    size = min(MOST_ROWS, records)
    rows = rows_like(model, public, size, Draws(seed))
    number = 0
    while True:
        number += 1
        draws = Draws(seed + f"refit {number}: ".encode())
        refit = learner.learn(MadeUpSession(public, unit, rows.fresh(), records / size, draws))
        assert isinstance(refit, AdditiveEnsemble)  # of the same classes as the model
        yield refit


def rows_like(model: AdditiveEnsemble, public: Public, size: int, draws: Draws) -> Rows:
    """Make up rows by a model's released counts and its answers, packed as those that are public are."""
    fine, bins = [], np.empty((len(public.features), size), np.uint16)
    codes = _values(model, size, draws)
    spans = public.spans or (None,) * len(public.features)
    for at, (feature, cut, span) in enumerate(zip(public.features, model.features, spans, strict=True)):
        code = bins[at] = codes[at]
        if span is not None and isinstance(feature, NumericFeature) and isinstance(cut, NumericFeature):
            grid = grid_of(feature, span)
            bin_of = merging(grid.name, grid.edges, cut).astype(np.int64)
            sizes = np.bincount(bin_of, minlength=cut.bins)
            place = (draws.uniform(f"cell {at}", size) * sizes[code]).astype(np.int64)
            within = (np.cumsum(sizes) - sizes)[code] + place  # bins follow one another, and so do their cells
            fine.append(within.astype(np.uint16))
            bins[at] = np.asarray(grid.declared)[within]
    widths = [feature.bins for feature in public.features]
    packed = bins.astype(np.uint8) if max(widths) <= 256 else bins
    answers = _answers(model, model.coded_scores(codes), draws)
    cells = Cells(public.features, spans, fine.__getitem__)
    return Rows(packed, answers, widths, len(public.classes or ()), cells=cells)


def _values(model: AdditiveEnsemble, size: int, draws: Draws) -> list[Integers]:
    """Return the code of each feature's value: (size,) each."""
    shares = [_shares(model, at) for at in range(len(model.features))]
    is_second, chances = np.zeros(size, bool), [np.zeros(share.size) for share in shares]
    if model.classes:
        slope = dict(model.bends).get(1, model.link)
        odds = [slope * np.array(term, np.float64) for term in model.terms]
        second, chances = _classes_of(shares, odds, slope * model.constant)
        is_second = draws.uniform("class", size) < second
    codes = []
    for at, (share, chance) in enumerate(zip(shares, chances, strict=True)):
        place, code = draws.uniform(f"value {at}", size), np.empty(size, np.int64)
        for rows, part in ((is_second, share * chance), (~is_second, share * (1 - chance))):
            below = np.cumsum(part)
            code[rows] = np.minimum(np.searchsorted(below, below[-1] * place[rows]), share.size - 1)
        codes.append(code)
    return codes


def _shares(model: AdditiveEnsemble, at: int) -> Floats:
    """Return the share of rows per code of a feature, by the released counts."""
    counts = (
        np.maximum(np.array(model.counts[at], np.float64), 0) if model.counts else np.zeros(model.features[at].bins)
    )
    counts = counts if counts.any() else np.ones(counts.size)
    return np.asarray(counts / counts.sum())


def _classes_of(shares: list[Floats], odds: list[Floats], constant: float) -> tuple[float, list[Floats]]:
    """Return the share of the second class, and its chance for each value of each feature, so that values which are
    independent within a class mean the log-odds that add up: by bisection.
    """
    low, high = LEAST, 1 - LEAST
    for _ in range(STEPS):
        second = (low + high) / 2
        base = log(second / (1 - second))
        starts = [_start(share, odd, second) for share, odd in zip(shares, odds, strict=True)]
        low, high = (second, high) if sum(start - base for start in starts) + base < constant else (low, second)
    return second, [_chances(odd + start) for odd, start in zip(odds, starts, strict=True)]


def _start(share: Floats, odds: Floats, second: float) -> float:
    """Return what to add to a feature's log-odds so that its mean chance is `second`."""
    low, high = -FAR, FAR
    for _ in range(STEPS):
        start = (low + high) / 2
        low, high = (start, high) if share @ _chances(odds + start) < second else (low, start)
    return start


def _chances(odds: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -FAR, FAR))))


def _answers(model: AdditiveEnsemble, scores: Integers, draws: Draws) -> NDArray[Any]:
    """Return class indices by the model's chances, or targets about its numbers: (n,)."""
    if model.classes:
        chances = probabilities_of(scores, model.link, model.bends)[:, 1]
        return (draws.uniform("answer", len(chances)) < chances).astype(np.uint8)
    around = scores[:, 0] + AROUND * TARGET_GRID * draws.noise("answer", len(scores), is_laplace=False)
    return np.clip(np.rint(around), -TARGET_GRID, TARGET_GRID).astype(np.int32)


def _records(public: Public, model: AdditiveEnsemble) -> int:
    """Return about how many rows the model learnt from: by the released counts, near the declared number."""
    if public.relation is Relation.REPLACE_ONE or not model.counts:
        return public.records
    counted = float(np.median([sum(counts) for counts in model.counts]))
    return max(1, round(min(max(counted, public.records / 2), 2 * public.records)))

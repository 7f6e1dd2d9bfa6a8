"""Weights of rows as integers that depend on a row's margin alone, and what they do to the sensitivity of a 1-rule's
score.

A row's margin is y * (sum of released votes), an integer in -B..B after votes of total weight B: public bounds.
The score of a rule h is sum over rows of w y h(x), twice the weight on which h agrees with the label minus all weight;
the exponential mechanism does not see what is added to every score alike. Proofs: docs/privacy/trees.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.privacy.budget import Relation
from training.learners.boosting.defaults import Weighting
from training.rows.partitions.rows import FEW_ROWS

SCHEDULED_ONE = 1 << 32  # the largest weight, in units; less where there may be more than 2^29 rows
PROJECTED_ONE = 1 << 36  # the same; less where there may be more than 2^26
SUMS = 61, 62  # binary digits of the weight of all rows together, in each
MOST_PROJECTED = 1 << 29  # rows: beyond, to pay for rounding to such coarse units takes more than a thirtieth of all
FINE = 60

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Scheduled:
    """w = g(margin - slope * B) / g(-B - slope * B) in units of 1 / one, 2^-32 or coarser, for votes of
    total weight B: of the row and of released votes alone. `unit`: what a vote of weight 1 counts in margins, so that
    rate is per vote. `most`: more rows there never are.

    g is min(1, exp(-rate m)), "exponential", or 1 / (1 + exp(rate m)), "logistic": the gradient of the log loss. The
    divisor is the largest weight there can be: public, and 1 for the first. One more row moves every score's agreeing
    weight by something in [0, 1]: range 2 in units of w y h under add/remove, 4 under replace-one (PRIVACY section 4,
    "scheduled reweighting"). No row count is used.
    """

    reads_counts: ClassVar[bool] = False
    rate: float
    slope: float
    weighting: Weighting = "exponential"
    unit: int = 1
    most: int = FEW_ROWS

    @property
    def one(self) -> int:
        """Return the largest weight such that 64 bits hold the weight of as many rows as there may be, twice over."""
        return min(SCHEDULED_ONE, (1 << SUMS[0]) // self.most)

    def sensitivity(self, relation: Relation, bound: int, records: int) -> int:
        """Return the range of one row's effect on every score, in units of weight."""
        return (2 if relation is Relation.ADD_REMOVE else 4) * self.one

    def weights(self, bound: int, counts: Integers, records: int, relation: Relation) -> Integers:
        """Return (2 bound + 1,) integer weights by margin + bound, none above `one`; `counts` is not read."""
        past = self.rate * (np.arange(-bound, bound + 1) - self.slope * bound) / self.unit
        if self.weighting == "exponential":
            shape = np.exp(-np.maximum(past, 0.0))
        else:
            logs = np.maximum(past, 0.0) + np.log1p(np.exp(-np.abs(past)))  # logaddexp(0, past), in a third of its time
            shape = np.exp(logs[0] - logs)
        return np.asarray(self.one * np.minimum(shape, 1.0), np.int64)


@dataclass(frozen=True)
class Projected:
    """w = min(cap, c exp(-rate margin)), c the largest multiplier (on a grid of 2^-60) with total weight <= density *
    records.

    The measure of LazyBB (Algorithm 1), projected to density `density` exactly, in units of 1 / one, 2^-36 or coarser.
    The divisor of the paper's normalised error is then the public number density * records, and is left out. The cap is
    1, or under replace-one the largest weight that any row can have after votes of total weight B, if smaller: T / (1 +
    (n - 1) exp(-2 rate B)). Range of w y h: at most 4 cap + 2 u under both relations; u = `most`, and more rows than
    that there never are, pays for the rounding of weights to integers.
    """

    reads_counts: ClassVar[bool] = True
    rate: float
    density: float
    most: int = FEW_ROWS

    @property
    def one(self) -> int:
        """Return a weight of 1 in units, such that 64 bits hold the weight of as many rows as there may be."""
        return min(PROJECTED_ONE, (1 << SUMS[1]) // self.most)

    def cap(self, relation: Relation, bound: int, records: int) -> int:
        """Return the largest weight of a row after votes of total weight `bound`, in units."""
        if relation is Relation.ADD_REMOVE:
            return self.one
        share = 1 + (records - 1) * exp(-2 * self.rate * bound)
        return min(self.one, ceil(self._mass(records) / share * (1 + 1e-9)) + 1)

    def sensitivity(self, relation: Relation, bound: int, records: int) -> int:
        """Return the range of one row's effect on every score, in units, with what rounding adds."""
        return 4 * self.cap(relation, bound, records) + 2 * self.most

    def weights(self, bound: int, counts: Integers, records: int, relation: Relation) -> Integers:
        """Return (2 bound + 1,) integer weights by margin + bound. `counts` (2 bound + 1,): rows per margin."""
        cap, mass = self.cap(relation, bound, records), self._mass(records)
        shape = [1 + int((1 << FINE) * exp(-self.rate * step)) for step in range(2 * bound + 1)]
        occupied = [(size, int(count)) for size, count in zip(shape, counts, strict=True) if count]

        def total(multiplier: int) -> int:
            return sum(count * min(cap, multiplier * size >> FINE) for size, count in occupied)

        multiplier = _largest(total, mass, (cap << FINE) // min(shape) + 1)
        return np.array([min(cap, multiplier * size >> FINE) for size in shape], dtype=np.int64)

    def _mass(self, records: int) -> int:
        return int(Fraction(self.density) * records * self.one)


Reweighting = Scheduled | Projected


def _largest(total: object, limit: int, high: int) -> int:
    """Find the largest integer m <= high with total(m) <= limit; `total` grows with m and total(0) = 0."""
    assert callable(total)
    low = 0
    if total(high) <= limit:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total(middle) <= limit else (low, middle)
    return low

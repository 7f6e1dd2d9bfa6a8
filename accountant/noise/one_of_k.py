"""One of K: what an owner who trusts nobody draws from. The law takes two values whose ratio is e^epsilon, in integers.

A public seed gives K vectors; the m whose scores are largest are favoured; the report is an index. K = 2, m = 1 is the
one-bit response of Duchi; one-hot scores with m = 1 are k-ary randomized response; 0/1 scores of subsets are subset
selection (Ye and Barg 2017).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.events import PureDp

MAX_CANDIDATES, MAX_EPSILON = 1 << 12, 20
BITS = 62  # of the whole weight: sums of weights stay below 2^63


@dataclass(frozen=True)
class OneOfK:
    """An index from 0 to candidates - 1: each of the `favoured` with the largest scores has weight w, every other 2^s.

    w = floor(e^epsilon 2^s), so no likelihood ratio exceeds e^epsilon, whatever the scores are and however floats made
    them; and it is attained but for less than 2^-20 of itself. epsilon-DP where anything at all is replaced.
    """

    name: ClassVar[str] = "one-of-k"
    norm: ClassVar[str] = "replacement"
    epsilon: Decimal
    candidates: int
    favoured: int

    def __post_init__(self) -> None:
        if not self.epsilon.is_finite() or not 0 < self.epsilon <= MAX_EPSILON:
            raise InputError(f"epsilon={self.epsilon}: must be above 0 and at most {MAX_EPSILON} for one report")
        if not 2 <= self.candidates <= MAX_CANDIDATES:
            raise InputError(f"candidates={self.candidates}: must be from 2 to {MAX_CANDIDATES}")
        if not 1 <= self.favoured < self.candidates:
            raise InputError(f"favoured={self.favoured}: must be from 1 to {self.candidates - 1}")

    @cached_property
    def event(self) -> PureDp:
        """Return the cost of one draw: epsilon-DP, and no better."""
        return PureDp(self.epsilon)

    @cached_property
    def weights(self) -> tuple[int, int]:
        """Return the weights of a favoured index and of another; integers whose ratio is at most e^epsilon."""
        with localcontext(prec=60):
            ratio = self.epsilon.exp() * (1 - Decimal(10) ** -50)  # what is rounded down stays below e^epsilon
            most = self.favoured * ratio + self.candidates
            shift = BITS - int(most.to_integral_value()).bit_length()
            return int((ratio * 2**shift).to_integral_value(ROUND_FLOOR)), 1 << shift

    @property
    def total(self) -> int:
        """Return the sum of all weights: below 2^63."""
        high, low = self.weights
        return self.favoured * high + (self.candidates - self.favoured) * low

    def places(self, uniform: NDArray[np.int64]) -> NDArray[np.int64]:
        """Map integers of [0, total) to ranks (n,): rank r < favoured has exactly w of them, every other 2^s."""
        high, low = self.weights
        edge = self.favoured * high
        return np.where(uniform < edge, uniform // high, self.favoured + (uniform - edge) // low)

    def draw(self, values: NDArray[np.int64], sensitivity: int = 1) -> NDArray[np.int64]:
        """Draw indices (n,) of scores (n, candidates), one independent draw for each row, which is one owner.

        Equal scores are told apart by their place. InputError where `sensitivity` is not 1, or the shape is another.
        """
        scores = np.atleast_2d(np.ascontiguousarray(values, np.int64))
        if sensitivity != 1:
            raise InputError(f"sensitivity={sensitivity}: must be 1, one report of one owner")
        if scores.shape[1] != self.candidates:
            raise InputError(f"values: {scores.shape[1]} scores; must be {self.candidates}, one for each candidate")
        order = np.argpartition(~scores, self.favoured - 1, axis=1)  # ~x = -x - 1: the largest first, no overflow
        ranks = self.places(_below(self.total, len(scores)))
        return np.asarray(order[np.arange(len(scores)), ranks], np.int64)


def _below(bound: int, count: int) -> NDArray[np.int64]:
    """Draw exact uniform integers of [0, bound), (count,): by rejection, so each is as likely as any other."""
    mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
    found = np.empty(0, np.int64)
    while len(found) < count:
        fresh = np.frombuffer(os.urandom(16 * (count - len(found)) + 64), np.uint64) & mask
        found = np.concatenate([found, fresh[fresh < bound].astype(np.int64)])
    return found[:count]

"""Rows and the exact integer statistics of them that queries are made of. Nothing leaves here except through a
session.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from accountant.errors import DataError
from models.ensemble import Vote
from training import kernels

T = TypeVar("T")
ROW_LIMIT = 1 << 26
PARALLEL_CELLS = 4_000_000
THREADS = min(os.cpu_count() or 1, 8)
_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="engine")


class Rows:
    """Packed rows: `bins` (features, rows) uint8 or uint16, `labels` (rows,) uint8 class index.

    Keeps, per row, only the margin of the votes released so far, and brings it up to date from the votes it is asked
    about.
    """

    def __init__(self, bins: NDArray[Any], labels: NDArray[np.uint8], widths: Sequence[int]) -> None:
        if bins.shape != (len(widths), labels.size):
            raise DataError(f"bins: shape {bins.shape} does not fit {len(widths)} features and {labels.size} labels")
        if labels.size > ROW_LIMIT:
            raise DataError(f"rows: one engine holds at most {ROW_LIMIT}")
        self._bins, self._widths = bins, tuple(widths)
        self._signs = np.where(labels > 0, 1, -1).astype(np.int8)
        self._margins = np.zeros(labels.size, dtype=np.int32)
        self._applied: tuple[Vote, ...] = ()
        self._threads = THREADS if bins.size >= PARALLEL_CELLS else 1

    @property
    def size(self) -> int:
        """Number of rows. Private under add/remove: for queries and the steward alone."""
        return int(self._signs.size)

    def margin_counts(self, votes: Sequence[Vote], bound: int) -> NDArray[np.int64]:
        """Rows per margin of `votes`: (2 bound + 1,), index margin + bound."""
        self._bring_up_to(votes)
        return sum(
            self._map(lambda part: kernels.count_margins(self._margins[part], bound)), np.zeros(2 * bound + 1, np.int64)
        )

    def score_counts(self, votes: Sequence[Vote], bound: int) -> NDArray[np.int64]:
        """Rows per class and score of `votes`: (2, 2 bound + 1), index score + bound. Score = y * margin."""
        self._bring_up_to(votes)
        one = np.zeros((2, 2 * bound + 1), np.int64)
        for label, sign in enumerate((-1, 1)):
            one[label] = kernels.count_margins(sign * self._margins[self._signs == sign], bound)
        return one

    def signed_sums(self, votes: Sequence[Vote], weights: NDArray[np.int64], bound: int) -> NDArray[np.int64]:
        """Sum over rows of y * weights[margin + bound], y = +-1, per feature and code: (features, max width)."""
        self._bring_up_to(votes)
        width = max(self._widths)
        parts = self._map(
            lambda part: kernels.signed_sums(
                self._bins[:, part], self._signs[part], self._margins[part], weights, bound, width
            )
        )
        return sum(parts, np.zeros((len(self._widths), width), np.int64))

    def _bring_up_to(self, votes: Sequence[Vote]) -> None:
        known = len(self._applied)
        if tuple(votes[:known]) != self._applied:
            self._margins[:] = 0
            known = 0
        for vote in votes[known:]:
            self._apply(vote)
        self._applied = tuple(votes)

    def _apply(self, vote: Vote) -> None:
        table, codes = vote.table(self._widths[vote.feature]).astype(np.int32), self._bins[vote.feature]

        def part_of(part: slice) -> None:
            kernels.advance(codes[part], self._signs[part], table, self._margins[part])

        self._map(part_of)

    def _map(self, work: Callable[[slice], T]) -> list[T]:
        """`work` over slices of the rows, one per thread. Integer sums make the split invisible."""
        if self._threads == 1:
            return [work(slice(0, self.size))]
        cuts = np.linspace(0, self.size, self._threads + 1).astype(int)
        parts = [slice(int(low), int(high)) for low, high in pairwise(cuts)]
        return list(_POOL.map(work, parts))

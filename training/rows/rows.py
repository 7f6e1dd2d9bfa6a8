"""Rows and the exact integer statistics of them that queries are made of. Nothing leaves here except through a
session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from accountant.errors import DataError, InputError
from accountant.processors import processors
from models.features import Feature
from models.votes import Vote, holds
from training.rows import kernels
from training.rows.packed.cells import Cells

T = TypeVar("T")
Integers = NDArray[np.int64]
ROW_LIMIT = 1 << 26
PARALLEL_CELLS = 4_000_000
JOINT_CODES = 1 << 13  # 64 KiB of sums: more features in a group would cost more cache misses than it saves additions
BINNED = "binned"
TARGET_GRID = 1 << 20  # a number's target in steps of half its public range over this: from -TARGET_GRID to TARGET_GRID
THREADS = min(processors(), 8)
_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="engine")


class Rows:
    """Packed rows: `bins` (features, rows) uint8 or uint16, `labels` (rows,) uint8 class index below `classes`.

    Of a regression (`classes` 0) they hold no labels but `targets`, (rows,) int32 in -TARGET_GRID..TARGET_GRID, the
    clipped and centred target (`training.rows.data.encode_targets`); what asks about classes raises InputError.
    `group`: codes (rows,) of the public group that each belongs to, where an evaluation tells groups apart.

    Two classes have one output, the score of class 1; K > 2 classes have K outputs, one score each. y_k is +1 where
    the label is the class of output k, else -1; F_k is the sum of the votes of output k, and y_k F_k a row's margin.
    Kept per output and row is only the state 2 F_k + [y_k = 1], brought up to date from the votes that are asked about.

    `cells`: how they stand in fine cells, where they do, and so in other bins.
    """

    def __init__(
        self,
        bins: NDArray[Any],
        labels: NDArray[Any],
        widths: Sequence[int],
        classes: int = 2,
        group: NDArray[Any] | None = None,
        cells: Cells | None = None,
    ) -> None:
        _check(bins, labels, widths, classes)
        self.group = group
        self.bins, self._column, self.widths, self.classes = bins, labels, tuple(widths), classes
        self.outputs = 1 if classes in (0, 2) else classes
        self.cells = cells
        self.memo: dict[str, Any] = {}  # what a family of queries derived from rows and released votes
        self._groups = kernels.votes.grouped(self.widths, min(JOINT_CODES, self.size))
        self._threads = THREADS if bins.size >= PARALLEL_CELLS else 1
        self._states: list[NDArray[Any]] = []
        self._totals: list[int] = []  # |F_k| is at most this, whatever the rows
        self._applied: tuple[Vote, ...] | None = None  # the votes in the states; None: the states are good for nothing

    @property
    def size(self) -> int:
        """Number of rows. Private under add/remove: for queries and the steward alone."""
        return int(self._column.size)

    @property
    def labels(self) -> NDArray[np.uint8]:
        """Class indices (rows,)."""
        if not self.classes:
            raise InputError("classes: the target is a number, which has none")
        return self._column

    @property
    def targets(self) -> NDArray[np.int32]:
        """Of a regression: the clipped, centred target (rows,), in steps of half its public range / TARGET_GRID."""
        if self.classes:
            raise InputError("targets: the target is a class, not a number")
        return self._column

    @cached_property
    def signs(self) -> NDArray[np.int8]:
        """+1 where the label is the last class, else -1: (rows,)."""
        last = np.uint8(max(self.outputs, 2) - 1)
        return np.where(self.labels == last, np.int8(1), np.int8(-1))

    def binned(self, features: Sequence[Feature]) -> Rows:
        """The same rows in the bins of these features: themselves where those are the declared ones, else merged from
        their cells, and kept until they are asked for in others. InputError where they do not stand in such bins.
        """
        if self.cells is None:
            if [feature.bins for feature in features] != [*self.widths]:
                raise InputError("features: these rows do not stand in fine cells, and have other bins")
            return self
        if tuple(features) == self.cells.features:
            return self
        known, rows = self.memo.get(BINNED, ((), None))
        if rows is None or known != tuple(features):
            del rows
            self.memo.pop(BINNED, None)
            rows = self._merged(tuple(features), self.cells)
            self.memo[BINNED] = tuple(features), rows
        found: Rows = rows
        return found

    def _merged(self, features: tuple[Feature, ...], cells: Cells) -> Rows:
        widths = [feature.bins for feature in features]
        tables = cells.tables(features)
        bins = np.empty((len(features), self.size), np.uint8 if max(widths) <= 256 else np.uint16)
        for at, (out, table) in enumerate(zip(bins, tables, strict=True)):
            if table is None:
                out[:] = self.bins[at]
                continue
            fine, merged = cells.at(at), table.astype(bins.dtype)

            def merge(part: slice, fine: Any = fine, merged: Any = merged, out: Any = out) -> None:
                kernels.cells.merge(fine[part], merged, out[part])

            self.map(merge)
        return Rows(bins, self._column, widths, self.classes)

    def cell_counts(self, feature: int, size: int) -> Integers:
        """Rows per fine cell of a feature: (size,). InputError where the rows do not stand in such."""
        if self.cells is None:
            raise InputError("cells: these rows do not stand in fine cells")
        codes, count = self.cells.at(feature), kernels.additive.count_codes
        return sum(self.map(lambda part: count(codes[part], size)), np.zeros(size, np.int64))

    def margin_counts(self, votes: Sequence[Vote], bound: int) -> Integers:
        """Rows per margin of `votes`: (outputs, 2 bound + 1), index margin + bound."""
        counts = self._state_counts(votes, bound)
        return np.asarray(counts[:, :, 1] + counts[:, ::-1, 0])

    def score_counts(self, votes: Sequence[Vote], bound: int) -> Integers:
        """Two classes: rows per class and score of `votes`: (2, 2 bound + 1), index score + bound."""
        if self.classes != 2:
            raise InputError(f"classes={self.classes}: scores are counted per class where there are two")
        return np.ascontiguousarray(self._state_counts(votes, bound)[0].T)

    def signed_sums(self, votes: Sequence[Vote], weights: Integers, bound: int) -> Integers:
        """Sum over rows of y_k * weights[y_k F_k + bound], per output k, feature and code: (outputs, features, max
        width).

        Exact: every partial sum is over distinct rows, so its size is below 2^63 wherever rows * largest |weight| is,
        which is checked. 2^26 rows, the most there are, of weight 2^36 give 2^62.
        """
        if weights.shape != (2 * bound + 1,) or max(int(weights.max()), -int(weights.min())) * self.size >= 1 << 63:
            raise InputError(
                f"weights: must be {2 * bound + 1}, small enough that 64 bits hold their sum over all rows"
            )
        signed = np.stack([-weights[::-1], weights], axis=1).ravel()  # by state + 2 bound
        widths = np.array(self.widths, np.int64)

        def sums(part: slice, state: NDArray[Any]) -> Integers:
            rows = (part.start, part.stop)
            return kernels.votes.signed_sums(self.bins, state, rows, signed, 2 * bound, widths, self._groups)

        return self._summed(votes, bound, sums)

    def map(self, work: Callable[[slice], T]) -> list[T]:
        """`work` over slices of the rows, one per thread. Integer sums make the split invisible."""
        if self._threads == 1:
            return [work(slice(0, self.size))]
        cuts = [self.size * thread // self._threads for thread in range(self._threads + 1)]
        return list(_POOL.map(work, [slice(low, high) for low, high in pairwise(cuts)]))

    def _state_counts(self, votes: Sequence[Vote], bound: int) -> Integers:
        """Rows per state: (outputs, 2 bound + 1, 2), by F_k + bound and whether y_k = 1."""
        size = 2 * (2 * bound + 1)
        count = kernels.votes.count_states
        counts = self._summed(votes, bound, lambda part, state: count(state[part], 2 * bound, size))
        return counts.reshape(self.outputs, -1, 2)

    def _summed(self, votes: Sequence[Vote], bound: int, work: Callable[[slice, NDArray[Any]], Integers]) -> Integers:
        """`work` on every output's states after `votes`, summed over slices of the rows: (outputs, ..)."""
        ahead = self._ahead(votes)
        if max(self._totals) > bound:
            raise InputError(f"bound={bound}: must be at least the total weight of the votes of an output")

        def of(part: slice) -> Integers:
            for vote in ahead:
                self._advance(vote, part)
            return np.stack([work(part, state) for state in self._states])

        found = self.map(of)
        self._applied = tuple(votes)
        return np.asarray(sum(found[1:], start=found[0]))

    def _ahead(self, votes: Sequence[Vote]) -> Sequence[Vote]:
        """The votes that the states do not hold yet; for these, too, the states are made wide enough."""
        known, self._applied = self._applied, None  # until every slice is through
        if known is None or tuple(votes[: len(known)]) != known:
            first = 1 if self.outputs == 1 else 0
            self._states = [(self.labels == output + first).astype(np.int16) for output in range(self.outputs)]
            self._totals, known = [0] * self.outputs, ()
        for vote in votes[len(known) :]:
            self._totals[vote.output] += abs(vote.weight)
        for output, total in enumerate(self._totals):
            self._states[output] = self._states[output].astype(_state_dtype(total), copy=False)
        return votes[len(known) :]

    def _advance(self, vote: Vote, part: slice) -> None:
        state, codes = self._states[vote.output], self.bins[vote.feature]
        passes = np.flatnonzero(holds(vote.test, vote.code, self.widths[vote.feature]))  # neighbouring codes, or none
        low, high = passes[[0, -1]] if passes.size else (1, 0)
        change, code = state.dtype.type(2 * vote.weight), codes.dtype.type
        kernels.votes.advance(codes[part], code(low), code(high), change, state[part])


def _check(bins: NDArray[Any], labels: NDArray[Any], widths: Sequence[int], classes: int) -> None:
    if bins.shape != (len(widths), labels.size):
        raise DataError(f"bins: shape {bins.shape} does not fit {len(widths)} features and {labels.size} labels")
    if labels.size > ROW_LIMIT:
        raise DataError(f"rows: one engine holds at most {ROW_LIMIT}")
    if any(codes.size and codes.max() >= width for codes, width in zip(bins, widths, strict=True)):
        raise DataError("bins: a code is not below its feature's width")
    if not classes:
        outside = labels.size and max(int(labels.max()), -int(labels.min())) > TARGET_GRID
        if labels.dtype != np.int32 or outside:
            raise DataError(f"targets: must be int32 from -{TARGET_GRID} to {TARGET_GRID}")
    elif classes < 2 or (labels.size and labels.max() >= classes):
        raise DataError(f"labels: must be class indices below {classes}")


def _state_dtype(total: int) -> type[np.signedinteger[Any]]:
    """The smallest integers that hold 2 F + 1 for every |F| <= total."""
    for dtype in (np.int16, np.int32, np.int64):
        if 2 * total + 1 <= np.iinfo(dtype).max:
            return dtype
    raise InputError(f"votes: a total weight of {total} does not fit into 64 bits")

"""Features in few columns: of every group of features the joint code of each row, made once and kept. An addition to
memory costs the same whatever it adds, so a row is added once for each group and not for each feature, and sums of
single features are read off in the end: whole numbers, the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.rows import kernels
from training.rows.packed.scratch import scratch_array
from training.rows.partitions.partition import Integers, Partition

MEMO = "joined"
Groups = tuple[Integers, Integers, int]


@lru_cache(maxsize=64)
def group_features(widths: tuple[int, ...], limit: int) -> Groups:
    """Run `kernels.votes.grouped` on these widths."""
    return kernels.votes.grouped(widths, limit)


@dataclass(frozen=True)
class Joined:
    """`codes` (groups, rows) of features that have so many codes each, in these groups."""

    codes: NDArray[Any]
    widths: Integers
    groups: Groups

    def apart(self, sums: Integers) -> Integers:
        """Return sums (groups, keys, joint codes) -> (features, keys, most codes of one)."""
        feature_sums = np.zeros((self.widths.size, sums.shape[1], int(self.widths.max())), np.int64)
        kernels.joined.part(sums, self.widths, self.groups, feature_sums)
        return feature_sums


def join_codes(part: Partition, tables: Sequence[Integers], limit: int) -> Joined:
    """Return the rows by what the `tables` say of each code of each feature, from 0 on without gaps to their last
    entry, in groups of at most `limit` joint codes. Kept until others are asked for: tables are told apart as objects.
    """
    memo = part.memo.get(MEMO)
    if memo is None or memo[0] is not tables or memo[1] != limit:
        widths = tuple(int(table[-1]) + 1 for table in tables)
        groups = group_features(widths, limit)
        padded = np.zeros((len(tables), max(part.widths)), np.uint16)
        for row, table in zip(padded, tables, strict=True):
            row[: table.size] = table
        kind = np.uint8 if groups[2] <= 256 else np.uint16
        codes = scratch_array((groups[1].size - 1, part.size), kind, part.folder)
        sizes = np.array(widths, np.int64)
        kernels.joined.join(part.bins, part.low, padded, sizes, groups, codes)
        memo = tables, limit, Joined(codes, sizes, groups)
        part.memo[MEMO] = memo
    columns: Joined = memo[2]
    return columns


@lru_cache(maxsize=64)
def every_code(widths: tuple[int, ...]) -> tuple[Integers, ...]:
    """Return the tables by which every code stands for itself."""
    return tuple(np.arange(width) for width in widths)

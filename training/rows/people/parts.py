"""Which units of a family are kept aside for evaluation, by a keyed hash: docs/privacy/rows.md has the proof.

The part of a unit follows from its id and the family's key alone, so that it is the same in each dataset of the family,
and a neighbour, with one unit more, differs in one part. Where no column names the unit, a row's part follows from what
it holds and from how many equal rows stand before it: equal rows are exchangeable, and are shared out as others are.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from training.rows.packed.scratch import scratch_array

AT_ONCE = 1 << 19
MIXING = np.uint64(0x9E3779B97F4A7C15)
BYTES = 8  # of a hash: the share is met within 2^-64


@dataclass(frozen=True)
class Parting:
    """`key`: the family's, secret as the home's other keys are; `share`: of the units, above 0 and below 1."""

    key: bytes
    share: Decimal

    def is_held(self, who: bytes) -> bool:
        """Return whether the unit of these bytes is kept aside."""
        word = hmac.digest(self.key, who, "sha256")[:BYTES]
        return int.from_bytes(word, "big") < int(self.share * (1 << 8 * BYTES))

    def of_units(self, ids: pa.Array) -> NDArray[np.bool_]:
        """Return (rows,): the part of each id of a column of ids as `people.unit_ids` gives it. A missing one has no
        part: its file is refused.
        """
        words = ids.dictionary_encode()
        is_aside = np.array([*(self.is_held(b"u" + value) for value in words.dictionary.to_pylist()), False], np.bool_)
        places = words.indices.fill_null(len(is_aside) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(is_aside[places], np.bool_)

    def of_records(self, columns: Sequence[NDArray[Any]], folder: Path | None = None) -> NDArray[np.bool_]:
        """Return (rows,): the part of each row, by all that is stored of it, column by column. AT_ONCE are looked at at
        one time, more where more are equal: rows that are equal have one hash, and those of one kind of hash are looked
        at together. `folder`: as for `scratch`.
        """
        size = len(columns[0])
        kinds = -(-size // AT_ONCE)
        if kinds <= 1:
            return self._of_records(columns)
        (kind,), (parts_raw,) = scratch_array((1, size), np.uint16, folder), scratch_array((1, size), np.uint8, folder)
        for start in range(0, size, AT_ONCE):
            words = np.zeros(min(AT_ONCE, size - start), np.uint64)
            for column in columns:
                words = (words ^ column[start : start + AT_ONCE].astype(np.uint64)) * MIXING
                words ^= words >> np.uint64(29)
            kind[start : start + AT_ONCE] = words % np.uint64(min(kinds, 1 << 16))
        for kind_number in range(min(kinds, 1 << 16)):
            places = np.flatnonzero(kind == kind_number)
            parts_raw[places] = self._of_records([column[places] for column in columns])
        parts: NDArray[np.bool_] = parts_raw.view(np.bool_)
        return parts

    def _of_records(self, columns: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
        wide = np.ascontiguousarray(np.stack([column.astype(np.int32) for column in columns], axis=1))
        rows = wide.view(f"V{wide.shape[1] * wide.itemsize}").ravel()
        order = np.argsort(rows, kind="stable")
        same = np.flatnonzero(np.append(True, rows[order][1:] != rows[order][:-1]))  # where each kind of row begins
        before = np.empty(len(rows), np.int64)
        before[order] = np.arange(len(rows)) - np.repeat(same, np.diff(np.append(same, len(rows))))
        texts, numbers = rows.tolist(), before.tolist()
        return np.array([self.is_held(b"r%d " % k + text) for text, k in zip(texts, numbers, strict=True)], np.bool_)

"""Which units of a family are kept aside for evaluation, by a keyed hash: docs/privacy/parts.md has the proof.

The part of a unit follows from its id and the family's key alone, so that it is the same in each dataset of the family,
and a neighbour, with one unit more, differs in one part. Where no column names the unit, a row's part follows from what
it holds and from how many equal rows stand before it: equal rows are exchangeable, and are shared out as others are.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

BYTES = 8  # of a hash: the share is met within 2^-64


@dataclass(frozen=True)
class Parting:
    """`key`: the family's, secret as the home's other keys are; `share`: of the units, above 0 and below 1."""

    key: bytes
    share: Decimal

    def is_held(self, who: bytes) -> bool:
        """Whether the unit of these bytes is kept aside."""
        word = hmac.digest(self.key, who, "sha256")[:BYTES]
        return int.from_bytes(word, "big") < int(self.share * (1 << 8 * BYTES))

    def of_units(self, ids: pa.Array) -> NDArray[np.bool_]:
        """(rows,): of a column of ids as `people.unit_ids` gives it. A missing one has no part: its file is refused."""
        words = ids.dictionary_encode()
        held = np.array([*(self.is_held(b"u" + value) for value in words.dictionary.to_pylist()), False], np.bool_)
        places = words.indices.fill_null(len(held) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(held[places], np.bool_)

    def of_records(self, columns: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
        """(rows,): of all that is stored of the rows, column by column."""
        wide = np.ascontiguousarray(np.stack([column.astype(np.int32) for column in columns], axis=1))
        rows = wide.view(f"V{wide.shape[1] * wide.itemsize}").ravel()
        order = np.argsort(rows, kind="stable")
        same = np.flatnonzero(np.append(True, rows[order][1:] != rows[order][:-1]))  # where each kind of row begins
        before = np.empty(len(rows), np.int64)
        before[order] = np.arange(len(rows)) - np.repeat(same, np.diff(np.append(same, len(rows))))
        texts, numbers = rows.tolist(), before.tolist()
        return np.array([self.is_held(b"r%d " % k + text) for text, k in zip(texts, numbers, strict=True)], np.bool_)

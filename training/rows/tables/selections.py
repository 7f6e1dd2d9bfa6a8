"""Which rows a fit in a notebook gets: the same as another, a fold of them, or neither. Known within one process."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

import numpy as np

from accountant.system.lazy_import import load
from training.rows.people.fingerprints import Hashes, bits_of, mix
from training.rows.tables.frames import CHECKS, array_column, frame_table, is_frame

By = Literal["content", "position"]
ROWS, FOLDS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
REMEMBERED = 4096


def row_words(X: Any, key: np.uint64 = ROWS) -> Hashes:
    """Return (rows,): a word for each row's content, which no other row has a part in. X: a frame, or an array (rows,
    columns).

    ValueError and TypeError of scikit-learn's where X is neither.
    """
    if is_frame(X):
        table = frame_table(X)
        columns = [column.combine_chunks() for column in table.columns]
    else:
        array = load(CHECKS).check_array(X, dtype=None, ensure_all_finite=False, input_name="X")
        columns = [array_column(column) for column in array.T]
    words = np.zeros(len(columns[0]) if columns else 0, np.uint64)
    for place, column in enumerate(columns):
        bits = bits_of(column, key)
        if bits is not None:  # lists and structs are no features
            words = words * np.uint64(3) + mix(bits, key + np.uint64(2 * place + 1))
    return mix(words, key)


def weigh(words: Hashes, weights: Any) -> Hashes:
    """Return a word for each row of these words with what it weighs. weights: (rows,) numbers."""
    bits = np.asarray(weights, np.float64).view(np.uint64)
    return mix(words * np.uint64(3) + mix(bits, ROWS), FOLDS)


@dataclass(frozen=True)
class Selection:
    """A multiset of rows: how many, and two sums of their words. Equal where the rows are, whatever their order."""

    rows: int
    first: int
    second: int

    @classmethod
    def of(cls, words: Hashes) -> Selection:
        """Select rows with these words."""
        return cls(len(words), int(words.sum(dtype=np.uint64)), int(mix(words, FOLDS).sum(dtype=np.uint64)))


@dataclass(frozen=True)
class Origin:
    """What a fold was taken from, and by what of each row."""

    whole: Selection
    by: By


class Folds:
    """The folds that were made in this process, the latest ones."""

    def __init__(self) -> None:
        self._origins: OrderedDict[Selection, Origin] = OrderedDict()
        self._lock = Lock()

    def add(self, part: Selection, origin: Origin) -> None:
        """Remember where a fold comes from."""
        with self._lock:
            self._origins[part] = origin
            while len(self._origins) > REMEMBERED:
                self._origins.popitem(last=False)

    def origin(self, part: Selection) -> Origin | None:
        """Return where these rows were taken from; None where no fold has them."""
        with self._lock:
            return self._origins.get(part)


MADE = Folds()

"""Folds for cross-validation that one person coming or going changes by that person's rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.lazy_import import load
from dpserve_verify.errors import InputError
from training.rows.people.fingerprints import mix
from training.rows.tables.selections import FOLDS, MADE, By, Origin, Selection, row_words

Places = NDArray[np.intp]


class RowFolds(load("sklearn.model_selection").BaseCrossValidator):  # type: ignore[misc]
    """Splits for `cross_val_score`, `GridSearchCV` and the like, whose fits an `Account` adds up.

    `by="content"` (for add-remove): the fold of a row is a hash of its own values, or of its group where `groups` names
    the person, so another row that comes or goes moves none: neighbours of the whole are neighbours, or equal, in every
    fold. Folds are about equally large, equal rows fall into the same one, and `seed` gives another split.
    `by="position"` (for replace-one, where the number of rows is public): row i falls into fold i modulo `n_splits`.
    Splitters that keep sizes or classes equal move up to one row a fold and more (`KFold`), or nearly all (shuffled).

    InputError where `n_splits` is not a whole number from 2 on, or `by` is another word.
    """

    def __init__(self, n_splits: int = 5, *, by: By = "content", seed: int = 0) -> None:
        if isinstance(n_splits, bool) or not isinstance(n_splits, int) or n_splits < 2:
            raise InputError(f"n_splits={n_splits!r}: must be a whole number from 2 on")
        if by not in ("content", "position"):
            raise InputError(f"by={by!r}: must be 'content' or 'position'")
        self.n_splits, self.by, self.seed = n_splits, by, seed

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return how many folds there are."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Places, Places]]:
        """Yield the places of the training rows and of the held-out rows, fold by fold. `y` is not read."""
        words = row_words(X)
        all_rows, folds = Selection.of(words), self._folds(words, groups)
        for fold in range(self.n_splits):
            held_out = folds == fold
            MADE.add(Selection.of(words[~held_out]), Origin(all_rows, self.by))
            yield np.flatnonzero(~held_out), np.flatnonzero(held_out)

    def _folds(self, words: NDArray[np.uint64], groups: Any) -> NDArray[np.uint64]:
        if self.by == "position":
            return np.arange(len(words), dtype=np.uint64) % np.uint64(self.n_splits)
        if groups is not None:
            words = row_words({"group": groups})
        return mix(words, FOLDS ^ np.uint64(self.seed % 2**64)) % np.uint64(self.n_splits)

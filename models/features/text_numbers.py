"""The number that a model makes of each text of a feature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Numbers:
    """The number of each text that a graph knows, and that of all others."""

    known: Mapping[str, float]
    other: float

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Return the texts that the graph knows; their numbers stand in `table` at the same places."""
        return tuple(self.known)

    @cached_property
    def table(self) -> NDArray[np.float32]:
        """Return the numbers of `texts`, and at the end the number of all others."""
        return np.array([*self.known.values(), self.other], np.float32)

    def of(self, texts: NDArray[Any]) -> NDArray[np.float32]:
        """Return the numbers (n,) of texts (n,), which are objects that are all str, or of fixed width; numbers stay as
        they are.
        """
        if texts.dtype == np.float32:
            return texts
        if texts.dtype.kind != "U" or not self.known:
            return np.fromiter(map(self.known.get, texts.tolist(), repeat(self.other)), np.float32, len(texts))
        ordered, places = self.in_order
        at = np.searchsorted(ordered, texts)
        at[at == len(ordered)] = 0
        return self.table[np.where(ordered[at] == texts, places[at], len(places))]

    def of_one(self, text: str) -> NDArray[np.float32]:
        """Return the number of a text, (1,), not to be written to."""
        number = self.arrays.get(text)
        return self.table[-1:] if number is None else number

    @cached_property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Map each of `texts` to its number, (1,)."""
        return dict(zip(self.texts, self.table.reshape(-1, 1), strict=False))

    @cached_property
    def in_order(self) -> tuple[NDArray[np.str_], NDArray[np.intp]]:
        """Sort the texts, and return with them the place of each in `texts`: for columns of fixed width."""
        texts = np.array(self.texts)
        places = np.argsort(texts)
        return texts[places], places


NO_TEXTS: Mapping[str, Numbers] = {}  # by the features' names

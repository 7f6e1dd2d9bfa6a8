"""Lines: voters that are the sign of a sum over features of a number for each code. All integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.errors import ModelInvalid
from models.features import Feature

LARGEST = 1 << 24  # no sum reaches it: float32, in which exported models add, holds every integer below
HEAVIEST = 1 << 20  # of a weight


@dataclass(frozen=True)
class Line:
    """Votes `weight` for the second class where constant + sum over features f of terms[f][code of f] is above 0, and
    as much for the first where it is not. `weight` is above 0.
    """

    weight: int
    constant: int
    terms: tuple[tuple[int, ...], ...]

    @property
    def largest(self) -> int:
        """The size that the sum cannot exceed."""
        return abs(self.constant) + sum(max(map(abs, term), default=0) for term in self.terms)

    def sums(self, codes: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Codes, one array (n,) a feature -> sums (n,)."""
        total = np.full(len(codes[0]), self.constant, np.int64)
        for term, code in zip(self.terms, codes, strict=True):
            total += np.array(term, np.int64)[code]
        return total

    def sides(self, codes: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """1 (n,) where it votes for the second class, else -1."""
        return np.where(self.sums(codes) > 0, 1, -1)

    def to_json(self) -> dict[str, Any]:
        """Inverse: `line_from_json`."""
        return {"weight": self.weight, "constant": self.constant, "terms": [list(term) for term in self.terms]}


def line_from_json(body: Any, features: Sequence[Feature]) -> Line:
    """Inverse of `Line.to_json`, strict; ModelInvalid where it is no line over these features."""
    if not isinstance(body, Mapping) or set(body) != {"weight", "constant", "terms"}:
        raise ModelInvalid("line: must have weight, constant and terms")
    terms = body["terms"]
    if type(terms) is not list or any(type(term) is not list for term in terms):
        raise ModelInvalid("line: terms must be lists")
    line = Line(body["weight"], body["constant"], tuple(map(tuple, terms)))
    check_line(line, features)
    return line


def check_line(line: Line, features: Sequence[Feature]) -> None:
    """ModelInvalid unless it has one integer for each code of each feature, and no sum that float32 would round."""
    if [len(term) for term in line.terms] != [feature.bins for feature in features]:
        raise ModelInvalid("line: must have a term for each code of each feature")
    if any(type(each) is not int for term in (*line.terms, (line.weight, line.constant)) for each in term):
        raise ModelInvalid("line: must be of integers")
    if not 0 < line.weight <= HEAVIEST or line.largest >= LARGEST:
        raise ModelInvalid(f"line: its weight must be from 1 to {HEAVIEST}, and no sum as large as {LARGEST}")

"""Lines: voters that are the sign of a sum over features of a number for each code; of three classes or more, choices:
voters for the class whose sum is the largest. All integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import ModelInvalid
from models.features.features import Feature

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
        """Return the size that the sum cannot exceed."""
        return abs(self.constant) + sum(max(map(abs, term), default=0) for term in self.terms)

    def sums(self, codes: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Return the sums (n,) for codes, one array (n,) per feature."""
        total = np.full(len(codes[0]), self.constant, np.int64)
        for term, code in zip(self.terms, codes, strict=True):
            total += np.array(term, np.int64)[code]
        return total

    def sides(self, codes: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Return 1 where it votes for the second class, else -1: (n,)."""
        return np.where(self.sums(codes) > 0, 1, -1)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON. Inverse: `line_from_json`."""
        return {"weight": self.weight, "constant": self.constant, "terms": [list(term) for term in self.terms]}


@dataclass(frozen=True)
class Choice:
    """Votes `weight` for the class whose sum is the largest, the first of equals: constant[k] + sum over features f of
    terms[k][f][code of f]. `weight` is above 0.
    """

    weight: int
    constant: tuple[int, ...]
    terms: tuple[tuple[tuple[int, ...], ...], ...]  # per class, feature and code

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return each class's sum, as if it were a line of its own."""
        return tuple(Line(self.weight, *numbers) for numbers in zip(self.constant, self.terms, strict=True))

    def chosen_classes(self, codes: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Return the place (n,) of the class that it votes for, given codes, one array (n,) per feature."""
        return np.asarray(np.stack([line.sums(codes) for line in self.lines], axis=1).argmax(axis=1), np.int64)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON. Inverse: `line_from_json`."""
        terms = [[list(term) for term in of_class] for of_class in self.terms]
        return {"weight": self.weight, "constant": list(self.constant), "terms": terms}


def line_from_json(body: Any, features: Sequence[Feature], classes: int = 2) -> Line | Choice:
    """Read what `to_json` wrote, strict; ModelInvalid where it is no line over these features, or no choice of so
    many.
    """
    if not isinstance(body, Mapping) or set(body) != {"weight", "constant", "terms"}:
        raise ModelInvalid("line: must have weight, constant and terms")
    constants, of_classes = ([body["constant"]], [body["terms"]]) if classes == 2 else (body["constant"], body["terms"])
    lists = (constants, of_classes, *(of_classes if type(of_classes) is list else ()))
    if any(type(part) is not list for part in lists) or len(constants) != len(of_classes):
        raise ModelInvalid("line: constants and terms must be lists, one of each a class")
    if any(type(term) is not list for of_class in of_classes for term in of_class):
        raise ModelInvalid("line: terms must be lists")
    terms = tuple(tuple(map(tuple, of_class)) for of_class in of_classes)
    line = (
        Line(body["weight"], constants[0], terms[0]) if classes == 2 else Choice(body["weight"], (*constants,), terms)
    )
    check_line(line, features, classes)
    return line


def check_line(line: Line | Choice, features: Sequence[Feature], classes: int = 2) -> None:
    """Raise ModelInvalid unless it has one integer for each code of each feature, and of three classes or more for each
    class; and no sum that float32 would round.
    """
    if isinstance(line, Line) is not (classes == 2):
        raise ModelInvalid("line: of two classes it is one sum, of more one for each class")
    lines = (line,) if isinstance(line, Line) else line.lines
    if isinstance(line, Choice) and not len(line.constant) == len(line.terms) == classes:
        raise ModelInvalid(f"line: must have a sum for each of {classes} classes")
    for part in lines:
        if [len(term) for term in part.terms] != [feature.bins for feature in features]:
            raise ModelInvalid("line: must have a term for each code of each feature")
        if any(type(number) is not int for term in (*part.terms, (part.weight, part.constant)) for number in term):
            raise ModelInvalid("line: must be of integers")
        if not 0 < part.weight <= HEAVIEST or part.largest >= LARGEST:
            raise ModelInvalid(f"line: its weight must be from 1 to {HEAVIEST}, and no sum as large as {LARGEST}")

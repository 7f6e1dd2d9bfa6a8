"""What stands beside predictions: the ends of intervals, or sets of classes that cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from models.parts.answers import ClassLabel

ENDS = ("low", "high")
Columns: TypeAlias = Mapping[str, NDArray[Any]]  # by name, (n,): numbers for ENDS, truth values for classes in a set


@dataclass(frozen=True)
class Wanted:
    """`level`: of the part of each prediction's interval that noise makes; or, where it `covers`, of answers that hold
    the truth so often, in each group of the column `group` where one is named.
    """

    level: float
    covers: bool = False
    group: str | None = None

    def names(self, classes: Sequence[ClassLabel]) -> tuple[str, ...]:
        """Return the names of the columns, of a model with these classes (none: a number)."""
        return tuple(f"in_{label}" for label in classes) if self.covers and classes else ENDS

    def to_json(self, columns: Columns, classes: Sequence[ClassLabel], statement: int | None) -> dict[str, Any]:
        """Return what an answer in JSON has; `statement`: the entry of what is promised of answers that cover."""
        table = np.column_stack([*columns.values()])
        if not self.covers:
            return {"interval": {"level": self.level, "ends": table.tolist()}}
        sets = (
            [[label for label, is_in in zip(classes, row, strict=True) if is_in] for row in table] if classes else None
        )
        answers = {"ends": table.tolist()} if sets is None else {"sets": sets}
        return {"cover": {"level": self.level, "group": self.group, "statement": statement, **answers}}


def read_wanted(interval: object, cover: object, group: str | None) -> Wanted | None:
    """Return what is wanted, of levels such as ".9"; None where none is. InputError where they do not go together."""
    if interval is not None and cover is not None:
        raise InputError("interval, cover: one at a time; the first is about noise alone, the second holds the truth")
    if group is not None and cover is None:
        raise InputError("group: goes with cover, for instance .9")
    if interval is None and cover is None:
        return None
    name, level = ("interval", interval) if cover is None else ("cover", cover)
    return Wanted(read_level(level, name), cover is not None, group)


def read_level(text: object, name: str) -> float:
    """Return a level from .5 to .99, of a text such as ".9" or a number. Raises InputError."""
    try:
        level = float(str(text))
    except ValueError:
        level = 0.0
    if not 0.5 <= level <= 0.99:
        raise InputError(f"{name}={str(text)[:40]!r}: must be from .5 to .99, for instance .9")
    return level

"""What a schema says of the weights of rows: the column, and the most that one may weigh (docs/privacy/rows.md)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictStr

from accountant.errors import SchemaError
from dpserve_verify.privacy.weights import PARTS, Weight
from models.features.features import Codes, NumericFeature
from models.features.written import Written
from training.rows.schema.declared import Finite, Format, Strict

LEAST_MOST, MOST_MOST = 1e-9, 1e12
Floats = NDArray[np.float64]


class DeclaredWeight(Strict):
    """`column`: says what each row weighs; `most`: the public bound of one row's weight. `above`: whether a larger
    weight refuses the file, or counts as the most.
    """

    column: StrictStr
    most: Annotated[Finite, Field(ge=LEAST_MOST, le=MOST_MOST)]
    above: Literal["refuse", "clip"] = "refuse"

    def written(self, usual: Format) -> Written:
        """Return how files write it: as they write numbers."""
        return Written(usual.decimal, missing=usual.missing_words, thousands=usual.thousands)

    def checked(self) -> RowWeight:
        """Return what it says, `most` exactly as the file writes it."""
        return RowWeight(self.column, Decimal(repr(self.most)), self.above == "clip")

    def own_column(self, names: Collection[str]) -> dict[str, None]:
        """Return its column. SchemaError where that is one of `names`, a feature, a group or a target."""
        if self.column in names:
            raise SchemaError(
                f"schema: weight: {self.column!r} says what a row weighs, and so it is no feature, group or target: "
                "leave it out there, or name another column"
            )
        return {self.column: None}


@dataclass(frozen=True)
class RowWeight(Weight):
    """The same, checked. `clips`: whether more than the most counts as the most. A row that weighs 0 counts nothing."""

    clips: bool = False

    @cached_property
    def feature(self) -> NumericFeature:
        """Return the public bins of a weight: code k is the one next to k / PARTS of the most."""
        return NumericFeature(self.column, tuple((k + 0.5) * float(self.most) / PARTS for k in range(PARTS)))

    def encode(self, numbers: Floats) -> Codes:
        """Return the codes of sound weights, in 0..PARTS."""
        return self.feature.encode(numbers)

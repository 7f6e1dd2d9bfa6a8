"""Weights of rows (docs/privacy/rows.md): a row of weight w counts as w / most of one, to the next of PARTS.

So no row counts as more than one, and what one row moves is what it moves without weights: in PARTS of a row, in which
weighed rows are counted, exactly PARTS times as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string, parse_decimal
from dpserve_verify.privacy.budget import Relation
from dpserve_verify.privacy.events import Plan

PARTS = 120  # of the most weight: halves, thirds, fifths, tenths, twelfths are whole; codes of a weight fit one byte


@dataclass(frozen=True)
class Weight:
    """The column that says what a row weighs, and the most that one may. InputError where that is not above 0."""

    column: str
    most: Decimal

    def __post_init__(self) -> None:
        if not self.most.is_finite() or self.most <= 0:
            raise InputError(f"weight: most={self.most}: must be above 0")

    def to_json(self) -> dict[str, str]:
        """Return it as entries have it."""
        return {"column": self.column, "most": decimal_string(self.most)}

    def to_certificate(self) -> dict[str, Any]:
        """Return it as statements have it, with how finely rows were weighed."""
        return {**self.to_json(), "parts": PARTS}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Weight:
        """Read what `to_json` made. InputError where it is none."""
        return cls(body["column"], parse_decimal(body["most"]))


def parts_of(weight: object | None) -> int:
    """Return in how many parts a row is counted, by its weight; 1 where all weigh alike."""
    return 1 if weight is None else PARTS


def weight_fault(plan: Plan, parts: int, contributions: int = 1) -> str | None:
    """Say which release of a plan cannot be of rows that are counted in so many parts: how far one unit moves it is
    none of their multiples. None where all are.
    """
    for release, _ in plan.runs:
        if release.sensitivity % (parts * contributions):
            return (
                f"plan: {release.purpose:.80}: sensitivity {release.sensitivity} is not of rows that are weighed, "
                f"{parts} parts each"
            )
    return None


def relation_fault(relation: Relation) -> str | None:
    """Say why rows of these neighbours are not weighed; None where they may be."""
    if relation is Relation.REPLACE_ONE:
        return (
            "weight: needs add-remove: under replace-one the number of rows is public and stands for their sum, and "
            "what all rows weigh together is private"
        )
    return None

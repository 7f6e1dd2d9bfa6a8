"""Counts of a part of the units, as counts of all of them: scaled by the public share of the part, with an interval
that holds what noise and the draw of the part leave open. docs/privacy/counts.md has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import Any

HALF = 0.025  # of the chance to err, for the noise, and as much for the draw: together what LEVEL leaves


@dataclass(frozen=True)
class Sampled:
    """Of which units rows were counted: each was put into the part by a keyed hash of itself, with the chance `share`.
    `most`: rows of one unit that are counted, at most.
    """

    share: float
    most: int

    @classmethod
    def of_rows(cls, rows: Any) -> Sampled | None:
        """Return what the `rows` of a statement say; None where they are of all units."""
        return None if rows.share is None else cls(float(rows.share), rows.unit_rows or 1)

    def scale(self, count: float, width: float) -> tuple[float, float, float]:
        """Return the number of rows of all units, with its interval, by a noisy count of the part: the noise reaches
        `width` to either side, with a chance of 1 - HALF.

        Of N rows the part has q N, but for Bernstein's inequality: it is off by more than a + sqrt(a^2 + b N) with a
        chance of HALF at most. The interval holds each N of which the noisy count is not further off than both.
        """
        q, bound = self.share, log(2 / HALF)
        a = self.most * max(q, 1 - q) * bound / 3
        b = 2 * bound * self.most * q * (1 - q)
        low, high = max(0.0, count - width), max(0.0, count + width)
        return max(0.0, count) / q, _root(q, b, low - a, a, -1) if low > 2 * a else 0.0, _root(q, b, high + a, a, 1)


def _root(q: float, b: float, end: float, a: float, side: int) -> float:
    """Return the N with (q N - end)^2 = a^2 + b N, the larger or the smaller one."""
    half = q * end + b / 2
    inside = max(0.0, half * half - q * q * (end * end - a * a))
    return max(0.0, (half + side * sqrt(inside)) / (q * q))


def describe_rows(rows: Any, unit: Any) -> str:
    """Say of which rows of a dataset a statement is: its `rows`, and the `unit` of its claim."""
    people = "people" if unit.name == "person" else "records" if unit.name == "record" else f"{unit.name}s"
    if rows.share is None:
        of = f"all {people}"
    else:
        kept = "kept aside for evaluation" if rows.part == "holdout" else "kept for training"
        of = f"the {100 * float(rows.share):.4g} % of {people} that are {kept}"
    if unit.name == "person":
        of += f", of each at most {'one row' if unit.contributions == 1 else f'{unit.contributions} rows'}"
    if rows.weight is not None:
        of += f", each by its weight, {rows.weight.column}, of at most {rows.weight.most}"
    if rows.window:
        first, last = rows.window
        of += f", in block {first}" if first == last else f", in blocks {first} to {last}"
    return of

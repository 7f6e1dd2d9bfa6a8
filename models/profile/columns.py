"""A column as a profile counts it: its public bins, and the numbers that a bin stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accountant.certificates.profile import KeyForm
from dpserve_verify.errors import CertificateInvalid, ModelInvalid
from models.features.calendar import CalendarKind
from models.features.calendar import text_of as calendar_text
from models.features.features import (
    CALENDAR,
    BooleanFeature,
    CalendarFeature,
    CategoricalFeature,
    Feature,
    NumericFeature,
)

Floats = NDArray[np.float64]
Role = Literal["feature", "target"]
Bin = Literal["other", "missing"]


@dataclass(frozen=True)
class Column:
    """`feature`: its bins, of which the last one is for missing values. `ends`: of a number, the declared range.
    `absent`: bins that no row can be in, for a target has no value but its classes.
    """

    feature: Feature
    role: Role
    ends: tuple[float, float] = (0.0, 0.0)
    absent: tuple[Bin, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the column."""
        return self.feature.name

    @property
    def bins(self) -> int:
        """Count the bins, each with a count of its own."""
        return self.feature.bins

    def has_bins_of(self, other: Column) -> bool:
        """Tell whether another column is this one, a number's with the same cut points."""
        edges = [column.feature.edges for column in (self, other) if isinstance(column.feature, NumericFeature)]
        return self.name == other.name and (len(edges) < 2 or edges[0] == edges[1])

    @property
    def codes(self) -> tuple[int, ...]:
        """Return the bins that rows can be in."""
        own = {"missing": self.bins - 1, "other": self.bins - 2}
        return tuple(code for code in range(self.bins) if code not in [own[name] for name in self.absent])

    @property
    def is_everywhere(self) -> bool:
        """Tell whether no row is without it."""
        return "missing" in self.absent

    @cached_property
    def limits(self) -> tuple[Floats, Floats]:
        """Return the lowest and the highest value in each bin of a number but the missing one, clipped to `ends`."""
        assert isinstance(self.feature, NumericFeature)
        inner = np.clip(np.array(self.feature.edges, np.float64), *self.ends)
        low, high = self.ends
        return np.concatenate([[low], inner]), np.concatenate([inner, [high]])

    def to_json(self) -> dict[str, Any]:
        """Return what a statement says of it beside its counts."""
        feature = self.feature
        about: dict[str, Any] = {"name": feature.name, "role": self.role, "type": feature.kind}
        about |= {"absent": [*self.absent]} if self.absent else {}
        if isinstance(feature, NumericFeature):  # dates too: their figures are of days or seconds
            about["type"] = NumericFeature.kind
            return {
                **about,
                **({"calendar": feature.kind} if isinstance(feature, CalendarFeature) else {}),
                "edges": [text_of(edge) for edge in feature.edges],
                "ends": [*map(text_of, self.ends)],
            }
        return about | ({"values": list(feature.values)} if isinstance(feature, CategoricalFeature) else {})


def column_of(form: KeyForm) -> Column:
    """Return the inverse of `to_json`; CertificateInvalid where it is none."""
    absent = tuple(form.absent or ())
    try:
        if form.type == "boolean" and (form.edges, form.ends, form.values, form.calendar) == (None,) * 4:
            if "other" not in absent:
                return Column(BooleanFeature(form.name), form.role, absent=absent)
        elif form.type == "categorical" and (form.edges, form.ends, form.calendar) == (None,) * 3:
            if form.values is not None:
                return Column(CategoricalFeature(form.name, tuple(form.values)), form.role, absent=absent)
        elif form.type == "numeric" and form.edges is not None and form.ends is not None and form.values is None:
            low, high = map(float, form.ends)
            if (low < high or len(form.edges) == 1) and "other" not in absent:
                kind = number_kind(form.calendar)
                return Column(kind(form.name, tuple(map(float, form.edges))), form.role, (low, high), absent)
    except ModelInvalid as error:
        raise CertificateInvalid(f"columns: {error.message}") from None
    raise CertificateInvalid(f"columns: {form.name!r:.80} is not of its type's form")


def number_kind(calendar: CalendarKind | None) -> type[NumericFeature]:
    """Return the type of a number's feature: of a date or a time, where it is one."""
    return NumericFeature if calendar is None else CALENDAR[calendar]


def labels(column: Mapping[str, Any]) -> list[str]:
    """Return what each count of a column's statement is of, in words for people."""
    if column["type"] == "numeric":
        edges, calendar = column["edges"], column.get("calendar")
        if calendar is not None:
            edges = [calendar_text(calendar, float(edge)) for edge in edges]
        between = [f"{low} to {high}" for low, high in pairwise(edges)]
        return [f"at most {edges[0]}", *between, f"above {edges[-1]}", "missing"]
    if column["type"] == "boolean":
        return ["false", "true", "missing"]
    return [*column["values"], "other values", "missing"]


def cell_labels(column: Mapping[str, Any], cells: Sequence[int]) -> list[str]:
    """Return what each cell of a column's pairs is of: its bins, the first and the last of many."""
    names: dict[int, list[str]] = {}
    for name, cell in zip(labels(column), cells, strict=True):
        names.setdefault(cell, []).append(name)
    return [", ".join(own) if len(own) < 4 else f"{own[0]} .. {own[-1]}" for _, own in sorted(names.items())]


def text_of(number: float) -> str:
    """Return a float as statements spell it: exact, in the fewest digits."""
    return repr(float(number)).removesuffix(".0") if number else "0"

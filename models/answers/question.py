"""What a query of counts, sums and means asks of a table: groups, conditions and figures, all in public cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from accountant.certificates.answer import ConditionForm, MeasureForm
from dpserve_verify.errors import CertificateInvalid
from models.features.features import NumericFeature
from models.profile.columns import Column, column_of, labels, text_of

Kind = Literal["count", "sum", "avg"]


@dataclass(frozen=True)
class Condition:
    """Which rows are counted, by one column. Of a number: those `above` < x <= `upto` (None: no end), and none that
    is missing, or (`missing`) those alone where it is. Of anything else: those with one of `codes`.
    """

    column: Column
    codes: tuple[int, ...] | None = None
    above: float | None = None
    upto: float | None = None
    missing: bool = False

    @classmethod
    def by_missing(cls, column: Column, missing: bool) -> Condition:
        """Return the condition that a column is missing, or that it is there."""
        if isinstance(column.feature, NumericFeature):
            return cls(column, missing=missing)
        last = column.bins - 1
        return cls(column, (last,) if missing else tuple(range(last)))

    @classmethod
    def from_form(cls, form: ConditionForm) -> Condition:
        """Read the inverse of `to_json`. CertificateInvalid where it is no condition on its column."""
        column = column_of(form.column)
        above, upto = (None if end is None else float(end) for end in (form.above, form.upto))
        of_number = isinstance(column.feature, NumericFeature)
        fits = form.codes is None if of_number else (above, upto, form.missing) == (None, None, False)
        if not fits or any(code >= column.bins for code in form.codes or ()) or (not of_number and not form.codes):
            raise CertificateInvalid(f"where: {column.name!r:.80}: is no condition on a column of its type")
        codes = None if form.codes is None else tuple(form.codes)
        return cls(column, codes, above, upto, form.missing)

    def to_json(self) -> dict[str, Any]:
        """Return it as a statement has it."""
        ends = {name: text_of(end) for name, end in (("above", self.above), ("upto", self.upto)) if end is not None}
        codes = {} if self.codes is None else {"codes": [*self.codes]}
        return {"column": self.column.to_json(), **codes, **ends, "missing": self.missing}

    def codes_in_bins(self) -> frozenset[int] | None:
        """Return the bins of its column that hold exactly its rows; None where an end lies within a bin."""
        if self.codes is not None:
            return frozenset(self.codes)
        edges: tuple[float, ...] = self.column.feature.edges  # type: ignore[union-attr]  # a number's
        if self.missing:
            return frozenset([len(edges) + 1])
        if not {self.above, self.upto} <= {None, *edges}:
            return None
        first = 0 if self.above is None else edges.index(self.above) + 1
        last = len(edges) if self.upto is None else edges.index(self.upto)
        return frozenset(range(first, last + 1))

    @property
    def words(self) -> str:
        """Return it for people."""
        name = self.column.name
        if self.codes is not None:
            names = labels(self.column.to_json())
            chosen, others = self.codes, [code for code in range(len(names)) if code not in self.codes]
            if len(others) < len(chosen):
                return f"{name} is not {' or '.join(names[code] for code in others)}" if others else f"any {name}"
            return f"{name} is {' or '.join(names[code] for code in chosen)}"
        if self.missing or (self.above, self.upto) == (None, None):
            return f"{name} is {'' if self.missing else 'not '}missing"
        low = "" if self.above is None else f"{self.above:.7g} < "
        return f"{low}{name}" + ("" if self.upto is None else f" <= {self.upto:.7g}")


@dataclass(frozen=True)
class Output:
    """One figure of each group. `column`: that a number is counted, added up or averaged of; None: every row."""

    name: str
    kind: Kind
    column: Column | None = None


@dataclass(frozen=True)
class Measure:
    """What is counted in each group: rows (`column` None), rows where the column is there, or (`is_sum`) the sum of
    the number, from -1 at the low end of its range to 1 at the high end. `within`: how far one row's number may be
    off, because it is known to its cell alone.
    """

    column: str | None = None
    is_sum: bool = False
    ends: tuple[float, float] | None = None
    within: float = 0.0

    @classmethod
    def from_form(cls, form: MeasureForm) -> Measure:
        """Read the inverse of `to_json`. CertificateInvalid where a sum has no range."""
        ends = None if form.ends is None else (float(form.ends[0]), float(form.ends[1]))
        if form.is_sum != (ends is not None) or form.is_sum != (form.within is not None):
            raise CertificateInvalid("measures: a sum has its range, and how near a number is known; a count has not")
        if form.is_sum and (form.column is None or ends is None or not ends[0] < ends[1]):
            raise CertificateInvalid("measures: a sum is of a column with a range")
        return cls(form.column, form.is_sum, ends, float(form.within or 0))

    def to_json(self) -> dict[str, Any]:
        """Return it as a statement has it."""
        body: dict[str, Any] = {"column": self.column, "sum": self.is_sum}
        if self.ends is not None:
            body |= {"ends": [*map(text_of, self.ends)], "within": text_of(self.within)}
        return body


@dataclass(frozen=True)
class Question:
    """A query as it was understood. `select`: its text, in one spelling."""

    select: str
    by: tuple[Column, ...]
    where: tuple[Condition, ...]
    outputs: tuple[Output, ...]

    def to_json(self) -> Mapping[str, Any]:
        """Return what is counted, for people and programs."""
        return {
            "select": self.select,
            "by": [column.name for column in self.by],
            "where": [condition.words for condition in self.where],
            "figures": [output.name for output in self.outputs],
        }

"""What a query of counts, sums and means asks of a table: groups, conditions and figures, all in public cells."""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from accountant.certificates.answer import ConditionForm, MeasureForm
from dpserve_verify.errors import CertificateInvalid
from models.features.calendar import CalendarKind
from models.features.features import CalendarFeature, NumericFeature
from models.profile.columns import Column, column_of, labels, text_of

Kind = Literal["count", "sum", "avg"]
End = Literal["low", "high"]
ENDS: tuple[End, End] = "low", "high"
Sign = Literal["<", "<=", ">", ">="]
SIGNS: Mapping[Sign, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


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
        return cls(column, (last,) if missing else tuple(code for code in column.codes if code != last))

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

    def bins_met(self, column: Column) -> list[int]:
        """Return the bins of its column, which may be others than its own, that can hold its rows."""
        if self.codes is not None:
            return [code for code in column.codes if code in self.codes]
        edges: tuple[float, ...] = column.feature.edges  # type: ignore[union-attr]  # a number's
        if self.missing:
            return [len(edges) + 1]
        first = 0 if self.above is None else bisect_right(edges, self.above)
        last = len(edges) if self.upto is None else bisect_left(edges, self.upto)
        return [*range(first, last + 1)]

    def is_of_bins(self, column: Column) -> bool:
        """Tell whether the rows of those bins all meet it: no end lies within a bin."""
        ends = {self.above, self.upto} - {None}
        return not ends or ends <= {*column.feature.edges}  # type: ignore[union-attr]  # a number's

    def equals(self, other: Condition | None) -> bool:
        """Tell whether another condition on the same column admits the same rows."""
        fields = self.codes, self.above, self.upto, self.missing
        return other is not None and fields == (other.codes, other.above, other.upto, other.missing)

    def implies(self, other: Condition) -> bool:
        """Tell whether each row that meets it meets another condition on the same column."""
        both = self.meet(other)
        return both is not None and both.equals(self)

    def meet(self, other: Condition) -> Condition | None:
        """Return the condition that both hold; None where no row can meet it."""
        if self.codes is not None and other.codes is not None:
            codes = tuple(sorted({*self.codes} & {*other.codes}))
            return Condition(self.column, codes) if codes else None
        if self.missing or other.missing:
            return self if self.missing and other.missing else None
        above = max((end for end in (self.above, other.above) if end is not None), default=None)
        upto = min((end for end in (self.upto, other.upto) if end is not None), default=None)
        if above is not None and upto is not None and not above < upto:
            return None
        return Condition(self.column, above=above, upto=upto)

    @property
    def words(self) -> str:
        """Return it for people."""
        name = self.column.name
        if self.codes is not None:
            names = labels(self.column.to_json())
            chosen, others = self.codes, [code for code in self.column.codes if code not in self.codes]
            if len(others) < len(chosen):
                return f"{name} is not {' or '.join(names[code] for code in others)}" if others else f"any {name}"
            return f"{name} is {' or '.join(names[code] for code in chosen)}"
        if self.missing or (self.above, self.upto) == (None, None):
            return f"{name} is {'' if self.missing else 'not '}missing"
        low = "" if self.above is None else f"{value_text(self.column, self.above)} < "
        return f"{low}{name}" + ("" if self.upto is None else f" <= {value_text(self.column, self.upto)}")


def value_text(column: Column, value: float) -> str:
    """Return a number of a column for people: of a date as a date."""
    return column.feature.text(value) if isinstance(column.feature, CalendarFeature) else f"{value:.7g}"


Conditions = dict[str, Condition]


def merge(*groups: Iterable[Condition]) -> Conditions | None:
    """Return conditions by column, each column once; None where no row can meet all of them."""
    merged: Conditions = {}
    for condition in chain(*groups):
        name = condition.column.name
        both = condition if name not in merged else merged[name].meet(condition)
        if both is None:
            return None
        merged[name] = both
    return merged


@dataclass(frozen=True)
class Output:
    """One figure of each group. `column`: that a number is counted, added up or averaged of; None: every row. `where`:
    of rows that meet these as well. The average of no column is the share of rows that meet them.
    """

    name: str
    kind: Kind
    column: Column | None = None
    where: tuple[Condition, ...] = ()

    @property
    def calendar(self) -> CalendarKind | None:
        """Return which kind of date or time it is, where it is one."""
        of_date = self.kind == "avg" and self.column is not None and isinstance(self.column.feature, CalendarFeature)
        return self.column.feature.kind if of_date else None  # type: ignore[union-attr, return-value]  # a date's


@dataclass(frozen=True)
class Measure:
    """What is counted in each group: rows (`column` None), rows where the column is there, or (`is_sum`) its number in
    parts: a row counts 1 towards one `end` of the range where it is there, 0 at the other, and by its place between
    them. `within`: how far one row's number may be off, because it is known to its cell alone. `everywhere`: no row is
    without the column. `where`: over those rows alone that meet these as well.
    """

    column: str | None = None
    is_sum: bool = False
    ends: tuple[float, float] | None = None
    within: float = 0.0
    calendar: CalendarKind | None = None
    where: tuple[Condition, ...] = ()
    end: End | None = None
    everywhere: bool = False

    @classmethod
    def from_form(cls, form: MeasureForm) -> Measure:
        """Read the inverse of `to_json`. CertificateInvalid where a sum has no range."""
        ends = None if form.ends is None else (float(form.ends[0]), float(form.ends[1]))
        if {form.is_sum} != {each is not None for each in (ends, form.within, form.end)}:
            raise CertificateInvalid(
                "measures: a sum has a range, an end, and how near a number is known; a count has not"
            )
        if form.is_sum and (form.column is None or ends is None or not ends[0] < ends[1]):
            raise CertificateInvalid("measures: a sum is of a column with a range")
        where = tuple(map(Condition.from_form, form.where or ()))
        within, everywhere = float(form.within or 0), bool(form.everywhere)
        return cls(form.column, form.is_sum, ends, within, form.calendar, where, form.end, everywhere)

    def to_json(self) -> dict[str, Any]:
        """Return it as a statement has it."""
        body: dict[str, Any] = {"column": self.column, "sum": self.is_sum}
        if self.ends is not None:
            body |= {"ends": [*map(text_of, self.ends)], "end": self.end, "within": text_of(self.within)}
        body |= {"everywhere": True} if self.everywhere else {}
        body |= {} if self.calendar is None else {"calendar": self.calendar}
        return body | ({"where": [condition.to_json() for condition in self.where]} if self.where else {})


@dataclass(frozen=True)
class Having:
    """Which groups are shown: those of which a noisy figure, by its name, stands in this relation to a value."""

    name: str
    sign: Sign
    value: float
    text: str


@dataclass(frozen=True)
class Question:
    """A query as it was understood. `select`: its text, in one spelling. What follows is done on the noisy answer:
    `having` chooses groups, `order` sorts them, by the name of a figure or a group's column, each with whether it
    falls, and `limit` is how many of them are shown.
    """

    select: str
    by: tuple[Column, ...]
    where: tuple[Condition, ...]
    outputs: tuple[Output, ...]
    having: tuple[Having, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    limit: int | None = None

    def group_codes(self) -> list[list[int]]:
        """Return, of each column that it groups by, the bins that can hold its rows."""
        where = {condition.column.name: condition for condition in self.where}
        met = [where[column.name].bins_met(column) if column.name in where else column.codes for column in self.by]
        return [[code for code in column.codes if code in own] for column, own in zip(self.by, met, strict=True)]

    @property
    def afterwards(self) -> list[str]:
        """Return in words what is done on the noisy answer."""
        words = [f"only groups with {each.name} {each.sign} {each.text}" for each in self.having]
        words += [f"by {name}{', falling' if falls else ''}" for name, falls in self.order]
        return words + ([] if self.limit is None else [f"the first {self.limit}"])

    def to_json(self) -> Mapping[str, Any]:
        """Return what is counted, for people and programs."""
        return {
            "select": self.select,
            "by": [column.name for column in self.by],
            "where": [condition.words for condition in self.where],
            "figures": [output.name for output in self.outputs],
            "kinds": [output.calendar or output.kind for output in self.outputs],
            "afterwards": self.afterwards,
        }

"""What a schema file may say of a column, and of how its files are written: strict, nothing unknown, nothing double."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from math import expm1, log1p
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)

from models.features.calendar import number_of
from models.features.features import CALENDAR, BooleanFeature, CategoricalFeature, NumericFeature
from models.features.written import DELIMITERS, ISO_DATE, Decimal, Delimiter, Form, Thousands, encoding_named

MAX_BINS = 60_000
LOG_SHARE = 4
PUBLIC_ONLY = "it is public knowledge that a person must write down; dpserve never reads it from rows"


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is neither true nor false (YAML reads yes, no, on, off as these)")
    return value


Words = Annotated[tuple[Annotated[StrictStr, Field(min_length=1, max_length=40)], ...], Field(max_length=20)]
Patterns = Annotated[tuple[StrictStr, ...], Field(min_length=1, max_length=4)]
FirstYear = Annotated[StrictInt, Field(ge=1, le=9900)]
Finite = Annotated[float, BeforeValidator(_no_truth), Field(allow_inf_nan=False)]


class Strict(BaseModel):
    """Nothing unknown. Built when first asked for: each of these once, and not once more within each that holds it."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Numeric(Strict):
    """`range` with `bins` uniform cut points from its low end on (and, for `scale: log`, a quarter as many
    log-spaced), or `edges`. `decimal`: the mark before the fraction; `measure`: it is no id, whatever its name says.
    `unit_mark`: what stands beside the number in its cells. `missing_values`: numbers that stand for a missing value.
    `outside`: most cells may lie outside of the range only where that is `expected`.
    """

    type: Literal["numeric"]
    range: tuple[Finite, Finite] | None = None
    bins: Annotated[StrictInt, Field(ge=2, le=4096)] = 32
    scale: Literal["linear", "log"] = "linear"
    edges: tuple[Finite, ...] | None = None
    decimal: Decimal | None = None
    thousands: Thousands | None = None
    unit_mark: StrictStr = ""
    missing_words: Words = ()
    missing_values: Annotated[tuple[Finite, ...], Field(max_length=20)] = ()
    measure: StrictBool = False
    outside: Literal["expected"] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Numeric:
        if (self.range is None) == (self.edges is None):
            raise ValueError(f"needs either `range: [low, high]` or `edges: [...]`: {PUBLIC_ONLY}")
        if self.outside is not None and self.range is None:
            raise ValueError("outside: is of a range; beyond the last of `edges` is a bin of its own")
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError(f"range={list(self.range)}: low must be below high")
        if self.edges is not None and (not self.edges or any(a >= b for a, b in pairwise(self.edges))):
            raise ValueError("edges: at least one, ascending, without repeats")
        return self

    def feature(self, name: str) -> NumericFeature:
        """Return the feature of this name."""
        if self.edges is not None:
            return NumericFeature(name, self.edges)
        assert self.range is not None
        low, high = self.range
        if self.bins == 2 and low == int(low) and low < low + 0.5 < high == low + 1:  # two whole numbers
            return NumericFeature(name, (low + 0.5,))
        cuts = {low + (high - low) * j / self.bins for j in range(self.bins)}
        if self.scale == "log":
            steps = max(2, self.bins // LOG_SHARE)
            cuts |= {low + expm1(log1p(high - low) * j / steps) for j in range(steps)}
        return NumericFeature(name, tuple(sorted(cuts)))


class Categorical(Strict):
    """`values`: the categories that are publicly known. Anything else is `other`, which most rows may be only where it
    is `expected`.
    """

    type: Literal["categorical"]
    values: Annotated[tuple[StrictStr | StrictInt, ...], Field(min_length=1, max_length=MAX_BINS)]
    missing_words: Words = ()
    other: Literal["expected"] | None = None

    @field_validator("values")
    @classmethod
    def _distinct(cls, values: tuple[StrictStr | StrictInt, ...]) -> tuple[StrictStr | StrictInt, ...]:
        texts = [str(value) for value in values]
        if len(set(texts)) != len(texts):
            raise ValueError(f"values: {sorted({text for text in texts if texts.count(text) > 1})} stand there twice")
        return values

    def feature(self, name: str) -> CategoricalFeature:
        """Return the feature of this name."""
        return CategoricalFeature(name, tuple(str(value) for value in self.values))


class Boolean(Strict):
    """True or false; words for either beside the usual ones."""

    type: Literal["boolean"]
    true_words: Words = ()
    false_words: Words = ()
    missing_words: Words = ()

    def feature(self, name: str) -> BooleanFeature:
        """Return the feature of this name."""
        return BooleanFeature(name)


def _iso(value: Any) -> Any:
    """Return what YAML makes of an ISO text, as that text again."""
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    if isinstance(value, int):
        raise ValueError("a time is a text: put quotes around it")
    return value


Iso = Annotated[StrictStr, BeforeValidator(_iso)]


class Calendar(Strict):
    """A date in days, a datetime or a time of day in seconds: `range` with `bins` even cut points, or `edges`, as ISO
    texts. `written`: how files write the days; `first_year`: of the hundred that years with two digits stand for.
    `outside`: as of a number.
    """

    type: Literal["date", "datetime", "time"]
    range: tuple[Iso, Iso] | None = None
    bins: Annotated[StrictInt, Field(ge=2, le=4096)] = 32
    edges: tuple[Iso, ...] | None = None
    written: Patterns | None = None
    first_year: FirstYear | None = None
    missing_words: Words = ()
    outside: Literal["expected"] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Calendar:
        if (self.range is None) == (self.edges is None):
            raise ValueError(f"needs either `range: [first, last]` or `edges: [...]`: {PUBLIC_ONLY}")
        if self.outside is not None and self.range is None:
            raise ValueError("outside: is of a range; beyond the last of `edges` is a bin of its own")
        if self.type == "time" and self.written is not None:
            raise ValueError("written: is of days; a time of day is read as 14:30 or 14:30:00")
        ends = self.ends()
        if any(a >= b for a, b in pairwise(ends)) or not ends:
            raise ValueError("range, edges: must ascend, without repeats")
        if self.range is not None and self.type == "date" and ends[1] - ends[0] < 2:
            raise ValueError("range: at least three days")
        return self

    def ends(self) -> list[float]:
        """Return the declared places as numbers."""
        return [number_of(self.type, text) for text in (self.range or self.edges or ())]

    def feature(self, name: str) -> NumericFeature:
        """Cut points of dates are whole days, each once."""
        ends = self.ends()
        if self.edges is None:
            low, high = ends
            ends = sorted({float(int((low + (high - low) * at / self.bins) // 1)) for at in range(self.bins)})
        return CALENDAR[self.type](name, tuple(ends))


class Format(Strict):
    """How the files are written. Words and patterns hold for every column that says none of its own."""

    delimiter: Delimiter = ","
    encoding: Annotated[StrictStr, AfterValidator(encoding_named)] = "utf-8"
    sheet: Annotated[StrictStr, Field(max_length=100)] = ""
    trim: StrictBool = False
    columns: tuple[StrictStr, ...] = ()
    skip: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    skip_rows: Annotated[tuple[Annotated[StrictStr, Field(max_length=200)], ...], Field(max_length=20)] = ()
    decimal: Decimal = "."
    thousands: Thousands = ""
    dates: Patterns = (ISO_DATE,)
    first_year: FirstYear | None = None
    true_words: Words = ()
    false_words: Words = ()
    missing_words: Words = ()

    @field_validator("delimiter", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        names = {name: mark for mark, name in DELIMITERS.items()}
        return names.get(value, value) if isinstance(value, str) else value

    @field_validator("columns")
    @classmethod
    def _each_once(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        if len({*columns}) < len(columns) or not all(name == name.strip() for name in columns):
            raise ValueError("columns: names each column once, without blanks about the name")
        return columns

    def form(self) -> Form:
        """Return how a file is cut into cells."""
        return Form(self.delimiter, self.encoding, self.sheet, self.columns, self.skip, self.skip_rows)

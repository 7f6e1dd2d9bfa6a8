"""Public features and their encoding: how a raw value becomes a small integer code, at training and when served.

Nothing here comes from rows: cut points and categories are copied from the public schema. Every feature has a code
for missing values; categorical ones have a code for values that the schema does not list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpserve_verify.errors import InputError, ModelInvalid
from models.features.calendar import CalendarKind, number_of, text_of

Codes = NDArray[np.uint16]
RawColumns = Mapping[str, ArrayLike]
MISSING_TEXT = ""
MAX_BINS = 1 << 16
DIGITS, ALL_DIGITS = 6, 17  # of a cut point for people; that tell any two numbers apart
FEW_VALUES = 30  # of an ordered category whose values are also told apart one by one
LISTED = 4  # values that a test names before the rest is counted


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ModelInvalid(message)


def _check_name(name: str) -> None:
    fine = name.isprintable() and name[:1] not in ("", "/")
    _require(fine, f"feature={name!r}: must be printable, without leading '/'")


def number_text(number: float, digits: int = DIGITS) -> str:
    """Write a cut point for people: six digits, or more, and all of the whole part."""
    return f"{number:.0f}" if 1e6 <= abs(number) < 1e15 and digits == DIGITS else f"{number:.{digits}g}"


def encodable(text: str) -> bool:
    """Return whether `text` is not empty and is Unicode that UTF-8 can carry (no lone surrogate)."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True)
class NumericFeature:
    """Ascending cut points `edges`; code of v = number of edges < v (0..E), missing (NaN) = E + 1."""

    kind: ClassVar[Literal["numeric", "date", "datetime", "time"]] = "numeric"
    name: str
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_name(self.name)
        ascending = all(a < b for a, b in pairwise(self.edges)) and all(map(isfinite, self.edges))
        _require(ascending and self.bins <= MAX_BINS, f"{self.name}.edges: finite, ascending, below {MAX_BINS - 1}")

    @property
    def bins(self) -> int:
        """Count the codes, missing included."""
        return len(self.edges) + 2

    @property
    def missing(self) -> int:
        """Return the code of a missing value."""
        return len(self.edges) + 1

    @property
    def cuts(self) -> int:
        """Count the ordered tests `value > edges[j]`."""
        return len(self.edges)

    @property
    def single_codes(self) -> tuple[int, ...]:
        """Return the codes that a test `value is ...` may name: only missing, about which order says nothing."""
        return (self.missing,)

    def encode(self, values: ArrayLike) -> Codes:
        """Encode `values` (n,), numbers or NaN, as codes (n,)."""
        numbers = np.asarray(values, dtype=np.float64)
        codes = np.searchsorted(np.asarray(self.edges), numbers, side="left")
        return np.where(np.isnan(numbers), self.missing, codes).astype(np.uint16)

    def label(self, code: int) -> str:
        """Return a code in words."""
        return "missing" if code == self.missing else f"bin {code}"

    @property
    def noun(self) -> str:
        """Return what people call one value."""
        return "number"

    @cached_property
    def digits(self) -> int:
        """Count the digits by which people can tell all cut points apart: six, or more where two are that near."""
        most = range(DIGITS, ALL_DIGITS)
        apart = (n for n in most if all(number_text(a, n) != number_text(b, n) for a, b in pairwise(self.edges)))
        return next(apart, ALL_DIGITS)

    def text(self, number: float) -> str:
        """Return a cut point for people."""
        return number_text(number, self.digits)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON. Inverse: `feature_from_json`."""
        return {"name": self.name, "type": self.kind, "edges": list(self.edges)}


class CalendarFeature(NumericFeature):
    """A date or a time as the number that `models.features.calendar` makes of it: compared and encoded as a number."""

    kind: ClassVar[CalendarKind]

    @property
    def noun(self) -> str:
        """Return what people call one value."""
        return "time" if self.kind == "time" else "date"

    def numbers(self, texts: Sequence[str | None]) -> NDArray[np.float64]:
        """Return the numbers (n,) by which ISO texts (n,) are compared: NaN for None and the empty text, which are
        missing. ValueError where a text is no date or time of this kind.
        """
        return np.array([number_of(self.kind, text) if text else np.nan for text in texts], np.float64)

    def text(self, number: float) -> str:
        """Return a cut point as ISO 8601."""
        return text_of(self.kind, number)


class DateFeature(CalendarFeature):
    """A day of the calendar, in days since 1970-01-01."""

    kind = "date"


class MomentFeature(CalendarFeature):
    """A day and a time, in seconds since 1970-01-01."""

    kind = "datetime"


class TimeFeature(CalendarFeature):
    """A time of day, in seconds since midnight."""

    kind = "time"


CALENDAR: Mapping[CalendarKind, type[CalendarFeature]] = {
    "date": DateFeature,
    "datetime": MomentFeature,
    "time": TimeFeature,
}


@dataclass(frozen=True)
class CategoricalFeature:
    """Listed `values` have codes 0..V-1, anything else V ("other"), missing (None or the empty text) V + 1."""

    kind: ClassVar[Literal["categorical"]] = "categorical"
    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_name(self.name)
        _require(all(map(encodable, self.values)), f"{self.name}.values: Unicode texts; the empty text means missing")
        distinct = len(set(self.values)) == len(self.values)
        _require(distinct and self.bins <= MAX_BINS, f"{self.name}.values: each once, below {MAX_BINS - 1}")

    @property
    def bins(self) -> int:
        """Count the codes, other and missing included."""
        return len(self.values) + 2

    @property
    def missing(self) -> int:
        """Return the code of a missing value."""
        return len(self.values) + 1

    @property
    def cuts(self) -> int:
        """Count the ordered tests: none, because values have no order."""
        return 0

    @property
    def single_codes(self) -> tuple[int, ...]:
        """Return the codes that a test `value is ...` may name: all; of two values the second, as of a truth."""
        return tuple(range(int(has_two_values(self)), self.bins))

    @property
    def codes(self) -> tuple[int, ...]:
        """Return the code of each listed value."""
        return tuple(range(len(self.values)))

    @property
    def other(self) -> int:
        """Return the code of what is not listed."""
        return len(self.values)

    def encode(self, values: ArrayLike) -> Codes:
        """Encode `values` (n,), texts or None, as codes (n,)."""
        codes = dict(zip(self.values, self.codes, strict=True))
        codes[MISSING_TEXT] = self.missing
        beyond = self.other
        texts = np.asarray(values, dtype=object)
        return np.fromiter(
            (self.missing if text is None or text != text else codes.get(str(text), beyond) for text in texts),
            dtype=np.uint16,
            count=len(texts),
        )

    def label(self, code: int) -> str:
        """Return a code in words, no two alike: where a value is itself called "other", what is not listed is "any
        other value".
        """
        if code < len(self.values):
            return self.values[code]
        word, longer = (("other", "any other value"), ("missing", "no value"))[code - len(self.values)]
        while word in self.values:
            word, longer = longer, f"{longer}_"
        return word

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON. Inverse: `feature_from_json`."""
        return {"name": self.name, "type": self.kind, "values": list(self.values)}


@dataclass(frozen=True)
class OrderedFeature(CategoricalFeature):
    """A category whose values a learner put in an order: `ranks` are the codes of the listed values, and of "other",
    which has its place among them. Codes are then compared as numbers are; missing comes last, and is never above.
    """

    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = len(self.ranks) == len(self.values) + 1 and all(type(rank) is int for rank in self.ranks)
        _require(whole and sorted(self.ranks) == list(range(len(self.ranks))), f"{self.name}.ranks: each place once")

    @property
    def codes(self) -> tuple[int, ...]:
        """Return the code of each listed value."""
        return self.ranks[:-1]

    @property
    def other(self) -> int:
        """Return the code of what is not listed."""
        return self.ranks[-1]

    @property
    def cuts(self) -> int:
        """Count the ordered tests, as of a number."""
        return len(self.values)

    @property
    def single_codes(self) -> tuple[int, ...]:
        """Return the codes that a test `value is ...` may name: of many values only missing."""
        return super().single_codes if len(self.values) <= FEW_VALUES else (self.missing,)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return each code in words."""
        declared = [super(OrderedFeature, self).label(code) for code in range(self.bins)]
        return tuple(label for _, label in sorted(zip((*self.ranks, self.missing), declared, strict=True)))

    def label(self, code: int) -> str:
        """Return a code in words."""
        return self.labels[code]

    def text_above(self, code: int) -> str:
        """Return in words which values are above a code: the few that are, or that are not."""
        above, upto = self.labels[code + 1 : -1], self.labels[: code + 1]
        if len(above) <= len(upto):
            return f"is {_listed(above)}"
        return f"is neither missing nor {_listed(upto)}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON. Inverse: `feature_from_json`."""
        return {**super().to_json(), "ranks": list(self.ranks)}


def _listed(labels: Sequence[str]) -> str:
    """Return names in words, the last ones counted where they are many."""
    rest = len(labels) - LISTED
    return ", ".join(labels[:LISTED]) + f" or one of {rest} more" if rest > 1 else " or ".join(labels)


@dataclass(frozen=True)
class BooleanFeature:
    """False 0, true 1, missing (NaN) 2. In numbers: 0.0, 1.0, NaN."""

    kind: ClassVar[Literal["boolean"]] = "boolean"
    name: str
    bins: ClassVar[int] = 3
    missing: ClassVar[int] = 2
    cuts: ClassVar[int] = 0
    single_codes: ClassVar[tuple[int, ...]] = (1, 2)

    def __post_init__(self) -> None:
        _check_name(self.name)

    def encode(self, values: ArrayLike) -> Codes:
        """Encode `values` (n,) in {0, 1, NaN} as codes (n,)."""
        numbers = np.asarray(values, dtype=np.float64)
        return np.where(np.isnan(numbers), self.missing, numbers > 0.5).astype(np.uint16)

    def label(self, code: int) -> str:
        """Return a code in words."""
        return ("false", "true", "missing")[code]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON. Inverse: `feature_from_json`."""
        return {"name": self.name, "type": self.kind}


Feature = NumericFeature | CategoricalFeature | BooleanFeature


def has_two_values(feature: Feature) -> bool:
    """Return whether a feature tells two values apart, which part rows as a number does: a truth, a list of two, a
    number with one cut point.
    """
    if isinstance(feature, NumericFeature):
        return len(feature.edges) == 1
    return isinstance(feature, BooleanFeature) or len(feature.values) == 2


def share_of_categories(features: Sequence[Feature]) -> float:
    """Return the share of them, in [0, 1], that are categories: lists of one value, or of more than two."""
    words = [each for each in features if isinstance(each, CategoricalFeature) and not has_two_values(each)]
    return len(words) / len(features)


def share_of_numbers(features: Sequence[Feature]) -> float:
    """Return the share of them, in [0, 1], that are numbers of more than two values."""
    numbers = [each for each in features if isinstance(each, NumericFeature) and not has_two_values(each)]
    return len(numbers) / len(features)


def feature_from_json(body: Mapping[str, Any]) -> Feature:
    """Read what `to_json` wrote; refuses any other shape with ModelInvalid."""
    try:
        match body["type"]:
            case "numeric" if set(body) == {"name", "type", "edges"}:
                return NumericFeature(str(body["name"]), tuple(float(edge) for edge in body["edges"]))
            case "categorical" if set(body) == {"name", "type", "values"}:
                return CategoricalFeature(str(body["name"]), tuple(str(value) for value in body["values"]))
            case "categorical" if set(body) == {"name", "type", "values", "ranks"}:
                return OrderedFeature(str(body["name"]), tuple(map(str, body["values"])), tuple(body["ranks"]))
            case "date" | "datetime" | "time" as kind if set(body) == {"name", "type", "edges"}:
                return CALENDAR[kind](str(body["name"]), tuple(float(edge) for edge in body["edges"]))
            case "boolean" if set(body) == {"name", "type"}:
                return BooleanFeature(str(body["name"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelInvalid(f"feature={body!r}: not a released feature ({error})") from error
    raise ModelInvalid(f"feature={body!r}: not a released feature")


def encode_columns(features: Sequence[Feature], columns: RawColumns) -> list[Codes]:
    """Return codes of every feature, in their order; `columns` holds one array per feature name."""
    absent = [feature.name for feature in features if feature.name not in columns]
    if absent:
        raise InputError(f"columns: missing {absent}")
    return [feature.encode(columns[feature.name]) for feature in features]

"""Cells as they are declared to be written -> numbers, truth values, dates. The first that does not fit raises
DataError with its row and kind, and never as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from accountant.errors import DataError
from models.features.features import BooleanFeature, CalendarFeature, CategoricalFeature, Feature, NumericFeature
from training.rows.people.people import NULLS
from training.rows.schema.written import USUAL, DatePattern, Written

_TIME = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<part>[0-9]{1,6}))?)?"
_ZONE = r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?"
_DAY_US = 86_400_000_000
_NULLS = pa.array(NULLS, pa.large_string())


def read_as_written(feature: Feature, column: pa.Array, written: Written, start: int = 0) -> pa.Array:
    """Return what the feature holds, from a column of texts in its declared form; a column of another type stays as it
    is. Errors count rows from `start`, that of the column's first.
    """
    if isinstance(feature, CategoricalFeature) or (written == USUAL and not isinstance(feature, CalendarFeature)):
        return column
    coded = pa.types.is_dictionary(column.type)
    kind = column.type.value_type if coded else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return column.dictionary_decode() if coded else column
    words = (
        column.cast(pa.dictionary(column.type.index_type, pa.large_string()))
        if coded
        else (column.cast(pa.large_string()).dictionary_encode())
    )
    texts = pc.utf8_trim_whitespace(words.dictionary)
    missing = np.asarray(pc.or_kleene(pc.is_null(texts), pc.is_in(texts, _NULLS)))
    if isinstance(feature, CalendarFeature):
        values, wrong, wanted = _dates(feature, texts, written)
    elif isinstance(feature, BooleanFeature):
        meant = written.truths()
        index = pc.index_in(pc.utf8_lower(texts), value_set=pa.array(list(meant), pa.large_string()))
        values, wrong = pc.take(pa.array([*meant.values()]), index), np.array(pc.is_null(index))
        wanted = f"neither true nor false; the schema knows {sorted(meant)}"
    else:
        values, wrong, wanted = _numbers(texts, written)
    wrong &= ~missing
    which = words.indices
    if wrong.any():
        bad = pc.take(pa.array(wrong), which).fill_null(False)
        if pc.any(bad).as_py():
            row = start + int(pc.index(bad, True).as_py())
            raise DataError(f"{feature.name}, data row {row}: {wanted}", row=row, column=feature.name)
    return pc.if_else(pa.array(missing | wrong), pa.scalar(None, values.type), values).take(which)


def _numbers(texts: pa.Array, written: Written) -> tuple[pa.Array, NDArray[np.bool_], str]:
    mark = {".": r"\.", ",": ",", "either": "[.,]"}[written.decimal]
    pattern = rf"^[+-]?([0-9]+({mark}[0-9]*)?|{mark}[0-9]+)([eE][+-]?[0-9]+)?$"
    fits = pc.match_substring_regex(texts, pattern).fill_null(False)
    plain = pc.replace_substring_regex(pc.replace_substring(texts, ",", "."), r"^\+", "")
    values = pc.if_else(fits, plain, pa.scalar("nan", plain.type)).cast(pa.float64())
    marks = "a point or a comma" if written.decimal == "either" else f"{written.decimal!r}"
    return values, ~np.asarray(fits), f"not a number written with {marks} before its fraction"


@lru_cache(maxsize=64)
def pattern_of(kind: str, dates: DatePattern | None) -> str:
    """Return what a text of this kind looks like: `dates` is the pattern of its day, None of a time of day."""
    if dates is None:
        return f"^{_TIME}$"
    digits = "2" if dates == "YYYYMMDD" else "1,2"
    day = re.escape(dates).replace("YYYY", "(?P<year>[0-9]{4})")
    day = day.replace("MM", f"(?P<month>[0-9]{{{digits}}})").replace("DD", f"(?P<day>[0-9]{{{digits}}})")
    return f"^{day}(?:[T ]{_TIME})?$" if kind == "date" else f"^{day}[T ]{_TIME}{_ZONE}$"


def fitting(feature: CalendarFeature, written: Written) -> Sequence[str]:
    """Return the patterns that a column may be written in."""
    return [pattern_of(feature.kind, pattern) for pattern in ((None,) if feature.kind == "time" else written.dates)]


def _dates(feature: CalendarFeature, texts: pa.Array, written: Written) -> tuple[pa.Array, NDArray[np.bool_], str]:
    """Dates as date32, moments and times of day in microseconds."""
    moments, is_real = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    for pattern in fitting(feature, written):
        match = pc.extract_regex(texts, pattern)
        fits = np.asarray(pc.is_valid(match))
        if fits.any():
            micros, real = _micros(match.filter(pa.array(fits)))
            moments[fits], is_real[fits] = micros, real
    if feature.kind == "time":
        values = pa.array(moments).cast(pa.time64("us"))
        return values, ~is_real, "not a time of day like 14:30"
    listed = " or ".join(written.dates)
    if feature.kind == "date":
        return (
            pa.array((moments // _DAY_US).astype(np.int32)).cast(pa.date32()),
            ~is_real,
            f"not a date written {listed}",
        )
    return pa.array(moments).cast(pa.timestamp("us")), ~is_real, f"not a date {listed} and a time after it"


def _micros(match: pa.StructArray) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Microseconds since 1970 of matched texts, and which of them the calendar has. A zone is taken off: UTC."""
    parts: Mapping[str, Any] = {field.name: match.field(field.name) for field in match.type}

    def whole(name: str, default: int) -> NDArray[np.int64]:
        if name not in parts:
            return np.full(len(match), default, np.int64)
        texts = pc.if_else(pc.equal(parts[name], ""), str(default), parts[name])
        return np.asarray(texts.cast(pa.int64()))

    year, month, day = whole("year", 1970), whole("month", 1), whole("day", 1)
    hour, minute, second = whole("hour", 0), whole("minute", 0), whole("second", 0)
    real = (year >= 1) & (month >= 1) & (month <= 12) & (hour < 24) & (minute < 60) & (second < 60)
    months = ((np.where(real, year, 1970) - 1970) * 12 + np.where(real, month, 1) - 1).astype("M8[M]")
    days = months.astype("M8[D]") + (day - 1)
    real &= (day >= 1) & (days.astype("M8[M]") == months)
    micros = days.astype(np.int64) * _DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000
    if "part" in parts:
        micros += np.asarray(pc.utf8_rpad(parts["part"], 6, "0").cast(pa.int64()))
    if "zone" in parts:
        zones = [zone if zone not in ("", "Z") else "+0000" for zone in parts["zone"].to_pylist()]
        minutes = np.array([int(f"{zone[0]}1") * (int(zone[1:3]) * 60 + int(zone[-2:])) for zone in zones], np.int64)
        micros -= minutes * 60_000_000
    return micros, real


def as_written(feature: Feature, column: pa.Array, written: Written) -> pa.Array:
    """Write what `read_as_written` reads: dates by the first declared pattern, numbers with the declared mark; others
    as they are.
    """
    if isinstance(feature, CalendarFeature) and feature.kind != "time":
        day = written.dates[0].replace("YYYY", "%Y").replace("MM", "%m").replace("DD", "%d")
        clock = "" if feature.kind == "date" else " %H:%M:%S"
        return pc.strftime(column.cast(pa.timestamp("s")), format=f"{day}{clock}")
    if isinstance(feature, NumericFeature) and not isinstance(feature, CalendarFeature) and written.decimal == ",":
        return pc.replace_substring(column.cast(pa.string()), ".", ",")
    return column


def calendar_numbers(feature: CalendarFeature, column: pa.Array) -> NDArray[np.float64]:
    """Return what the model compares, from a column of dates or times, or of texts in ISO 8601; missing is NaN."""
    column, kind = read_as_written(feature, column, USUAL), column.type
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    wanted = {"date": pa.timestamp("us"), "datetime": pa.timestamp("us"), "time": pa.time64("us")}[feature.kind]
    day = pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
    if not (pa.types.is_time(column.type) if feature.kind == "time" else day):
        raise DataError(f"column {feature.name!r}: holds {kind}; the schema wants {feature.noun}s")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        column = column.cast(pa.int64()).cast(pa.timestamp("us"))
    micros = column.cast(wanted, safe=False).cast(pa.int64())
    numbers = np.asarray(micros.cast(pa.float64(), safe=False).fill_null(float("nan")).to_numpy(zero_copy_only=False))
    return np.floor(numbers / _DAY_US) if feature.kind == "date" else numbers / 1_000_000

"""Dates and times as the numbers that models compare: a date is days since 1970-01-01, a moment seconds since then, a
time of day seconds since midnight. Written as ISO 8601 wherever a person or a program asks a model.

Where a text names its distance from UTC, the moment is taken in UTC; else it is taken as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from math import isfinite
from typing import Literal

CalendarKind = Literal["date", "datetime", "time"]
DAY_SECONDS = 86_400
EPOCH = date(1970, 1, 1).toordinal()
_START = datetime(1970, 1, 1)
_DATE, _TIME = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_ISO: Mapping[CalendarKind, re.Pattern[str]] = {
    "date": re.compile(_DATE, re.ASCII),
    "datetime": re.compile(rf"{_DATE}[T ]{_TIME}(Z|[+-]\d\d:\d\d)?", re.ASCII),
    "time": re.compile(_TIME, re.ASCII),
}
EXAMPLES: Mapping[CalendarKind, str] = {"date": "2024-03-01", "datetime": "2024-03-01T14:30:00", "time": "14:30:00"}
MOST: Mapping[CalendarKind, int] = {  # from year 1 to year 9999: beyond, nothing can be written
    "date": date.max.toordinal() - EPOCH,
    "datetime": (date.max.toordinal() - EPOCH + 1) * DAY_SECONDS - 1,
    "time": DAY_SECONDS - 1,
}


def number_of(kind: CalendarKind, text: str) -> float:
    """Return the number of an ISO text of this kind; ValueError where it is none, or no day of the calendar."""
    if not _ISO[kind].fullmatch(text):
        raise ValueError(f"must be written like {EXAMPLES[kind]}")
    if kind == "date":
        return float(date.fromisoformat(text).toordinal() - EPOCH)
    if kind == "time":
        since = datetime.fromisoformat(f"1970-01-01T{text}") - _START
    else:
        moment = datetime.fromisoformat(text)
        since = moment.replace(tzinfo=None) - _START - (moment.utcoffset() or timedelta())  # UTC may be in no calendar
    return since.total_seconds()


def text_of(kind: CalendarKind, number: float) -> str:
    """Return the ISO text of a number, at the day or second below; a number that no calendar has is told as a
    number.
    """
    low = 0 if kind == "time" else (1 - EPOCH) * (1 if kind == "date" else DAY_SECONDS)
    if not (isfinite(number) and low <= number <= MOST[kind]):
        return f"{number:.6g}"
    if kind == "date":
        return date.fromordinal(int(number // 1) + EPOCH).isoformat()
    moment = _START + timedelta(seconds=number // 1)
    return moment.time().isoformat() if kind == "time" else moment.isoformat()

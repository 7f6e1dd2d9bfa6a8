"""How days and times of day are written: patterns such as DD.MM.YYYY, DD-MON-YYYY or MM/DD/YY, and the texts they fit.

A pattern has one day (DD), one month (MM, or MON for its name) and one year (YYYY, or YY for its last two digits), with
marks between them. Months are named in any language of MONTHS, in full or short, with a dot or without. Accents and
capitals do not count, and no name is of two months.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import combinations

from models.features.features import CalendarFeature
from models.features.month_names import MONTHS

LONGEST = 20  # characters of a pattern
MOST = 8  # patterns of a column: every two of them are compared
_PART = re.compile("YYYY|YY|MON|MM|DD")
_MARKS = r"(?:[-/.,'年月日년월일 ]{0,2})"
_PATTERN = re.compile(rf"{_MARKS}(?:(?:YYYY|YY|MON|MM|DD){_MARKS}){{3}}")
_LETTERS = "A-Za-z\u00c0-\u024f\u0300-\u036f\u0370-\u03ff\u0400-\u04ff"
_NAME = f"(?:[dD][eE] )?(?P<name>[{_LETTERS}]{{3,16}})[.]?(?: [dD][eE][lL]?)?"  # 3 de febrero de 2021
_YEAR_WORD = "(?: ?[\u0433\u0440][.]?)?"  # Russian and Ukrainian: 3 (month) 2021 (year's letter)
_HALF = "(?:[ \u00a0\u202f]?(?P<half>[aApP])[.]?[mM][.]?)?"
_PART_OF_SECOND = "(?:[.,](?P<part>[0-9]{1,9}))?"
_TIME = rf"(?P<hour>[0-9]{{1,2}})[:hH](?P<minute>[0-9]{{2}})(?::(?P<second>[0-9]{{2}}){_PART_OF_SECOND})?{_HALF}"
# As Oracle writes it, after a day alone: else 12.30 may be a number.
_DOTTED = rf"(?P<hour>[0-9]{{1,2}})[.](?P<minute>[0-9]{{2}})(?:[.](?P<second>[0-9]{{2}}){_PART_OF_SECOND})?{_HALF}"
_ZONE = r"(?: ?(?P<zone>Z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?))?"
_BETWEEN = "(?:[T:]|,? )"  # a day and its time: SAS has a colon
_MONTH_OF = {name: month for month, names in enumerate(MONTHS, 1) for name in names.split()}
_SHORT = "JanFebMarAprMayJunJulAugSepOctNovDec"
# Days whose parts may stand for each other, to see whether two patterns can be told apart.
_EXAMPLES = ((2024, 4, 3), (2010, 11, 12))


def plain_name(name: str) -> str:
    """Return a month's name in small letters, without accents."""
    plain = "".join(mark for mark in unicodedata.normalize("NFD", name.casefold()) if not unicodedata.combining(mark))
    return plain.replace("\u0131", "i")  # the i without a dot, which is small in one language alone


def month_of(name: str) -> int:
    """Return the month of this name; 0 where none is called so."""
    return _MONTH_OF.get(plain_name(name), 0)


def has_short_year(pattern: str) -> bool:
    """Return whether a pattern has the last two digits of the year alone."""
    return "YY" in pattern and "YYYY" not in pattern


def problem_of(patterns: tuple[str, ...], first_year: int | None) -> str | None:
    """Return what is wrong with patterns that one column is written in: one is none, or a text may fit two."""
    if len(patterns) > MOST:
        return f"dates: {len(patterns)} patterns; a column has at most {MOST}"
    for pattern in patterns:
        parts = "".join(sorted(part[0] + part[-1] for part in _PART.findall(pattern)))
        if len(pattern) > LONGEST or not _PATTERN.fullmatch(pattern) or parts not in ("DDMMYY", "DDMNYY"):
            return (
                f"{pattern[:LONGEST]!r}: is no pattern of days; write it with DD, MM (or MON, a month's name) and YYYY"
            )
    short = next(filter(has_short_year, patterns), None)
    if short and first_year is None:
        return f"{short}: say `first_year`, of the hundred years that two digits stand for: with 1950, 49 is 2049"
    if first_year is not None and not short:
        return "first_year: is of years with two digits, as in DD/MM/YY"
    for one, other in combinations(patterns, 2):
        for example in _EXAMPLES:
            match = re.fullmatch(pattern_of("date", other)[1:-1], write_day(one, *example), re.ASCII)
            if match is not None and day_of(match) not in (None, (example[0] % 100, *example[1:])):
                text = write_day(one, *example)
                return f"{one} and {other}: {text} may be either; write the column in one of them"
    return None


def write_day(pattern: str, year: int, month: int, day: int) -> str:
    """Write a day by a pattern, its month in English."""
    parts = {"YYYY": f"{year:04}", "YY": f"{year % 100:02}", "MM": f"{month:02}", "DD": f"{day:02}"}
    parts["MON"] = _SHORT[3 * month - 3 : 3 * month]
    return _PART.sub(lambda part: parts[part[0]], pattern)


def day_of(match: re.Match[str]) -> tuple[int, int, int] | None:
    """Return the last two digits of the year, month and day; None where no calendar has them."""
    parts = match.groupdict()
    month = month_of(parts["name"]) if "name" in parts else int(parts["month"])
    day = int(parts["day"])
    return (int(parts["year"][-2:]), month, day) if 1 <= month <= 12 and 1 <= day <= 31 else None


@lru_cache(maxsize=256)
def pattern_of(kind: str, dates: str | None, time: str = _TIME) -> str:
    """Return what a text of this kind looks like: `dates` is the pattern of its day, None of a time of day."""
    if dates is None:
        return f"^{time}$"
    between = _PART.split(dates)
    digits = "2" if "" in between[1:-1] else "1,2"
    groups = {
        "YYYY": "(?P<year>[0-9]{4})", "YY": "(?P<year>[0-9]{2})", "MON": _NAME,
        "MM": f"(?P<month>[0-9]{{{digits}}})", "DD": f"(?P<day>[0-9]{{{digits}}})",
    }  # fmt: skip
    day = re.escape(between[0])
    for part, mark in zip(_PART.findall(dates), between[1:], strict=True):
        day += groups[part] + re.escape(mark)
    day += _YEAR_WORD if dates.endswith("YYYY") and "MON" in dates else ""
    return f"^{day}(?:{_BETWEEN}{time}{_ZONE})?$" if kind == "date" else f"^{day}{_BETWEEN}{time}{_ZONE}$"


def patterns_of(feature: CalendarFeature, dates: tuple[str, ...]) -> list[str]:
    """Return the patterns that a column may be written in, those that are rarely seen last."""
    if feature.kind == "time":
        return [pattern_of(feature.kind, None)]
    return [pattern_of(feature.kind, pattern, time) for time in (_TIME, _DOTTED) for pattern in dates]

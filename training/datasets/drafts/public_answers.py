"""What a person answers of a column, as they write it: a range, values, a target's classes, a number of rows. An answer
that may mean something else than it says is refused with both spellings, so that it is asked again.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from dpserve_verify.errors import InputError
from models.features.calendar import number_of
from models.features.features import CALENDAR
from training.rows.schema.schema_text import FILL_IN

VALUES = "values:"  # before values that could be read as a range
LEAVE_OUT = " leave-out"
SHARE = re.compile(r" share ([0-9. ]+)$")
_SIGNED = r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_DAY = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?|\d{4}"
_CLOCK = r"\d{1,2}:\d\d(?::\d\d)?"
_BETWEEN = r"\s*(?:\.{2,3}|…|[-–—~:]|\bto\b|\buntil\b)\s*"  # what people write between two ends
_NUMBERS = re.compile(rf"({_SIGNED}){_BETWEEN}({_SIGNED})|\[\s*({_SIGNED})\s*[,;]\s*({_SIGNED})\s*\]")
_DAYS = re.compile(rf"({_DAY}){_BETWEEN}({_DAY})|\[\s*({_DAY})\s*[,;]\s*({_DAY})\s*\]")
_CLOCKS = re.compile(rf"({_CLOCK})(?:\s*(?:\.{{2,3}}|…|[-–—~])\s*|\s+(?:to|until)\s+)({_CLOCK})")
_TWO = re.compile(rf"({_SIGNED})\s*[,;]\s*({_SIGNED})")
_GROUPED = re.compile(r"\d{1,3}([ ,.'’_\u00a0\u202f]\d{3})+|\d+")


def parse_public(answer: str, kind: str, strict: bool = False) -> dict[str, Any]:
    """Read a range, or values, of a column of this type: `0 .. 120`, `0 - 120`, `1930-2010`, `north, south`. What could
    be either is refused, and values then stand behind `values:`. strict: only what this type has. InputError.
    """
    text = answer.strip()
    is_listed = text.startswith(VALUES)
    if is_listed and strict and kind != "categorical":
        raise InputError(f"a {kind} column has LOW .. HIGH")
    if is_listed or kind == "categorical":
        return _read_values(text.removeprefix(VALUES), is_listed, strict)
    if kind in CALENDAR:
        return {"range": _read_days(text, kind)}
    is_open = kind == FILL_IN or (kind == "boolean" and not strict)  # a person may list the words for yes and no
    if is_open and not _looks_like_range(text) and not _TWO.fullmatch(text):
        return _read_values(text, is_listed, strict)
    if kind == FILL_IN and _NUMBERS.fullmatch(text) is None and _DAYS.fullmatch(text):
        return {"type": "date", "range": _read_days(text, "date")}
    return {"type": "numeric", "range": _read_numbers(text)}


def _read_values(text: str, is_listed: bool, strict: bool) -> dict[str, Any]:
    if not is_listed and _looks_like_range(text):
        if ".." in text and not strict:
            return {"type": "numeric", "range": _read_numbers(text)}
        raise InputError(
            f"{text[:40]!r} looks like a range, and the column has texts: list its values with commas, or say "
            f"{VALUES} {text[:40]} if that is one of them" + ("" if strict else "; LOW .. HIGH if it has numbers")
        )
    if not (values := split_list(text)):
        raise InputError("say its values with commas")
    return {"type": "categorical", "values": values}


def _looks_like_range(text: str) -> bool:
    return ".." in text or any(pattern.fullmatch(text) for pattern in (_NUMBERS, _DAYS, _CLOCKS))


def _read_numbers(text: str) -> list[float]:
    match = _NUMBERS.fullmatch(text)
    if match is None:
        if two := _TWO.fullmatch(text):
            raise InputError(f"say {two[1]} .. {two[2]} for the range, or {VALUES} {text} where the numbers are codes")
        raise InputError(
            f"a numeric column has LOW .. HIGH, in digits with a point: 0 .. 12000.5; where its numbers are codes: "
            f"{VALUES} 1, 2, 3"
        )
    low, high = (float(end) for end in match.groups() if end)
    if not low < high:
        raise InputError(f"{low:g} must be below {high:g}")
    return [low, high]


def _read_days(text: str, kind: str) -> list[str]:
    match = (_CLOCKS if kind == "time" else _DAYS).fullmatch(text)
    if match is None:
        like = "00:00 .. 23:59" if kind == "time" else "2019-01-01 .. 2024-12-31, or 2019 .. 2024"
        raise InputError(f"a {kind} column has FIRST .. LAST: {like}")
    first, last = (end for end in match.groups() if end)
    ends = [_as_iso(first, kind, is_last=False), _as_iso(last, kind, is_last=True)]
    try:
        numbers = [number_of(CALENDAR[kind].kind, end) for end in ends]  # type: ignore[index]
    except ValueError as error:
        raise InputError(f"{text[:50]!r}: {error}") from None
    if not numbers[0] < numbers[1]:
        raise InputError(f"{first} must be before {last}")
    return ends


def _as_iso(end: str, kind: str, is_last: bool) -> str:
    """Return an end as ISO 8601: of a year its first or last day, of a day of moments its first or last second."""
    if kind == "time":
        return end.zfill(5) if end.count(":") == 1 else end.zfill(8)
    if len(end) == 4:
        end = f"{end}-12-31" if is_last else f"{end}-01-01"
    if kind == "datetime" and len(end) == len(date.min.isoformat()):
        end += "T23:59:59" if is_last else "T00:00:00"
    return end


def parse_target(answer: str) -> dict[str, Any]:
    """Read `no, yes`, `no, yes share 0.02`, or `0 .. 30000`, where `leave-out` may follow. InputError."""
    missing = {"missing": "leave-out"} if answer.endswith(LEAVE_OUT) else {}
    text = answer.removesuffix(LEAVE_OUT).strip()
    try:
        shares = [float(share) for shares in SHARE.findall(text) for share in shares.split()]
    except ValueError:
        raise InputError("a share is a number below 1, of each class or of the last one: no, yes share 0.02") from None
    text = SHARE.sub("", text)
    is_range = not text.startswith(VALUES) and _looks_like_range(text)
    if not text or (is_range and shares):
        raise InputError(
            "say its classes in order, the last is the one looked for (no, yes; where it is rare, about its share: "
            "no, yes share 0.02), or LOW .. HIGH"
        )
    if is_range:
        return {"range": _read_numbers(text), **missing}
    classes = split_list(text.removeprefix(VALUES))
    if len(classes) < 2:
        raise InputError("say two classes or more with commas (no, yes), or LOW .. HIGH of a number")
    rare = {"prevalence": shares if len(shares) > 1 else shares[0]} if shares else {}
    return {"classes": classes, **rare, **missing}


def parse_count(answer: str) -> int:
    """Read a whole number from 1 on: `6120` or `6,120`. InputError."""
    if not _GROUPED.fullmatch(answer.strip()) or not int(digits := re.sub(r"\D", "", answer)):
        raise InputError("write a whole number from 1 on: 6120 for instance")
    return int(digits)


def split_list(answer: str) -> list[str]:
    """Return what stands between commas."""
    return [part.strip() for part in answer.split(",") if part.strip()]

"""Groups of a file's columns that one answer is for, and the declarations that answers make of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpserve_verify.errors import InputError
from models.features.date_patterns import problem_of
from training.rows.people.id_words import words_of
from training.rows.schema.schema import KINDS
from training.rows.schema.schema_text import FILL_IN

ROLES = ("feature", "target", "group", "feature and group", "unit", "ignore")
CALENDAR = ("date", "datetime", "time")
LEAVE_OUT = " leave-out"
SHARE = re.compile(r" share ([0-9. ]+)$")
WRITTEN = {"numeric": ("decimal",), "boolean": ("true_words", "false_words"), **dict.fromkeys(CALENDAR, ("written",))}
# What a word of a column's name says that everybody knows: a unit's own ends, or what no person exceeds.
PUBLIC_RANGES = {
    "age": "0 .. 120", "percent": "0 .. 100", "percentage": "0 .. 100", "pct": "0 .. 100", "hour": "0 .. 23",
    "minute": "0 .. 59", "month": "1 .. 12", "latitude": "-90 .. 90", "longitude": "-180 .. 180",
    "probability": "0 .. 1",
}  # fmt: skip
Columns = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ColumnGroup:
    """Columns of one type whose names differ by numbers alone: one answer is for all of them.

    type: a kind of feature, FILL_IN, or empty for a column that is left out.
    written: how its cells are written, for people.
    role: one of ROLES, as proposed.
    wants: what a person must say of them; empty where nothing is left open.
    public: what is proposed there.
    choices: patterns of dates, one of them to be chosen.
    """

    columns: tuple[str, ...]
    type: str
    written: str
    role: str
    wants: str
    public: str
    choices: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """Return the group's name, for people to read."""
        first, count = self.columns[0], len(self.columns)
        return first if count == 1 else f"{first} .. {self.columns[-1]} ({count})"

    def to_json(self) -> dict[str, Any]:
        """Return all fields and `named`, for programs."""
        return {**asdict(self), "named": self.named}


@dataclass(frozen=True)
class ColumnAnswer:
    """What a person says of some columns.

    public: LOW .. HIGH, or values with commas; of a target, `share` with about the last class's (or every class's)
        share of rows may follow, and `leave-out`.
    type, written: where it is another than proposed.
    """

    columns: tuple[str, ...]
    role: str = "feature"
    public: str = ""
    type: str = ""
    written: str = ""


def group_columns(columns: Columns) -> list[ColumnGroup]:
    """Group features that one answer is for, in the file's order."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, declaration in columns.items():
        groups.setdefault((re.sub(r"\d+", "#", name), declaration["type"]), []).append(name)
    return [_group(names, columns) for names in groups.values()]


def _group(names: Sequence[str], columns: Columns) -> ColumnGroup:
    first = columns[names[0]]
    kind, public = first["type"], ""
    wanted = {"numeric": "LOW .. HIGH", "categorical": "its values with commas", FILL_IN: "LOW .. HIGH, or values"}
    written = "; ".join(sorted({_describe_cells(columns[name]) for name in names} - {""}))
    choices = ("DD/MM/YYYY", "MM/DD/YYYY")
    if kind in ("numeric", FILL_IN) and len(names) == 1:
        public = next((PUBLIC_RANGES[word] for word in words_of(names[0])[-1:] if word in PUBLIC_RANGES), "")
    wants = wanted.get(kind, "FIRST .. LAST") if FILL_IN in str(first) else ""
    return ColumnGroup(
        tuple(names), kind, written, "feature", wants, public,
        choices if first.get("written") == FILL_IN else (),
    )  # fmt: skip


def _describe_cells(declaration: Mapping[str, Any]) -> str:
    words = {"decimal": "decimal", "written": "", "true_words": "yes:", "false_words": "no:"}
    parts = []
    for key, word in words.items():
        value = declaration.get(key, FILL_IN)
        if value != FILL_IN:
            parts.append(f"{word} {value if isinstance(value, str) else ' or '.join(value)}".strip())
    return ", ".join(parts)


def unit_of(answers: Iterable[ColumnAnswer]) -> str | None:
    """Return the column that names the person; None where no answer says so. InputError where two do."""
    names = [name for answer in answers if answer.role == "unit" for name in answer.columns]
    if len(names) > 1:
        raise InputError(f"unit: one column names the person; {', '.join(names[:5])} are said to")
    return names[0] if names else None


def target_of_answer(name: str, answer: ColumnAnswer, proposed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declaration of a target. InputError, which names the column."""
    declaration = _read_for(name, parse_target, answer.public)
    decimal = proposed.get("decimal")
    return {**declaration, "decimal": decimal} if decimal and "range" in declaration else declaration


def feature_of_answer(name: str, answer: ColumnAnswer, proposed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declaration of a feature: as proposed, with what the answer says. InputError names what is missing."""
    kind = answer.type or proposed["type"]
    if kind not in (*KINDS, FILL_IN):
        raise InputError(f"{name}: type={kind[:40]!r}: must be one of {', '.join(KINDS)}")
    same = kind == proposed["type"]
    is_open = any(FILL_IN in str(value) for key, value in proposed.items() if key != "written") or not same
    declaration = {
        key: value
        for key, value in proposed.items()
        if FILL_IN not in str(value) and (same or key in WRITTEN.get(kind, ()))
    }
    if answer.written or proposed.get("written") == FILL_IN:
        if kind in ("date", "datetime") and problem_of((answer.written,), None):
            raise InputError(f"{name}: say how its days are written: DD/MM/YYYY or MM/DD/YYYY")
        declaration |= {"written": [answer.written]} if kind in ("date", "datetime") else {}
    public: dict[str, Any] = {}
    if answer.public:
        public = _read_for(name, lambda text: parse_public(text, kind, strict=bool(answer.type)), answer.public)
    elif is_open and kind != "boolean":
        raise InputError(f"{name}: say its public range or values, or choose the role ignore")
    return public if public.get("type") == "categorical" else {**declaration, "type": kind, **public}


def _read_for(name: str, parse: Callable[[str], dict[str, Any]], text: str) -> dict[str, Any]:
    try:
        return parse(text)
    except (ValueError, InputError) as error:
        raise InputError(f"{name}: {error}") from None


def parse_target(answer: str) -> dict[str, Any]:
    """Read `no, yes`, `no, yes share 0.02`, or `0 .. 30000`, where `leave-out` may follow. InputError, ValueError."""
    missing = {"missing": "leave-out"} if answer.endswith(LEAVE_OUT) else {}
    text = answer.removesuffix(LEAVE_OUT)
    shares = [_number(share) for shares in SHARE.findall(text) for share in shares.split()]
    low, dots, high = (part.strip() for part in SHARE.sub("", text).partition(".."))
    if not low or (dots and shares):
        raise InputError(
            "say its classes in order, the last is the one looked for (no, yes; where it is rare, about its share: "
            "no, yes share 0.02), or LOW .. HIGH"
        )
    rare = {"prevalence": shares if len(shares) > 1 else shares[0]} if shares else {}
    return {**({"range": [_number(low), _number(high)]} if dots else {"classes": split_list(low)}), **rare, **missing}


def parse_public(answer: str, kind: str, strict: bool = False) -> dict[str, Any]:
    """Read a range, or values. strict: only what this type has. InputError, ValueError."""
    low, dots, high = (part.strip() for part in answer.partition(".."))
    if strict and (not dots) != (kind == "categorical"):
        wants = "its values with commas" if kind == "categorical" else "LOW .. HIGH"
        raise InputError(f"a {kind} column has {wants}")
    if not dots:
        return {"type": "categorical", "values": split_list(answer)}
    if kind in CALENDAR:
        return {"range": [low, high]}
    return {"type": "numeric", "range": [_number(low), _number(high)]}


def split_list(answer: str) -> list[str]:
    """Return what stands between commas."""
    return [part.strip() for part in answer.split(",") if part.strip()]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text[:40]!r} is no number; write LOW .. HIGH") from None

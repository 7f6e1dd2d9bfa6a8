"""The table of a file's columns, and the schema that a person's answers make of it.

What is proposed of a column follows from its name, its type and how its cells are written; no range and no category is
ever taken from rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from accountant.errors import InputError
from training.rows.people.id_words import words_of
from training.rows.schema.schema import KINDS
from training.rows.schema.schema_text import FILL_IN
from training.rows.schema.written import DatePattern

ROLES = ("feature", "target", "group", "feature and group", "unit", "ignore")
CALENDAR = ("date", "datetime", "time")
LEAVE_OUT = " leave-out"
SHARE = re.compile(r" share ([0-9. ]+)$")
WRITTEN = {"numeric": ("decimal",), "boolean": ("true_words", "false_words"), **dict.fromkeys(CALENDAR, ("written",))}
# What a word of a column's name says that everybody knows: a unit's own ends, or what no person exceeds.
KNOWN = {
    "age": "0 .. 120", "percent": "0 .. 100", "percentage": "0 .. 100", "pct": "0 .. 100", "hour": "0 .. 23",
    "minute": "0 .. 59", "month": "1 .. 12", "latitude": "-90 .. 90", "longitude": "-180 .. 180",
    "probability": "0 .. 1",
}  # fmt: skip
Columns = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Line:
    """Columns of one type whose names differ by numbers alone: one answer is for all of them. `wants`: what a person
    must say of them; `public`: what is proposed there; `choices`: patterns of which one must be chosen.
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
        """For people."""
        first, many = self.columns[0], len(self.columns)
        return first if many == 1 else f"{first} .. {self.columns[-1]} ({many})"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "named": self.named}


@dataclass(frozen=True)
class Answer:
    """What a person says of `columns`. `public`: LOW .. HIGH, or values with commas; of a target, `share` with about
    the last class's (or every class's) share of rows may follow, and `leave-out`. `type`, `written`: where it is
    another than proposed.
    """

    columns: tuple[str, ...]
    role: str = "feature"
    public: str = ""
    type: str = ""
    written: str = ""


def lines_of(proposal: Mapping[str, Any]) -> list[Line]:
    """Of what `row_files.proposal` found, features first."""
    found = list(feature_lines(proposal["features"]))
    unit = next(iter(proposal["people"]), None)
    return [
        *found,
        *(Line((each,), "", "", "unit" if each == unit else "ignore", "", "") for each in proposal["ignore"]),
    ]


def feature_lines(columns: Columns) -> list[Line]:
    """Columns that stand together, in the file's order."""
    together: dict[tuple[str, str], list[str]] = {}
    for name, said in columns.items():
        together.setdefault((re.sub(r"\d+", "#", name), said["type"]), []).append(name)
    return [_line(names, columns) for names in together.values()]


def _line(names: Sequence[str], columns: Columns) -> Line:
    first = columns[names[0]]
    kind, public = first["type"], ""
    wanted = {"numeric": "LOW .. HIGH", "categorical": "its values with commas", FILL_IN: "LOW .. HIGH, or values"}
    written = "; ".join(sorted({_form(columns[each]) for each in names} - {""}))
    choices = tuple(each for each in get_args(DatePattern) if each in ("DD/MM/YYYY", "MM/DD/YYYY"))
    if kind in ("numeric", FILL_IN) and len(names) == 1:
        public = next((KNOWN[word] for word in words_of(names[0])[-1:] if word in KNOWN), "")
    wants = wanted.get(kind, "FIRST .. LAST") if FILL_IN in str(first) else ""
    return Line(
        tuple(names), kind, written, "feature", wants, public,
        choices if first.get("written") == FILL_IN else (),
    )  # fmt: skip


def _form(said: Mapping[str, Any]) -> str:
    words = {"decimal": "decimal", "written": "", "true_words": "yes:", "false_words": "no:"}
    told = ((word, said[key]) for key, word in words.items() if said.get(key, FILL_IN) != FILL_IN)
    return ", ".join(
        f"{word} {value if isinstance(value, str) else ' or '.join(value)}".strip() for word, value in told
    )


def schema_of(proposal: Mapping[str, Any], answers: Iterable[Answer], records: int) -> dict[str, Any]:
    """The schema's body. A column of which nothing is said is as proposed. InputError names what must be said."""
    columns: dict[str, Mapping[str, Any]] = dict(proposal["features"])
    said = {name: each for each in answers for name in each.columns}
    if unknown := sorted(said.keys() - columns.keys() - set(proposal["ignore"])):
        raise InputError(f"columns: the file has none called {unknown[0][:80]!r}")
    body: dict[str, Any] = {"targets": {}, "records": records, "features": {}, "groups": {}, "ignore": []}
    for name in (*columns, *proposal["ignore"]):
        known = columns.get(name)
        answer = said.get(name) or Answer((name,), "ignore" if known is None else "feature")
        if answer.role not in ROLES:
            raise InputError(f"{name}: role={answer.role[:40]!r}: must be one of {', '.join(ROLES)}")
        if answer.role in ("unit", "ignore"):
            body["ignore"].append(name)
        elif answer.role == "target":
            decimal = (known or {}).get("decimal")
            body["targets"][name] = _named(name, target, answer.public)
            if decimal and "range" in body["targets"][name]:
                body["targets"][name]["decimal"] = decimal
        else:
            feature = _feature(name, known or {"type": FILL_IN, "range": FILL_IN}, answer)
            if "feature" in answer.role:
                body["features"][name] = feature
            if "group" in answer.role:
                body["groups"][name] = {} if "feature" in answer.role else feature
    if not body["targets"]:
        raise InputError("target: no column is to be predicted; choose the role target for at least one")
    if not body["features"]:
        raise InputError("features: no column is read by models; choose the role feature for at least one")
    made = {**body, **({"format": proposal["format"]} if "format" in proposal else {})}
    return {key: value for key, value in made.items() if value or key not in ("groups", "ignore")}


def unit_of(answers: Iterable[Answer]) -> str | None:
    """The column that names the person; None where no answer says so. InputError where two do."""
    found = [name for each in answers if each.role == "unit" for name in each.columns]
    if len(found) > 1:
        raise InputError(f"unit: one column names the person; {', '.join(found[:5])} are said to")
    return found[0] if found else None


def _feature(name: str, known: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    kind = answer.type or known["type"]
    if kind not in (*KINDS, FILL_IN):
        raise InputError(f"{name}: type={kind[:40]!r}: must be one of {', '.join(KINDS)}")
    same = kind == known["type"]
    open_ones = any(FILL_IN in str(value) for key, value in known.items() if key != "written") or not same
    kept = {
        key: value
        for key, value in known.items()
        if FILL_IN not in str(value) and (same or key in WRITTEN.get(kind, ()))
    }
    if answer.written or known.get("written") == FILL_IN:
        if kind in ("date", "datetime") and answer.written not in get_args(DatePattern):
            raise InputError(f"{name}: say how its days are written: DD/MM/YYYY or MM/DD/YYYY")
        kept |= {"written": [answer.written]} if kind in ("date", "datetime") else {}
    said: dict[str, Any] = {}
    if answer.public:
        said = _named(name, lambda text: public(text, kind, strict=bool(answer.type)), answer.public)
    elif open_ones and kind != "boolean":
        raise InputError(f"{name}: say its public range or values, or choose the role ignore")
    return said if said.get("type") == "categorical" else {**kept, "type": kind, **said}


def _named(name: str, read: Any, text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = read(text)
    except (ValueError, InputError) as error:
        raise InputError(f"{name}: {error}") from None
    return found


def target(said: str) -> dict[str, Any]:
    """`no, yes`, `no, yes share 0.02`, or `0 .. 30000`, where `leave-out` may follow. InputError, ValueError."""
    missing = {"missing": "leave-out"} if said.endswith(LEAVE_OUT) else {}
    text = said.removesuffix(LEAVE_OUT)
    shares = [_number(each) for found in SHARE.findall(text) for each in found.split()]
    low, dots, high = (part.strip() for part in SHARE.sub("", text).partition(".."))
    if not low or (dots and shares):
        raise InputError(
            "say its classes in order, the last is the one looked for (no, yes; where it is rare, about its share: "
            "no, yes share 0.02), or LOW .. HIGH"
        )
    rare = {"prevalence": shares if len(shares) > 1 else shares[0]} if shares else {}
    return {**({"range": [_number(low), _number(high)]} if dots else {"classes": listed(low)}), **rare, **missing}


def public(answer: str, kind: str, strict: bool = False) -> dict[str, Any]:
    """A range, or values; `strict`: as the type is. InputError, ValueError."""
    low, dots, high = (part.strip() for part in answer.partition(".."))
    if strict and (not dots) != (kind == "categorical"):
        wants = "its values with commas" if kind == "categorical" else "LOW .. HIGH"
        raise InputError(f"a {kind} column has {wants}")
    if not dots:
        return {"type": "categorical", "values": listed(answer)}
    if kind in CALENDAR:
        return {"range": [low, high]}
    return {"type": "numeric", "range": [_number(low), _number(high)]}


def listed(answer: str) -> list[str]:
    """What stands between commas."""
    return [each.strip() for each in answer.split(",") if each.strip()]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text[:40]!r} is no number; write LOW .. HIGH") from None

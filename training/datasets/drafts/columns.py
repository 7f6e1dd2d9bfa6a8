"""Groups of a file's columns that one answer is for, and the declarations that answers make of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

from accountant.ledger.families.records import RECORD
from dpserve_verify.errors import InputError
from models.features.column_forms import DATES
from models.features.date_patterns import has_short_year, problem_of
from models.features.written import ISO_DATE, Decimal
from training.datasets.drafts.public_answers import parse_count, parse_public, parse_target, split_list
from training.rows.people.id_words import words_of
from training.rows.schema.schema import KINDS
from training.rows.schema.schema_text import FILL_IN
from training.rows.tables.form_search import Question

ROLES = ("feature", "target", "group", "feature and group", "unit", "ignore")
CALENDAR = ("date", "datetime", "time")
# How cells of each type may be written, beside words for a missing value.
WRITTEN = {
    "numeric": ("decimal", "thousands", "unit_mark", "outside"), "boolean": ("true_words", "false_words"),
    "date": ("written", "first_year", "outside"), "datetime": ("written", "first_year", "outside"),
    "time": ("outside",), "categorical": ("other",),
}  # fmt: skip
CHOSEN = ("written", "first_year", "decimal")  # what a person chooses where the cells do not say it
PATTERNS = (*DATES,)  # of days, that are offered
THOUSANDS = {"none": "", "blank": " ", "apostrophe": "'", "comma": ",", "point": "."}
MARKS = {
    "decimal": "the mark before the fraction: . or , or either",
    "thousands": f"what stands between thousands: {', '.join(THOUSANDS)}",
    "unit_mark": "what stands beside a number, as % or kg",
    "written": "patterns of dates, with commas",
    "first_year": "of the hundred years that two digits stand for",
    "true_words": "words for true, with commas",
    "false_words": "words for false, with commas",
    "missing_words": "words for a missing value, with commas",
    "outside": "expected, where most numbers or days lie outside of the range",
    "other": "expected, where most values are not listed",
}  # fmt: skip
# Roles as a line of text says them, before what is public.
ROLE_WORDS = {"leave out": "ignore", **{role: role for role in sorted(ROLES, key=len, reverse=True)}}
BIRTH = {
    "birth", "born", "birthdate", "birthday", "dob", "naissance", "geb", "geburt", "geburtsdatum", "geburtstag",
    "nacimiento", "nascita",
}  # fmt: skip
LIFETIME = "1900-01-01 .. 2030-12-31"
# What a word of a column's name says that everybody knows: a unit's own ends, or what no person exceeds.
PUBLIC_RANGES = {
    **dict.fromkeys(("age", "alter", "edad", "eta", "idade", "leeftijd"), "0 .. 120"),
    "percent": "0 .. 100", "percentage": "0 .. 100", "pct": "0 .. 100", "hour": "0 .. 23",
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
    choices: how its cells may be written, one of them to be chosen; `question`: with what some cells are by each, and
        other readings that are offered: for the steward of the file alone.
    marks: how its cells are written, by MARKS, as an answer says it.
    cells: the first cells of the first column, for the steward of the file alone.
    """

    columns: tuple[str, ...]
    type: str
    written: str
    role: str
    wants: str
    public: str
    choices: tuple[str, ...] = ()
    marks: Mapping[str, str] = field(default_factory=dict)
    cells: tuple[str, ...] = ()
    question: Question | None = None

    @property
    def named(self) -> str:
        """Return the group's name, for people to read."""
        first, count = self.columns[0], len(self.columns)
        return first if count == 1 else f"{first} .. {self.columns[-1]} ({count})"

    @property
    def kinds(self) -> dict[str, str]:
        """Return the types that its cells may be of, each with what is then public; none where they are of one."""
        readings = () if self.question is None else self.question.readings
        return {each.choice: each.public for each in readings if each.choice in KINDS}

    def has_short_year(self, written: str) -> bool:
        """Return whether its days, by the pattern that was chosen, need a first year."""
        return has_short_year(written or self.marks.get("written", ""))

    def to_json(self) -> dict[str, Any]:
        """Return all fields and `named`, for programs."""
        return {**asdict(self), "named": self.named}


@dataclass(frozen=True)
class ColumnAnswer:
    """What a person says of some columns.

    public: LOW .. HIGH, or values with commas; of a target, `share` with about the last class's (or every class's)
        share of rows may follow, and `leave-out`.
    type: where it is another than proposed.
    written .. other: the MARKS, where they are others than proposed; lists with commas.
    """

    columns: tuple[str, ...]
    role: str = "feature"
    public: str = ""
    type: str = ""
    written: str = ""
    decimal: str = ""
    thousands: str = ""
    unit_mark: str = ""
    first_year: str = ""
    true_words: str = ""
    false_words: str = ""
    missing_words: str = ""
    outside: str = ""
    other: str = ""

    def marks(self, kind: str) -> dict[str, Any]:
        """Return what it says of how cells of this type are written, as a schema does. InputError."""
        said = {name: getattr(self, name) for name in (*WRITTEN.get(kind, ()), "missing_words")}
        return {name: _read_mark(name, text) for name, text in said.items() if text}


def _read_choice(answer: str) -> dict[str, str]:
    """Read what a mark before three digits is: `thousands ,`, or `decimal ,`."""
    key, _, mark = answer.partition(" ")
    if key == "thousands" and mark in (",", "."):
        return {"thousands": mark, "decimal": "." if mark == "," else ","}
    if key != "decimal" or mark not in get_args(Decimal):
        raise InputError("say whether the mark before three digits parts `thousands`, or is its `decimal`")
    return {"decimal": mark}


def _read_mark(name: str, text: str) -> str | int | list[str]:
    if name == "thousands":
        if text not in THOUSANDS:
            raise InputError(f"thousands={text[:40]!r}: must be one of {', '.join(THOUSANDS)}")
        return THOUSANDS[text]
    if name == "decimal":
        if text not in get_args(Decimal):
            raise InputError(f"decimal={text[:40]!r}: must be one of {' '.join(get_args(Decimal))}")
        return text
    if name == "first_year":
        return parse_count(text)
    if name in ("unit_mark", "outside", "other"):
        return text
    return [text] if text in PATTERNS else split_list(text)


def marks_of(declaration: Mapping[str, Any]) -> dict[str, str]:
    """Return how a declaration says that cells are written, as an answer says it."""
    marks = {name: value for name in MARKS if (value := declaration.get(name)) not in (None, FILL_IN)}
    spelt = {value: word for word, value in THOUSANDS.items()}
    return {
        name: spelt[value] if name == "thousands" else ", ".join(value) if isinstance(value, list) else str(value)
        for name, value in marks.items()
    }


def group_columns(columns: Columns, questions: Mapping[str, Question]) -> list[ColumnGroup]:
    """Group features that one answer is for, in the file's order."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, declaration in columns.items():
        asked = name in questions and tuple(each.choice for each in questions[name].readings)
        groups.setdefault((re.sub(r"\d+", "#", name), declaration["type"], asked), []).append(name)
    return [_group(names, columns, questions) for names in groups.values()]


def _group(names: Sequence[str], columns: Columns, questions: Mapping[str, Question]) -> ColumnGroup:
    first = columns[names[0]]
    kind, public = first["type"], ""
    wanted = {"numeric": "LOW .. HIGH", "categorical": "its values with commas", FILL_IN: "LOW .. HIGH, or values"}
    written = "; ".join(sorted({_describe_cells(columns[name]) for name in names} - {""}))
    asked = [questions[name] for name in names if name in questions]
    one_of = dict.fromkeys(choice for question in asked for choice in question.choices)
    if kind in ("numeric", FILL_IN) and len(names) == 1:
        public = next((PUBLIC_RANGES[word] for word in words_of(names[0])[-1:] if word in PUBLIC_RANGES), "")
    elif kind in ("date", "datetime") and BIRTH.intersection(words_of(names[0])):
        public = LIFETIME
    wants = wanted.get(kind, "FIRST .. LAST") if FILL_IN in str(first) else ""
    return ColumnGroup(
        tuple(names), kind, written, "feature", wants, public,
        tuple(one_of), marks_of(first), question=asked[0] if asked else None,
    )  # fmt: skip


def _describe_cells(declaration: Mapping[str, Any]) -> str:
    words = {
        "decimal": "decimal", "thousands": "thousands", "unit_mark": "unit", "written": "",
        "true_words": "yes:", "false_words": "no:",
        "missing_words": "missing:",
    }  # fmt: skip
    marks = {name: text.replace(", ", " or ") for name, text in marks_of(declaration).items()}
    return ", ".join(f"{word} {marks[name]}".strip() for name, word in words.items() if name in marks)


def unit_of(answers: Iterable[ColumnAnswer]) -> str | None:
    """Return the column that names the person; None where no answer says so. InputError where two do."""
    names = [name for answer in answers if answer.role == "unit" for name in answer.columns]
    if len(names) > 1:
        raise InputError(f"unit: one column names the person; {', '.join(names[:5])} are said to")
    return names[0] if names else None


def require_same_unit(answers: Iterable[Mapping[str, Any]], unit: str | None) -> None:
    """Raise InputError where a column was said to name the person, and the registration says another one, or that each
    row is another person.
    """
    named = unit_of(ColumnAnswer(tuple(answer["columns"]), answer["role"]) for answer in answers)
    if named is not None and unit is not None and named not in (unit, unit.partition("=")[0]):
        other = "each row is another person" if unit == RECORD.name else f"the column {unit} names the person"
        raise InputError(
            f"unit: the columns say that {named} names the person, and the registration that {other}; say one of them "
            f"alone: --unit {shlex.quote(named)}, or another role for {named}",
            answers=[f"--unit {shlex.quote(named)}"],
        )


def target_of_answer(name: str, answer: ColumnAnswer, proposed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declaration of a target. InputError, which names the column."""
    declaration = _read_for(name, parse_target, answer.public)
    marks = {**{name: proposed[name] for name in MARKS if name in proposed}, **_read_for(name, answer.marks, "numeric")}
    if "range" in declaration and marks.get("decimal") == FILL_IN:
        marks |= _read_for(name, _read_choice, answer.written)
    kept = (*WRITTEN["numeric"], "missing_words") if "range" in declaration else ("missing_words",)
    return {**declaration, **{name: marks[name] for name in kept if name in marks}}


def feature_of_answer(name: str, answer: ColumnAnswer, proposed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declaration of a feature: as proposed, with what the answer says. InputError names what is missing."""
    kind = answer.type or proposed["type"]
    if kind not in (*KINDS, FILL_IN):
        raise InputError(f"{name}: type={kind[:40]!r}: must be one of {', '.join(KINDS)}")
    same = kind == proposed["type"]
    is_open = any(FILL_IN in str(value) for key, value in proposed.items() if key not in CHOSEN) or not same
    declaration = {
        key: value
        for key, value in proposed.items()
        if FILL_IN not in str(value) and (same or key in (*WRITTEN.get(kind, ()), "missing_words"))
    }
    marks = _read_for(name, answer.marks, kind)
    if kind == "numeric" and proposed.get("decimal") == FILL_IN and not {"decimal", "thousands"} & marks.keys():
        marks |= _read_for(name, _read_choice, answer.written)
    declaration |= marks
    patterns = marks.get("written") or proposed.get("written", [ISO_DATE])
    if kind in ("date", "datetime") and patterns == FILL_IN:
        raise InputError(f"{name}: say how its days are written: DD/MM/YYYY or MM/DD/YYYY, or another pattern")
    if kind in ("date", "datetime") and (problem := problem_of(tuple(patterns), declaration.get("first_year"))):
        raise InputError(f"{name}: {problem}")
    public: dict[str, Any] = {}
    if answer.public:
        public = _read_for(name, lambda text: parse_public(text, kind, strict=bool(answer.type)), answer.public)
    elif is_open and kind != "boolean":
        raise InputError(f"{name}: say its public range or values, or choose the role ignore")
    if public.get("type") == "categorical":
        return public | {key: declaration[key] for key in ("other", "missing_words") if key in declaration}
    return {**declaration, "type": kind, **public}


def _read_for(name: str, parse: Callable[[str], dict[str, Any]], text: str) -> dict[str, Any]:
    try:
        return parse(text)
    except (ValueError, InputError) as error:
        raise InputError(f"{name}: {error}") from None


def write_lines(groups: Sequence[ColumnGroup], answers: Mapping[tuple[str, ...], Mapping[str, str]]) -> str:
    """Return a line for each group: its name, its role where it is no feature, and what is public of it."""
    lines = []
    for group in groups:
        answer = answers.get(group.columns, {})
        role, public = answer.get("role") or group.role, answer["public"] if answer else group.public
        lines.append(f"{group.named}: {'' if role == 'feature' else role} {public}".replace(":  ", ": ").rstrip())
    return "\n".join(lines)


def read_lines(groups: Sequence[ColumnGroup], text: str) -> list[dict[str, Any]]:
    """Return the answers that lines of text give, as `write_lines` spells them. InputError names the line."""
    by_name = {group.named: group for group in sorted(groups, key=lambda each: -len(each.named))}
    answers: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        group = next((group for name, group in by_name.items() if line.strip().startswith(f"{name}:")), None)
        if group is None and line.strip():
            raise InputError(f"line {number}: must begin with a column's name and a colon, as in the box at first")
        if group is None:
            continue
        if group.named in answers:
            raise InputError(f"line {number}: {group.named} stands there twice")
        said = line.strip().removeprefix(f"{group.named}:").strip()
        word = next((word for word in ROLE_WORDS if said == word or said.startswith(f"{word} ")), "")
        role = ROLE_WORDS.get(word, group.role if not said else "feature")
        answers[group.named] = {"columns": list(group.columns), "role": role, "public": said.removeprefix(word).strip()}
    return list(answers.values())

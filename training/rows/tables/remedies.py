"""What a person does so that a file is read: steps of keys and values, of which the sentence is made. A program may
follow them as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import yaml

_PLAIN = re.compile(r"[A-Za-z0-9][\w./-]*")
LISTS = {"missing_words", "true_words", "false_words", "skip_rows", "ignore", "classes"}  # a step adds to them
_PLACES = {"column": "of the column", "format": "under `format`", "schema": "in the schema"}


class Unsaid(StrEnum):
    """What a remedy does not quote, for it stands in the file, or a person alone knows it."""

    CELL = "the text of that cell"
    FIRST = "the text of that row's first cell"
    UNIT = "the unit as it stands there"
    KNOWN = "as publicly known"
    CENTURY = "of the hundred years that two digits stand for (1950: 49 is 2049)"
    COLUMN = "it"
    WRITTEN = "as the file writes them"


@dataclass(frozen=True)
class Remedy:
    """One step, after which a file is read, or less of it is refused.

    say: keys of the schema with the values that they take; to those of LISTS they are added.
    place: whose keys they are: of the column, of `format`, or of the schema itself.
    leave_out: the keys are taken out instead, or the column out of them.
    deletes: the rows that are named are deleted from the file.
    how: where nothing else is done, how the file is written anew; else when the step is the right one.
    """

    say: Mapping[str, Any] = field(default_factory=dict)
    place: Literal["column", "format", "schema"] = "column"
    how: str = ""
    deletes: bool = False
    leave_out: bool = False

    def __str__(self) -> str:
        if self.deletes:
            return f"delete it {self.how}".strip()
        if not self.say:
            return self.how
        if self.leave_out:
            keys = " and ".join(f"`{key}`" for key in self.say)
            step = f"take it out of {keys}" if [Unsaid.COLUMN] in self.say.values() else f"leave {keys} out"
            return f"{step} {_PLACES[self.place]}"
        step = ", and ".join(_say(key, value) for key, value in self.say.items())
        return f"{step} {_PLACES[self.place]} {self.how}".strip()

    def to_json(self) -> dict[str, Any]:
        """Return the step for programs; what it does not quote stands there as Unsaid has it."""
        step = {"place": self.place, "say": dict(self.say), "leave_out": self.leave_out, "deletes": self.deletes,
                "how": self.how}  # fmt: skip
        return {key: value for key, value in step.items() if value and (self.say or key != "place")}


def write_anew(how: str) -> tuple[Remedy, ...]:
    """Return the remedy where no key of the schema helps: how the file is written anew."""
    return (Remedy(how=how),)


def remedies_from_json(steps: Iterable[Mapping[str, Any]]) -> tuple[Remedy, ...]:
    """Read what `to_json` gives."""
    return tuple(Remedy(**step) for step in steps)


def describe_remedies(remedies: Sequence[Remedy]) -> str:
    """Say the remedies, of which one is done, as a sentence."""
    return "; or ".join(map(str, remedies))


def _say(key: str, value: Any) -> str:
    """Say that a key takes a value, or has it added."""
    if key in LISTS and not isinstance(value, Unsaid):
        return f"add {', '.join(each if isinstance(each, Unsaid) else _spell(each) for each in value)} to `{key}`"
    if isinstance(value, Unsaid):
        return f"say `{key}` {value}" if value in (Unsaid.KNOWN, Unsaid.WRITTEN) else f"say {value} under `{key}`"
    return f"say `{key}: {_spell(value)}`"


def _spell(value: Any) -> str:
    """Spell a value as YAML reads it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_spell, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)

"""What every request has: one reading of a body, its JSON Schema, and its fields for the doors.

A request is a frozen pydantic dataclass with `config=CLOSED` that inherits `Checked`. Null stands for a field that is
left out. What is wrong is an InputError that names the field. What a schema cannot know is checked later: whether a
name exists, what a dataset admits, how many decimals a JSON number has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Self, cast

from pydantic import (
    ConfigDict,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import ArgsKwargs, PydanticUndefined

from dpserve_verify.errors import InputError

LONGEST_TEXT = 1000  # characters
CLOSED = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Control:
    """How a form shows a field: the words beside it, and what an empty control means."""

    label: str
    hint: str = ""
    placeholder: str = ""
    longest: int = LONGEST_TEXT
    inputmode: str = "text"


@dataclass(frozen=True)
class Option:
    """How the command line asks for a field, where that is not by the field's own name and words."""

    flag: str
    words: str


class Checked:
    """Base of every request."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_fields(cls, given: Any, handler: Callable[[Any], Any]) -> Any:
        fields = {field.name: field for field in request_fields(cast(Any, cls))}
        if isinstance(given, cls):
            return given
        if isinstance(given, ArgsKwargs):
            given = dict(zip(fields, given.args, strict=False)) | dict(given.kwargs or {})
        if not isinstance(given, Mapping):
            raise InputError("body: must be a JSON object")
        needed = {name for name, field in fields.items() if field.is_required}
        unknown, absent = sorted(given.keys() - fields.keys()), sorted(needed - given.keys())
        if unknown:
            raise InputError(f"{unknown[0][:80]!r}: is not a field; there are {sorted(fields)}")
        if absent:
            raise InputError(f"{absent[0]}: is missing")
        try:
            there = {name: value for name, value in given.items() if value is not None or name in needed}
            return handler(ArgsKwargs((), there))
        except ValidationError as error:
            raise InputError(_in_words(error)) from None

    @classmethod
    def of(cls, body: Any) -> Self:
        """Read a JSON object or a mapping. InputError says which field is wrong, and what it must be."""
        return cast(Self, _adapter(cast(Any, cls)).validate_python(body))

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON; decimals are texts."""
        fields = request_fields(cast(Any, type(self)))
        values = {field.name: getattr(self, field.name) for field in fields}
        return {field.name: _plain(values[field.name]) for field in fields if values[field.name] != field.default}


def _plain(value: Any) -> Any:
    if isinstance(value, Checked):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Decimal) else value


_MUST_BE = {
    "string_type": "a text", "bool_type": "true or false", "dict_type": "an object", "dataclass_type": "an object",
    "tuple_type": "a list", "list_type": "a list", "int_type": "a whole number",
}  # fmt: skip


def _in_words(error: ValidationError) -> str:
    """Say in one line what is wrong first: where, and what it must be."""
    first = error.errors(include_url=False)[0]
    where, kind, details = ".".join(map(str, first["loc"])), first["type"], first.get("ctx", {})
    if kind in _MUST_BE:
        return f"{where}: must be {_MUST_BE[kind]}"
    if kind == "literal_error":
        return f"{where}={first['input']!r:.80}: must be {details['expected'].replace(chr(39), '')}"
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = f"at least {details['ge']}" if "ge" in details else f"at most {details['le']}"
        return f"{where}={first['input']!r:.80}: must be {bound}"
    if kind == "too_long":
        return f"{where}: must have at most {details['max_length']} entries"
    if kind == "string_too_long":
        return f"{where}: must have at most {details['max_length']} characters"
    if kind == "string_too_short":
        return f"{where}: must have at least {details['min_length']} characters"
    return f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}"


@dataclass(frozen=True)
class RequestField:
    """A field of a request, with all that a door needs to know of it."""

    name: str
    type: Any
    default: Any
    is_required: bool
    description: str
    metadata: Sequence[Any]

    def find(self, kind: type[Any]) -> Any:
        """Return what the field states of this kind, Control or Option; None where it states none."""
        return next((each for each in self.metadata if isinstance(each, kind)), None)


@cache
def request_fields(kind: Any) -> tuple[RequestField, ...]:
    """List the fields of a request, in their order."""
    found = []
    for name, field in kind.__pydantic_fields__.items():
        if field.annotation is type(None):
            continue  # a field of the base that this request does not have
        default = field.get_default(call_default_factory=True)
        is_required = default is PydanticUndefined
        described = field.description or ""
        found.append(RequestField(name, field.annotation, default, is_required, described, tuple(field.metadata)))
    return tuple(found)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a request's body. Null is admitted where a field may be left out."""
    whole = _adapter(kind).json_schema()
    parts = whole.pop("$defs", {})
    shape: dict[str, Any] = inlined(whole, parts)
    needed, known = shape.get("required", []), shape["properties"]
    for name in known.keys() - needed:
        about = {word: known[name][word] for word in ("description", "default") if word in known[name]}
        inside = {word: value for word, value in known[name].items() if word not in about}
        kinds = [each for each in inside.get("anyOf", [inside]) if each != {"type": "null"}]
        known[name] = {"anyOf": [*kinds, {"type": "null"}], **about}
    shape["properties"] = {field.name: known[field.name] for field in request_fields(kind)}
    return shape


def inlined(shape: Any, parts: Mapping[str, Any]) -> Any:
    """Put each part in the place of its reference, and leave titles and empty defaults out."""
    if isinstance(shape, list):
        return [inlined(each, parts) for each in shape]
    if not isinstance(shape, dict):
        return shape
    if "$ref" in shape:
        return inlined(parts[shape["$ref"].rpartition("/")[2]], parts)
    return {
        name: inlined(value, parts)
        for name, value in shape.items()
        if not (name == "title" and isinstance(value, str)) and not (name == "default" and not value)
    }

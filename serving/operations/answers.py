"""What every answer has: one class, read from JSON, written to it, and published as a JSON Schema.

An answer is a frozen pydantic dataclass that inherits `Answer`. A field without a default is always there; one whose
default is None is left out where it is None. A newer server may answer with more fields, so none is closed to more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Protocol, cast

from pydantic import Field, TypeAdapter, ValidationError, WithJsonSchema

from dpserve_verify.errors import DpserveError
from serving.wire.field_words import in_words
from training.requests.base import inlined

SHAPE = "$shape"
Body = dict[str, Any]  # an answer as JSON, whose shape `shape` names
Count = Annotated[int, Field(ge=0)]
Next = Annotated[str | None, Field(description="the `after` of the next part; null on the last")]
Time = Annotated[str, Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="sha256 in hex")]


Share = Annotated[str, Field(pattern=r"^-?[0-9]+\.[0-9]{6}$", description="of the whole, six places")]


def shape(name: str) -> WithJsonSchema:
    """Stand for a shape of `serving.rest.json_schemas`, which the command line does not load."""
    return WithJsonSchema({SHAPE: name})


class ToJson(Protocol):
    """A class whose values are answers: an `Answer`, or a dataclass of another room."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""


class Answer:
    """Base of every answer."""

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON."""
        body = {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}
        may_lack = {field.name for field in fields(cast(Any, self)) if field.default is None}
        return {name: _plain(value) for name, value in body.items() if not (value is None and name in may_lack)}


def read_answer(kind: Any, body: Any) -> Any:
    """Read the JSON of an answer of this kind. DpserveError where it lacks what this version knows."""
    try:
        return _adapter(kind).validate_python(body)
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        raise DpserveError(f"answer: {where[:80]}: is not what this version of dpserve reads") from None


def answer_to_json(answer: ToJson | Body) -> Body:
    """Return an answer as JSON."""
    return answer if isinstance(answer, dict) else answer.to_json()


def _plain(value: Any) -> Any:
    if isinstance(value, Answer):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of an answer, or of a field of the query."""
    whole = _adapter(kind).json_schema()
    shape: dict[str, Any] = _worded(inlined(whole, whole.pop("$defs", {})))
    return shape


def _worded(shape: Any) -> Any:
    """Describe each field that says nothing of itself, and admit no null in one that may be left out."""
    if isinstance(shape, list):
        return [_worded(each) for each in shape]
    if not isinstance(shape, dict):
        return shape
    shape = {word: value if word == "properties" else _worded(value) for word, value in shape.items()}
    if "properties" in shape and shape.get("additionalProperties", True):
        needed = shape.get("required", ())
        known = {name: _worded(field) for name, field in shape["properties"].items()}
        known = {name: field if name in needed else without_null(field) for name, field in known.items()}
        shape["properties"] = {name: {**field, **in_words(name, field)} for name, field in known.items()}
    return shape


def without_null(shape: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field that is left out in place of null."""
    kinds = [kind for kind in shape.get("anyOf", ()) if kind != {"type": "null"}]
    rest = {word: value for word, value in shape.items() if word != "anyOf"}
    return {**rest, **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})} if kinds else shape

"""Forms: classes that state what a JSON object must hold, to read it strictly and to publish its JSON Schema.

A form has exactly its fields, and no value is converted: a number is no text, and 1 is not true. The words of a refusal
and the schema are those of pydantic, which read the same forms before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import lru_cache
from inspect import cleandoc
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

Place: TypeAlias = tuple[str | int, ...]
Reader: TypeAlias = Callable[[Any, Place], Any]
AnyForm = TypeVar("AnyForm", bound="Form")


class NotOfTheForm(Exception):
    """A value that does not fit its form: `place` has the keys and positions on the way to it."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place, self.message = place, message


@dataclass(frozen=True)
class Limits:
    """What a type alone does not say of a value: beside the type in `Annotated`.

    pattern: regular expression that a text must match.
    low, high: ends of a whole number, both included.
    shortest, longest: of a text in characters, of a list in items.
    tag: key by which an object of a union says which form it has.
    about: what it means, for the schema.
    refusal: words for a value that is not among the literal ones.
    """

    pattern: str | None = None
    low: int | None = None
    high: int | None = None
    shortest: int | None = None
    longest: int | None = None
    tag: str | None = None
    about: str | None = None
    refusal: str | None = None


def form_field(
    *, default: Any = MISSING, key: str | None = None, about: str | None = None, limits: Limits | None = None
) -> Any:
    """Describe a field of a form.

    Args:
        default: its value where the object does not have it; without one the object must.
        key: its name in JSON, where that is another.
        about: what it means, for the schema.
        limits: of its value.
    """
    return field(default=default, metadata={"key": key, "about": about, "limits": limits})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(form_field,))
class Form:
    """A part of a statement: exactly its fields, none of them converted."""

    given: ClassVar[frozenset[str]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def read(cls: type[AnyForm], value: Any) -> AnyForm:
        """Read a JSON value. NotOfTheForm names the first thing wrong."""
        form: AnyForm = _read_form(cls, value, ())
        return form

    @classmethod
    def keys(cls) -> frozenset[str]:
        """Return the keys that an object of this form may have."""
        form: Any = cls
        return frozenset(map(_key, _fields(form)))

    def to_json(self) -> dict[str, Any]:
        """Spell the object that was read: its keys, and no field that it left out."""
        kind: Any = type(self)
        parts = _fields(kind)
        given = self.__dict__.get("given") or {part.name for part in parts if getattr(self, part.name) != part.default}
        return {_key(part): _spell(getattr(self, part.name)) for part in parts if part.name in given}


def json_schema(form: type[Form]) -> dict[str, Any]:
    """Make the JSON Schema, draft 2020-12, of a form and of all forms in it."""
    parts: dict[str, Any] = {}
    body = _form_schema(form, parts)
    return {"$defs": {name: parts[name] for name in sorted(parts)}, **body} if parts else body


def _key(part: Field[Any]) -> str:
    return part.metadata.get("key") or part.name


@lru_cache(maxsize=256)
def _fields(form: Any) -> tuple[Field[Any], ...]:
    return fields(form)


@lru_cache(maxsize=256)
def _types(form: Any) -> Mapping[str, Any]:
    return get_type_hints(form, include_extras=True)


def _type_with_limits(part: Field[Any], form: Any) -> Any:
    kind, limits = _types(form)[part.name], part.metadata.get("limits")
    return kind if limits is None else Annotated[kind, limits]


def _spell(value: Any) -> Any:
    if isinstance(value, Form):
        return value.to_json()
    if isinstance(value, list):
        return [_spell(item) for item in value]
    return {name: _spell(item) for name, item in value.items()} if isinstance(value, dict) else value


# ---- reading ---------------------------------------------------------------------------------------------------------


def _read_form(form: Any, value: Any, place: Place) -> Any:
    if not isinstance(value, dict):
        raise NotOfTheForm(place, f"Input should be a valid dictionary or instance of {form.__name__}")
    readers, values = _readers(form), {}
    for key, (name, needed, reader) in readers.items():
        if key in value:
            values[name] = reader(value[key], (*place, key))
        elif needed:
            raise NotOfTheForm((*place, key), "Field required")
    for key in value:
        if key not in readers:
            raise NotOfTheForm((*place, key), "Extra inputs are not permitted")
    instance = form(**values)
    object.__setattr__(instance, "given", frozenset(values))
    return instance


@lru_cache(maxsize=256)
def _readers(form: Any) -> Mapping[str, tuple[str, bool, Reader]]:
    """Map each key of a form to its field's name, whether the object must have it, and what reads its value."""
    return {
        _key(part): (part.name, part.default is MISSING, _reader(_type_with_limits(part, form)))
        for part in _fields(form)
    }


@lru_cache(maxsize=512)
def _reader(kind: Any) -> Reader:
    """Find what reads a value of a type: of a form, or of one of the types of JSON."""
    origin, arguments, limits = _split_type(kind)
    if origin is Union:
        return _union_reader(arguments, limits)
    if origin is Literal:
        return lambda value, place: _read_literal(arguments, limits, value, place)
    if origin is list:
        return lambda value, place: _read_list(_reader(arguments[0]), limits, value, place)
    if origin is dict:
        return lambda value, place: {
            key: _reader(arguments[1])(item, (*place, key))
            for key, item in _of_kind(dict, "dictionary", value, place).items()
        }
    if origin is str:
        return lambda value, place: _read_text(limits, value, place)
    if origin is int:
        return lambda value, place: _read_whole(limits, value, place)
    if origin is bool:
        return lambda value, place: _of_kind(bool, "boolean", value, place)
    return lambda value, place: _read_form(origin, value, place)


def _split_type(kind: Any) -> tuple[Any, tuple[Any, ...], Limits]:
    """Split a type into its kind, its arguments and its limits; `X | None` with limits gives them to X."""
    limits = Limits()
    while get_origin(kind) is Annotated:
        kind, *annotations = get_args(kind)
        limits = next((part for part in annotations if isinstance(part, Limits)), limits)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        if NoneType in arguments and limits != Limits() and limits.tag is None:
            arguments = tuple(part if part is NoneType else Annotated[part, limits] for part in arguments)
        return Union, arguments, limits
    return origin, arguments, limits


def _union_reader(kinds: Sequence[Any], limits: Limits) -> Reader:
    not_none = [kind for kind in kinds if kind is not NoneType]

    def read(value: Any, place: Place) -> Any:
        if value is None and NoneType in kinds:
            return None
        if limits.tag is not None:
            return _read_tagged(_by_tag(not_none, limits.tag), limits.tag, value, place)
        if len(not_none) == 1:
            return _reader(not_none[0])(value, place)
        first: NotOfTheForm | None = None
        for kind in not_none:
            try:
                return _reader(kind)(value, place)
            except NotOfTheForm as error:
                first = first or NotOfTheForm((*place, kind.__name__), error.message)
        assert first is not None
        raise first

    return read


def _by_tag(kinds: Sequence[Any], tag: str) -> dict[str, type[Form]]:
    """Map every word that the key `tag` may have to the form that it stands for."""
    forms: list[Any] = [form for kind in kinds for form in _members(kind)]
    return {word: form for form in forms for word in get_args(_types(form)[tag])}


def _members(kind: Any) -> Iterator[type[Form]]:
    origin, arguments, _ = _split_type(kind)
    if origin is Union:
        for member in arguments:
            yield from _members(member)
    else:
        yield origin


def _read_tagged(forms: Mapping[str, type[Form]], tag: str, value: Any, place: Place) -> Form:
    if not isinstance(value, dict):
        raise NotOfTheForm(place, "Input should be a valid dictionary or object to extract fields from")
    if tag not in value:
        raise NotOfTheForm(place, f"Unable to extract tag using discriminator '{tag}'")
    word = value[tag]
    if not isinstance(word, str) or word not in forms:
        expected = ", ".join(map(repr, forms))
        raise NotOfTheForm(
            place, f"Input tag '{word}' found using '{tag}' does not match any of the expected tags: {expected}"
        )
    found: Form = _read_form(forms[word], value, (*place, word))
    return found


def _read_literal(words: Sequence[Any], limits: Limits, value: Any, place: Place) -> Any:
    if not any(type(value) is type(word) and value == word for word in words):
        *others, last = map(repr, words)
        expected = f"Input should be {', '.join(others)}{' or ' if others else ''}{last}"
        raise NotOfTheForm(place, limits.refusal or expected)
    return value


def _read_list(reader: Reader, limits: Limits, value: Any, place: Place) -> list[Any]:
    _of_kind(list, "list", value, place)
    if limits.longest is not None and len(value) > limits.longest:
        raise NotOfTheForm(
            place, f"List should have at most {_items(limits.longest)} after validation, not {len(value)}"
        )
    found = [reader(each, (*place, number)) for number, each in enumerate(value)]
    if limits.shortest is not None and len(found) < limits.shortest:
        raise NotOfTheForm(
            place, f"List should have at least {_items(limits.shortest)} after validation, not {len(found)}"
        )
    return found


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number} items"


def _of_kind(kind: type, word: str, value: Any, place: Place) -> Any:
    """Let a value through that is of this type: a truth value is no number."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise NotOfTheForm(place, f"Input should be a valid {word}")
    return value


def _read_text(limits: Limits, value: Any, place: Place) -> str:
    _of_kind(str, "string", value, place)
    if limits.longest is not None and len(value) > limits.longest:
        raise NotOfTheForm(place, f"String should have at most {limits.longest} characters")
    if limits.pattern is not None and not re.search(limits.pattern.removesuffix("$") + r"\Z", value, re.ASCII):
        raise NotOfTheForm(place, f"String should match pattern '{limits.pattern}'")
    text: str = value
    return text


def _read_whole(limits: Limits, value: Any, place: Place) -> int:
    _of_kind(int, "integer", value, place)
    if limits.high is not None and value > limits.high:
        raise NotOfTheForm(place, f"Input should be less than or equal to {limits.high}")
    if limits.low is not None and value < limits.low:
        raise NotOfTheForm(place, f"Input should be greater than or equal to {limits.low}")
    number: int = value
    return number


# ---- the published schema --------------------------------------------------------------------------------------------


def _form_schema(form: Any, parts: dict[str, Any]) -> dict[str, Any]:
    properties, required = {}, []
    for part in _fields(form):
        key, about = _key(part), part.metadata.get("about")
        schema = _schema(_type_with_limits(part, form), parts)
        refers = any("$ref" in each for each in (schema, *schema.get("anyOf", ())))
        titled = {} if refers else {"title": key.title().replace("_", " ").strip()}
        said = {
            **schema,
            **({} if part.default is MISSING else {"default": part.default}),
            **({"description": about} if about else {}),
            **titled,
        }
        properties[key] = {name: said[name] for name in sorted(said)}
        if part.default is MISSING:
            required.append(key)
    return {
        "additionalProperties": False,
        "description": cleandoc(form.__doc__ or ""),
        "properties": properties,
        **({"required": required} if required else {}),
        "title": form.__name__,
        "type": "object",
    }


def _schema(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    origin, arguments, limits = _split_type(kind)
    found = {**_kind_schema(origin, arguments, limits, parts), **_known({"description": limits.about})}
    return {name: found[name] for name in sorted(found)}


def _kind_schema(origin: Any, arguments: tuple[Any, ...], limits: Limits, parts: dict[str, Any]) -> dict[str, Any]:
    if origin is Union:
        return _union_schema(arguments, limits, parts)
    if origin is Literal:
        words = {"bool": "boolean", "str": "string", "int": "integer"}[type(arguments[0]).__name__]
        return {"type": words, **({"const": arguments[0]} if len(arguments) == 1 else {"enum": [*arguments]})}
    if origin is list:
        ends: dict[str, Any] = {"minItems": limits.shortest, "maxItems": limits.longest}
        return {"type": "array", "items": _schema(arguments[0], parts), **_known(ends)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], parts)}
    if origin is str:
        ends = {"pattern": limits.pattern, "minLength": limits.shortest, "maxLength": limits.longest}
        return {"type": "string", **_known(ends)}
    if origin is int:
        return {"type": "integer", **_known({"minimum": limits.low, "maximum": limits.high})}
    if origin in (bool, NoneType):
        return {"type": "boolean" if origin is bool else "null"}
    if origin.__name__ not in parts:
        parts[origin.__name__] = {}
        parts[origin.__name__] = _form_schema(origin, parts)
    return {"$ref": f"#/$defs/{origin.__name__}"}


def _union_schema(kinds: Sequence[Any], limits: Limits, parts: dict[str, Any]) -> dict[str, Any]:
    if limits.tag is None:
        return {"anyOf": [_schema(kind, parts) for kind in kinds]}
    forms = _by_tag(kinds, limits.tag)
    places = {word: _schema(form, parts)["$ref"] for word, form in forms.items()}
    several = [{"$ref": place} for place in dict.fromkeys(places.values())]
    mapping = {word: places[word] for word in sorted(places)}
    return {"discriminator": {"mapping": mapping, "propertyName": limits.tag}, "oneOf": several}


def _known(ends: Mapping[str, Any]) -> dict[str, Any]:
    return {name: end for name, end in ends.items() if end is not None}

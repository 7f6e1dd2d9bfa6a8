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
Reader: TypeAlias = Callable[[Any], Any]
AnyForm = TypeVar("AnyForm", bound="Form")


class NotOfTheForm(Exception):
    """A value that does not fit its form: `place` has the keys and positions on the way to it."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place, self.message = place, message

    def under(self, key: str | int) -> NotOfTheForm:
        """Return it as of the object or the list that has the value under this key."""
        return NotOfTheForm((key, *self.place), self.message)


@dataclass(frozen=True)
class Limits:
    """What a type alone does not say of a value: beside the type in `Annotated`.

    pattern: regular expression that a text must match.
    low, high: ends of a whole number, both included.
    shortest, longest: of a text in characters, of a list in items.
    tag: key by which an object of a union says which form it has.
    about: what it means, for the schema.
    refusal: words for a value that does not fit, in place of those of its type.
    shape: of a value that is taken as it comes, for whoever reads it to judge: the type that the schema states.
    """

    pattern: str | None = None
    low: int | None = None
    high: int | None = None
    shortest: int | None = None
    longest: int | None = None
    tag: str | None = None
    about: str | None = None
    refusal: str | None = None
    shape: Any = None


def form_field(
    *,
    default: Any = MISSING,
    absent: bool = False,
    key: str | None = None,
    about: str | None = None,
    limits: Limits | None = None,
) -> Any:
    """Describe a field of a form.

    Args:
        default: its value where the object does not have it; without one the object must.
        absent: None stands for an object that does not have it, and the object never has null for it.
        key: its name in JSON, where that is another.
        about: what it means, for the schema.
        limits: of its value.
    """
    metadata = {"key": key, "about": about, "limits": limits, "absent": absent}
    return field(default=None if absent else default, metadata=metadata)


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
        form: AnyForm = _read_form(cls, value)
        return form

    @classmethod
    def keys(cls) -> frozenset[str]:
        """Return the keys that an object of this form may have."""
        form: Any = cls
        keys, _ = _key_sets(form)
        return keys

    @classmethod
    def required(cls) -> frozenset[str]:
        """Return the keys that an object of this form must have."""
        form: Any = cls
        _, needed = _key_sets(form)
        return needed

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


def tagged_schema(kinds: Sequence[type[Form]], tag: str) -> dict[str, Any]:
    """Make the JSON Schema of an object that has one of these forms, as its key `tag` says."""
    parts: dict[str, Any] = {}
    body = _union_schema(kinds, Limits(tag=tag), parts)
    return {"$defs": {name: parts[name] for name in sorted(parts)}, **body}


def _key(part: Field[Any]) -> str:
    return part.metadata.get("key") or part.name


@lru_cache(maxsize=256)
def _fields(form: Any) -> tuple[Field[Any], ...]:
    return fields(form)


@lru_cache(maxsize=256)
def _key_sets(form: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys that an object of a form may have, and those that it must have."""
    needed = frozenset(_key(part) for part in _fields(form) if part.default is MISSING)
    return frozenset(map(_key, _fields(form))), needed


@lru_cache(maxsize=256)
def _types(form: Any) -> Mapping[str, Any]:
    return get_type_hints(form, include_extras=True)


def _type_with_limits(part: Field[Any], form: Any) -> Any:
    kind, limits = _types(form)[part.name], part.metadata.get("limits")
    if part.metadata.get("absent"):
        kind = Union[tuple(each for each in get_args(kind) if each is not NoneType)]  # noqa: UP007
    return kind if limits is None else Annotated[kind, limits]


def _spell(value: Any) -> Any:
    if isinstance(value, Form):
        return value.to_json()
    if isinstance(value, list):
        return [_spell(item) for item in value]
    return {name: _spell(item) for name, item in value.items()} if isinstance(value, dict) else value


# ---- reading ---------------------------------------------------------------------------------------------------------


def _read_form(form: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise NotOfTheForm((), f"Input should be a valid dictionary or instance of {form.__name__}")
    readers, values = _readers(form), dict[str, Any]()
    for key, (name, needed, reader) in readers.items():
        if key in value:
            try:
                values[name] = reader(value[key])
            except NotOfTheForm as error:
                raise error.under(key) from None
        elif needed:
            raise NotOfTheForm((key,), "Field required")
    if len(values) < len(value):
        unknown = next(key for key in value if key not in readers)
        raise NotOfTheForm((unknown,), "Extra inputs are not permitted")
    instance = object.__new__(form)
    instance.__dict__.update(values, given=frozenset(values))  # a default stands in the class
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
    read, refusal = _reader_of(origin, arguments, limits), limits.refusal
    if refusal is None:
        return read

    def read_or_refuse(value: Any) -> Any:
        try:
            return read(value)
        except NotOfTheForm:
            raise NotOfTheForm((), refusal) from None

    return read_or_refuse


def _reader_of(origin: Any, arguments: tuple[Any, ...], limits: Limits) -> Reader:
    if origin is Any:
        return lambda value: value
    if origin is Union:
        return _union_reader(arguments, limits)
    if origin is Literal:
        return lambda value: _read_literal(arguments, value)
    if origin is list:
        return _list_reader(_reader(arguments[0]), limits)
    if origin is dict:
        return _dict_reader(_reader(arguments[1]))
    if origin is str:
        return _text_reader(limits)
    if origin is int:
        return lambda value: _read_whole(limits, value)
    if origin is bool:
        return lambda value: _of_kind(bool, "boolean", value)
    return lambda value: _read_form(origin, value)


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

    def read(value: Any) -> Any:
        if value is None and NoneType in kinds:
            return None
        if limits.tag is not None:
            return _read_tagged(_by_tag(not_none, limits.tag), limits.tag, value)
        if len(not_none) == 1:
            return _reader(not_none[0])(value)
        first: NotOfTheForm | None = None
        for kind in not_none:
            try:
                return _reader(kind)(value)
            except NotOfTheForm as error:
                first = first or NotOfTheForm((kind.__name__,), error.message)
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


def _read_tagged(forms: Mapping[str, type[Form]], tag: str, value: Any) -> Form:
    if not isinstance(value, dict):
        raise NotOfTheForm((), "Input should be a valid dictionary or object to extract fields from")
    if tag not in value:
        raise NotOfTheForm((), f"Unable to extract tag using discriminator '{tag}'")
    word = value[tag]
    if not isinstance(word, str) or word not in forms:
        expected = ", ".join(map(repr, forms))
        raise NotOfTheForm(
            (), f"Input tag '{word}' found using '{tag}' does not match any of the expected tags: {expected}"
        )
    try:
        found: Form = _read_form(forms[word], value)
    except NotOfTheForm as error:
        raise error.under(word) from None
    return found


def _read_literal(words: Sequence[Any], value: Any) -> Any:
    if not any(type(value) is type(word) and value == word for word in words):
        *others, last = map(repr, words)
        raise NotOfTheForm((), f"Input should be {', '.join(others)}{' or ' if others else ''}{last}")
    return value


def _list_reader(reader: Reader, limits: Limits) -> Reader:
    def read(value: Any) -> list[Any]:
        _of_kind(list, "list", value)
        length = len(value)
        if limits.longest is not None and length > limits.longest:
            raise NotOfTheForm((), f"List should have at most {_items(limits.longest)} after validation, not {length}")
        found: list[Any] = []
        for each in value:
            try:
                found.append(reader(each))
            except NotOfTheForm as error:
                raise error.under(len(found)) from None
        if limits.shortest is not None and length < limits.shortest:
            raise NotOfTheForm(
                (), f"List should have at least {_items(limits.shortest)} after validation, not {length}"
            )
        return found

    return read


def _dict_reader(reader: Reader) -> Reader:
    def read(value: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in _of_kind(dict, "dictionary", value).items():
            try:
                found[key] = reader(item)
            except NotOfTheForm as error:
                raise error.under(key) from None
        return found

    return read


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number} items"


def _of_kind(kind: type, word: str, value: Any) -> Any:
    """Let a value through that is of this type: a truth value is no number."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise NotOfTheForm((), f"Input should be a valid {word}")
    return value


def _text_reader(limits: Limits) -> Reader:
    shortest, longest, pattern = limits.shortest, limits.longest, limits.pattern
    fits = None if pattern is None else re.compile(pattern.removesuffix("$") + r"\Z", re.ASCII).search

    def read(value: Any) -> str:
        text: str = _of_kind(str, "string", value)
        if longest is not None and len(text) > longest:
            raise NotOfTheForm((), f"String should have at most {longest} characters")
        if shortest is not None and len(text) < shortest:
            raise NotOfTheForm((), f"String should have at least {shortest} characters")
        if fits is not None and not fits(text):
            raise NotOfTheForm((), f"String should match pattern '{pattern}'")
        return text

    return read


def _read_whole(limits: Limits, value: Any) -> int:
    number: int = _of_kind(int, "integer", value)
    if limits.high is not None and number > limits.high:
        raise NotOfTheForm((), f"Input should be less than or equal to {limits.high}")
    if limits.low is not None and number < limits.low:
        raise NotOfTheForm((), f"Input should be greater than or equal to {limits.low}")
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
            **({} if part.default is MISSING or part.metadata.get("absent") else {"default": part.default}),
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
    if limits.shape is not None:
        return _schema(limits.shape, parts)
    found = {**_kind_schema(origin, arguments, limits, parts), **_known({"description": limits.about})}
    return {name: found[name] for name in sorted(found)}


def _kind_schema(origin: Any, arguments: tuple[Any, ...], limits: Limits, parts: dict[str, Any]) -> dict[str, Any]:
    if origin is Any:
        return {}
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

"""What the auditor's reader keeps of a ledger, as text and back: plain values and the auditor's own records, no code.

JSON says most of it; what JSON has no form for is a list whose first place names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any

from dpserve_verify.audit import replay, replay_blocks, replay_budget
from dpserve_verify.entries import access, attacks, campaigns, job_kinds, keys, learners, schedules
from dpserve_verify.privacy import budget, filter, soundness

_ROOMS = (
    *(replay, replay_blocks, replay_budget, access, campaigns, job_kinds, keys, learners),
    *(schedules, budget, filter, soundness, attacks),
)
_WRITE = json.JSONEncoder(separators=(",", ":")).encode
_LIST, _TUPLE, _SET, _FROZEN, _MAP, _BYTES, _DECIMAL = "list", "tuple", "set", "frozenset", "map", "bytes", "decimal"
_OFTEN = frozenset({"Filter", "Budget"})  # they never change, and many records have the same ones


def write(value: Any) -> str:
    """Return a value as text. TypeError where it holds what has no form here."""
    return _WRITE(_plain(value))


def read(text: str) -> Any:
    """Return the value of a text of `write`. ValueError or TypeError where it is none."""
    return _value(json.loads(text))


@lru_cache(maxsize=1)
def _classes() -> dict[str, type]:
    """Return the records and the enumerations of the auditor and of what it is made of, by name."""
    known: dict[str, type] = {}
    for room in _ROOMS:
        for name, each in vars(room).items():
            if isinstance(each, type) and (is_dataclass(each) or issubclass(each, Enum)):
                known[name] = each
    return known


@lru_cache(maxsize=64)
def _names(record: str) -> tuple[str, ...]:
    """Return the fields of a record, by its name."""
    return tuple(field.name for field in fields(_classes()[record]))


def _plain(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (str, int, bool):
        return value
    if kind is Decimal:
        return [_DECIMAL, str(value)]
    if kind is bytes:
        return [_BYTES, value.hex()]
    if kind is dict:
        return [_MAP, *([_plain(key), _plain(each)] for key, each in value.items())]
    if kind in (list, tuple, set, frozenset):
        return [kind.__name__, *map(_plain, value)]
    if issubclass(kind, Enum):
        return [kind.__name__, value.value]
    return _steady(value) if kind.__name__ in _OFTEN else [kind.__name__, *_of_record(value)]


def _of_record(value: Any) -> list[Any]:
    """Return the fields of a record. TypeError where it is none that is known here."""
    kind = type(value)
    if _classes().get(kind.__name__) is not kind:
        raise TypeError(f"{kind.__name__}: is no record of the auditor")
    return [_plain(getattr(value, name)) for name in _names(kind.__name__)]


def _value(form: Any) -> Any:
    if type(form) is not list:
        return form
    name, *rest = form
    reader = _READERS.get(name)
    if reader is not None:
        return reader(rest)
    if name in _OFTEN:
        return _read_steady(name, rest[0])
    kind = _classes()[name]
    if issubclass(kind, Enum):
        return kind(rest[0])
    return _build(kind, [_value(each) for each in rest])


def _build(kind: type, values: list[Any]) -> Any:
    """Return a record with these fields as they were, without what its making would compute anew."""
    record: Any = object.__new__(kind)
    for name, value in zip(_names(kind.__name__), values, strict=True):
        object.__setattr__(record, name, value)
    return record


_steady = lru_cache(maxsize=4096)(lambda value: [type(value).__name__, _WRITE(_of_record(value))])
_read_steady = lru_cache(maxsize=4096)(lambda name, text: _build(_classes()[name], [*map(_value, json.loads(text))]))
_READERS: dict[str, Callable[[list[Any]], Any]] = {
    _LIST: lambda rest: [_value(each) for each in rest],
    _TUPLE: lambda rest: tuple(_value(each) for each in rest),
    _SET: lambda rest: {_value(each) for each in rest},
    _FROZEN: lambda rest: frozenset(_value(each) for each in rest),
    _MAP: lambda rest: {_value(key): _value(each) for key, each in rest},
    _BYTES: lambda rest: bytes.fromhex(rest[0]),
    _DECIMAL: lambda rest: Decimal(rest[0]),
}

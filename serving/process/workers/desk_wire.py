"""Messages between serving processes and the price desk: plain values as JSON, each behind its length.

Nothing that comes is run: a function goes by its name, which is looked up in the modules that the desk was begun with,
and a value of a class of ours is filled in field by field. Only dataclasses, named tuples, enums and errors of our
rooms are filled in; anything else, and a message that is too long, is ValueError.
"""

from __future__ import annotations

import datetime
import json
import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from importlib import import_module
from typing import Any

from dpserve_verify.errors import DpserveError

ROOMS = ("accountant", "dpserve_verify", "models", "training")
MAX_BYTES = 1 << 24
_LENGTH = struct.Struct(">I")

_TEXTS: Mapping[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    Decimal: (str, Decimal),
    Fraction: (str, Fraction),
    bytes: (bytes.hex, bytes.fromhex),
    datetime.datetime: (datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    datetime.date: (datetime.date.isoformat, datetime.date.fromisoformat),
}
_LISTS: Mapping[type, Callable[[Any], Any]] = {list: list, tuple: tuple, frozenset: frozenset, set: set}
_BY_NAME = {kind.__name__: kind for kind in (*_TEXTS, *_LISTS)}


class Wire:
    """One connection, of either side. OSError and EOFError where the other side is gone."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def send(self, value: Any) -> None:
        """Send one message. ValueError where it holds what no message may."""
        raw = json.dumps(to_plain(value)).encode()
        if len(raw) > MAX_BYTES:
            raise ValueError(f"message: has {len(raw)} bytes, at most {MAX_BYTES}")
        self._line.sendall(_LENGTH.pack(len(raw)) + raw)

    def receive(self) -> Any:
        """Wait for one message and return it. ValueError where it is none."""
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if size > MAX_BYTES:
            raise ValueError(f"message: has {size} bytes, at most {MAX_BYTES}")
        try:
            return from_plain(json.loads(self._read(size)))
        except (ValueError, TypeError, KeyError, AttributeError, ImportError, ArithmeticError, RecursionError) as error:
            raise ValueError(f"message: cannot be understood ({type(error).__name__}: {error!s:.200})") from error

    def is_ready(self, seconds: float) -> bool:
        """Return whether there is something to read, or nobody any more to write it, within so many seconds."""
        line = select.poll()
        line.register(self._line, select.POLLIN)
        return bool(line.poll(1000 * seconds))

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._line.recv(min(size - len(parts), 1 << 16))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name that a function goes by."""
    return f"{function.__module__}:{function.__qualname__}"


def function_of(name: str, modules: Sequence[str]) -> Callable[..., Any]:
    """Return the function of that name, which one of these modules defines. ValueError for any other."""
    module, _, own = name.partition(":")
    function = getattr(import_module(module), own, None) if module in modules else None
    if not callable(function) or getattr(function, "__module__", None) != module:
        raise ValueError(f"function={name[:80]!r}: is none of {', '.join(modules)}")
    return function  # type: ignore[no-any-return]


def to_plain(value: Any) -> Any:
    """Return a value as JSON has it. ValueError where it is of no kind that is sent."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Enum):
        return {"is": _class_name(type(value)), "of": value.name}
    if isinstance(value, DpserveError):
        return {"is": _class_name(type(value)), "of": [to_plain(value.message), to_plain(vars(value))]}
    if isinstance(value, dict):
        return {"is": "dict", "of": [[to_plain(key), to_plain(part)] for key, part in value.items()]}
    kind = type(value)
    if kind in _TEXTS:
        return {"is": kind.__name__, "of": _TEXTS[kind][0](value)}
    if kind in _LISTS:
        return {"is": kind.__name__, "of": [to_plain(part) for part in value]}
    if isinstance(value, float):  # of numpy's
        return float(value)
    return {"is": _class_name(kind), "of": [to_plain(getattr(value, name)) for name in _fields(kind)]}


def from_plain(value: Any) -> Any:
    """Return the value that `to_plain` gave this for. ValueError, or what goes wrong with it, for anything else."""
    if not isinstance(value, dict):
        return value
    name, of = value["is"], value["of"]
    kind: Any = _BY_NAME.get(name)
    if name == "dict":
        return {from_plain(key): from_plain(part) for key, part in of}
    if kind in _TEXTS:
        return _TEXTS[kind][1](of)
    if kind in _LISTS:
        return _LISTS[kind](from_plain(part) for part in of)
    own = _class_of(name)
    if issubclass(own, Enum):
        return own[of]
    made = own.__new__(own) if not issubclass(own, tuple) else None
    if issubclass(own, DpserveError):
        made = DpserveError.__new__(own, from_plain(of[0]))
        vars(made).update(from_plain(of[1]))
        return made
    parts = {field: from_plain(part) for field, part in zip(_fields(own), of, strict=True)}
    if made is None:
        return own(**parts)
    for field, part in parts.items():
        object.__setattr__(made, field, part)
    return made


def _fields(kind: type) -> tuple[str, ...]:
    """Return the names of a class' fields. ValueError where it is no dataclass and no named tuple."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return tuple(kind._fields)
    raise ValueError(f"value: {kind.__name__} is of no kind that is sent")


def _class_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class_of(name: str) -> type:
    module, _, own = name.partition(":")
    if module.partition(".")[0] not in ROOMS:
        raise ValueError(f"class={name[:80]!r}: is none of ours")
    kind = getattr(import_module(module), own)
    if not isinstance(kind, type) or kind.__module__ != module:
        raise ValueError(f"class={name[:80]!r}: is none")
    if not issubclass(kind, (Enum, DpserveError)):
        _fields(kind)
    return kind

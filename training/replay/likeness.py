"""A digest of anything in memory: two things of the same kind and content have the same one, whatever made them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cached_property, partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

PLAIN = (int, float, str, bool, bytes, complex, Decimal, Fraction, type(None), Enum, np.generic)
MOST_KEPT = 1 << 14

# By the id of what cannot change: the thing itself, so that its id stays its own, and its digest. Queries of thousands
# of rounds hold the same tests and trees.
_kept: dict[int, tuple[Any, bytes]] = {}


def digest_of(value: Any) -> str:
    """Return the digest of a value: of its type, and of all that it holds."""
    return _digest(value, {})[0].hex()


def _digest(value: Any, within: dict[int, Any]) -> tuple[bytes, bool]:
    """Return the digest, and whether the value can never change. `within`: what it is a part of."""
    kind = type(value)
    if isinstance(value, PLAIN):
        return f"{kind.__qualname__}:{value!r}".encode(), True
    if id(value) in within:
        return b"what it is part of", False
    kept = _kept.get(id(value))
    if kept is not None:
        return kept[1], True
    into = hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}".encode())
    fixed = isinstance(value, tuple | frozenset) or getattr(
        getattr(kind, "__dataclass_params__", None), "frozen", False
    )
    if isinstance(value, np.ndarray) and value.dtype != object:
        into.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        return into.digest(), False
    within[id(value)] = value
    for part in _parts(value):
        digest, stays = _digest(part, within)
        into.update(len(digest).to_bytes(8, "big") + digest)
        fixed = fixed and stays
    del within[id(value)]
    if fixed:
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        _kept[id(value)] = value, into.digest()
    return into.digest(), fixed


def _parts(value: Any) -> Iterator[Any]:
    """Yield all that a value holds, in an order of its own. What a class works out from its fields is left out."""
    if isinstance(value, np.ndarray):
        yield from (value.shape, *value.ravel().tolist())
    elif isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from (key, part)
    elif isinstance(value, set | frozenset):
        yield from sorted(map(digest_of, value))
    elif isinstance(value, type | ModuleType | BuiltinFunctionType):
        yield from (getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__))
    elif isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        yield from (value.__module__, value.__qualname__, value.__code__.co_code, value.__defaults__, cells)
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif is_dataclass(value):
        for field in fields(value):
            yield from (field.name, getattr(value, field.name, None))
    else:
        slots = [
            name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(value, name)
        ]
        held = {**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})}
        made = {name for kind in type(value).__mro__ for name, of in vars(kind).items() if type(of) is cached_property}
        for name in sorted(held.keys() - made):
            yield from (name, held[name])

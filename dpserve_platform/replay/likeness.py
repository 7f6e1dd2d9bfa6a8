"""A digest of anything in memory: two things of the same kind and content have the same one, whatever made them. What
cannot be read is refused, so that nothing can be carried in it.
"""

from __future__ import annotations

import copyreg
import hashlib
import sys
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cached_property, partial
from operator import is_
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from dpserve_platform.outside.own import Answering
from dpserve_verify.errors import InputError

PLAIN = (bool, int, float, str, bytes, complex, Decimal, Fraction, type(None))
MOST_KEPT = 1 << 14
MADE_BY_CLASS = 1 << 9  # among the flags of a type: not of C alone
VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
READ: tuple[type, ...] = (
    *PLAIN, np.ndarray, memoryview, bytearray, array, list, tuple, deque, dict, set, frozenset, MappingProxyType,
    *VIEWS, object,
)  # fmt: skip
WORD = 8  # bytes of an attribute
_HIDDEN = ("__dict__", "__weakref__")
OF_C = (
    WrapperDescriptorType,
    MethodDescriptorType,
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
)
# Of a class: what follows from the rest, or from where it was written down.
OF_A_CLASS = frozenset((
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__dataclass_fields__",
    "__dataclass_params__", "__match_args__", "__abstractmethods__", "__slots__", "__parameters__", "__orig_bases__",
    "__static_attributes__", "_abc_impl", "__firstlineno__", "__protocol_attrs__", "_is_protocol",
    "__non_callable_proto_members__", "__annotate__", "__annotations_cache__",
))  # fmt: skip

# By the id of what cannot change: the thing itself, so that its id stays its own, what it held, and its digest. Queries
# of thousands of rounds hold the same tests and trees.
_kept: dict[int, tuple[Any, tuple[Any, ...], bytes]] = {}


class Unreadable(InputError):
    """What no digest can be made of: a generator, a file, a lock."""


def digest_of(value: Any) -> str:
    """Return the digest of a value: of its type, and of all that it holds. Unreadable where it holds what cannot be
    read without being used up.
    """
    return _digest(value, {})[0].hex()


def _digest(value: Any, within: dict[int, Any]) -> tuple[bytes, bool]:
    """Return the digest, and whether the value can never change. `within`: what it is a part of."""
    kind = type(value)
    if kind in PLAIN or (isinstance(value, np.generic) and kind.__module__ == "numpy"):
        return f"{kind.__qualname__}:{value!r}".encode(), True
    if id(value) in within:
        return b"what it is part of", False
    state = tuple(getattr(value, "__dict__", {}).values())
    kept = _kept.get(id(value))
    if kept is not None and len(kept[1]) == len(state) and all(map(is_, kept[1], state)):
        return kept[2], True
    into = hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}".encode())
    fixed = isinstance(value, tuple | frozenset) or getattr(
        getattr(kind, "__dataclass_params__", None), "frozen", False
    )
    within[id(value)] = value
    for part in (*_class_parts(kind), *_parts(value)):
        digest, stays = _digest(part, within)
        into.update(len(digest).to_bytes(8, "big") + digest)
        fixed = fixed and stays
    del within[id(value)]
    if fixed:
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        _kept[id(value)] = value, state, into.digest()
    return into.digest(), fixed


def _class_parts(kind: type) -> Iterator[Any]:
    """Yield what a class holds that its name does not tell: of one that was made while something ran."""
    if not kind.__flags__ & MADE_BY_CLASS or _stands(kind.__module__, kind.__qualname__, kind):
        return
    yield kind.__bases__
    for name, part in sorted(vars(kind).items()):
        if name not in OF_A_CLASS and not isinstance(part, OF_C):
            yield (name, part)


def _stands(module: str | None, name: str, value: Any) -> bool:
    """Tell whether this name of this module is the value."""
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


def _parts(value: Any) -> Iterator[Any]:
    """Yield all that a value holds, in an order of its own. What a class works out from its fields is left out, where
    it is that.
    """
    kind = type(value)
    if isinstance(value, type):
        yield from (value.__module__, value.__qualname__, *_class_parts(value))
    elif isinstance(value, (ModuleType, *OF_C)):
        yield value.__name__
    elif isinstance(value, FunctionType):
        yield from _function_parts(value)
    elif isinstance(value, CodeType):
        yield from (value.co_code, value.co_consts, value.co_names, value.co_varnames, value.co_freevars)
    elif isinstance(value, CellType):
        try:
            yield value.cell_contents
        except ValueError:
            yield "empty"
    elif isinstance(value, BuiltinFunctionType):
        owner = value.__self__
        yield from (value.__module__, value.__qualname__, None if isinstance(owner, ModuleType) else owner)
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, property):
        yield from (value.fget, value.fset, value.fdel)
    elif isinstance(value, classmethod | staticmethod):
        yield value.__func__
    elif isinstance(value, cached_property):
        yield value.func
    elif kind is Answering:
        yield value.made_of
    elif isinstance(value, Enum):
        yield from (value.name, value.value)
    else:
        yield from _contents(value)
        if kind not in READ:
            yield from _held(value)


def _function_parts(function: FunctionType) -> Iterator[Any]:
    yield from (function.__module__, function.__qualname__, function.__code__, function.__defaults__)
    yield from (function.__kwdefaults__, function.__closure__, {**function.__dict__})
    for name in function.__code__.co_names:  # values that anybody may set; what is imported is known by its name
        value = function.__globals__.get(name)
        if not callable(value) and not isinstance(value, ModuleType):
            yield (name, value)


def _contents(value: Any) -> Iterator[Any]:
    """Yield what a value of a known kind has in it."""
    if isinstance(value, np.ndarray):
        yield from (str(value.dtype), value.shape)
        yield value.tolist() if value.dtype.hasobject else np.ascontiguousarray(value).tobytes()
    elif isinstance(value, memoryview):
        yield from (value.format, value.shape, value.tobytes())
    elif isinstance(value, bytearray | array):
        yield from (getattr(value, "typecode", ""), bytes(value))
    elif isinstance(value, list | tuple | deque) or type(value) in VIEWS:
        yield getattr(value, "maxlen", None)
        yield from value
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, set | frozenset):
        yield from sorted(map(digest_of, value))
    elif isinstance(value, PLAIN):
        base: Any = next(each for each in PLAIN if isinstance(value, each))
        yield base.__repr__(value)


def _held(value: Any) -> Iterator[Any]:
    """Yield the attributes of a value; of one whose kind keeps them from Python, what it would be written down by."""
    kind = type(value)
    slots = [name for of in kind.__mro__ for name in _slots(of) if hasattr(value, name)]
    held = {**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})}
    if is_dataclass(value):
        held |= {field.name: getattr(value, field.name, None) for field in fields(value)}
    made = {
        name: of for base in reversed(kind.__mro__) for name, of in vars(base).items() if type(of) is cached_property
    }
    for name in sorted(held):
        if name not in made or digest_of(held[name]) != digest_of(made[name].func(value)):
            yield (name, held[name])
    if not _is_of_python(kind):
        yield from _written(value)


def _slots(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)


def _is_of_python(kind: type) -> bool:
    """Tell whether all that such a value holds are its attributes and what `_contents` reads: whether it has no more
    room than these take.
    """
    read = max(of.__basicsize__ for of in kind.__mro__ if of in READ)
    own = [of for base in kind.__mro__ if base not in READ for name, of in vars(base).items() if name in _HIDDEN]
    slots = [name for base in kind.__mro__ if base not in READ for name in _slots(base)]
    return kind.__basicsize__ <= read + WORD * (len(own) + len(slots))


def _written(value: Any) -> Iterator[Any]:
    reduce = copyreg.dispatch_table.get(type(value))
    try:
        written = reduce(value) if reduce else value.__reduce_ex__(4)
    except TypeError:
        raise Unreadable(
            f"{type(value).__qualname__}: what it holds cannot be read; return and ask by plain values"
        ) from None
    if isinstance(written, str):
        yield written
        return
    made, arguments, *rest = written
    yield from (made, arguments)
    for at, part in enumerate(rest[:3]):  # its attributes, and the items of a list and of a mapping
        yield part if at == 0 or part is None else [*part]

"""The digest that a check compares by: the same for the same content, another for another, wherever it is put; what
cannot be read is refused.
"""

from __future__ import annotations

import io
import itertools
import random
import re
import threading
from array import array
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpserve_platform.replay.likeness import Unreadable, digest_of


@dataclass(frozen=True)
class Cut:
    at: int = 0

    @cached_property
    def after(self) -> int:
        return self.at + 1


class Word(str):
    def __repr__(self) -> str:
        return "a word"


def poked(value: int) -> Cut:
    cut = Cut()
    cut.__dict__["after"] = value + 1
    return cut


def labelled(value: int) -> Word:
    word = Word("x")
    word.__dict__["label"] = value
    return word


def constant(value: int, text: str = "lambda: {}") -> Any:
    return eval(text.format(value))


def made_class(value: int) -> type:
    return type("Made", (), {"value": value})


def method_of(value: int) -> Callable[[], int]:
    class Made:
        def of(self) -> int:
            return value

    return Made().of


BOXES: dict[str, Callable[[int], Any]] = {
    "deque": lambda value: deque([value]),
    "array": lambda value: array("q", [value]),
    "bytearray": lambda value: bytearray([value]),
    "memoryview": lambda value: memoryview(bytes([value])),
    "list iterator": lambda value: iter([value]),
    "set iterator": lambda value: iter({value}),
    "map": lambda value: map(abs, [value]),
    "zip": lambda value: zip([value], strict=False),
    "range": range,
    "slice": slice,
    "count": itertools.count,
    "constant": constant,
    "nested constant": lambda value: constant(value, "lambda: (lambda: {})"),
    "default": lambda value: constant(value, "lambda at={}: at"),
    "keyword default": lambda value: constant(value, "lambda *, at={}: at"),
    "closure": lambda value: lambda: value,
    "partial": lambda value: partial(abs, value),
    "cached property": poked,
    "attribute of a word": labelled,
    "word": lambda value: Word(value),
    "class": made_class,
    "instance of a class": lambda value: made_class(value)(),
    "method": method_of,
    "method of a dict": lambda value: {0: value}.get,
    "method of a number": lambda value: value.__add__,
    "namespace": lambda value: SimpleNamespace(at=value),
    "views of a dict": lambda value: ({value: 0}.keys(), {0: value}.values()),
    "proxy": lambda value: MappingProxyType({0: value}),
    "dicts": lambda value: (UserDict(at=value), Counter([value]), OrderedDict(at=value), defaultdict(int, at=value)),
    "generator of numbers": lambda value: (random.Random(value), np.random.default_rng(value)),
    "pattern": lambda value: re.compile(str(value)),
    "array of objects": lambda value: np.array([value, None], object),
    "array with a mask": lambda value: np.ma.array([1, 2], mask=[value == 1, False]),
    "records with objects": lambda value: np.array([(value, "a")], dtype=[("x", "i8"), ("y", "O")]),
    "file in memory": lambda value: io.BytesIO(bytes([value])),
    "error": ValueError,
}


@pytest.mark.parametrize("box", BOXES)
def test_content_is_told_wherever_it_is_put(box):
    put = BOXES[box]
    kept = [put(1), put(1), put(2)]  # all at once: no id stands for two of them
    one, same, other = map(digest_of, kept)
    assert one == same != other


def test_what_a_class_works_out_is_told_only_where_it_is_something_else():
    assert digest_of(Cut(3)) == digest_of(poked(0) and Cut(3))
    used = Cut(3)
    before = digest_of(used)
    assert used.after == 4
    assert digest_of(used) == before
    used.__dict__["after"] = 5
    assert digest_of(used) != before


@pytest.mark.parametrize("value", [(each for each in [1]), threading.Lock(), re.finditer("a", "aa")])
def test_what_cannot_be_read_is_refused(value):
    for held in (value, [value], SimpleNamespace(at=value)):
        with pytest.raises(Unreadable, match="plain values"):
            digest_of(held)


def test_what_holds_itself_is_told_too():
    circle: list[Any] = [1]
    circle.append(circle)
    other: list[Any] = [2]
    other.append(other)
    assert digest_of(circle) != digest_of(other)

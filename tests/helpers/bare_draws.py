"""Thousands of draws without OpenDP's Python wrapper, which takes fifteen times as long as the draw: at each call it
parses types from strings, and asks for those of what comes and goes.

The measurement is the product's own; its sampler is called on the same integers by the same function of OpenDP's
library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
from opendp._data import object_type
from opendp._lib import AnyObjectPtr, FfiResult, FfiSlice, lib

from accountant.noise import mechanisms

POINTER = ctypes.c_void_p


def function(name: str, *arguments: Any) -> Any:
    """One of OpenDP's, with a prototype of our own: that of the wrapper stays as it is."""
    return ctypes.CFUNCTYPE(FfiResult, *arguments)((f"opendp_{name}", lib))


as_object = function("data__slice_as_object", POINTER, ctypes.c_char_p)
as_slice = function("data__object_as_slice", POINTER)
free_object, free_slice = function("data__object_free", POINTER), function("data__slice_free", POINTER)
invoke = function("core__measurement_invoke", POINTER, POINTER)


def ok(result: FfiResult) -> Any:
    assert result.tag == 0, result.payload.Err.contents.message
    return result.payload.Ok


class Bare:
    """As a measurement over a 64-bit integer or a vector of them: an integer, or such a vector."""

    def __init__(self, measurement: Any) -> None:
        self.measurement, self.kind = measurement, ""

    def __call__(self, values: np.ndarray | int) -> Any:
        numbers = np.ascontiguousarray(values, np.int64)
        given = ok(as_object(ctypes.byref(FfiSlice(numbers.ctypes.data, numbers.size)), KINDS[type(values)]))
        released = ok(invoke(self.measurement, given))
        self.kind = self.kind or object_type(ctypes.cast(released, ctypes.POINTER(AnyObjectPtr._type_)))
        held = ok(as_slice(released))
        answer = READ[self.kind](FfiSlice.from_address(held))
        for free, what in ((free_slice, held), (free_object, released), (free_object, given)):
            ok(free(what))
        return answer


KINDS = {int: b"i64", np.ndarray: b"Vec<i64>"}
READ = {
    "i64": lambda at: ctypes.c_int64.from_address(at.ptr).value,
    "Vec<i64>": lambda at: np.ctypeslib.as_array(ctypes.cast(at.ptr, ctypes.POINTER(ctypes.c_int64)), (at.len,)).copy(),
}


@contextmanager
def bare_draws() -> Iterator[None]:
    """Every mechanism draws so."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_laplace", "_gaussian", "_randomized_response"):
            made = getattr(mechanisms, name)
            patch.setattr(mechanisms, name, cache(lambda *given, made=made: Bare(made(*given))))
        yield

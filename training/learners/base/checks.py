"""Checks of learners' parameters. They come from JSON and from people: a text or a truth value is no number."""

from __future__ import annotations

import json
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import exact_decimal

OWN = {"schema", "epsilon", "delta", "relation", "account"}  # of every learner, and no hyper-parameters


def check_whole(name: str, value: object, low: int, high: int) -> None:
    """Raise InputError unless it is a whole number from `low` to `high`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= int(value) <= high:
        raise InputError(f"{name}={value!r}: must be a whole number between {low} and {high}")


def check_real(name: str, value: object, words: str, fits: Callable[[float], bool]) -> None:
    """Raise InputError unless it is a number that `fits`, which `words` describe."""
    if not isinstance(value, Real) or isinstance(value, bool) or not fits(float(value)):
        raise InputError(f"{name}={value!r}: must be {words}")


def check_word(name: str, value: object, words: tuple[str, ...]) -> None:
    """Raise InputError unless it is one of `words`."""
    if value not in words:
        raise InputError(f"{name}={value!r:.80}: must be one of {', '.join(words)}")


def check_flag(name: str, value: object) -> None:
    """Raise InputError unless it is true or false."""
    if not isinstance(value, bool):
        raise InputError(f"{name}={value!r}: must be true or false")


def read_parameter(key: str, value: Any, default: Any, real: bool) -> Any:
    """Return a value, as a person or a program wrote it, as the type that its default has: '50' and 50.0 are 50.

    Args:
        key: The parameter's name, for an InputError.
        value: A text, number, boolean, None, or list of names.
        default: What it is when left out.
        real: Whether a number need not be whole.
    """
    if value is None or isinstance(default, bool):
        if value in (None, True, False, "true", "false"):
            return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        raise InputError(f"{key}={value!r:.80}: must be true or false")
    if isinstance(default, str):
        return json.dumps(value) if isinstance(value, list | tuple) else str(value)
    number = exact_decimal(key, value) if not isinstance(value, bool) else None
    if number is None or (not real and number != int(number)):
        raise InputError(f"{key}={value!r:.80}: must be a {'number' if real else 'whole number'}")
    return float(number) if real else int(number)

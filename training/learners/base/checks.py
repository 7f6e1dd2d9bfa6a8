"""Checks of learners' parameters. They come from JSON and from people: a text or a truth value is no number."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real

from dpserve_verify.errors import InputError


def check_whole(name: str, value: object, low: int, high: int) -> None:
    """InputError unless it is a whole number from `low` to `high`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= int(value) <= high:
        raise InputError(f"{name}={value!r}: must be a whole number between {low} and {high}")


def check_real(name: str, value: object, words: str, fits: Callable[[float], bool]) -> None:
    """InputError unless it is a number that `fits`, which `words` describe."""
    if not isinstance(value, Real) or isinstance(value, bool) or not fits(float(value)):
        raise InputError(f"{name}={value!r}: must be {words}")


def check_word(name: str, value: object, words: tuple[str, ...]) -> None:
    """InputError unless it is one of `words`."""
    if value not in words:
        raise InputError(f"{name}={value!r:.80}: must be one of {', '.join(words)}")


def check_flag(name: str, value: object) -> None:
    """InputError unless it is true or false."""
    if not isinstance(value, bool):
        raise InputError(f"{name}={value!r}: must be true or false")

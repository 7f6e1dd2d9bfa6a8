"""Checks of learners' parameters. They come from JSON and from people: a text or a truth value is no number."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, exact_decimal, nano, nano_string
from training.calibration.plan_warnings import PublicWarning

OWN = {"schema", "epsilon", "delta", "relation", "account"}  # of every learner, and no hyper-parameters

# What users of scikit-learn reach for, and why it is not here.
ABSENT = {
    "n_jobs": "a fit uses all processors as it is; leave it out",
    "random_state": "a seed that somebody knows takes the noise away; leave it out",
    "class_weight": "say about how large the classes are, from public knowledge, by the schema's `prevalence`",
    "warm_start": "each fit is a new release and is paid anew; leave it out",
}


def check_absent(names: Iterable[str]) -> None:
    """Raise InputError for a parameter that other estimators have and a private one cannot."""
    for name in names:
        if name in ABSENT:
            raise InputError(f"{name}: {ABSENT[name]}")


def read_budget(epsilon: object, delta: object) -> Budget:
    """Return the budget that a notebook's user wrote. A float that was computed (0.1 + 0.2, 1 / 3) is rounded down to
    the decimals that a budget has, which spends no more than was asked for, and a PublicWarning says so.
    """
    if isinstance(epsilon, float) and 0 < epsilon <= 100:
        exact = exact_decimal("epsilon", float(epsilon))
        floor = nano_string(nano(exact))
        if exact_decimal("epsilon", floor) not in (0, exact):
            warnings.warn(f"epsilon={exact} is read as {floor}: rounded down", PublicWarning, stacklevel=4)
            epsilon = floor
    return Budget.of(str(epsilon), str(delta))


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

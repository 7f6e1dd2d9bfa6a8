"""The public words that prices and entries are stated in: budgets, neighbouring relations, the names people give."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string, parse_decimal

NANO = 10**9
_PLAIN = re.compile(r"(?:0|[1-9][0-9]{0,19})(?:\.[0-9]{1,9})?", re.ASCII)
MAX_EPSILON = Decimal(100)
MAX_DIGITS = 40
NAME_PATTERN = r"(?!.*\.\.)[a-z0-9][a-z0-9._-]{0,63}"
_NAME = re.compile(NAME_PATTERN, re.ASCII)
_NUMBER = re.compile(r"(?:[+-]?[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|-?inf(?:inity)?", re.ASCII | re.I)
MAX_KEY = 200


class Relation(StrEnum):
    """Which two datasets are neighbours. `REPLACE_ONE`: n is public. `ADD_REMOVE`: n is private."""

    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"


def parse_relation(text: str) -> Relation:
    """Return the relation of that name. InputError for any other text."""
    try:
        return Relation(text)
    except ValueError:
        raise InputError(f"relation={text!r}: must be replace-one or add-remove") from None


def exact_decimal(name: str, value: str | int | float | Decimal) -> Decimal:
    """Return the decimal a person wrote, in ASCII, without blanks, and with a digit behind its sign: a float stands for
    its shortest decimal form. NaN and infinities raise.
    """
    text = str(value)
    if isinstance(value, str) and not _NUMBER.fullmatch(text):
        raise InputError(f"{name}={text[:60]!r}: must be a decimal number")
    try:
        number = Decimal(text)
    except InvalidOperation:  # Decimal itself reads other scripts' digits, blanks and underscores
        raise InputError(f"{name}={text[:60]!r}: must be a decimal number") from None
    if not number.is_finite() or (number and abs(number.adjusted()) > MAX_DIGITS):
        problem = f"must be a finite number with at most {MAX_DIGITS} digits before or after the point"
        raise InputError(f"{name}={value!s:.60}: {problem}")
    return number


def nano(value: Decimal) -> int:
    """Return `value` in units of 1e-9, rounded down. Exact: a product of decimals would be rounded to 28 digits
    first.
    """
    numerator, denominator = value.as_integer_ratio()
    return numerator * NANO // denominator


def nano_string(value: int) -> str:
    """Return `decimal_string(from_nano(value))` of a value that is not negative, quickly: an admission spells
    dozens.
    """
    units, rest = divmod(value, NANO)
    if value < 0 or units >= NANO**2:
        return decimal_string(from_nano(value))
    return f"{units}.{rest:09d}".rstrip("0") if rest else str(units)


def parse_nano(text: str) -> int:
    """Return `nano(parse_decimal(text))`."""
    if isinstance(text, str) and _PLAIN.fullmatch(text):
        units, _, rest = text.partition(".")
        return int(units) * NANO + int(rest.ljust(9, "0"))
    return nano(parse_decimal(text))


def from_nano(value: int) -> Decimal:
    """Return the exact value of `value` units of 1e-9."""
    return Decimal(value) / NANO


def check_epsilon(epsilon: Decimal, name: str = "epsilon", spent: bool = False) -> Decimal:
    """Return an epsilon that is above 0 and at most 100, with at most 9 decimals; else InputError names the field.
    `spent`: it states a cost, which is rounded up and never down.
    """
    if not epsilon > 0:
        raise InputError(f"{name}={epsilon}: must be > 0")
    if epsilon > MAX_EPSILON:
        raise InputError(f"{name}={epsilon}: must be at most {MAX_EPSILON}; far below that nothing is protected")
    if epsilon != from_nano(nano(epsilon)):
        near = f"up: {nano_string(nano(epsilon) + 1)}" if spent else f"down: {nano_string(nano(epsilon))}"
        raise InputError(f"{name}={epsilon}: at most 9 decimals; rounded {near}")
    return epsilon


def check_delta(delta: Decimal, name: str = "delta") -> Decimal:
    """Return a delta that is 0, or at least 1e-30 and below 1; else InputError names the field."""
    if not 0 <= delta < 1:
        raise InputError(f"{name}={delta}: must be at least 0 and below 1")
    if delta and delta < Decimal("1e-30"):
        raise InputError(f"{name}={delta}: must be 0 or at least 1e-30")
    return delta


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta): 0 < epsilon <= 100 with at most 9 decimals, 0 <= delta < 1. Exact decimals.

    `outside`: of delta, what is set apart for releases made elsewhere; no criterion of the filter counts on it.
    """

    epsilon: Decimal
    delta: Decimal
    outside: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        check_epsilon(exact_decimal("epsilon", self.epsilon))
        check_delta(exact_decimal("delta", self.delta))
        if check_delta(exact_decimal("delta-outside", self.outside)) and self.outside >= self.delta:
            raise InputError(f"delta-outside={self.outside}: must be below delta, {self.delta}, which it is a part of")

    @classmethod
    def of(
        cls, epsilon: str | float | Decimal, delta: str | float | Decimal = "0", outside: str | float | Decimal = "0"
    ) -> Budget:
        """Make the budget that a person wrote: a float stands for its shortest decimal form. InputError out of
        range.
        """
        texts = {"epsilon": epsilon, "delta": delta, "delta-outside": outside}
        return cls(*(exact_decimal(name, text) for name, text in texts.items()))

    def check_delta(self, records: int) -> None:
        """Raise InputError unless delta is below 1 / records: at 1 / records, publishing one record in full would be
        within budget.
        """
        if self.delta * records >= 1:
            raise InputError(f"delta={self.delta}: must be below 1/records = 1/{records} = {1 / records:.3g}")

    def to_json(self) -> dict[str, str]:
        """Return {"epsilon", "delta"} as decimal strings."""
        return {"epsilon": decimal_string(self.epsilon), "delta": decimal_string(self.delta)}

    def to_entry(self) -> dict[str, str]:
        """Return what `to_json` does, with `outside` where there is one: as entries of the ledger state a total."""
        return self.to_json() | ({"outside": decimal_string(self.outside)} if self.outside else {})


def short_delta(delta: str | Decimal) -> str:
    """Write a delta for a terminal: 1e-6, 2.5e-7; from a thousandth on as it is."""
    number = Decimal(str(delta)).normalize()
    if not number or number.adjusted() > -4:
        return decimal_string(number)
    mantissa, exponent = f"{number:e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def used_words(share_left: float, of: str = "budget") -> str:
    """Say in words how much of a budget, or of a quota, is used."""
    return f"{percent_words(1 - share_left)} of the {of} used"


def percent_words(share: float) -> str:
    """Write a share as per cent, for people. It is never rounded to nothing, nor to all."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "less than 0.1 %"
    if 99 < percent < 100:
        return "more than 99 %"
    return f"{percent:.{1 if percent < 9.95 else 0}f}".removesuffix(".0") + " %"


def check_name(what: str, name: str) -> str:
    """Return `name`, of a dataset, model or token. InputError unless it is 1 to 64 of a-z 0-9 . _ - and begins with a
    letter or digit. Names become folder names and metric labels, so they are narrow.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{what}={name!r:.80}: must be 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        )
    return name


def check_key(key: str | None) -> str | None:
    """Return an idempotency key; InputError unless it, where there is one, has 1 to MAX_KEY characters, none of them
    NUL, which no database holds in a text.
    """
    if key is not None and (not 1 <= len(key) <= MAX_KEY or "\0" in key):
        raise InputError(f"idempotency_key: must have 1 to {MAX_KEY} characters, none of them NUL")
    return key

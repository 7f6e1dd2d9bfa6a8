"""How SQL, Python and C write the few expressions that a model is made of. All numbers are float64.

A missing number is NULL in SQL and NaN elsewhere: it compares with nothing. A missing text is the empty one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import frexp
from typing import ClassVar, Literal

from dpserve_verify.errors import InputError

Compared = Literal["<=", ">", "=="]
Case = tuple[str, str]  # a condition, and a value
EXP_MOST = 700.0  # e to this power, and to its negative, is a normal float64: databases refuse to leave these
DOUBLE = "DOUBLE PRECISION"
PLAIN = frozenset(range(32, 127)) - frozenset(b'"\\?')  # bytes that stand for themselves in a text of C
MOST_PLACES = 22  # float64 holds every power of ten until this one


class Language(ABC):
    """A language, by what it writes for each kind of expression: texts in, a text out."""

    takes_nul: ClassVar[bool] = False  # whether a text may hold the character 0
    rounds: ClassVar[bool] = True  # whether it has float32

    def number(self, number: float) -> str:
        """Write a finite number so that it is read as exactly this float64."""
        return f"({number!r})" if number < 0 else repr(number)

    @abstractmethod
    def text(self, text: str) -> str:
        """Write a text."""

    def label(self, label: str | int) -> str:
        """Write a class."""
        return str(label) if isinstance(label, int) else self.text(label)

    @abstractmethod
    def choose(self, cases: Sequence[Case], other: str) -> str:
        """Write the value of the first case whose condition holds, else `other`."""

    def look_up(self, one: str, groups: Sequence[tuple[str, Sequence[str]]], other: str) -> str:
        """Write the value of the group of texts that a text is of, else `other`."""
        return self.choose([(self.is_among(one, texts), value) for value, texts in groups], other)

    def compare(self, one: str, how: Compared, other: str) -> str:
        """Write a comparison, which does not hold where either is missing."""
        return f"{one} {how} {other}"

    @abstractmethod
    def is_number(self, one: str) -> str:
        """Write whether a number is there."""

    @abstractmethod
    def is_among(self, one: str, texts: Sequence[str]) -> str:
        """Write whether a text is one of these."""

    def exponential(self, power: str) -> str:
        """Write e to a power of at most `EXP_MOST` in size."""
        return f"exp({power})"

    def rounded(self, one: str) -> str:
        """Write a number as float32 holds it; as it is where the language has none."""
        return one

    def checked(self, text: str) -> str:
        """Return a text of the model that the language can hold; InputError else."""
        if "\0" in text and not self.takes_nul:
            raise InputError(f"as: {text[:40]!r} of the model holds the character 0; only --as python can write it")
        return text


class Sql(Language):
    """What SQLite, DuckDB and PostgreSQL all read alike."""

    rounds = False

    def number(self, number: float) -> str:
        """Write a decimal where each of the three reads it exactly, else whole numbers that are divided exactly."""
        digits, places = _decimal(number)
        if abs(digits) < 1 << 53 and places <= MOST_PLACES and _survives(digits, places):
            written = f"{abs(digits):0{places + 1}d}"
            written = f"{written[: len(written) - places]}.{written[len(written) - places :]}".rstrip(".")
            return f"(-{written}e0)" if digits < 0 else f"{written}e0"
        fraction, power = frexp(number)
        whole, power = int(fraction * (1 << 53)), power - 53
        while whole % 2 == 0 and power < 0:
            whole, power = whole // 2, power + 1
        sign = "*" if power > 0 else "/"
        powers = [1 << min(52, abs(power) - at) for at in range(0, abs(power), 52)]
        return f"({f' {sign} '.join(f'CAST({each} AS {DOUBLE})' for each in (whole, *powers))})"

    def text(self, text: str) -> str:
        """Write a text: quotes twice, anything else as it is."""
        return "'" + self.checked(text).replace("'", "''") + "'"

    def name(self, name: str) -> str:
        """Write the name of a column."""
        return '"' + name.replace('"', '""') + '"'

    def choose(self, cases: Sequence[Case], other: str) -> str:
        """Write a CASE, in which an unknown condition does not hold."""
        return f"CASE {' '.join(f'WHEN {condition} THEN {value}' for condition, value in cases)} ELSE {other} END"

    def compare(self, one: str, how: Compared, other: str) -> str:
        """Write a comparison."""
        return super().compare(one, how, other).replace("==", "=")

    def is_number(self, one: str) -> str:
        """Write whether a number is there."""
        return f"{one} IS NOT NULL"

    def is_among(self, one: str, texts: Sequence[str]) -> str:
        """Write whether a text is one of these."""
        return f"{one} IN ({', '.join(map(self.text, texts))})"


class Python(Language):
    """Python's own expressions."""

    takes_nul = True

    def text(self, text: str) -> str:
        """Write a text."""
        return ascii(text)

    def choose(self, cases: Sequence[Case], other: str) -> str:
        """Write a conditional expression."""
        return f"({' '.join(f'{value} if {condition} else' for condition, value in cases)} {other})"

    def look_up(self, one: str, groups: Sequence[tuple[str, Sequence[str]]], other: str) -> str:
        """Write a dictionary: conditional expressions may not be as deep as a feature has values."""
        known = ", ".join(f"{self.text(text)}: {value}" for value, texts in groups for text in texts)
        return f"{{{known}}}.get({one}, {other})"

    def is_number(self, one: str) -> str:
        """Write whether a number is there: NaN is not equal to itself."""
        return f"{one} == {one}"

    def is_among(self, one: str, texts: Sequence[str]) -> str:
        """Write whether a text is one of these."""
        return f"{one} in ({''.join(f'{self.text(text)}, ' for text in texts)})"

    def rounded(self, one: str) -> str:
        """Write a call of a function of the file."""
        return f"_float32({one})"


class C(Language):
    """C99."""

    def text(self, text: str) -> str:
        """Write the bytes of UTF-8, those that C reads otherwise as octal numbers."""
        plain = (
            chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in self.bytes(text)
        )
        return f'"{"".join(plain)}"'

    def bytes(self, text: str) -> bytes:
        """Return the bytes of a text that C can hold."""
        return self.checked(text).encode()

    def label(self, label: str | int) -> str:
        """Write a class."""
        return f"({label}LL)" if isinstance(label, int) else self.text(label)

    def choose(self, cases: Sequence[Case], other: str) -> str:
        """Write a conditional expression."""
        return f"({' '.join(f'{condition} ? {value} :' for condition, value in cases)} {other})"

    def is_number(self, one: str) -> str:
        """Write whether a number is there: NaN is not equal to itself."""
        return f"{one} == {one}"

    def is_among(self, one: str, texts: Sequence[str]) -> str:
        """Write whether a text is one of these."""
        return "(" + " || ".join(f"!strcmp({one}, {self.text(text)})" for text in texts) + ")"

    def rounded(self, one: str) -> str:
        """Write a cast."""
        return f"(double)(float)({one})"


def together(parts: Sequence[str], pair: Callable[[str, str], str]) -> str:
    """Write what joins two parts over all of them, as a tree of least depth."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return pair(together(parts[:half], pair), together(parts[half:], pair))


def _decimal(number: float) -> tuple[int, int]:
    """Return the digits of the shortest decimal as a whole number, and how many of them stand behind the point, up to
    one more than is of use.
    """
    shortest, places = Fraction(repr(number)), 0
    while shortest.denominator != 1 and places <= MOST_PLACES:
        shortest, places = shortest * 10, places + 1
    return int(shortest), places


def _survives(digits: int, places: int) -> bool:
    """Return whether digits / 10^places is read as the same number where the quotient is rounded to 64 bits before it
    is rounded to float64, as SQLite did until 3.42.
    """
    exact = Fraction(digits, 10**places)
    if not exact:
        return True
    scale = Fraction(2) ** (64 - (abs(exact.numerator).bit_length() - exact.denominator.bit_length()))
    return float(round(exact * scale) / scale) == float(exact)

"""Types of the fields of requests: each reads a value in one way, and states that way as a JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    FailFast,
    Field,
    PlainValidator,
    StrictInt,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
)

from accountant.ledger.families.records import LONGEST_REASON, Why
from accountant.ledger.families.windows import BLOCKS_PATTERN, check_words
from dpserve_verify.certificates.attack import FEWEST, MOST
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import (
    MAX_KEY,
    NAME_PATTERN,
    check_delta,
    check_epsilon,
    check_key,
    check_name,
    exact_decimal,
)
from dpserve_verify.privacy.outside import MOST_POINTS
from models.features.reading import MAX_CHARACTERS
from training.requests.base import LONGEST_TEXT, Option

MOST_ITEMS = 1 << 14  # of a list of columns: as many as a schema may have
MOST_PARAMETERS = 200  # of a learner
MOST_DIGITS, GREATEST = 40, 1e40  # of a number among the parameters of a learner
Number: TypeAlias = str | int | float | Decimal
"""What a person writes for a decimal; a float stands for its shortest decimal text."""

# Decimals

_PLUS, _SIGNED = r"\+?0*(?!0)", r"(?![+-]\.)"  # zeros that lead are taken once: with fewer, nothing is tried


def _epsilon_pattern() -> str:
    """Match decimals above 0 and at most 100 that have at most 9 decimals; with an exponent, one digit before the
    point, as programs write them.
    """
    plain = r"100(?:\.0*)?|[1-9][0-9]?(?:\.[0-9]{0,9}0*)?|\.[0-9]{1,9}0*"
    powers = {power: rf"[eE]\+?0*{power}" if power > 0 else rf"[eE]-0*{-power}" for power in (*range(-9, 0), 1)}
    powers[0] = "[eE][+-]?0+"
    short = "|".join(rf"[1-9](?:\.[0-9]{{0,{9 + power}}}0*)?{end}" for power, end in sorted(powers.items()))
    return rf"^{_SIGNED}{_PLUS}(?!\.?0*$)(?:{plain}|{short}|1(?:\.0*)?[eE]\+?0*2)$"


EPSILON_PATTERN = _epsilon_pattern()
DELTA_PATTERN = (  # 0, and decimals from 1e-30 to below 1
    rf"^{_SIGNED}(?:[+-]?(?:0+(?:\.0*)?|\.0+)(?:[eE][+-]?[0-9]{{1,3}})?"
    rf"|{_PLUS}(?:\.0{{0,29}}[1-9][0-9]*|[1-9](?:\.[0-9]*)?[eE]-0*(?:[1-9]|[12][0-9]|30)))$"
)
RUNS_PATTERN = r"^(?:(?:[1-9]|[1-5][0-9]|6[0-3])(?:\.[0-9]{1,20})?|64(?:\.0{1,20})?)$"
MOST_RUNS = 64


def matches(pattern: str, text: str) -> bool:
    """Tell whether a text matches a pattern as JSON Schema means it, where `$` is the very end."""
    return re.fullmatch(pattern, text, re.ASCII) is not None


@dataclass(frozen=True)
class DecimalReader:
    """Reads a decimal from a text, which keeps to the pattern that the schema publishes, or from a number."""

    check: Callable[[Decimal, str], Decimal]
    pattern: str
    like: str

    def __call__(self, value: Any, info: ValidationInfo) -> Decimal:
        """Return the exact decimal. InputError names the field."""
        name = str(info.field_name)
        if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
            raise InputError(f"{name}: must be a text or a number")
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise InputError(f"{name}: must have at most {LONGEST_TEXT} characters")
        number = self.check(exact_decimal(name, value), name)
        if isinstance(value, str) and not matches(self.pattern, value):
            raise InputError(f"{name}={value!r:.60}: write it like {self.like}")
        return number

    def schema(self, **numbers: Any) -> WithJsonSchema:
        """State both forms; `numbers`: the bounds of a JSON number."""
        text = {"type": "string", "pattern": self.pattern, "maxLength": LONGEST_TEXT}
        return WithJsonSchema({"anyOf": [{"type": "number", **numbers}, text]})


def check_runs(runs: Decimal, name: str) -> Decimal:
    """Return how many runs a tuned job makes on average; InputError where it may make no such number."""
    if not 1 <= runs <= MOST_RUNS:
        raise InputError(f"{name}={runs}: must be from 1 to {MOST_RUNS} on average")
    return runs


_EPSILON = DecimalReader(check_epsilon, EPSILON_PATTERN, "0.5 or 5e-1")
_DELTA = DecimalReader(check_delta, DELTA_PATTERN, "0.000001 or 1e-6")
_RUNS = DecimalReader(check_runs, RUNS_PATTERN, "6 or 5.5")
Epsilon = Annotated[Number, PlainValidator(_EPSILON), _EPSILON.schema(exclusiveMinimum=0, maximum=100)]
Delta = Annotated[Number, PlainValidator(_DELTA), _DELTA.schema(minimum=0, exclusiveMaximum=1)]
Runs = Annotated[Number, PlainValidator(_RUNS), _RUNS.schema(minimum=1, maximum=MOST_RUNS)]

# Texts

Text = Annotated[StrictStr, Field(max_length=LONGEST_TEXT)]
Pair = Annotated[
    tuple[Text, Text],
    WithJsonSchema(
        {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "string", "maxLength": LONGEST_TEXT}}
    ),  # what generators of clients read more often than `prefixItems`
]


ONE_LINE = r"[^\x00-\x1f\x7f\u2028\u2029]"
_REASON = {"type": "string", "minLength": 1, "maxLength": LONGEST_REASON, "pattern": rf"^(?=.*\S){ONE_LINE}*$"}
Reason = Annotated[
    StrictStr,
    AfterValidator(lambda reason: Why("door", reason).reason),
    WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": LONGEST_REASON, "pattern": rf"^(?=.*\S){ONE_LINE}*$"}
    ),
    Field(description="why; it stays in the ledger permanently"),
]
Texts = Annotated[tuple[Text, ...], FailFast(), Field(max_length=MOST_ITEMS)]
Pairs = Annotated[tuple[Pair, ...], FailFast(), Field(max_length=MOST_ITEMS)]


def check_figure(value: Any) -> Any:
    """Return a number, or the text of one, as it stands; its reader bounds it. InputError for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise InputError("renyi: must be a text or a number at each order")
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise InputError(f"renyi: must have at most {LONGEST_TEXT} characters at each order")
    return value


_FIGURE = {"anyOf": [{"type": "string", "maxLength": LONGEST_TEXT}, {"type": "number"}]}
Figures = Annotated[
    dict[Text, Annotated[Number, PlainValidator(check_figure), WithJsonSchema(_FIGURE)]], Field(max_length=MOST_POINTS)
]


def check_reference(reference: str, info: ValidationInfo) -> str:
    """Return `adult`, `adult@champion` or `adult@2`; InputError for what names no model and no version."""
    if not matches(REFERENCE_PATTERN, reference):
        raise InputError(f"{info.field_name}={reference!r:.80}: must be like adult, adult@champion or adult@2")
    return reference


_NAME = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
REFERENCE_PATTERN = rf"^{NAME_PATTERN}(?:@(?:champion|[1-9][0-9]{{0,8}}))?$"
Name = Annotated[StrictStr, AfterValidator(lambda name, info: check_name(info.field_name, name)), WithJsonSchema(_NAME)]
Reference = Annotated[
    StrictStr, AfterValidator(check_reference), WithJsonSchema({"type": "string", "pattern": REFERENCE_PATTERN})
]
Blocks = Annotated[
    StrictStr | None,
    AfterValidator(check_words),
    WithJsonSchema({"type": "string", "pattern": f"^(?:{BLOCKS_PATTERN})$"}),
    Field(description="of a dataset that grows, which blocks: all, last:12, 3-7 or 4; each is charged"),
]


def check_attack_runs(count: int, info: ValidationInfo) -> int:
    """Return in how many runs an attack is registered; 0: none is. InputError for another number."""
    if count and not FEWEST <= count <= MOST:
        raise InputError(f"{info.field_name}={count!s:.40}: must be 0, or {FEWEST} to {MOST}")
    return count


_SOME = {"type": "integer", "minimum": FEWEST, "maximum": MOST}
AttackRuns = Annotated[
    StrictInt,
    AfterValidator(check_attack_runs),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": 0}, _SOME]}),
]
Key = Annotated[
    StrictStr | None,
    AfterValidator(check_key),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_KEY, "pattern": r"^[^\0]*$"}),
    Field(description="the same key with the same request is the same job, and spends once"),
]

# Parameters of learners

LONG_NUMBER = (  # 1e99999999 is eleven characters, and an integer of 40 MB
    rf"^(?:(?=[\s\S]{{{MOST_DIGITS + 1}}})[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?"
    r"|[+-]?[0-9.]+[eE][+-]?0*(?:4[1-9]|[5-9][0-9]|[1-9][0-9]{2,}))$"
)


def check_parameter(name: str, value: Any) -> Any:
    """Return a text, a list of texts, a number, a boolean or None of ordinary size; else InputError."""
    texts = value if isinstance(value, list | tuple) else [value] if isinstance(value, str) else []
    if not isinstance(value, str | int | float | Decimal | list | tuple) and value is not None:  # a boolean is an int
        raise InputError(f"{name}: must be a text, a list of texts, a number, true, false or null")
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{name}: a list must be of texts")
    longest = MAX_CHARACTERS if isinstance(value, str) else LONGEST_TEXT
    if len(texts) > MAX_CHARACTERS or any(len(text) > longest for text in texts):
        raise InputError(f"{name}: must have at most {longest} characters")
    if isinstance(value, str) and matches(LONG_NUMBER, value):
        raise InputError(f"{name}: must have at most {MOST_DIGITS} digits")
    if isinstance(value, int | float | Decimal) and not (value == value and -GREATEST < value < GREATEST):
        raise InputError(f"{name}: must have at most {MOST_DIGITS} digits")
    return value


def check_parameters(value: Any) -> dict[str, Any]:
    """Return the parameters of a learner, each of ordinary size; else InputError."""
    if not isinstance(value, Mapping):
        raise InputError("parameters: must be an object")
    if len(value) > MOST_PARAMETERS:
        raise InputError(f"parameters: must be at most {MOST_PARAMETERS}")
    return {name: check_parameter(f"parameters.{str(name)[:80]}", each) for name, each in value.items()}


MOST_VALUES, LONGEST_VALUE = 64, 200


def check_grid(value: Any) -> dict[str, tuple[Any, ...]]:
    """Return the values to try for each parameter; InputError for what is no list, or too long."""
    if not isinstance(value, Mapping):
        raise InputError("grid: must be an object")
    if len(value) > MOST_PARAMETERS:
        raise InputError(f"tuning.grid: must be of at most {MOST_PARAMETERS} parameters")
    for name, values in value.items():
        if not isinstance(values, list | tuple) or len(values) > MOST_VALUES:
            raise InputError(f"tuning.grid.{str(name)[:80]}: must be a list of at most {MOST_VALUES} values")
        for each in values:
            check_parameter(f"tuning.grid.{str(name)[:80]}", each)
            if isinstance(each, list | tuple) or (isinstance(each, str) and len(each) > LONGEST_VALUE):
                raise InputError(f"tuning.grid.{str(name)[:80]}: must hold texts of at most {LONGEST_VALUE} characters")
    return {name: tuple(values) for name, values in value.items()}


_TEXT = {"type": "string", "not": {"pattern": LONG_NUMBER}}
_PLAIN = [
    {"type": "number", "exclusiveMinimum": -GREATEST, "exclusiveMaximum": GREATEST},
    {"type": "boolean"},
    {"type": "null"},
]
PARAMETER = {
    "anyOf": [
        {**_TEXT, "maxLength": MAX_CHARACTERS},
        {"type": "array", "maxItems": MAX_CHARACTERS, "items": {"type": "string", "maxLength": LONGEST_TEXT}},
        *_PLAIN,
    ]
}
VALUE = {"anyOf": [{**_TEXT, "maxLength": LONGEST_VALUE}, *_PLAIN]}
Parameters = Annotated[
    Mapping[str, Any] | None,
    PlainValidator(check_parameters),
    WithJsonSchema({"type": "object", "maxProperties": MOST_PARAMETERS, "additionalProperties": PARAMETER}),
    Field(description="of the learner, by name; its defaults when left out"),
    Option("--set", "a parameter of the learner, key=value"),
]
Grid = Annotated[
    Mapping[str, Sequence[Any]],
    PlainValidator(check_grid),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MOST_PARAMETERS,
            "additionalProperties": {"type": "array", "maxItems": MOST_VALUES, "items": VALUE},
        }
    ),
    Field(description="values to try for each parameter; default stands for the learner's own"),
]

"""Canonical JSON, canonical base64 and decimal strings: one value, one spelling.

Laws:  `decode_canonical(encode(x)) == x`  and  `encode(decode_canonical(raw)) == raw`.
What is hashed or signed is always the exact bytes; this module only decides which bytes are admitted.

The JSON subset: objects with ASCII keys (sorted, none twice), arrays, strings, true, false, null and integers below
2^53 in magnitude (what every reader holds exactly). No floats: a number that matters is a decimal string. The bytes are
printable ASCII; where the strings are too, they are those of RFC 8785. Every refusal is a `CanonicalError`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

from dpserve_verify.errors import InputError

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | bool | None"
Encodable: TypeAlias = "Mapping[str, Encodable] | Sequence[Encodable] | str | int | bool | None"

ENTRY_LIMIT = 65_535  # bytes of one ledger entry: what a 16-bit length in a tile bundle can hold
MAX_DEPTH = 32
MAX_INTEGER = 2**53 - 1
DECIMAL_LIMIT = 40
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", re.ASCII)


class CanonicalError(InputError):
    """JSON that is signed is not in its one canonical form, for instance with a key twice or a float."""

    code = "json_invalid"
    remedy = "give back the bytes as dpserve wrote them: sorted keys, no spaces, numbers without exponents"


class Flat(dict[str, Any]):
    """An object that is looked at once, when it is made, and never changed: what stands in many values. It holds at
    most one object or array deep; CanonicalError where it does not, or holds what the subset does not.
    """

    def __init__(self, value: Mapping[str, Encodable]) -> None:
        super().__init__(value)
        _check({**self}, MAX_DEPTH - 2, {})

    def __setitem__(self, key: str, value: Any) -> NoReturn:
        raise TypeError(f"{key}: stands in other values as well; make another object")

    __delitem__ = None  # type: ignore[assignment]


def encode(value: Encodable, limit: int = ENTRY_LIMIT) -> bytes:
    """Return the one spelling of `value` (dict, list or tuple, str, int, bool, None), at most `limit` bytes."""
    _check(value, 0, {})
    raw = spell(value)
    _check_size(raw, limit)
    return raw


def decode(raw: bytes, limit: int = ENTRY_LIMIT) -> JSON:
    """Return the value of one JSON text in UTF-8. White space between tokens is free; nothing may follow the value."""
    _check_size(raw, limit)
    try:
        value: JSON = _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CanonicalError(f"json: must be UTF-8, byte {error.start} is not") from error
    except json.JSONDecodeError as error:
        raise CanonicalError(f"json: {error.msg} at character {error.pos}") from error
    except RecursionError as error:  # the C scanner gives up cleanly, far above our own limit
        raise CanonicalError(f"json: must nest at most {MAX_DEPTH} deep") from error
    _check(value, 0, {})
    return value


def decode_canonical(raw: bytes, limit: int = ENTRY_LIMIT) -> JSON:
    """Return what `decode` does, of `raw` that is exactly what `encode` writes."""
    # Plain bytes cannot nest too deep or be more than ASCII. What else is wrong the plain decoder refuses, or it shows
    # when the value is spelled again, as a key that comes twice does.
    shallow = len(raw) <= limit and raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH
    if shallow and raw.isascii() and b"\\" not in raw:
        try:
            value: JSON = _PLAIN_DECODER.raw_decode(raw.decode("ascii"))[0]
            if spell(value) == raw:
                return value
        except (ValueError, CanonicalError):
            pass  # the strict reader below says what is wrong
    value = decode(raw, limit)
    if spell(value) != raw:
        raise CanonicalError("json: must be canonical (sorted keys, no blanks, ASCII, shortest escapes)")
    return value


def spell(value: Encodable) -> bytes:
    """Return what `encode` does, for what `decode` gave, or parts of it: nothing is checked again."""
    return _ENCODER.encode(value).encode("ascii")


def exact_object(value: JSON, keys: Collection[str], what: str) -> dict[str, JSON]:
    """Return `value` as an object with exactly these keys; `what` names it in the message."""
    if not isinstance(value, dict):
        raise CanonicalError(f"{what}: must be an object")
    if value.keys() != set(keys):
        odd = sorted(value.keys() ^ set(keys))
        raise CanonicalError(f"{what}: must have exactly the keys {sorted(keys)}, differs in {_show(odd)}")
    return value


def exact_text(value: JSON, what: str) -> str:
    """Return `value` as a string."""
    if not isinstance(value, str):
        raise CanonicalError(f"{what}={_show(value)}: must be a string")
    return value


def exact_integer(value: JSON, what: str) -> int:
    """Return `value` as an integer >= 0 (a bool is not one)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CanonicalError(f"{what}={_show(value)}: must be an integer >= 0")
    return value


def encode_base64(raw: bytes) -> str:
    """Encode as in RFC 4648 section 4, with padding."""
    return base64.b64encode(raw).decode("ascii")


def decode_base64(text: str, what: str = "base64") -> bytes:
    """Read what `encode_base64` wrote; any other spelling (blanks, URL alphabet, stray bits, no padding) is refused."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise CanonicalError(f"{what}={_show(text)}: must be standard base64") from error
    if encode_base64(raw) != text:
        raise CanonicalError(f"{what}={_show(text)}: must be canonical base64")
    return raw


def decimal_string(x: Decimal) -> str:
    """Write in positional notation without exponent or trailing zeros; exact, at most 40 characters."""
    if not x.is_finite():
        raise CanonicalError(f"decimal={x}: must be finite")
    if x.is_zero():
        return "0"
    if not -DECIMAL_LIMIT <= x.adjusted() <= DECIMAL_LIMIT:  # before spelling out a billion zeros
        raise CanonicalError(f"decimal={x}: must fit in {DECIMAL_LIMIT} characters")
    text = format(x, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    if len(text) > DECIMAL_LIMIT:
        raise CanonicalError(f"decimal={_show(text)}: must fit in {DECIMAL_LIMIT} characters")
    return text


def parse_decimal(s: str, negative: bool = False) -> Decimal:
    """Return the exact value of a plain decimal of at most 40 characters; a minus sign only where `negative`."""
    if not isinstance(s, str) or len(s) > DECIMAL_LIMIT or not _DECIMAL.fullmatch(s):
        raise CanonicalError(f"decimal={_show(s)}: must be a plain decimal of at most {DECIMAL_LIMIT} characters")
    if s.startswith("-") and not negative:
        raise CanonicalError(f"decimal={s}: must not be negative")
    return Decimal(s)


def whole_number(text: str, most: int = MAX_INTEGER) -> int | None:
    """Return the whole number from 0 to `most` that ASCII digits spell, with leading zeros or not; None for any other
    text.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INTEGER))):  # int() of a long text is slow
        return None
    return number if (number := int(text)) <= most else None


def _show(value: object) -> str:
    return f"{value!r:.60}" if not isinstance(value, str) else f"{value[:60]!r}"


def _check_size(raw: bytes, limit: int) -> None:
    if len(raw) > limit:
        raise CanonicalError(f"json: must be at most {limit} bytes, is {len(raw)}")


def _check(value: Any, depth: int, good: dict[int, int]) -> None:
    """Refuse what the subset does not hold; `depth` containers enclose `value`. `good`: the containers that were found
    so, and how deep they lay: what stands in an entry many times is looked at once.
    """
    if isinstance(value, (dict, list, tuple)):
        _check_depth(depth)
        if good.get(id(value), -1) >= depth:
            return
        for key in value if isinstance(value, dict) else ():
            if not (isinstance(key, str) and key.isascii()):
                raise CanonicalError(f"json: key {_show(key)} must be an ASCII string")
        for item in value.values() if isinstance(value, dict) else value:
            kind = type(item)  # most are ASCII, or small
            if kind is str:
                if not item.isascii():
                    _check_text(item)
            elif kind is int:
                if not -MAX_INTEGER <= item <= MAX_INTEGER:
                    _check(item, depth + 1, good)
            elif issubclass(kind, Flat):
                _check_depth(depth + 2)
            elif item is not None and good.get(id(item), -1) <= depth:
                _check(item, depth + 1, good)
        good[id(value)] = depth
    elif isinstance(value, str):
        _check_text(value)
    elif isinstance(value, int):  # bool included
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise CanonicalError("json: an integer must be below 2^53 in magnitude")
    elif value is not None:
        raise CanonicalError(f"json: {type(value).__name__} has no place in it")


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise CanonicalError(f"json: must nest at most {MAX_DEPTH} deep")


def _check_text(value: str) -> None:
    if value.isascii():
        return
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # readers disagree on half a surrogate pair
        raise CanonicalError("json: a string must not hold a lone surrogate") from error


def _no_float(text: str) -> NoReturn:
    raise CanonicalError(f"json: {_show(text)} must not be a float: write a decimal string")


def _short_integer(text: str) -> int:
    if len(text) > 15:
        raise CanonicalError("json: an integer for the strict reader")
    return int(text)


def _integer(text: str) -> int:
    if len(text) > 17:  # int() of a long text is slow
        raise CanonicalError("json: an integer must be below 2^53 in magnitude")
    return int(text)


def _object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [key for key, _ in pairs]
        raise CanonicalError(f"json: key {_show(next(k for k in names if names.count(k) > 1))} must not come twice")
    return value


# A value that contains itself is refused before, for its depth.
_ENCODER = json.JSONEncoder(
    ensure_ascii=True, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
)
_PLAIN_DECODER = json.JSONDecoder(parse_float=_no_float, parse_int=_short_integer, parse_constant=_no_float)
_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_no_float, parse_int=_integer, parse_constant=_no_float
)

"""Request bodies: read with a cap on size and time, parsed strictly. Nothing of a body is ever logged."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NoReturn

from starlette.requests import Request

from accountant.errors import InputError
from serving.wire.errors import ClientGone, SlowBody, TooLarge, WrongMediaType

CONTROL_BYTES = 1 << 20
BODY_SECONDS = 4.0
TEXT_LENGTH = 1000
JSON = b"application/json"

Fields = Mapping[str, tuple[type, ...]]
WORDS = {
    str: "a text",
    int: "a number",
    Decimal: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


async def read_body(request: Request, limit: int, *kinds: bytes) -> bytes:
    """At most `limit` bytes, within BODY_SECONDS, of one of these media types (none named: JSON). Raises TooLarge,
    SlowBody, ClientGone, WrongMediaType.
    """
    headers = dict(request.scope["headers"])
    kind = headers.get(b"content-type", JSON).partition(b";")[0].strip().lower()
    if kind not in (kinds or (JSON,)):
        raise WrongMediaType(f"Content-Type: must be {' or '.join(each.decode() for each in kinds or (JSON,))}")
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"body: {int(declared)} bytes; at most {limit}", limit=limit)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _chunks(request, limit)
    except TimeoutError:
        raise SlowBody(f"body: did not arrive within {BODY_SECONDS:g} seconds") from None


async def _chunks(request: Request, limit: int) -> bytes:
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"body: more than {limit} bytes", limit=limit)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def json_fields(request: Request, required: Fields, optional: Fields | None = None) -> dict[str, Any]:
    """The body's one JSON object with exactly these fields and types; decimals exact. InputError says what is wrong."""
    return check_fields(strict_json(await read_body(request, CONTROL_BYTES)), required, optional or {})


def strict_json(raw: bytes) -> Any:
    """One JSON text in UTF-8: no key twice, no NaN or Infinity, decimals as Decimal."""
    try:
        return json.loads(
            raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refuse_constant, parse_float=Decimal
        )
    except UnicodeDecodeError as error:
        raise InputError(f"body: must be UTF-8, byte {error.start} is not") from None
    except json.JSONDecodeError as error:
        raise InputError(f"body: not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, ArithmeticError):  # a number with more digits than Python turns into an integer
        raise InputError("body: a number in it is too long") from None
    except RecursionError:
        raise InputError("body: nests too deep") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise InputError(f"body: {twice[:80]!r} stands twice in one object")
    return found


def _refuse_constant(word: str) -> NoReturn:
    raise InputError(f"body: {word} is not JSON")


def check_fields(body: Any, required: Fields, optional: Fields) -> dict[str, Any]:
    """The body, once it is an object with all of `required` and nothing beside `optional`, each of its type, null where
    it may be left out. InputError else.
    """
    if not isinstance(body, dict):
        raise InputError("body: must be a JSON object")
    known = {**required, **optional}
    unknown = sorted(body.keys() - known.keys())
    if unknown:
        raise InputError(f"{unknown[0][:80]!r}: is not a field; there are {sorted(known)}")
    absent = sorted(required.keys() - body.keys())
    if absent:
        raise InputError(f"{absent[0]}: is missing")
    for name, value in body.items():
        kinds = known[name]
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))  # a boolean is an int
        if not fits and not (value is None and name in optional):
            raise InputError(f"{name}: must be {' or '.join(dict.fromkeys(WORDS[kind] for kind in kinds))}")
        if isinstance(value, str) and len(value) > TEXT_LENGTH:  # or an error would send it back
            raise InputError(f"{name}: must have at most {TEXT_LENGTH} characters")
    return body


def query_int(request: Request, name: str, default: int | None, low: int = 0, high: int = 2**53) -> int:
    """A whole number of the query, once, in low..high; InputError else. `default` None: it must be there."""
    found = request.query_params.getlist(name)
    if not found and default is not None:
        return default
    text = found[0] if len(found) == 1 else ""
    if not (text.isascii() and text.isdigit() and len(text) < 17 and low <= int(text) <= high):
        raise InputError(f"{name}={text[:40]!r}: must be one whole number from {low} to {high}")
    return int(text)


def query_text(request: Request, name: str) -> str | None:
    """A text of the query, once at most; InputError else."""
    found = request.query_params.getlist(name)
    if len(found) > 1:
        raise InputError(f"{name}: must stand in the query once")
    return found[0] if found else None


def known_query(request: Request, *names: str) -> None:
    """InputError where the query has a name that means nothing here."""
    if not request.scope["query_string"]:
        return
    unknown = sorted(set(request.query_params) - set(names))
    if unknown:
        raise InputError(f"query {unknown[0][:80]!r}: there are {sorted(names)}")

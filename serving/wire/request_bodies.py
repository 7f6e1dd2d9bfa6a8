"""Request bodies: read with a cap on size and time, parsed strictly. Nothing of a body is ever logged.

The bytes that a process holds of all bodies are shared out: a caller may hold as much as is still free, so that there
is room for one more, however many hold theirs; all strangers together are one caller with a small share and small
bodies. A stranger whose body begins with an invitation is a caller from there on.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

import orjson
from starlette.requests import Request
from starlette.types import Scope

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import whole_number
from serving.wire.bounds import check_depth, check_values, exact_number
from serving.wire.errors import ClientGone, Overloaded, SlowBody, TooLarge, TooManyRequests, WrongMediaType
from serving.wire.work_time import LATE

if TYPE_CHECKING:
    from accountant.access.grants import Access

CONTROL_BYTES = 1 << 20
BODY_SECONDS, FIRST_SECONDS = 4.0, 2.0  # for a whole body, and for the first of its bytes
LATE_SECONDS = 1.0  # for which the event loop may stand still before it is the server that is slow, and not the body
BYTES_PER_SECOND = 1 << 16  # that keep a body from being given up after FIRST_SECONDS
TEXT_LENGTH = 1000
MAX_HELD_BYTES = 128 << 20  # of bodies that a process holds at a time: eight of the largest
STRANGERS_BYTES, STRANGER_BYTES = 8 << 20, 4 << 10  # of all bodies of strangers together, and of one of them
SHOWN_BYTES = 80  # of an invitation
STRANGER = ""
DOOR = "dpserve.door"  # of the scope: the `Door` that the request came to
HELD, CALLER = "dpserve.held", "dpserve.caller"  # of the scope: bytes that are held, and for whom
ARRIVAL = "dpserve.arrival"  # of the scope's state: the `Arrival` of the request
JSON = b"application/json"

Fields = Mapping[str, tuple[type, ...]]
Welcome = Callable[[bytes], Awaitable[str]]  # of the first line of a body; returns for whom the rest is held
WORDS = {
    str: "a text",
    int: "a number",
    Decimal: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


class Arrival:
    """How far a request has come: `is_whole` once its body is there; `headed`: when its head was (`time.monotonic`)."""

    __slots__ = ("headed", "is_whole")

    def __init__(self) -> None:
        self.is_whole, self.headed = False, 0.0


async def read_body(
    request: Request, limit: int, *kinds: bytes, welcome: Welcome | None = None, may_be_packed: bool = False
) -> bytes:
    """Read a body of at most `limit` bytes, within BODY_SECONDS, of one of these media types (none named: JSON). Of a
    stranger: of STRANGER_BYTES, unless `welcome` takes its first line for an invitation. Raises TooLarge, SlowBody,
    Overloaded where the body may be here and was not looked at for LATE_SECONDS, ClientGone, TooManyRequests,
    WrongMediaType, and what `welcome` does.
    """
    headers = dict(request.scope["headers"])
    kind = headers.get(b"content-type", JSON).partition(b";")[0].strip().lower()
    if kind not in (kinds or (JSON,)):
        raise WrongMediaType(f"Content-Type: must be {' or '.join(media.decode() for media in kinds or (JSON,))}")
    if not may_be_packed and headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise WrongMediaType("Content-Encoding: must be left out here; bodies of /v2/models/{name}/infer may be packed")
    if welcome is None and _caller(request.scope) == STRANGER:
        limit = min(limit, STRANGER_BYTES)
    declared = headers.get(b"content-length", b"0").decode("latin-1").strip(" \t")  # RFC 9110, 5.5: not of the value
    if whole_number(declared, limit) is None:  # the parser has seen that it is a number
        raise TooLarge(f"body: {declared[:20]} bytes; at most {limit}", limit=limit)
    arrival: Arrival | None = request.scope.get("state", {}).get(ARRIVAL)
    if welcome is None and arrival is not None and arrival.is_whole:  # a timer would take a fifth of a prediction
        return await _chunks(request, limit, None)
    begun = time.monotonic()
    try:
        async with asyncio.timeout(FIRST_SECONDS) as deadline:
            return await _chunks(request, limit, deadline, welcome)
    except TimeoutError:
        if LATE.most(begun) >= LATE_SECONDS:
            raise Overloaded("the server was late itself; ask again in 1 s", retry_after=1) from None
        raise SlowBody(
            f"body: did not arrive at {BYTES_PER_SECOND} bytes a second, within {BODY_SECONDS:g} seconds"
        ) from None


async def _chunks(
    request: Request, limit: int, deadline: asyncio.Timeout | None, welcome: Welcome | None = None
) -> bytes:
    chunks: list[bytes] = []
    clock = asyncio.get_running_loop().time
    size, more, begun = 0, True, clock()
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"body: more than {limit} bytes", limit=limit)
        hold(request.scope, len(chunk))
        chunks.append(chunk)
        if welcome is not None and deadline is not None and (size > SHOWN_BYTES or not more):
            arrived = clock()
            deadline.reschedule(None)  # it waits for us
            caller = await welcome(b"".join(chunks).partition(b"\n")[0][:SHOWN_BYTES])
            let_go(request.scope)
            request.scope[CALLER], welcome = caller, None
            hold(request.scope, size)
            begun += clock() - arrived
        if deadline is not None:
            deadline.reschedule(begun + min(BODY_SECONDS, FIRST_SECONDS + size / BYTES_PER_SECOND))
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


_HOLDING = Counter[str]()  # bytes of all requests of this process, by caller


def _caller(scope: Scope) -> str:
    """Return for whom a body is held: a principal, who was welcome, or STRANGER."""
    access: Access | None = scope.get("dpserve.access")
    caller: str = scope.get(CALLER, STRANGER) if access is None else access.principal
    return caller


def hold(scope: Scope, size: int) -> None:
    """Count so many bytes more as held for a request, until `let_go`. TooManyRequests where its caller would hold more
    than is free of MAX_HELD_BYTES; all strangers: more than STRANGERS_BYTES.
    """
    caller = _caller(scope)
    free = MAX_HELD_BYTES - _HOLDING.total()
    most = min(free, STRANGERS_BYTES) if caller == STRANGER else free
    if _HOLDING[caller] + size > most:
        whose = "of strangers" if caller == STRANGER else "of yours"
        raise TooManyRequests(f"bodies: as many {whose} are being read as there is room for; ask again in 1 s",
                              retry_after=1)  # fmt: skip
    _HOLDING[caller] += size
    scope[HELD] = scope.get(HELD, 0) + size


def let_go(scope: Scope) -> None:
    """Give back the room of a request's body."""
    held = scope.pop(HELD, 0)
    if held:
        caller = _caller(scope)
        _HOLDING[caller] -= held
        if not _HOLDING[caller]:
            del _HOLDING[caller]


async def json_body(request: Request) -> Any:
    """Read the body's one JSON text; decimals are exact. InputError says what is wrong."""
    return strict_json(await read_body(request, CONTROL_BYTES))


async def json_fields(request: Request, required: Fields, optional: Fields | None = None) -> dict[str, Any]:
    """Read the body's one JSON object with exactly these fields and types; decimals exact. InputError says what is
    wrong.
    """
    return check_fields(await json_body(request), required, optional or {})


def strict_json(raw: bytes) -> Any:
    """Parse one JSON text in UTF-8: no key twice, no NaN or Infinity, at most MAX_DEPTH deep, decimals as Decimal.

    What the text may become is bounded before it is parsed, for every door that reads JSON by this function.
    """
    check_values(raw)
    return _strict(raw, object_pairs_hook=_once, parse_float=exact_number)


def check_keys(raw: bytes) -> None:
    """Raise InputError as `strict_json`, with hardly more memory than the largest object takes."""
    _strict(raw, object_pairs_hook=lambda pairs: _once(pairs) and None, parse_float=_nothing, parse_int=_nothing)


def _strict(raw: bytes, **hooks: Any) -> Any:
    check_depth(raw)
    if b"\\ud" in raw.lower():
        try:
            orjson.loads(raw)  # which refuses half a surrogate pair: no answer could repeat it
        except orjson.JSONDecodeError as error:
            raise InputError(f"body: not JSON: {error.msg} at character {error.pos}") from None
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant, **hooks)
    except UnicodeDecodeError as error:
        raise InputError(f"body: must be UTF-8, byte {error.start} is not") from None
    except json.JSONDecodeError as error:
        raise InputError(f"body: not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, ArithmeticError):  # a number with more digits than Python turns into an integer
        raise InputError("body: a number in it is too long") from None


def _nothing(_number: str) -> None:
    """Stand in for a number that is not needed."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise InputError(f"body: {twice[:80]!r} stands twice in one object")
    return fields


def _refuse_constant(word: str) -> NoReturn:
    raise InputError(f"body: {word} is not JSON")


def check_fields(body: Any, required: Fields, optional: Fields, longest: int = TEXT_LENGTH) -> dict[str, Any]:
    """Return the body once it is checked: an object with all of `required` and nothing beside `optional` (null where it
    may be left out), each of its type, texts of at most `longest` characters. InputError else.
    """
    if not isinstance(body, dict):
        raise InputError("body: must be a JSON object")
    if body.keys() == required.keys():
        for name, value in body.items():
            if type(value) not in required[name] or (type(value) is str and len(value) > longest):
                break
        else:
            return body
    fields = {**required, **optional}
    unknown = sorted(body.keys() - fields.keys())
    if unknown:
        raise InputError(f"{unknown[0][:80]!r}: is not a field; there are {sorted(fields)}")
    absent = sorted(required.keys() - body.keys())
    if absent:
        raise InputError(f"{absent[0]}: is missing")
    for name, value in body.items():
        kinds = fields[name]
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))  # a boolean is an int
        if not fits and not (value is None and name in optional):
            raise InputError(f"{name}: must be {' or '.join(dict.fromkeys(WORDS[kind] for kind in kinds))}")
        if isinstance(value, str) and len(value) > longest:  # or an error would send it back
            raise InputError(f"{name}: must have at most {longest} characters")
    return body


def query_int(request: Request, name: str, default: int | None, low: int = 0, high: int = 2**53) -> int:
    """Return a whole number of the query, given once, in low..high; InputError else. It is required where `default` is
    None.
    """
    texts = request.query_params.getlist(name)
    if not texts and default is not None:
        return default
    text = texts[0] if len(texts) == 1 else ""
    number = whole_number(text, high)
    if number is None or number < low:
        raise InputError(f"{name}={text[:40]!r}: must be one whole number from {low} to {high}")
    return number


def query_text(request: Request, name: str) -> str | None:
    """Return a text of the query, given at most once, of as many characters as its door says or else TEXT_LENGTH;
    InputError else.
    """
    texts = request.query_params.getlist(name)
    if len(texts) > 1:
        raise InputError(f"{name}: must stand in the query once")
    if not texts:
        return None
    door = request.scope.get(DOOR)
    about = {} if door is None else door.query.get(name, {})
    longest = about.get("maxLength", TEXT_LENGTH) if isinstance(about, Mapping) else TEXT_LENGTH
    if len(texts[0]) > longest:
        raise InputError(f"query {name}: must have at most {longest} characters")
    return texts[0]


def query_flag(request: Request, name: str) -> bool:
    """Return whether the query says `true`, given at most once; InputError where it is neither true nor false."""
    text = query_text(request, name)
    if text not in (None, "true", "false"):
        raise InputError(f"{name}={text[:40]!r}: must be true or false")
    return text == "true"


def known_query(request: Request, *names: str) -> None:
    """Raise InputError where the query has a name that is none of `names`."""
    if not request.scope["query_string"]:
        return
    unknown = sorted(set(request.query_params) - set(names))
    if unknown:
        raise InputError(f"query {unknown[0][:80]!r}: there are {sorted(names)}")

"""JSON at the speed that many records need, and as strict about a key that stands twice as the slow parser."""

from __future__ import annotations

from typing import Any

import orjson

from accountant.errors import InputError
from serving.wire.request_bodies import strict_json

SPACED = (b'" ', b'"\n', b'"\t', b'"\r')  # a quote with space after it


def quick_json(raw: bytes) -> Any:
    """As `strict_json`, but with floats.

    Each key has a colon: if as many keys were read as there are colons, none was lost. Where texts hold colons: a key
    ends in a quote and a colon, or has space between them. Where there is no such space, there are at most as many keys
    as quotes before colons. Else the strict parser tells.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InputError(f"body: not JSON: {error.msg} at character {error.pos}") from None
    keys = _keys(body)
    if raw.count(b":") != keys and (any(end in raw for end in SPACED) or raw.count(b'":') != keys):
        strict_json(raw)
    return body


def _keys(body: Any) -> int:
    """How many keys an object has, the objects in it, and those in its lists of objects."""
    if isinstance(body, list):
        records = body if body and isinstance(body[0], dict) else []
        return sum(len(record) for record in records if isinstance(record, dict))  # deeper ones: to the strict parser
    return len(body) + sum(map(_keys, body.values())) if isinstance(body, dict) else 0

"""Canonical bytes read without a parser, where there are very many of them: by a key, or by an entry's one spelling.

Law: of whatever `canonical.encode` writes, each reader gives what the strict one gives, or declines with None. It rests
on this: a quote in a text is escaped, so `{"name":` and `,"name":` stand only where an object has a key of that name.
"""

from __future__ import annotations

import re

from dpserve_verify.formats.canonical import JSON, decode_canonical

_INTEGER = re.compile(rb"-?[0-9]+")


class Key:
    """A key of objects at any depth. First and last are in the order of the bytes, which is that of sorted keys."""

    def __init__(self, name: str) -> None:
        self._spelled = f'"{name}":'.encode("ascii")
        self._text, self._object = self._spelled + b'"', self._spelled + b"{"

    def may_stand_in(self, raw: bytes) -> bool:
        """Return False where no object in `raw` has this key; True where one may have it, which the strict reader
        decides.
        """
        return self._spelled in raw

    def first_integer(self, raw: bytes) -> int | None:
        """Return the value of the first key of this name, where that is an integer."""
        at = raw.find(self._spelled)
        number = _INTEGER.match(raw, at + len(self._spelled)) if _is_key(raw, at) else None
        return None if number is None else int(number[0])

    def last_text(self, raw: bytes) -> str | None:
        """Return the value of the last key of this name with a text, where nothing in that is escaped."""
        at = raw.rfind(self._text)
        if not _is_key(raw, at):
            return None
        start = at + len(self._text)
        text = raw[start : raw.index(b'"', start)]
        return None if b"\\" in text else text.decode("ascii")

    def last_object(self, raw: bytes, following: Key) -> bytes | None:
        """Return the bytes of the last object under this key, where `following` is the key behind it in `raw`;
        otherwise None, or bytes that are no JSON text, for no object's bytes are the beginning of another's.
        """
        start, end = raw.rfind(self._object), raw.rfind(b"}," + following._spelled)
        return raw[start + len(self._spelled) : end + 1] if _is_key(raw, start) and start < end else None


def _is_key(raw: bytes, at: int) -> bool:
    """Return whether a key begins at `at`: False where nothing was found, or the end of a longer key with a quote in
    it.
    """
    return at > 0 and raw[at - 1] in b"{,"


# Entries of the kinds that there are most of: their one spelling is a pattern.
_DIGEST, _TIME, _NUMBER = rb"[0-9a-f]{64}", rb"[0-9TZ:-]{20}", rb"(?:0|[1-9][0-9]{0,14})"
# started, committed, released; and issued. Keys in order, nothing that would be escaped, integers below 2^53.
_STEP = re.compile(
    rb'\{(?:"released":"(%b)",)?"reservation":(%b),"time":"(%b)","type":"([a-z]+)"\}' % (_DIGEST, _NUMBER, _TIME)
)
_ISSUED = re.compile(
    rb'\{"model":"(%b)","name":"([a-z0-9._-]+)","reservation":(%b),"statement":"(%b)","time":"(%b)","type":"issued"\}'
    % (_DIGEST, _NUMBER, _DIGEST, _TIME)
)


def decode_entry(body: bytes) -> JSON:
    """Return what `decode_canonical` does: the same values, and the same errors for what is not canonical."""
    step = _STEP.fullmatch(body)
    if step is not None:
        released, reservation, time, kind = step.groups()
        value: dict[str, JSON] = {"reservation": int(reservation), "time": time.decode(), "type": kind.decode()}
        return value if released is None else {"released": released.decode(), **value}
    issued = _ISSUED.fullmatch(body)
    if issued is None:
        return decode_canonical(body)
    model, name, reservation, statement, time = issued.groups()
    return {
        "model": model.decode(),
        "name": name.decode(),
        "reservation": int(reservation),
        "statement": statement.decode(),
        "time": time.decode(),
        "type": "issued",
    }

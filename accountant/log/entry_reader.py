"""The entries that there are most of, read without a parser: their one spelling is a pattern."""

from __future__ import annotations

import re

from accountant.canonical import JSON, decode_canonical

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
    """As `decode_canonical`: the same values, and the same errors for what is not canonical."""
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

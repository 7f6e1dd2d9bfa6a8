"""The command that does the same as a form: its verb, and flags as the fields of the request are called."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

_FLAGS = {"parameters": "--set", "grid": "--grid"}
_LEFT_OUT = ("idempotency_key",)


def command(verb: str, name: str, body: Mapping[str, Any], arguments: Sequence[str] = ()) -> str:
    """Return the command line of a request's `body`, on the thing of this name, with further `arguments`."""
    words = ["dpserve", *verb.split(), name, *arguments]
    for field, value in body.items():
        flag = _FLAGS.get(field, f"--{field.replace('_', '-')}")
        if field in _LEFT_OUT or value in (None, "", False):
            continue
        if isinstance(value, Mapping):
            for key, part in value.items():
                words += [flag, f"{key}={','.join(map(str, part)) if isinstance(part, list) else part}"]
        elif isinstance(value, list | tuple):
            for part in value:
                words += [flag, part if isinstance(part, str) else ",".join(part)]
        else:
            words += [flag] if value is True else [flag, str(value)]
    return shlex.join(words)


def job_command(body: Mapping[str, Any]) -> str:
    """Return the command of a job: `train`, or `tune` where several values are tried."""
    rest = {key: value for key, value in body.items() if key not in ("dataset", "tuning")}
    tuning = body.get("tuning") or {}
    return command("tune" if tuning else "train", body["dataset"], {**rest, **tuning})

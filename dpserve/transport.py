"""Requests that are tried again where that is safe: where asking twice does no more than asking once."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx

from dpserve.errors import ServiceError, Unavailable, error_of
from dpserve.types import Json

AGAIN = frozenset({429, 502, 503, 504})
HOPELESS = frozenset({"model_invalid", "certificate_invalid", "key_invalid", "ledger_invalid"})  # asking mends none
FIRST_WAIT, LONGEST_WAIT = 0.25, 15.0


class Transport:
    """One connection pool. Waits double from FIRST_WAIT, spread by half; `Retry-After` is obeyed."""

    def __init__(self, url: str, token: str | None, timeout: float, retries: int, **options: Any) -> None:
        headers = {"User-Agent": "dpserve-client", **({} if token is None else {"Authorization": f"Bearer {token}"})}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=timeout, **options)
        self.retries = retries

    def ask(self, method: str, path: str, *, again: bool, body: Any = None, query: Json | None = None) -> Any:
        """The answer's JSON. `again`: whether it may be asked twice. Raises ServiceError."""
        return self._answer(method, path, again, body, query or {}).json()

    def text(self, path: str) -> str:
        """The answer as a text. Raises ServiceError."""
        return self._answer("GET", path, True, None, {}).text

    def _answer(self, method: str, path: str, again: bool, body: Any, query: Json) -> httpx.Response:
        asked = {name: value for name, value in query.items() if value is not None}
        content = None if body is None else json.dumps(body, default=_plain, allow_nan=False).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        for attempt in range(self.retries + 1):
            last = attempt == self.retries or not again
            try:
                answer = self.http.request(method, path, content=content, params=asked, headers=kind)
            except httpx.TransportError as error:
                if last:
                    raise unreachable(error) from error
                self.wait(attempt)
                continue
            if answer.is_success:
                return answer
            refusal = failure(answer)
            if last or not hopeful(refusal):
                raise refusal
            self.wait(attempt, answer)
        raise AssertionError("the last attempt returns or raises")

    def wait(self, attempt: int, answer: httpx.Response | None = None) -> None:
        """Longer each time, and not in step with other clients."""
        asked = "" if answer is None else answer.headers.get("Retry-After", "")
        spread = 0.75 + (uuid.uuid4().int % 1000) / 2000
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2**attempt) * spread
        time.sleep(min(60.0, max(wait, float(asked))) if asked.isdigit() else wait)


def hopeful(error: ServiceError) -> bool:
    """Whether the same request may succeed later."""
    return error.status in AGAIN and error.code not in HOPELESS


def failure(answer: httpx.Response) -> ServiceError:
    """The exception for an answer that is not a success."""
    try:
        body = answer.json()
    except ValueError:
        body = None
    return error_of(answer.status_code, body)


def unreachable(error: httpx.TransportError) -> Unavailable:
    """The exception where there was no answer: the kind of the error alone, whose text may hold an address."""
    return Unavailable(0, "unreachable", f"no answer: {type(error).__name__}")


def _plain(value: Any) -> Any:
    """A decimal as a text that keeps every digit; numpy's scalars as Python's."""
    if isinstance(value, Decimal):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__}: is not JSON")


def server_events(lines: Iterator[str]) -> Iterator[tuple[str, Json]]:
    """Name and data of each event; comments, and what says when to come back, are passed over."""
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "id":
            name = value
        elif field == "data":
            yield name, json.loads(value)

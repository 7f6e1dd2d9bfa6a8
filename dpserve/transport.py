"""Requests that are tried again where that is safe: where asking twice does no more than asking once."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import httpx

from dpserve.deadlines import guard, whole_answer
from dpserve.errors import ServiceError, Unavailable, UnknownName, error_of
from dpserve.types import Json

AGAIN = frozenset({429, 502, 503, 504})
HOPELESS = frozenset({"model_invalid", "certificate_invalid", "key_invalid", "ledger_invalid"})  # asking mends none
FIRST_WAIT, LONGEST_WAIT = 0.25, 15.0
AGAIN_SECONDS = 1.0
QUIET_SECONDS = 30.0  # the service says something at least every ten


class Transport:
    """One connection pool. Waits double from FIRST_WAIT, spread by half; `Retry-After` is obeyed."""

    def __init__(self, url: str, token: str | None, timeout: float, retries: int, **options: Any) -> None:
        bearer = {} if token is None else {"Authorization": f"Bearer {strip_token(token)}"}
        headers = {"User-Agent": "dpserve-client", **bearer}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=timeout, **options)
        guard((self.http._transport, *self.http._mounts.values()))
        self.retries = retries

    def ask(self, method: str, path: str, *, again: bool, body: Any = None, query: Json | None = None) -> Any:
        """Send a request, and return the answer's JSON. `again`: whether it may be sent twice. Raises ServiceError."""
        try:
            content = None if body is None else json.dumps(body, default=_plain, allow_nan=False).encode()
        except ValueError:
            raise ValueError("body: NaN and infinities are not JSON; None says that a value is missing") from None
        kind = {} if body is None else {"Content-Type": "application/json"}
        return self.answer(method, path, again=again, content=content, query=query, headers=kind).json()

    def answer(
        self,
        method: str,
        path: str,
        *,
        again: bool = True,
        content: bytes | None = None,
        query: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send bytes as they are, as `ask` does, for an answer that need not be JSON."""
        parameters = {name: value for name, value in (query or {}).items() if value is not None}
        for attempt in range(self.retries + 1):
            last = attempt == self.retries or not again
            try:
                with whole_answer(self.http.timeout.read):
                    answer = self.http.request(method, path, content=content, params=parameters, headers=headers)
            except httpx.TransportError as error:
                if last:
                    raise error_without_answer(error) from error
                self.wait(attempt)
                continue
            if answer.is_success:
                return answer
            refusal = error_of_answer(answer)
            if last or not may_succeed_later(refusal):
                raise refusal
            self.wait(attempt, answer)
        raise AssertionError("the last attempt returns or raises")

    def events(self, path: str) -> Iterator[Json]:
        """Yield the data of server-sent events until the last. Comes back by itself where it is cut off."""
        last_id: str | None = None
        attempt = 0
        while True:
            try:
                for name, last, body in self._stream(path, last_id):
                    last_id, attempt = name, 0
                    yield body
                    if last:
                        return
                time.sleep(AGAIN_SECONDS)  # ended in good order: it was long, or the service stops
            except ServiceError as error:
                if attempt >= self.retries or not (error.status == 0 or may_succeed_later(error)):
                    raise
                self.wait(attempt)
                attempt += 1

    def _stream(self, path: str, seen: str | None) -> Iterator[tuple[str, bool, Json]]:
        headers = {"Accept": "text/event-stream", **({} if seen is None else {"Last-Event-ID": seen})}
        timeout = httpx.Timeout(self.http.timeout.connect, read=QUIET_SECONDS)
        try:
            with self.http.stream("GET", path, headers=headers, timeout=timeout) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise error_of_answer(answer)
                yield from server_events(answer.iter_lines())
        except httpx.TransportError as error:
            raise error_without_answer(error) from error

    def ready(self, seconds: float) -> bool:
        """Return whether the service answers; waits for it up to `seconds`. Never raises."""
        end = time.monotonic() + seconds
        while True:
            try:
                with whole_answer(self.http.timeout.read):
                    if self.http.get("/readyz").status_code == 200:
                        return True
            except httpx.TransportError:
                pass
            if time.monotonic() >= end:
                return False
            time.sleep(0.2)

    def wait(self, attempt: int, answer: httpx.Response | None = None) -> None:
        """Wait before another try: longer each time, and not in step with other clients."""
        retry_after = "" if answer is None else answer.headers.get("Retry-After", "")
        spread = 0.75 + (uuid.uuid4().int % 1000) / 2000
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2**attempt) * spread
        time.sleep(min(60.0, max(wait, float(retry_after))) if retry_after.isdigit() else wait)


def numbered_path(path: str, number: int) -> str:
    """Return the path of a job, an evaluation or a grant. Raises ValueError for what is no number."""
    try:
        return f"{path}/{number:d}"
    except (TypeError, ValueError):
        raise ValueError(f"number={number!r:.40}: must be a whole number") from None


def strip_token(token: str) -> str:
    """Return a token without the end of the line it was read from. Raises ValueError where it cannot be a token."""
    stripped = str(token).strip()
    if not (stripped.isascii() and stripped.isprintable()):
        raise ValueError("token: must be what dpserve token create printed, and nothing beside it")
    return stripped


def segment(what: str, name: str) -> str:
    """Return a name as one segment of a path.

    Args:
        what: The name's kind, for the message: `dataset`, `model`.
        name: The name.

    Raises:
        UnknownName: No path leads to such a name, so nothing can be called that; the service is not asked.
        ValueError: It is no text.
    """
    if not isinstance(name, str):
        raise ValueError(f"{what}={name!r}: is no name")
    if name in ("", ".", "..") or "/" in name:
        raise UnknownName(404, "unknown_name", f"{what}={name}: no such {what}", {what: name})
    return quote(name, safe="@")


def may_succeed_later(error: ServiceError) -> bool:
    """Return whether the same request may succeed later."""
    return error.status in AGAIN and error.code not in HOPELESS


def error_of_answer(answer: httpx.Response) -> ServiceError:
    """Return the exception for an answer that is not a success."""
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.is_redirect:  # the token was made for this address, and goes to no other
        where = f"answered with a redirect ({answer.status_code}), which is not followed: give the address it leads to"
        body = {"error": {"code": "redirected", "message": where}}
    return error_of(answer.status_code, body)


def error_without_answer(error: httpx.TransportError) -> Unavailable:
    """Return the exception where no answer came. It names the kind of the error alone, whose text may hold an
    address.
    """
    return Unavailable(0, "unreachable", f"no answer: {type(error).__name__}")


def _plain(value: Any) -> Any:
    """Return a decimal as a text that keeps every digit; numpy's scalars as Python's."""
    if isinstance(value, Decimal):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__}: is not JSON")


def server_events(lines: Iterator[str]) -> Iterator[tuple[str, bool, Json]]:
    """Yield, for each event, its name, whether it is the last, and its data. Comments and `retry:` lines are passed
    over.
    """
    name, last = "", False
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "id":
            name = value
        elif field == "event":
            last = value == "end"
        elif field == "data":
            yield name, last, json.loads(value)


def request_body(**fields: Any) -> dict[str, Any]:
    """Return the fields as a request's body: without those left out, decimals as texts that keep every digit."""
    present = {name: value for name, value in fields.items() if value is not None}
    return {name: str(value) if isinstance(value, float | Decimal) else value for name, value in present.items()}


def with_key(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with an idempotency key: one is made where none was given, so that asking twice spends once."""
    return {"idempotency_key": str(uuid.uuid4())} | body

"""Errors as HTTP answers: the status of each class, in one shape.

Every answer that is not a success is `{"error": {"code", "message", "details"}}`.
"""

from __future__ import annotations

import logging
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from accountant import errors
from dpserve_verify.errors import BudgetRefused, DpserveError, InputError, LedgerUnavailable, VerificationError

LOG = logging.getLogger("dpserve.serving")


class Unauthorized(DpserveError):
    """No token came, or one that is unknown or was revoked."""

    code = "unauthorized"
    remedy = "send `Authorization: Bearer dps_...` with a good token, or sign in again under /ui"


class CrossSite(DpserveError):
    """A page of another site sent a request with the cookie of somebody who is signed in here."""

    code = "cross_site"
    remedy = "open the page by its own address, and send from there"


class TooManyRequests(DpserveError):
    """More requests, prices or streams than a token or a caller may have at once; `details["retry_after"]`: seconds."""

    code = "too_many_requests"
    remedy = "wait for `Retry-After` seconds; an operator may raise the token's limits"


class TooLarge(DpserveError):
    """A body, or the number of records in it, is above the limit, `details["limit"]`."""

    code = "too_large"
    remedy = "send less at once, at most `details.limit`"


class WrongMediaType(DpserveError):
    """The body is of a type or an encoding that the door does not take."""

    code = "unsupported_media_type"
    remedy = "send one of the types that the reference names for this door, without another encoding"


class NotAdditive(DpserveError):
    """The model is of trees or lines, which add up no features, so that single features have no contributions."""

    code = "not_additive"
    remedy = "explain an additive model (lazybb, ebm), or look at the whole with `dpserve model explain`"


class SlowBody(DpserveError):
    """The body of the request did not come in time."""

    code = "request_timeout"
    remedy = "send the whole body at once, within some seconds"


class Overloaded(DpserveError):
    """The server itself was late, so that nobody can say whether the request came in time; `details["retry_after"]`:
    seconds.
    """

    code = "overloaded"
    remedy = "ask again after `Retry-After` seconds; an operator sees DpserveLate, and adds serving processes"


class TakesTooLong(DpserveError):
    """The work, for instance a price, was not done within the time of a request; it may still be done."""

    code = "timeout"
    remedy = "ask again: a job with its idempotency key; a price was worked on and comes faster"


class NotReady(DpserveError):
    """The server cannot vouch for anything now, for instance at its start, or when its ledger was rolled back."""

    code = "not_ready"
    remedy = "wait until GET /readyz says so; the server's log says what it waits for"


class ClientGone(Exception):
    """The client hung up; there is nobody to answer."""


STATUS: dict[type[DpserveError], int] = {
    DpserveError: 500,
    InputError: 400,
    errors.AnswerMissing: 422,
    errors.UnknownName: 404,
    errors.NameTaken: 409,
    errors.WrongState: 409,
    errors.IdempotencyConflict: 409,
    errors.JobFailed: 409,
    errors.RecordError: 422,
    BudgetRefused: 403,
    errors.Forbidden: 403,
    errors.NotInvited: 403,
    VerificationError: 503,
    LedgerUnavailable: 503,
    Unauthorized: 401,
    CrossSite: 403,
    TooManyRequests: 429,
    TooLarge: 413,
    WrongMediaType: 415,
    NotAdditive: 422,
    SlowBody: 408,
    Overloaded: 503,
    TakesTooLong: 504,
    NotReady: 503,
}
HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


def code_of(error: Exception) -> str:
    """Return the code of any exception, as its answer says it."""
    if isinstance(error, DpserveError):
        return error.code
    return HTTP_CODES.get(error.status_code, "http_error") if isinstance(error, HTTPException) else "internal"


def status_of(error: DpserveError) -> int:
    """Return the HTTP status of an error: that of its nearest ancestor in STATUS."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


class JsonBytes(Response):
    """An answer of JSON that is encoded already: its headers are these two, whatever it is."""

    def __init__(self, content: bytes) -> None:
        self.status_code, self.body, self.background = 200, content, None
        self.raw_headers = [(b"content-length", b"%d" % len(content)), (b"content-type", b"application/json")]


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return the body as JSON; decimals as texts, arrays of numpy as lists."""
    content = orjson.dumps(body, default=str, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, status, headers, media_type="application/json")


def error_response(error: Exception) -> Response:
    """Return any exception as an answer. One that is not ours tells the client nothing of itself; the log has it."""
    if isinstance(error, DpserveError):
        headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else {}
        if isinstance(error, TooManyRequests | Overloaded):
            headers["Retry-After"] = str(error.details["retry_after"])
        return json_response(error.to_json(), status_of(error), headers)
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        return json_response(shape(code_of(error), error.detail), error.status_code, headers)
    LOG.error("unexpected %s", type(error).__name__, exc_info=error)
    return json_response(shape(code_of(error), "an unexpected error; the server's log has it"), 500)


def shape(code: str, message: str) -> dict[str, Any]:
    """Return the JSON of an error without details."""
    return {"error": {"code": code, "message": message, "details": {}}}


def in_protocol(response: Response) -> Response:
    """Return the error in the form of the open inference protocol: `error` is the message, with `code` and `details`
    beside it.
    """
    error = orjson.loads(response.body)["error"]
    headers = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
    body = {"error": error["message"], "code": error["code"], "details": error["details"]}
    return json_response(body, response.status_code, headers)

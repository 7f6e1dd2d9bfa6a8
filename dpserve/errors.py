"""What a service refuses, as exceptions.

ServiceError                 any answer that is not a success: status, code, message, details
├── BadInput                 400, 409, 413, 415, 422: what was asked is wrong
│   └── UnknownName          404
├── NotAllowed               401, 403: no token that is good, or not of this scope
├── BudgetRefused            403 budget_refused: asked, spent, left, would_fit
├── TooManyRequests          429
├── Unavailable              502, 503, 504, or no answer at all
└── JobFailed                a job that was waited for came to nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpserve_verify.errors import BudgetRefused

__all__ = [
    "BadInput",
    "BudgetRefused",
    "JobFailed",
    "NotAllowed",
    "ServiceError",
    "TooManyRequests",
    "Unavailable",
    "UnknownName",
    "error_of",
]


class ServiceError(Exception):
    """`code` is stable and for programs; the message is for people. `status` 0: there was no answer."""

    def __init__(self, status: int, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{message} ({code})")
        self.status, self.code, self.message, self.details = status, code, message, dict(details or {})


class BadInput(ServiceError):
    """What was asked is wrong; the message names the field."""


class UnknownName(BadInput):
    """No such dataset, learner, job, model or entry."""


class NotAllowed(ServiceError):
    """No token that is good (401), or one without this scope (403)."""


class BudgetRefusedByService(ServiceError, BudgetRefused):
    """Nothing was spent. It is caught as BudgetRefused, the one of notebooks and homes as well."""


class TooManyRequests(ServiceError):
    """Over the token's limit, after having asked again as often as `retries` says."""


class Unavailable(ServiceError):
    """No good answer came, after having asked again where that is safe."""


class JobFailed(ServiceError):
    """`details["job"]`: its number. A job that had started keeps its budget."""


_BY_CODE = {"budget_refused": BudgetRefusedByService}
_BY_STATUS = {401: NotAllowed, 403: NotAllowed, 404: UnknownName, 429: TooManyRequests}


def error_of(status: int, body: Any) -> ServiceError:
    """Return the exception for an answer; `body` may come from a proxy."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        error = {"code": "http_error", "message": f"the answer was {status}, and not of dpserve"}
    code, message = str(error.get("code", "http_error")), str(error.get("message", ""))
    usual = BadInput if status < 500 else Unavailable if status in (502, 503, 504) else ServiceError
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, usual)
    details = error.get("details")
    return kind(status, code, message, details if isinstance(details, Mapping) else None)

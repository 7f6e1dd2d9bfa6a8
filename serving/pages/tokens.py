"""The page of tokens, for admins: who may ask for what; make one, which is shown once; end one."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.budget import check_name
from accountant.canonical import whole_number
from accountant.errors import DpserveError, InputError, NameTaken, UnknownName
from accountant.home import Home
from accountant.ledger import tokens
from accountant.ledger.tokens import SCOPES, Limits, Token
from serving.http.routes import Door, caller, in_thread, state
from serving.pages.ui import form_fields, page, see_other
from serving.process.tokens import new_token
from serving.wire.errors import status_of
from serving.wire.request_bodies import known_query

HTML = "text/html"
MOST_ENDED = 200  # revoked tokens that are listed; the ledger has all of them
MAY = {
    "predict": "ask models for predictions and explanations",
    "train": "see datasets and budgets, ask prices, submit jobs",
    "evaluate": "price and run evaluations",
    "promote": "choose which version of a model is served",
    "audit": "read the whole ledger, its proofs, audits and metrics",
    "steward": "see datasets and budgets; on the command line, register them and set totals and quotas",
    "admin": "all of it, and make and end tokens",
}
LIMITS = ("per_second", "per_day")
Typed = dict[str, str]


async def listed(request: Request) -> Response:
    """All tokens."""
    known_query(request)
    return await _page(request)


async def create(request: Request) -> Response:
    """Answers with the token itself, on a page that no cache keeps: it is not known here afterwards."""
    typed = await form_fields(request, "name", *SCOPES, *LIMITS)
    try:
        made = await in_thread(_make, state(request).home, typed)
    except (InputError, NameTaken) as error:
        return await _page(request, typed=typed, problem=error)
    return page(request, "token_made.html", secret=made[0], made=made[1], may=MAY, base=str(request.base_url))


def _make(home: Home, typed: Typed) -> tuple[str, Token]:
    name = check_name("name", typed["name"].strip())
    scopes = [scope for scope in SCOPES if typed[scope]]
    if not scopes:
        raise InputError("May: choose what the token is for")
    return new_token(home, name, scopes, Limits(**{each: _limit(each, typed[each].strip()) for each in LIMITS}))


def _limit(name: str, text: str) -> int | None:
    if not text:
        return None
    number = whole_number(text)
    if number is None:
        raise InputError(f"{name}={text[:20]!r}: must be a whole number, or nothing for no limit")
    return number


async def revoke(request: Request) -> Response:
    """End a token."""
    await form_fields(request, "name")
    name = request.path_params["name"]
    try:
        await in_thread(tokens.revoke, state(request).home.ledger, name)
    except UnknownName as error:
        return await _page(request, problem=error)
    return see_other("/ui/tokens")


async def _page(request: Request, typed: Typed | None = None, problem: DpserveError | None = None) -> Response:
    found = await in_thread(tokens.tokens, state(request).home.ledger)
    good, ended = ([each for each in found[::-1] if (each.revoked is None) is good] for good in (True, False))
    context: dict[str, Any] = {
        "good": good,
        "ended": ended[:MOST_ENDED],
        "ended_in_all": len(ended),
        "mine": caller(request).name,
        "scopes": MAY,
        "typed": typed or dict.fromkeys(("name", *SCOPES, *LIMITS), ""),
        "problem": "" if problem is None else problem.message,
    }
    return page(request, "tokens.html", status=200 if problem is None else status_of(problem), **context)


ADMIN = ("admin",)
DOORS = (
    Door("GET", "/ui/tokens", ADMIN, listed, "The tokens", media=HTML, hidden=True),
    Door("POST", "/ui/tokens", ADMIN, create, "Make a token", media=HTML, hidden=True),
    Door("POST", "/ui/tokens/{name}/revoke", ADMIN, revoke, "End a token", 303, media=HTML, hidden=True),
)

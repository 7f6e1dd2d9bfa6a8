"""The pages of tokens and grants: who may ask for what; make one, and end one, once it was said what that stops.

Tokens and changes are for admins. Who is none sees the grants that they have themselves.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access import grants, tokens
from accountant.access.grants import EVERYTHING, KINDS, Access, Grant
from accountant.access.tokens import SCOPES, Limits, Token
from accountant.errors import NameTaken, UnknownName
from accountant.home import Home
from accountant.ledger.families.records import Why
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.formats.canonical import whole_number
from dpserve_verify.privacy.budget import check_name
from serving.http.rights import NOTHING
from serving.http.routes import access, caller, in_snapshot, in_thread, page_door, path_number, state
from serving.operations.grants import GrantAnswer, TokenAnswer
from serving.pages.parts.ui import form_fields, page, see_other
from serving.process.tokens import new_token
from serving.wire import lists
from serving.wire.list_parts import Part, cut_tokens
from serving.wire.request_bodies import known_query

MAX_ENDED = 200  # revoked tokens that are listed; the ledger has all of them
MAY = {
    "predict": "ask models for predictions and explanations",
    "train": "see datasets and budgets, ask prices, submit jobs",
    "evaluate": "price and run evaluations",
    "promote": "choose which version of a model is served",
    "audit": "read the whole ledger, its proofs, audits and metrics",
    "steward": "see datasets and budgets; register them, set totals and quotas",
    "admin": "all of it, and make and end tokens",
}
LIMITS = ("per_second", "per_day")
Typed = dict[str, str]
FIRST = Part(limit=lists.ON_A_PAGE)


async def list_tokens(request: Request) -> Response:
    """Return the page of all tokens."""
    form, part = lists.form_of(request), lists.page_part(request)
    if form is None:
        return await _page(request, part)
    all_tokens = await in_thread(tokens.tokens, state(request).home.ledger)
    wanted, _ = cut_tokens(part, all_tokens[::-1])
    return lists.as_file(form, "tokens", TOKEN_COLUMNS, (TokenAnswer.of_token(each).to_json() for each in wanted))


async def create(request: Request) -> Response:
    """Make a token and return it on a page that no cache keeps: only its hash is stored."""
    typed = await form_fields(request, "name", *SCOPES, *LIMITS)
    try:
        new = await in_thread(_make, state(request).home, typed)
    except (InputError, NameTaken) as error:
        return await _page(request, FIRST, typed=typed, problem=error)
    return page(request, "token_made.html", secret=new[0], made=new[1], may=MAY, base=str(request.base_url))


def _make(home: Home, typed: Typed) -> tuple[str, Token]:
    name = check_name("name", typed["name"].strip())
    scopes = [scope for scope in SCOPES if typed[scope]]
    if not scopes:
        raise InputError("May: choose what the token is for")
    return new_token(home, name, scopes, Limits(**{limit: _limit(limit, typed[limit].strip()) for limit in LIMITS}))


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
        return await _page(request, FIRST, problem=error)
    return see_other("/ui/tokens")


async def _page(
    request: Request, part: Part, typed: Typed | None = None, problem: DpserveError | None = None
) -> Response:
    all_tokens = await in_thread(tokens.tokens, state(request).home.ledger)
    good, ended = ([token for token in all_tokens[::-1] if (token.revoked is None) is good] for good in (True, False))
    shown, following = cut_tokens(part, good)
    ended, _ = cut_tokens(Part(part.q), ended)
    context: dict[str, Any] = {
        "good": shown,
        "good_in_all": len(good),
        "asked": part.q,
        "pager": lists.pager("/ui/tokens", part, following),
        "ended": ended[:MAX_ENDED],
        "ended_in_all": len(ended),
        "mine": caller(request).name,
        "base": str(request.base_url).rstrip("/"),
        "scopes": MAY,
        "typed": typed or dict.fromkeys(("name", *SCOPES, *LIMITS), ""),
    }
    return page(request, "tokens.html", refusal=problem, **context)


async def list_grants(request: Request) -> Response:
    """Return the page of all grants for an admin of everything; for others, of their own."""
    known_query(request, lists.FORM)
    form = lists.form_of(request)
    if form is not None:
        visible = await in_thread(_visible_grants, state(request).home, access(request))
        return lists.as_file(form, "grants", GRANT_COLUMNS, (GrantAnswer.of_grant(each).to_json() for each in visible))
    return await _grants_page(request)


async def grant(request: Request) -> Response:
    """Enter one; where the same holds already, nothing is done."""
    typed = await form_fields(request, *GRANT_FIELDS)
    try:
        await in_thread(_grant, state(request).home, typed, access(request).principal)
    except (InputError, UnknownName) as error:
        return await _grants_page(request, typed=typed, problem=error)
    return see_other("/ui/grants")


def _grant(home: Home, typed: Typed, by: str) -> None:
    kind, name, until = typed["kind"], typed["name"].strip(), typed["expires"].strip()
    if kind not in (EVERYTHING, *KINDS):
        raise InputError(f"On: must be one of {[EVERYTHING, *KINDS]}")
    if (kind == EVERYTHING) is bool(name):
        raise InputError("Name: is of the family, dataset or model; for everything it stays empty")
    expires = grants.time_of(until) if until else None
    wanted = Grant(
        typed["principal"].strip(), typed["scope"], kind, check_name(kind, name) if name else "", None, expires
    )
    grants.add(home.ledger, [wanted], by)


async def show_grant(request: Request) -> Response:
    """Return the page of a grant, with what would stop with it."""
    known_query(request)
    return await _grant_page(request)


async def _grant_page(request: Request, problem: DpserveError | None = None) -> Response:
    stops = await in_thread(grants.stops, state(request).home.ledger, path_number(request, "grant"))
    mine = stops.grant.principal == access(request).principal
    return page(request, "grant.html", refusal=problem, found=stops, may_do=MAY, mine=mine, now=grants.now())


async def end_grant(request: Request) -> Response:
    """End one, with a reason that the ledger keeps."""
    typed = await form_fields(request, "reason")
    number = path_number(request, "grant")
    try:
        why = Why(access(request).principal, typed["reason"].strip())
        await in_thread(grants.revoke, state(request).home.ledger, number, why)
    except InputError as error:
        return await _grant_page(request, error)
    return see_other(f"/ui/grants/{number}")


async def _grants_page(request: Request, typed: Typed | None = None, problem: DpserveError | None = None) -> Response:
    rights, home = access(request), state(request).home
    everybody, time = rights.may("admin"), grants.now()

    def read() -> tuple[list[Grant], list[str]]:
        acting = tokens.tokens(home.ledger, True) if everybody else []
        return _visible_grants(home, rights), [row.principal for row in acting]

    visible, acting = await in_snapshot(request, read)
    good, ended = ([row for row in visible if row.is_good(time) is is_good] for is_good in (True, False))
    context: dict[str, Any] = {
        "good": sorted(good, key=lambda each: (each.principal, -(each.index or 0))),
        "ended": ended[:MAX_ENDED],
        "ended_in_all": len(ended),
        "principal": rights.principal,
        "own": [row for row in rights.scopes if row in rights.everywhere],
        "everybody": everybody,
        "principals": sorted({*acting, *(row.principal for row in visible)}) if everybody else [],
        "scopes": MAY,
        "kinds": (EVERYTHING, *KINDS),
        "typed": typed or dict.fromkeys(GRANT_FIELDS, ""),
        "problem": "" if problem is None else problem.message,
    }
    return page(request, "grants.html", refusal=problem, **context)


def _visible_grants(home: Home, rights: Access) -> list[Grant]:
    """Return the grants that may be seen, the newest first."""
    everybody = rights.may("admin")
    return [grant for grant in grants.grants(home.ledger)[::-1] if everybody or grant.principal == rights.principal]


TOKEN_COLUMNS = ("name", "principal", "scopes", "limits", "created", "revoked")
GRANT_COLUMNS = ("grant", "principal", "scope", "on", "expires", "revoked")
GRANT_FIELDS = ("principal", "scope", "kind", "name", "expires")
ADMIN = ("admin",)
DOORS = (
    page_door("GET", "/ui/tokens", ADMIN, list_tokens, "The tokens"),
    page_door("POST", "/ui/tokens", ADMIN, create, "Make a token"),
    page_door("POST", "/ui/tokens/{name}/revoke", ADMIN, revoke, "End a token", 303),
    page_door("GET", "/ui/grants", SCOPES, list_grants, "The grants", on=NOTHING),
    page_door("POST", "/ui/grants", ADMIN, grant, "Grant a scope", 303),
    page_door("GET", "/ui/grants/{grant}", ADMIN, show_grant, "A grant"),
    page_door("POST", "/ui/grants/{grant}/revoke", ADMIN, end_grant, "End a grant", 303),
)

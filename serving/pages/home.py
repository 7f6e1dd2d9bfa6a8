"""The first page, the way in and out, and the page of an error."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from accountant.access.grants import Access
from accountant.access.tokens import SCOPES
from accountant.home import Home
from serving.http import cookies
from serving.http.cookies import local
from serving.http.rights import JOBS, NOTHING, READS
from serving.http.routes import Door, access, in_snapshot, page_door, state
from serving.pages.datasets import offers, tightest_first
from serving.pages.login import login as sign_in
from serving.pages.login import logout as sign_out
from serving.pages.parts import static_files
from serving.pages.parts.ui import page
from serving.process.first_sign_in import FIRST_TOKEN
from serving.process.watch import audit_runs
from training.planning.job_views import jobs_to_json

REFUSED = {
    "1": "This token is not good here. It may have been revoked, or not all of it was copied.",
    "sso": "The provider did not vouch for you, or this took more than ten minutes. Try once more, or ask an admin.",
    "out": "This browser has forgotten your token. It could not be ended, for the provider does not answer: until it "
    "is over, some minutes from now, whoever has a copy may still use it.",
    "link": "This link was used, or is older than a quarter of an hour. Sign in with the token, or start the server "
    "again for another link.",
}
MAX_DATASETS, MAX_JOBS = 5, 5
MAY = {
    "predict": "ask models",
    "train": "submit jobs",
    "evaluate": "price evaluations",
    "promote": "choose which version of a model is served",
    "audit": "read the ledger",
    "steward": "see datasets and budgets",
    "admin": "make and revoke tokens",
}
TITLES = {
    400: "That does not fit",
    401: "Please sign in",
    403: "Not with this token",
    404: "There is no such page",
    409: "That cannot be done now",
    503: "Not ready",
}


async def home(request: Request) -> Response:
    """Return the first page."""
    return page(request, "home.html", **await in_snapshot(request, _home, state(request).home, access(request)))


def _home(home: Home, rights: Access) -> dict[str, Any]:
    """Return what the first page shows, as far as the caller may see it."""
    reads, audits = rights.has(*READS), rights.may("audit")
    datasets = tightest_first(home, rights) if reads else []
    jobs = jobs_to_json(home, limit=MAX_JOBS, access=rights)["jobs"] if rights.has(*JOBS) else []
    return {
        "reads": reads,
        "datasets": datasets[:MAX_DATASETS],
        "more": max(0, len(datasets) - MAX_DATASETS),
        "jobs": jobs,
        "audit": audit_runs.last_audit(home) if audits else None,
        "entries": home.ledger.log.size() if audits else None,
        "first_token": str(token) if rights.may("admin") and (token := home.path / FIRST_TOKEN).exists() else "",
        **offers(),
        "abilities": [says for scope, says in MAY.items() if rights.has(scope)],
    }


async def home_of_slash(request: Request) -> Response:
    """Redirect `/ui/`, as people type it, to the first page."""
    return RedirectResponse(cookies.HOME, 303)


async def login(request: Request) -> Response:
    """Return the form that takes a token."""
    query = request.query_params
    problem = REFUSED.get(query.get("refused", ""), "")
    by_provider = state(request).sign_on is not None
    return page(
        request, "login.html", next=local(query.get("next", "")), problem=problem, scopes=MAY, by_provider=by_provider
    )


def error_page(request: Request, response: Response) -> Response:
    """Return an error in JSON as a page of the same status."""
    error = orjson.loads(response.body)["error"]
    title = TITLES.get(response.status_code, "That did not work")
    return page(
        request, "error.html", status=response.status_code, title=title, message=error["message"], code=error["code"]
    )


DOORS = (
    page_door("GET", "/ui", SCOPES, home, "The first page", on=NOTHING),
    page_door("GET", "/ui/", SCOPES, home_of_slash, "The first page", 303, on=NOTHING),
    page_door("GET", "/ui/login", (), login, "Sign in with a token"),
    page_door("POST", "/ui/login", (), sign_in, "Sign in", 303),
    page_door("POST", "/ui/logout", (), sign_out, "Sign out", 303),
    Door("GET", "/ui/static/{path:path}", (), static_files.answer, "Static files", media="*/*", hidden=True),
)

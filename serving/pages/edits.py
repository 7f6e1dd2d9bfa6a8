"""The page on which people change what a bin of a model adds: before and after stand side by side, and nothing is made
until a reason is given. Its script asks the doors of `serving.rest.edits`, which judge all of it.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from accountant.ledger.model_names import owner_of
from serving.http.routes import Door, access, in_thread, state
from serving.pages.parts.ui import page
from serving.rest.edits import curve_of
from serving.wire.request_bodies import known_query, query_text

HTML = "text/html"


async def edit(request: Request) -> Response:
    """Return the page that edits one curve of a model."""
    known_query(request, "feature", "class")
    serving, term = state(request), (query_text(request, "feature"), query_text(request, "class"))
    serving.require_ready()
    curve = await in_thread(curve_of, serving.registry.get, request.path_params["name"], *term)
    name, rights = curve["model"].partition("@")[0], access(request)
    owner = await in_thread(owner_of, serving.home.ledger, name)
    may = rights.may("promote", model=name) or owner == rights.principal
    return page(request, "edit.html", curve=curve, name=name, may=may)


DOORS = (
    Door("GET", "/ui/models/{name}/edit", ("train", "promote"), edit, "Edit a model's curve", media=HTML, hidden=True),
)

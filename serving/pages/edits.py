"""The page on which people change what a bin of a model adds: before and after stand side by side, and nothing is made
until a reason is given. Its script asks the doors of `serving.operations.edits`, which judge all of it.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from accountant.ledger.model_names import owner_of
from serving.http.routes import access, in_thread, page_door, state
from serving.operations.doors import caller_of
from serving.operations.edits import show_curve
from serving.pages.parts.ui import page
from serving.wire.request_bodies import known_query, query_text


async def edit(request: Request) -> Response:
    """Return the page that edits one curve of a model."""
    known_query(request, "feature", "class")
    term = query_text(request, "feature"), query_text(request, "class")
    curve = await in_thread(show_curve.function, caller_of(request), request.path_params["name"], *term)
    name, rights = curve["model"].partition("@")[0], access(request)
    owner = await in_thread(owner_of, state(request).home.ledger, name)
    may = rights.may("promote", model=name) or owner == rights.principal
    return page(request, "edit.html", curve=curve, name=name, may=may)


DOORS = (page_door("GET", "/ui/models/{name}/edit", ("train", "promote"), edit, "Edit a model's curve"),)

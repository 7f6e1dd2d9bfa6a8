"""The documentation at /docs, and every door, to be tried, at /api."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.tokens import SCOPES
from serving.http.rights import NOTHING
from serving.http.routes import in_thread, page_door
from serving.pages.parts import render, ui
from serving.pages.parts.manual_search import search
from serving.wire.request_bodies import known_query, query_text


async def start(request: Request) -> Response:
    """Return the manual's first page, or the results of a search."""
    known_query(request, "q")
    query = (query_text(request, "q") or "").strip()[:200]
    if not query:
        return await _page(request, "index")
    matches = await in_thread(search, query)
    contents = render.manual().contents
    return ui.page(request, "manual.html", page=None, matches=matches, asked=query, contents=contents)


async def show(request: Request) -> Response:
    """Return a page of the manual, or a picture or figure of one."""
    known_query(request)
    name = request.path_params["page"]
    path = (await in_thread(render.manual)).files.get(name)  # of sources it makes the reference, which takes a while
    if path is not None:
        return Response(await in_thread(path.read_bytes), media_type=render.FILES[path.suffix])
    return await _page(request, name.removesuffix(".md").removesuffix(".html"))


async def _page(request: Request, name: str) -> Response:
    page = await in_thread(render.page, name)
    return ui.page(request, "manual.html", page=page, matches=[], asked="", contents=render.manual().contents)


async def doors(request: Request) -> Response:
    """Return the page of every door, by Swagger."""
    known_query(request)
    return ui.page(request, "api.html")


DOORS = (
    page_door("GET", "/docs", SCOPES, start, "The documentation", on=NOTHING),
    page_door("GET", "/docs/{page:path}", SCOPES, show, "A page of it", on=NOTHING),
    page_door("GET", "/api", SCOPES, doors, "Every door, to be tried", on=NOTHING),
)

"""The page for people who ask what a dataset could give away about them, and its signed statement as a file."""

from __future__ import annotations

from functools import partial

import orjson
from starlette.requests import Request
from starlette.responses import Response

from dpserve_verify.errors import InputError
from serving.http.routes import Door, access, in_snapshot, page_door, state
from serving.operations import Caller
from serving.operations.people import PersonAnswer, show_person
from serving.pages.parts.ui import page
from serving.wire.lists import attachment_header
from serving.wire.request_bodies import known_query, query_text


async def show(request: Request) -> Response:
    """Return the page; of blocks that are not there, the page of all of them, with what is wrong."""
    known_query(request, "blocks")
    blocks, problem = _blocks(request), None
    try:
        answer = await _answer(request, blocks)
    except InputError as error:
        answer, problem = await _answer(request, None), error
    return page(request, "person.html", person=answer.person, blocks=blocks or "", problem=problem)


async def signed(request: Request) -> Response:
    """Return the signed statement as a file, which dpserve-verify reads."""
    known_query(request, "blocks")
    answer = await _answer(request, _blocks(request))
    content = orjson.dumps(answer.envelope, option=orjson.OPT_SORT_KEYS)
    headers = {**attachment_header(f"{answer.dataset}.dsse.json"), "Cache-Control": "no-store"}
    return Response(content, headers=headers, media_type="application/json")


def _blocks(request: Request) -> str | None:
    return (query_text(request, "blocks") or "").strip() or None


async def _answer(request: Request, blocks: str | None) -> PersonAnswer:
    caller = Caller(state(request).home, access(request))
    asked = partial(show_person.function, caller, name=request.path_params["name"], blocks=blocks)
    return await in_snapshot(request, asked)


WHO = ("steward", "audit")
PATH = "/ui/datasets/{name}/person"
DOORS = (
    page_door("GET", PATH, WHO, show, "What one person's rows could have moved"),
    Door("GET", f"{PATH}/signed", WHO, signed, "The signed statement", hidden=True),
)

"""The door to the newest checkpoint, which is a text."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.tokens import SCOPES
from dpserve_verify.log.witnessed import read_witnessed
from serving.http.rights import NOTHING
from serving.http.routes import TEXT, Door, in_thread, state
from serving.wire.request_bodies import known_query, query_int


async def show_checkpoint(request: Request) -> Response:
    """Return the newest signed tree head, a C2SP note; where `witnessed`, the newest that witnesses cosigned, if there
    is one. Open to any token, as the consistency proof: they say nothing of entries.
    """
    known_query(request, "witnessed")
    home, witnessed = state(request).home, query_int(request, "witnessed", 0) > 0

    def look() -> str:
        return (read_witnessed(home.path) if witnessed else None) or home.ledger.log.checkpoint()

    return Response(await in_thread(look), media_type="text/plain; charset=utf-8")


DOORS = (
    Door(
        "GET",
        "/v1/ledger/checkpoint",
        SCOPES,
        show_checkpoint,
        "The newest signed tree head",
        gives=TEXT,
        media="text/plain",
        query={"witnessed": "1: the newest that witnesses cosigned"},
        on=NOTHING,
    ),
)

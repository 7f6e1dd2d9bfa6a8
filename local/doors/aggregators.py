"""The doors of campaigns whose owners send shares: owners' sealed shares come in, and two aggregators fetch and answer.

Nobody here has a token of the platform: an owner has an invitation, an aggregator a token of the campaign's, and what
an aggregator says counts by the signature of its pinned key.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from accountant.home import Home
from local.campaign import shared_campaigns
from local.doors.campaigns import PATH
from local.reports.sums import DIGEST, HELD, SUM
from serving.http.routes import Door, in_thread, state
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import CONTROL_BYTES, json_fields, known_query, read_body

BYTES = "application/octet-stream"


async def take_shares(request: Request) -> Response:
    """Receive an owner's two sealed shares. The same shares again get the same answer."""
    known_query(request)
    body = await read_framed(request, shared_campaigns.owner_of)
    answer = await in_thread(shared_campaigns.receive_shares, state(request).home, request.path_params["name"], body)
    return json_response(answer)


async def collect(request: Request) -> Response:
    """Return an aggregator's next sealed shares."""
    known_query(request)
    body = await json_fields(request, {"token": (str,), "after": (int,)})
    arguments = (request.path_params["name"], body["token"], body["after"])
    return json_response(await in_thread(shared_campaigns.collect, state(request).home, *arguments))


async def take_opened(request: Request) -> Response:
    """Receive an aggregator's list of the owners whose shares opened; the answer is the other's list, once it is
    there.
    """
    return await _receive_word(request, HELD)


async def take_digest(request: Request) -> Response:
    """Receive the digest of an aggregator's sum: entered in the log before the sum is taken."""
    return await _receive_word(request, DIGEST)


async def take_sum(request: Request) -> Response:
    """Receive an aggregator's noisy sum."""
    return await _receive_word(request, SUM)


async def _receive_word(request: Request, kind: str) -> Response:
    known_query(request)
    body = await read_framed(request, shared_campaigns.aggregator_of)
    answer = await in_thread(shared_campaigns.say, state(request).home, request.path_params["name"], kind, body)
    return json_response(answer)


async def read_framed(request: Request, who: Callable[[Home, str, str], str]) -> bytes:
    """Read an invitation or token, a line's end, and the bytes; no more than the first line of whom `who` refuses."""

    async def welcome(shown: bytes) -> str:
        return await in_thread(who, state(request).home, request.path_params["name"], shown.decode("ascii", "replace"))

    return await read_body(request, CONTROL_BYTES, BYTES.encode(), welcome=welcome)


SEALED = json_schemas.record({"owner": json_schemas.COUNT, "sealed": json_schemas.BASE64})
COLLECT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["token", "after"],
    "properties": {
        "token": {"type": "string", "maxLength": 80},
        "after": {
            "type": "integer",
            "minimum": -1,
            "description": "shares of owners beyond this number; -1: from the first",
        },
    },
}
NEXT = json_schemas.record({"shares": json_schemas.array(SEALED)})
TAKEN = json_schemas.record({"campaign": json_schemas.TEXT, "owner": json_schemas.COUNT})
SAID = json_schemas.record({"campaign": json_schemas.TEXT, "other": json_schemas.maybe(json_schemas.TEXT)})
FRAMED = {"type": "string", "format": "binary", "description": "invitation or token, a line's end, and the bytes"}
ONE = f"{PATH}/{{name}}"
ERRORS = (403, 404, 409)
DOORS = (
    Door(
        "POST", f"{ONE}/shares", (), take_shares, "An owner's two sealed shares, by invitation", also={BYTES: FRAMED},
        gives=TAKEN, errors=ERRORS,
    ),
    Door(
        "POST", f"{ONE}/collect", (), collect, "An aggregator's own sealed shares, by its token", takes=COLLECT,
        gives=NEXT, errors=ERRORS,
    ),
    Door(
        "POST", f"{ONE}/held", (), take_opened, "Whose shares opened, signed by an aggregator", also={BYTES: FRAMED},
        gives=SAID, errors=ERRORS,
    ),
    Door(
        "POST", f"{ONE}/digest", (), take_digest, "The digest of an aggregator's sum, signed, before the sum",
        also={BYTES: FRAMED}, gives=SAID, errors=ERRORS,
    ),
    Door(
        "POST", f"{ONE}/sum", (), take_sum, "An aggregator's signed noisy sum", also={BYTES: FRAMED}, gives=SAID,
        errors=ERRORS,
    ),
)  # fmt: skip

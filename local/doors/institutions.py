"""The doors of campaigns of institutions: round by round sealed shares come in, and two aggregators fetch and answer.

As of shares, nobody here has a token of the platform: an institution has an invitation, an aggregator a token of the
campaign's, and what an aggregator says counts by the signature of its pinned key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from local.campaign import institution_campaigns
from local.campaign.shared_campaigns import aggregator_of, owner_of
from local.doors import aggregators, campaigns
from local.doors.aggregators import BYTES, ERRORS, FRAMED, ONE, SEALED, read_framed
from serving.http.routes import Door, in_thread, state
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_fields, known_query

WAIT, LOOK = 2.0, 0.01  # seconds that a question waits for its answer here, and between two looks


async def take_shares(request: Request) -> Response:
    """Receive an institution's two sealed shares of a round; the answer is the round's noisy sum, once it is there."""
    known_query(request)
    body = await read_framed(request, owner_of)
    return json_response(await _wait(request, "answer", institution_campaigns.receive_round, body))


async def give_answers(request: Request) -> Response:
    """Return the noisy sums of rounds that are over."""
    known_query(request)
    body = await json_fields(request, {"invitation": (str,), "after": (int,)})
    arguments = (request.path_params["name"], body["invitation"], body["after"])
    return json_response(await in_thread(institution_campaigns.read_answers, state(request).home, *arguments))


async def take_begin(request: Request) -> Response:
    """Receive the word by which an aggregator begins: it is entered in the log."""
    known_query(request)
    body = await read_framed(request, aggregator_of)
    name = request.path_params["name"]
    return json_response(await in_thread(institution_campaigns.begin, state(request).home, name, body))


async def collect(request: Request) -> Response:
    """Return an aggregator's sealed shares of a round, once it is closed."""
    known_query(request)
    body = await json_fields(request, {"token": (str,), "round": (int,)})
    return json_response(
        await _wait(request, "shares", institution_campaigns.collect_round, body["token"], body["round"])
    )


async def take_sum(request: Request) -> Response:
    """Receive an aggregator's signed noisy sum of a round."""
    known_query(request)
    body = await read_framed(request, aggregator_of)
    name = request.path_params["name"]
    return json_response(await in_thread(institution_campaigns.say_sum, state(request).home, name, body))


async def _wait(request: Request, key: str, look: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Look until what is asked for is there, for a little while."""
    home, name, until = state(request).home, request.path_params["name"], time.monotonic() + WAIT
    while True:
        found = await in_thread(look, home, name, *arguments)
        if found[key] is not None or time.monotonic() > until:
            return found
        await asyncio.sleep(LOOK)


def _asked(who: str, number: str, least: int, about: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [who, number],
        "properties": {
            who: {"type": "string", "maxLength": 80},
            number: {"type": "integer", "minimum": least, "description": about},
        },
    }


ROUNDS = f"{ONE}/rounds"
AFTER = _asked("invitation", "after", -1, "rounds beyond this number; -1: from the first")
OF_ROUND = _asked("token", "round", 0, "the round, from 0")
ANSWERED = json_schemas.record({"round": json_schemas.COUNT, "answer": json_schemas.maybe(json_schemas.BASE64)})
DOORS = (
    Door(
        "POST", f"{ROUNDS}/shares", (), take_shares, "An institution's two sealed shares of a round, by invitation",
        also={BYTES: FRAMED}, gives=ANSWERED, errors=ERRORS,
    ),
    Door(
        "POST", f"{ROUNDS}/answers", (), give_answers, "The noisy sums of rounds that are over, by invitation",
        takes=AFTER, gives=json_schemas.record({"answers": json_schemas.array(json_schemas.BASE64)}), errors=ERRORS,
    ),
    Door(
        "POST", f"{ROUNDS}/begin", (), take_begin, "The word by which an aggregator begins, signed",
        also={BYTES: FRAMED}, gives=json_schemas.record({"campaign": json_schemas.TEXT}), errors=ERRORS,
    ),
    Door(
        "POST", f"{ROUNDS}/collect", (), collect, "An aggregator's own sealed shares of a round, by its token",
        takes=OF_ROUND, gives=json_schemas.record({"shares": json_schemas.maybe(json_schemas.array(SEALED))}),
        errors=ERRORS,
    ),
    Door(
        "POST", f"{ROUNDS}/sum", (), take_sum, "An aggregator's signed noisy sum of a round", also={BYTES: FRAMED},
        gives=json_schemas.record({"round": json_schemas.COUNT}), errors=ERRORS,
    ),
)  # fmt: skip
EVERY = (*campaigns.DOORS, *aggregators.DOORS, *DOORS)  # in the order of the description

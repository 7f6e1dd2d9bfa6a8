"""The doors to campaigns among owners: what is asked, and where reports come in.

Owners have no token: what a campaign asks is for everybody to see, and a report counts by its invitation, which is of
one owner and one campaign and gives no other right.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from local.campaign import campaigns
from serving.http.rights import NAMED
from serving.http.routes import Door, Query, in_thread, require_dataset, state
from serving.operations.placing import PlaceRequest
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_fields, known_query, query_int
from training.requests.base import json_schema


async def list_campaigns(request: Request) -> Response:
    """Return every campaign and its state."""
    known_query(request)
    home = state(request).home

    def look() -> list[dict[str, object]]:
        return [campaigns.state(home, name) for name in campaigns.names(home)]

    return json_response({"campaigns": await in_thread(look)})


async def offer(request: Request) -> Response:
    """Return the signed definition, the proof that it is in the log and that the log continues what was seen of it, and
    the campaign's state.
    """
    known_query(request, "seen", "witnessed")
    name, seen, witnessed = request.path_params["name"], *(query_int(request, parameter, 0) for parameter in SEEN)
    return json_response(await in_thread(campaigns.offer, state(request).home, name, seen, witnessed > 0))


async def report(request: Request) -> Response:
    """Receive an owner's one report. The same report again gets the same answer."""
    known_query(request)
    body = await json_fields(request, {"invitation": (str,), "report": (int,)})
    arguments = (request.path_params["name"], body["invitation"], body["report"])
    return json_response(await in_thread(campaigns.receive, state(request).home, *arguments))


async def end_turn(request: Request) -> Response:
    """End the turn whose owners are being asked."""
    await json_fields(request, {})
    return await _change(request, "next")


async def close(request: Request) -> Response:
    """Take no more reports, learn, certify, serve."""
    await json_fields(request, {})
    return await _change(request, "close")


async def give_up(request: Request) -> Response:
    """End a campaign that comes to nothing."""
    body = await json_fields(request, {"reason": (str,)})
    return await _change(request, "give-up", body["reason"])


async def _change(request: Request, act: str, reason: str | None = None) -> Response:
    """Change a campaign's state, for a caller who may train on its population."""
    known_query(request)
    home, name = state(request).home, request.path_params["name"]
    campaign = await in_thread(campaigns.load, home, name)
    rights = await require_dataset(request, ("train",), campaign.definition.population)
    return json_response(await in_thread(campaigns.change, home, name, act, rights.principal, reason))


ENTRY = json_schemas.maybe(json_schemas.COUNT)
AGGREGATOR = json_schemas.record(
    {
        "name": json_schemas.TEXT,
        "fingerprint": json_schemas.SHA256,
        "opened": json_schemas.TRUTH,
        "answered": json_schemas.TRUTH,
    }
)
FORECAST = json_schemas.record(
    {
        **dict.fromkeys(("metric", "says"), json_schemas.TEXT),
        **dict.fromkeys(("mean", "spread"), json_schemas.DECIMAL),
        **dict.fromkeys(("better", "although_noise"), json_schemas.TRUTH),
    }
)
STATE = json_schemas.record(
    {
        **dict.fromkeys(("campaign", "state", "population", "unit", "learner", "model"), json_schemas.TEXT),
        "epsilon": json_schemas.DECIMAL,
        **dict.fromkeys(("owners", "least", "reports", "job"), json_schemas.COUNT),
        "definition": json_schemas.SHA256,
        "public_rows": json_schemas.maybe(json_schemas.SHA256),
        "forecast": json_schemas.maybe(FORECAST),
        **dict.fromkeys(("rounds", "turns", "turn", "turn_reports", "turn_least"), json_schemas.COUNT),
        "delta": json_schemas.DECIMAL,
        "aggregators": json_schemas.array(AGGREGATOR),
        **dict.fromkeys(("opened", "closed", "issued"), ENTRY),
    }
)
OFFER = {
    **STATE,
    "properties": {
        **STATE["properties"],
        **dict.fromkeys(("envelope", "proof"), json_schemas.TEXT),
        **dict.fromkeys(("ensemble", "ensemble_proof"), json_schemas.maybe(json_schemas.TEXT)),
        "answer_proofs": json_schemas.array(json_schemas.TEXT),
        "consistency": json_schemas.maybe(json_schemas.GROWTH),
    },
}
REPORT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["invitation", "report"],
    "properties": {
        "invitation": {"type": "string", "maxLength": 80},
        "report": {"type": "integer", "minimum": 0, "description": "the index of one of the owner's vectors"},
    },
}
NOTHING = {"type": "object", "additionalProperties": False, "properties": {}}
TAKEN = json_schemas.record({"campaign": json_schemas.TEXT, "owner": json_schemas.COUNT, "report": json_schemas.COUNT})
PATH = "/v1/campaigns"
SEEN: Query = {
    "seen": "entries of the ledger that were seen before: the answer proves that it continues them",
    "witnessed": "1: by the newest checkpoint that witnesses cosigned",
}
DOORS = (
    Door(
        "GET", PATH, ("train", "audit"), list_campaigns, "Campaigns among owners",
        gives=json_schemas.record({"campaigns": json_schemas.array(STATE)}),
    ),
    Door("GET", f"{PATH}/{{name}}", (), offer, "What a campaign asks of every owner", gives=OFFER, query=SEEN),
    Door(
        "POST", f"{PATH}/{{name}}/reports", (), report, "An owner's report, by invitation", takes=REPORT, gives=TAKEN,
        errors=(403, 404, 409),
    ),
    Door(
        "POST", f"{PATH}/{{name}}/next", ("train",), end_turn, "End the turn that a campaign is at", takes=NOTHING,
        gives=STATE, errors=(404, 409), on=NAMED,
    ),
    Door(
        "POST", f"{PATH}/{{name}}/close", ("train",), close, "Close a campaign: learn, certify, serve", takes=NOTHING,
        gives=STATE, errors=(404, 409), on=NAMED,
    ),
    Door(
        "POST", f"{PATH}/{{name}}/give-up", ("train",), give_up, "Give a campaign up; its price stays charged",
        takes=json_schema(PlaceRequest), gives=STATE, errors=(404, 409), on=NAMED,
    ),
)  # fmt: skip

"""The doors that change which model answers to a name: for who may promote, and written into the ledger."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from models.store import placing
from serving.http.routes import Door, access, in_thread, state
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_fields, known_query

Fields = dict[str, tuple[type, ...]]
REASON: Fields = {"reason": (str,)}
FLAGS = ("if_better", "although_not_better")
NO_REASON = "no reason was given"


async def promote(request: Request) -> Response:
    """Make a version champion of its name."""
    body = await json_fields(request, {"version": (int,)}, REASON | dict.fromkeys(FLAGS, (bool,)))
    reference = f"{request.path_params['name']}@{body['version']}"
    act = partial(placing.promote, **{flag: body.get(flag, False) for flag in FLAGS})
    return await _place(request, act, reference, body.get("reason", NO_REASON))


async def retire(request: Request) -> Response:
    """Retire a version: it is no longer served."""
    body = await json_fields(request, REASON)
    return await _place(request, placing.retire, request.path_params["name"], body["reason"])


async def restore(request: Request) -> Response:
    """Serve a retired version again."""
    body = await json_fields(request, REASON)
    return await _place(request, placing.restore, request.path_params["name"], body["reason"])


async def _place(request: Request, act: Callable[..., placing.Placed], reference: str, reason: str) -> Response:
    known_query(request)
    home, by = state(request).home, access(request).principal
    return json_response((await in_thread(act, home, reference, reason, by)).to_json())


WHY = {"type": "string", "minLength": 1, "maxLength": 1000, "description": "it stays in the ledger permanently"}
PROMOTE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version"],
    "properties": {
        "version": {"type": "integer", "minimum": 1},
        "reason": WHY,
        "if_better": {
            "type": "boolean",
            "description": "only where a statement of worth shows that it is better than the champion",
        },
        "although_not_better": {
            "type": "boolean",
            "description": "also where its evaluation does not show that it is better than a constant answer",
        },
    },
}
RETIRE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["reason"],
    "properties": {"reason": WHY},
}
PLACED = json_schemas.record(
    {
        "model": json_schemas.TEXT,
        "entry": json_schemas.COUNT,
        "champion": {"type": ["integer", "null"]},
        "retired": json_schemas.array(json_schemas.COUNT),
        "replaces": json_schemas.maybe(json_schemas.TEXT),
        "serves": json_schemas.maybe(json_schemas.TEXT),
        "offer": json_schemas.maybe(json_schemas.TEXT),
        "command": json_schemas.maybe(json_schemas.TEXT),
        "worth": json_schemas.maybe(json_schemas.COUNT),
    },
    says="`entry`: of the ledger, where it says who did it and why; `replaces`: what a promoted version took the place "
    "of; `worth`: the entry of the statement that speaks for it; `serves`: what the name answers with now, where null "
    "with the newest sound version as `offer`",
)
PROMOTES = ("promote",)
PATH = "/v1/models/{name}"
DOORS = (
    Door("POST", f"{PATH}/promote", PROMOTES, promote, "Let a name mean this version", takes=PROMOTE, gives=PLACED),
    Door("POST", f"{PATH}/champion", PROMOTES, promote, "Move name@champion", takes=PROMOTE, gives=PLACED),
    Door("POST", f"{PATH}/retire", PROMOTES, retire, "Serve name@version no more", takes=RETIRE, gives=PLACED),
    Door("POST", f"{PATH}/restore", PROMOTES, restore, "Serve name@version again", takes=RETIRE, gives=PLACED),
)

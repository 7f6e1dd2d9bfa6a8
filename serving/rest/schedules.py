"""The doors to schedules: the same job once a period, in the name of who asks, who must be able to submit it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import Access
from accountant.home import Home
from dpserve_verify.errors import InputError
from serving.http.rights import LISTED, NAMED
from serving.http.routes import Door, access, require_dataset, state, with_prices
from serving.rest import json_schemas
from serving.rest.jobs import ASKED, NUMBER, OPTIONAL, REQUIRED, check_parameters
from serving.wire.errors import json_response
from serving.wire.request_bodies import Fields, json_fields, known_query
from training.jobs.schedule import PERIODS, add, described, moment, remove_as, schedule_to_json, seen

OF_A_JOB = {name: kinds for name, kinds in OPTIONAL.items() if name != "tuning"}
MORE: Fields = {**OF_A_JOB, "evaluate": NUMBER, "every": (str,), "start": (str,), "dry_run": (bool,)}


async def listed(request: Request) -> Response:
    """Their own, and those on datasets that they audit or are steward of."""
    known_query(request)
    return json_response({"schedules": await with_prices(request, shown, state(request).home, access(request))})


def shown(home: Home, held: Access) -> list[dict[str, Any]]:
    """As `listed`."""
    return [schedule_to_json(home, each) for each in seen(home, held)]


async def begin(request: Request) -> Response:
    """Enter one, whose job must be admitted now; nothing is spent. `dry_run`: only tell how long it could be kept."""
    known_query(request)
    body = await json_fields(request, {"name": (str,), **REQUIRED}, MORE)
    held = await require_dataset(request, ("train",), body["dataset"])
    dry = body.get("dry_run") is True
    found = await with_prices(request, begun, state(request).home, body, held, dry)
    return json_response(found, 200 if dry else 201)


def begun(home: Home, body: Mapping[str, Any], held: Access, dry: bool) -> dict[str, Any]:
    """As `begin`, of who may train on the dataset."""
    for name in ("name", *REQUIRED):
        if not body.get(name):
            raise InputError(f"{name}: must be given")
    check_parameters(body.get("parameters"))
    given = {name: body.get(name) for name in (*REQUIRED, *OF_A_JOB, "evaluate")}
    asked = {name: _plain(value) for name, value in given.items() if value is not None}
    asked |= {"learner": asked.get("learner", "auto")}
    every, start = body.get("every"), moment(body.get("start"))
    made = described(home, body["name"], "week" if every is None else every, asked, held.principal, start)
    return schedule_to_json(home, made if dry else add(home, made))


def _plain(value: Any) -> Any:
    """As the file of schedules keeps it: decimals as texts."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return str(value) if isinstance(value, Decimal) else value


async def remove(request: Request) -> Response:
    """Forget one; what it asked for before stays."""
    known_query(request)
    name = request.path_params["schedule"]
    gone = await with_prices(request, remove_as, state(request).home, name, access(request))
    return json_response({"name": gone.name, "removed": True})


SCHEDULE = json_schemas.record(
    {
        "name": json_schemas.TEXT, "every": {"enum": [*PERIODS]}, "since": json_schemas.COUNT, "by": json_schemas.TEXT,
        "dataset": json_schemas.TEXT, "learner": json_schemas.TEXT, "epsilon": json_schemas.DECIMAL,
        "last": json_schemas.maybe(json_schemas.record({"period": json_schemas.COUNT, "job": json_schemas.COUNT})),
        "stopped": json_schemas.maybe(json_schemas.TEXT), "alone": json_schemas.COUNT,
        "fed": json_schemas.maybe(json_schemas.COUNT), "until": json_schemas.DATE,
        "fed_until": json_schemas.maybe(json_schemas.DATE),
    },
    {
        "delta": json_schemas.DECIMAL, "model": json_schemas.TEXT, "target": json_schemas.TEXT,
        "blocks": json_schemas.TEXT, "promote": {"type": "boolean"}, "evaluate": json_schemas.DECIMAL,
        "parameters": json_schemas.ANY_OBJECT,
    },
    says="`alone`: how many more runs the budgets admit if no block comes, `until`: the day on which one is refused "
    "then; `fed`, `fed_until`: the same with a new block each period, null: for as long as that goes on; `since`: "
    "seconds since 1970; `stopped`: why it is asked no more",
)  # fmt: skip
BEGIN = {
    "type": "object", "additionalProperties": False, "required": ["name", "dataset", "epsilon"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 64},
        **{name: ASKED[name] for name in (*REQUIRED, *OF_A_JOB, "evaluate")},
        "every": {"enum": [*PERIODS], "default": "week"},
        "start": {"type": "string", "description": "when the first period begins, in UTC, like 2026-01-05T06:00; now"},
        "dry_run": {"type": "boolean", "description": "only tell how long it could be kept"},
    },
}  # fmt: skip
PATH = "/v1/schedules"
DOORS = (
    Door("GET", PATH, ("train", "audit", "steward"), listed, "Schedules: jobs that are asked once a period",
         gives=json_schemas.record({"schedules": json_schemas.array(SCHEDULE)}), on=LISTED),
    Door("POST", PATH, ("train",), begin, "Begin a schedule; spends nothing", 201, takes=BEGIN, gives=SCHEDULE,
         on=NAMED),
    Door("DELETE", f"{PATH}/{{schedule}}", ("train", "steward"), remove, "Remove a schedule", on=LISTED, errors=(404,),
         gives=json_schemas.record({"name": json_schemas.TEXT, "removed": {"const": True}})),
)  # fmt: skip

"""The doors to schedules: the same job once a period, in the name of who asks, who must be able to submit it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import Access
from accountant.home import Home
from accountant.ledger.schedules import PERIODS
from serving.http.rights import LISTED, NAMED
from serving.http.routes import Door, access, caller, state, with_prices
from serving.rest import json_schemas
from serving.rest.jobs import require_named
from serving.wire import lists
from serving.wire.errors import json_response
from serving.wire.list_parts import Part, cut_schedules
from serving.wire.request_bodies import json_body, known_query
from training.jobs.schedule import add, make_schedule, moment, remove_as, schedule_to_json, schedules_for
from training.requests import ScheduleRequest
from training.requests.base import json_schema


async def list_schedules(request: Request) -> Response:
    """Return the caller's schedules, and those on datasets that they audit or are steward of."""
    part = lists.part_of(request)
    schedules, following = await with_prices(request, visible_schedules, state(request).home, access(request), part)
    return json_response({"schedules": schedules, "next": following})


def visible_schedules(home: Home, rights: Access, part: Part) -> tuple[list[dict[str, Any]], str | None]:
    """Return the JSON of the schedules that the caller may see, and the `after` of the next part."""
    wanted, following = cut_schedules(part, schedules_for(home, rights))
    return [schedule_to_json(home, schedule) for schedule in wanted], following


async def begin_schedule(request: Request) -> Response:
    """Begin a schedule, whose job must be admitted now; nothing is spent. `dry_run`: only return how long it could be
    kept.
    """
    known_query(request)
    schedule_request = ScheduleRequest.of(await json_body(request))
    rights = await require_named(request, schedule_request)
    token = caller(request).created
    schedule_json = await with_prices(request, add_schedule, state(request).home, schedule_request, rights, token)
    return json_response(schedule_json, 200 if schedule_request.dry_run else 201)


def add_schedule(home: Home, schedule_request: ScheduleRequest, rights: Access, token: int) -> dict[str, Any]:
    """Begin a schedule for a caller who may train on the dataset, by the token of the entry `token`, with which it
    ends; return its JSON.
    """
    asked, start = schedule_request.job.to_json(), moment(schedule_request.start)
    schedule = make_schedule(
        home, schedule_request.name, schedule_request.every, asked, rights.principal, start, token=token
    )
    return schedule_to_json(home, schedule if schedule_request.dry_run else add(home, schedule))


async def remove_schedule(request: Request) -> Response:
    """Remove a schedule; the jobs that it submitted stay."""
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
        "fed_until": json_schemas.maybe(json_schemas.DATE), "problem": json_schemas.PROBLEM,
    },
    {
        "delta": json_schemas.DECIMAL, "model": json_schemas.TEXT, "target": json_schemas.TEXT,
        "blocks": json_schemas.TEXT, "promote": {"type": "boolean"}, "evaluate": json_schemas.DECIMAL,
        "public": json_schemas.TEXT, "parameters": json_schemas.ANY_OBJECT,
    },
    says="`alone`: how many more runs the budgets admit if no block comes, `until`: the day on which one is refused "
    "then; `fed`, `fed_until`: the same with a new block each period, null: for as long as that goes on; `since`: "
    "seconds since 1970; `stopped`: why it is asked no more",
)  # fmt: skip
BEGIN = json_schema(ScheduleRequest)
PATH = "/v1/schedules"
DOORS = (
    Door("GET", PATH, ("train", "audit", "steward"), list_schedules, "Schedules: jobs that are asked once a period",
         gives=json_schemas.record({"schedules": json_schemas.array(SCHEDULE), "next": json_schemas.NEXT}),
         query=lists.PART, on=LISTED),
    Door("POST", PATH, ("train",), begin_schedule, "Begin a schedule; spends nothing", 201, takes=BEGIN, gives=SCHEDULE,
         on=NAMED),
    Door("DELETE", f"{PATH}/{{schedule}}", ("train", "steward"), remove_schedule, "Remove a schedule", on=LISTED,
         errors=(404,), gives=json_schemas.record({"name": json_schemas.TEXT, "removed": {"const": True}})),
)  # fmt: skip

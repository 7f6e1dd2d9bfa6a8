"""Schedules: the same job once a period, in the name of who asks, who must be able to submit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from accountant.system.lazy_import import later
from serving.http.rights import LISTED, NAMED
from serving.operations import Caller, operation
from serving.operations.answers import Body, shape
from serving.operations.jobs import require_training
from serving.wire.list_parts import Part, cut_schedules
from training.requests import ScheduleRequest

if TYPE_CHECKING:
    from training.jobs import schedule as rules
    from training.jobs.renewal import ScheduledRows
else:
    rules = later("training.jobs.schedule")  # who asks a server needs no learner

PATH = "/v1/schedules"
Schedule: TypeAlias = Annotated[Body, shape("SCHEDULE")]


def begin_schedule(caller: Caller, body: ScheduleRequest, rows: ScheduledRows | None = None) -> Body:
    """Begin a schedule, or only say how long it could be kept; with `rows` each job has those of another file."""
    require_training(caller, body)
    start, asked = rules.moment(body.start), body.job.to_json()
    about = body.name, body.every, asked, caller.principal, start
    schedule = rules.make_schedule(caller.home, *about, token=caller.token, rows=rows)
    return rules.schedule_to_json(caller.home, schedule if body.dry_run else rules.add(caller.home, schedule))


@operation("GET", PATH, "train", "audit", "steward", on=LISTED, needs_prices=True)
def list_schedules(caller: Caller, part: Part) -> Annotated[Body, shape("SCHEDULES")]:
    """List schedules: your own, and those on datasets that you audit or are steward of."""
    wanted, following = cut_schedules(part, rules.schedules_for(caller.home, caller.rights))
    return {"schedules": [rules.schedule_to_json(caller.home, each) for each in wanted], "next": following}


@operation("POST", PATH, "train", on=NAMED, status=201, needs_prices=True)
def add_schedule(caller: Caller, body: ScheduleRequest) -> Schedule:
    """Begin a schedule, whose job must be admitted now; nothing is spent. It ends with the token that asks."""
    return begin_schedule(caller, body)


@operation("DELETE", f"{PATH}/{{schedule}}", "train", "steward", on=LISTED, errors=(404,), needs_prices=True)
def remove_schedule(caller: Caller, schedule: str) -> Annotated[Body, shape("REMOVED")]:
    """Remove a schedule; the jobs that it submitted stay."""
    return {"name": rules.remove_as(caller.home, schedule, caller.rights).name, "removed": True}


OPERATIONS = (list_schedules, add_schedule, remove_schedule)

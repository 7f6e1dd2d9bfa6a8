"""The page of schedules: which there are, for how long each can be kept, and a new one with a preview of that."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.ledger.schedules import PERIODS
from dpserve_verify.errors import DpserveError
from serving.http.rights import LISTED, NAMED
from serving.http.routes import Door, require_dataset, with_prices
from serving.operations import Caller
from serving.operations.doors import caller_of
from serving.operations.schedules import add_schedule, remove_schedule
from serving.operations.schedules import list_schedules as find_schedules
from serving.pages.datasets import every_dataset
from serving.pages.job_form import body_of
from serving.pages.parts.ui import form_fields, page, see_other
from serving.wire import lists
from serving.wire.list_parts import Part
from training.requests import ScheduleRequest
from training.requests.base import request_fields

HTML = "text/html"
COLUMNS = (
    *("name", "dataset", "target", "learner", "epsilon", "delta", "blocks", "model"),
    *("every", "start", "by", "until", "stopped"),
)
FIELDS = tuple(field.name for field in request_fields(ScheduleRequest) if field.name not in ("parameters", "dry_run"))


async def list_schedules(request: Request) -> Response:
    """Return the page of the schedules that the caller may see, and the form; with a name in the query, how long that
    schedule could be kept.
    """
    form, part = lists.form_of(request), lists.page_part(request, *FIELDS)
    if form is not None:
        page_of = await with_prices(request, find_schedules.function, caller_of(request), part)
        return lists.as_file(form, "schedules", COLUMNS, page_of["schedules"])
    typed = {name: request.query_params.get(name, "").strip() for name in FIELDS}
    wants_preview = bool(typed["name"] and typed["dataset"] and typed["epsilon"])
    return await _page(request, typed, part, preview=wants_preview)


async def _page(
    request: Request,
    typed: dict[str, str],
    part: Part,
    preview: bool = False,
    problem: DpserveError | None = None,
) -> Response:
    who, previewed = caller_of(request), None
    if preview:
        try:
            previewed = await with_prices(request, add_schedule.function, who, _request(typed, dry_run=True))
        except DpserveError as error:
            problem = error
    context = await with_prices(request, _context, who, part)
    return page(
        request, "schedules.html", refusal=problem, typed=typed, preview=previewed, periods=[*PERIODS], **context
    )


def _context(who: Caller, part: Part) -> dict[str, Any]:
    rights = who.rights
    with who.home.ledger.log.sharing():
        listed, datasets = find_schedules.function(who, part), every_dataset(who.home)
    for line in listed["schedules"]:
        line["removable"] = rights.owns(line["by"]) or rights.may("steward", dataset=line["dataset"])
    names = [dataset.registration.name for dataset in datasets]
    return {
        "schedules": listed["schedules"],
        "datasets": [name for name in names if rights.may("train", dataset=name)],
        "asked": part.q,
        "pager": lists.pager("/ui/schedules", part, listed["next"]),
    }


def _request(typed: dict[str, str], dry_run: bool = False) -> ScheduleRequest:
    return ScheduleRequest.of({**body_of(ScheduleRequest, typed), "dry_run": dry_run})


async def begin(request: Request) -> Response:
    """Begin the schedule that was previewed."""
    typed = {name: value.strip() for name, value in (await form_fields(request, *FIELDS)).items()}
    await require_dataset(request, ("train",), typed["dataset"])
    try:
        await with_prices(request, add_schedule.function, caller_of(request), _request(typed))
    except DpserveError as error:
        return await _page(request, typed, Part(limit=lists.ON_A_PAGE), problem=error)
    return see_other("/ui/schedules")


async def remove(request: Request) -> Response:
    """Forget one."""
    await form_fields(request)
    name = request.path_params["schedule"]
    await with_prices(request, remove_schedule.function, caller_of(request), name)
    return see_other("/ui/schedules")


DOORS = (
    Door(
        "GET", "/ui/schedules", ("train", "audit", "steward"), list_schedules, "Schedules", media=HTML, hidden=True,
        on=LISTED,
    ),
    Door("POST", "/ui/schedules", ("train",), begin, "Begin a schedule", 303, media=HTML, hidden=True, on=NAMED),
    Door(
        "POST", "/ui/schedules/{schedule}/remove", ("train", "steward"), remove, "Remove a schedule", 303, media=HTML,
        hidden=True, on=LISTED,
    ),
)  # fmt: skip

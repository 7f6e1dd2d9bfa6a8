"""The page of schedules: which there are, for how long each can be kept, and a new one with a preview of that."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import Access
from accountant.home import Home
from accountant.ledger.schedules import PERIODS
from dpserve_verify.errors import DpserveError
from serving.http.rights import LISTED, NAMED
from serving.http.routes import Door, access, caller, require_dataset, state, with_prices
from serving.pages.datasets import every_dataset
from serving.pages.job_form import body_of
from serving.pages.parts.ui import form_fields, page, see_other
from serving.rest.jobs import require_named
from serving.rest.schedules import add_schedule, visible_schedules
from serving.wire import lists
from serving.wire.errors import status_of
from serving.wire.list_parts import Part
from training.jobs.schedule import remove_as
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
        schedules, _ = await with_prices(request, visible_schedules, state(request).home, access(request), part)
        return lists.as_file(form, "schedules", COLUMNS, schedules)
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
    home, rights, previewed = state(request).home, access(request), None
    if preview:
        try:
            wanted = _request(typed, dry_run=True)
            await require_named(request, wanted)
            previewed = await with_prices(request, add_schedule, home, wanted, rights, caller(request).created)
        except DpserveError as error:
            problem = error
    context = await with_prices(request, _context, home, rights, part)
    status = 200 if problem is None else status_of(problem)
    message = "" if problem is None else problem.message
    return page(
        request, "schedules.html", status=status, typed=typed, preview=previewed, problem=message, periods=[*PERIODS],
        **context,
    )  # fmt: skip


def _context(home: Home, rights: Access, part: Part) -> dict[str, Any]:
    lines, following = visible_schedules(home, rights, part)
    for line in lines:
        line["removable"] = rights.owns(line["by"]) or rights.may("steward", dataset=line["dataset"])
    names = [dataset.registration.name for dataset in every_dataset(home)]
    return {
        "schedules": lines,
        "datasets": [name for name in names if rights.may("train", dataset=name)],
        "asked": part.q,
        "pager": lists.pager("/ui/schedules", part, following),
    }


def _request(typed: dict[str, str], dry_run: bool = False) -> ScheduleRequest:
    return ScheduleRequest.of({**body_of(ScheduleRequest, typed), "dry_run": dry_run})


async def begin(request: Request) -> Response:
    """Begin the schedule that was previewed."""
    typed = {name: value.strip() for name, value in (await form_fields(request, *FIELDS)).items()}
    await require_dataset(request, ("train",), typed["dataset"])
    try:
        wanted = _request(typed)
        rights = await require_named(request, wanted)
        await with_prices(request, add_schedule, state(request).home, wanted, rights, caller(request).created)
    except DpserveError as error:
        return await _page(request, typed, Part(limit=lists.ON_A_PAGE), problem=error)
    return see_other("/ui/schedules")


async def remove(request: Request) -> Response:
    """Forget one."""
    await form_fields(request)
    name = request.path_params["schedule"]
    await with_prices(request, partial(remove_as, state(request).home, name, access(request)))
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

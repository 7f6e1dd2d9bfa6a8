"""Pages of jobs: all of them, one with its progress, and the form, which shows a job's price before it can be sent."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING, Access
from accountant.home import Home
from accountant.ledger.entry_search import Wanted, search
from accountant.ledger.families.job_kinds import kind_of
from accountant.ledger.families.left import describe_budget
from accountant.ledger.families.records import ISSUED, PUBLIC_STATES
from serving.http.rights import JOBS, LISTED, NAMED, seen_datasets
from serving.http.routes import Door, access, in_thread, job_number, state, with_prices
from serving.pages.datasets import every_dataset
from serving.pages.job_form import Form, price_of, send, view
from serving.pages.parts.blocks import windows
from serving.pages.parts.ui import form_fields, page, see_other
from serving.rest.jobs import cancelled
from serving.wire import lists
from serving.wire.request_bodies import known_query, query_int
from training.planning.job_views import job_to_json, jobs_to_json

HTML = "text/html"
ASKS = ("train",)
ON_A_PAGE = 30
MOST_STEPS = 20
COLUMNS = (
    *("job", "state", "dataset", "target", "learner", "epsilon", "delta"),
    *("model", "version", "version_state", "by", "time"),
)


async def jobs(request: Request) -> Response:
    """Return a page of jobs, the newest first; of one dataset or state where the query names it."""
    known_query(request, "dataset", "state", "after", lists.FORM)
    asked = {name: request.query_params.get(name, "").strip() for name in ("dataset", "state")}
    form, after = lists.form_of(request), query_int(request, "after", -1)
    if form is not None:
        return lists.as_file(form, "jobs", COLUMNS, await in_thread(_all, state(request).home, asked, access(request)))
    found = await in_thread(_jobs, state(request).home, asked, None if after < 0 else after, access(request))
    waits = any(PUBLIC_STATES[job["state"]].open for job in found["jobs"])
    return page(
        request,
        "jobs.html",
        **found,
        asked=asked,
        states=list(PUBLIC_STATES),
        newest=after < 0,
        waits=waits,
        most=lists.MAX_LINES,
    )


def _jobs(home: Home, asked: dict[str, str], after: int | None, held: Access) -> dict[str, Any]:
    wanted = (asked["dataset"] or None, asked["state"] or None)
    found = jobs_to_json(home, *wanted, after, ON_A_PAGE, held)
    return {**found, "datasets": 1 if found["jobs"] else len(seen_datasets(held, every_dataset(home)))}


def _all(home: Home, asked: dict[str, str], held: Access) -> list[dict[str, Any]]:
    """Return all pages of the list together."""
    wanted = (asked["dataset"] or None, asked["state"] or None)

    def part(after: int | None) -> tuple[list[dict[str, Any]], int | None]:
        found = jobs_to_json(home, *wanted, after, lists.PART_LINES, held)
        return found["jobs"], found["next"]

    return lists.all_lines(part)


async def job(request: Request) -> Response:
    """Return the page of a job, step by step."""
    known_query(request)
    found = await in_thread(_job, state(request).home, job_number(request), access(request))
    of = PUBLIC_STATES[found["job"]["state"]]
    told = found["job"]
    makes = told["state"] == ISSUED and kind_of(told).makes_model
    unstored = makes and told["version"] is None  # its version is put among the models this moment
    cancellable = of.cancellable and found["theirs"]
    return page(request, "job.html", **found, open=of.open or unstored, cancellable=cancellable)


def _job(home: Home, seq: int, held: Access) -> dict[str, Any]:
    """Return a job, its request, and its steps: entries of the ledger. `theirs`: whether the caller may cancel it."""
    known = home.ledger.job(seq)
    found = job_to_json(home, known)
    steps = search(home.ledger.log.database, Wanted(job=seq), limit=MOST_STEPS).entries
    entry = home.ledger.reservation(seq).value
    budget = describe_budget(home.ledger.dataset_of(seq))
    named = [{"kind": step.value["type"], "time": step.value["time"], "entry": step.seq} for step in reversed(steps)]
    return {"job": found, "steps": named, "parameters": entry["parameters"], "budget": budget} | {
        "theirs": held.has(*ASKING) and held.may_cancel(known)
    }


async def cancel(request: Request) -> Response:
    """Cancel a job that has not started."""
    await form_fields(request)
    seq = job_number(request)
    await in_thread(cancelled, state(request).home, seq)
    return see_other(f"/ui/jobs/{seq}")


async def new(request: Request) -> Response:
    """Return the page of the form; with `epsilon` in the query it has its price, for browsers without scripts. One form
    has one key, which then stands in its address too: going back to it and sending it again gives the same job.
    """
    key = request.query_params.get("idempotency_key") or uuid.uuid4().hex
    return await _form(request, Form.of(request.query_params.multi_items()), key)


async def _form(request: Request, form: Form, key: str, status: int = 200, problem: str = "") -> Response:
    home, held = state(request).home, access(request)
    found = await in_thread(view, home, form, held)
    price = await price_of(home, form, held, partial(with_prices, request))
    return page(request, "job_new.html", status=status, **found, form=form, key=key, price=price, problem=problem)


async def price(request: Request) -> Response:
    """Return a part of the form: the price of what stands in it now, and the button that sends exactly that."""
    form = Form.of(request.query_params.multi_items())
    found = await price_of(state(request).home, form, access(request), partial(with_prices, request))
    return page(request, "_price.html", form=form, price=found)


async def parameters(request: Request) -> Response:
    """Return a part of the form: the parameters of the chosen learner."""
    form = Form.of(request.query_params.multi_items())
    found = await in_thread(view, state(request).home, form, access(request))
    return page(request, "_parameters.html", form=form, **found)


async def blocks(request: Request) -> Response:
    """Return a part of the form: which blocks of the chosen dataset, where it has grown, and what fits into them."""
    form = Form.of(request.query_params.multi_items())
    home, held = state(request).home, access(request)
    return page(
        request,
        "_windows.html",
        form=form,
        windows=await in_thread(windows, home, form["dataset"], held, form["blocks"]),
    )


async def submit(request: Request) -> Response:
    """Submit what was priced; anything else shows its price first."""
    fields = await form_fields(request)
    form, key = Form.of(list(fields.items())), fields.get("idempotency_key", "")
    sent = await with_prices(request, send, state(request).home, form, fields.get("priced", ""), key, access(request))
    if sent.job is not None:
        return see_other(f"/ui/jobs/{sent.job}")
    return await _form(request, form, sent.key, sent.status, sent.problem)


DOORS = (
    Door("GET", "/ui/jobs", JOBS, jobs, "Jobs, the newest first", media=HTML, hidden=True, on=LISTED),
    Door("GET", "/ui/jobs/new", ASKS, new, "The form of a new job", media=HTML, hidden=True, on=NAMED),
    Door("POST", "/ui/jobs/new", ASKS, submit, "Submit a job", 303, media=HTML, hidden=True, on=NAMED),
    Door("GET", "/ui/jobs/price", ASKS, price, "What a job would cost", media=HTML, hidden=True, on=NAMED),
    Door("GET", "/ui/jobs/parameters", ASKS, parameters, "What a learner takes", media=HTML, hidden=True, on=NAMED),
    Door("GET", "/ui/jobs/blocks", ASKS, blocks, "Which blocks it reads", media=HTML, hidden=True, on=NAMED),
    Door("GET", "/ui/jobs/{job}", JOBS, job, "A job and its progress", media=HTML, hidden=True),
    Door(
        "POST", "/ui/jobs/{job}/cancel", ASKING, cancel, "Cancel a job before it started", 303, media=HTML, hidden=True
    ),
)

"""The doors to jobs and plans. Each reserves or reads in the ledger; rows are opened by a worker
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING, Access
from accountant.access.tokens import SCOPES
from accountant.errors import BudgetRefused
from accountant.home import Home
from accountant.ledger.families.records import PUBLIC_STATES
from accountant.ledger.questions import about_job
from serving.http.rights import JOBS, LISTED, NAMED, require_model
from serving.http.routes import (
    TEXT,
    Door,
    Query,
    access,
    caller,
    in_thread,
    job_number,
    require_dataset,
    state,
    with_prices,
)
from serving.process.watch.access_log import note_subject
from serving.process.watch.metrics import REFUSALS
from serving.rest import json_schemas
from serving.rest.event_stream import Event, events
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_body, known_query, query_int, query_text
from training.jobs import job
from training.measuring.worth.evaluate import price_following
from training.planning import job_views, plans
from training.planning.starts import is_digest
from training.requests import JobRequest
from training.requests.base import json_schema

MAX_LISTED = 200


async def submit_job(request: Request) -> Response:
    """Plan and reserve a job; 202 with its number at once. A worker process runs it."""
    job_request = JobRequest.of(await json_body(request))
    rights = await require_named(request, job_request)
    job_json = await with_prices(request, reserve_job, state(request).home, job_request, rights)
    return json_response(job_json, 202, {"Location": f"/v1/jobs/{job_json['job']}"})


async def require_named(request: Request, job_request: JobRequest) -> Access:
    """Return the caller's rights. Forbidden unless they may train on the dataset, and see the model to begin from."""
    rights = await require_dataset(request, ("train",), job_request.dataset)
    if job_request.public is not None and not is_digest(job_request.public):
        await in_thread(require_model, rights, state(request).registry.dataset_of, SCOPES, job_request.public)
    return rights


def reserve_job(home: Home, job_request: JobRequest, rights: Access) -> dict[str, Any]:
    """Reserve and queue a job; return its JSON. BudgetRefused, which is counted; Forbidden where it takes `promote` on
    its model, and that is not held.
    """
    with counting_refusals(job_request.dataset):
        key, promotes = job_request.idempotency_key, _promotes(rights, job_request)
        reserved = job.submit(home, job_request, by=rights.principal, key=key, promotes=promotes)
        with home.ledger.remembering(about_job(reserved.seq, reserved.dataset, rights.principal)):
            return _job(home, reserved.seq)


async def plan_job(request: Request) -> Response:
    """Price a job; spends nothing."""
    job_request = JobRequest.of(await json_body(request))
    rights = await require_named(request, job_request)
    return json_response(await with_prices(request, price_job, state(request).home, job_request, rights))


def _promotes(rights: Access, job_request: JobRequest) -> bool:
    return rights.may("promote", model=job_request.model or job_request.dataset)


def price_job(home: Home, job_request: JobRequest, rights: Access) -> dict[str, Any]:
    """Return the plan of a job, which spends nothing; raises as `submitted`."""
    with counting_refusals(job_request.dataset):
        plan = plans.plan(home, job_request, rights.principal, _promotes(rights, job_request))
        return plan.to_json() | price_following(home, plan.request, job_request.evaluate, rights.principal)


@contextmanager
def counting_refusals(dataset: str) -> Iterator[None]:
    """Note the dataset for the audit trail, and count a BudgetRefused raised within."""
    try:
        yield
        note_subject(dataset)
    except BudgetRefused as refused:
        note_subject(dataset)
        REFUSALS.labels(dataset, refused.details["reason"]).inc()
        raise


async def show_job(request: Request) -> Response:
    """Return one job. 404 where there is none."""
    known_query(request)
    return json_response(await in_thread(_job, state(request).home, job_number(request)))


def _job(home: Home, seq: int) -> dict[str, Any]:
    return job_views.job_to_json(home, home.ledger.job(seq))


async def job_events(request: Request) -> Response:
    """Stream the job at each change, until it is over, as server-sent events."""
    known_query(request)
    seq, token = job_number(request), caller(request)

    def event(home: Home, seen: str | None) -> Event | None:
        row = home.ledger.job(seq)
        placing = job_views.is_placing(home, row)  # before its version is looked up, so that the last event has it
        name = f"{row.public_state}:{row.done}" + (":placing" if placing else "")
        return None if name == seen else Event(name, job_views.job_to_json(home, row), placing)

    async def look(seen: str | None) -> Event | None:
        return await in_thread(event, state(request).home, seen)

    def is_good() -> bool:
        bearer = state(request).bearer(token.digest)
        return bearer is not None and bearer.access == access(request)  # else it comes back, and is asked anew

    return await events(request, access(request).principal, look, is_good)


async def list_jobs(request: Request) -> Response:
    """Return a page of jobs, the newest first."""
    known_query(request, *LIST)
    chosen = query_text(request, "dataset"), query_text(request, "state")
    after, limit = query_int(request, "after", -1), query_int(request, "limit", 50, 1, MAX_LISTED)
    page = (*chosen, None if after < 0 else after, limit)
    return json_response(await in_thread(job_views.jobs_to_json, state(request).home, *page, access(request)))


async def cancel_job(request: Request) -> Response:
    """Cancel a job and give its reservation back; 409 once it has started, for then its budget is spent."""
    known_query(request)
    return json_response(await in_thread(cancel_reservation, state(request).home, job_number(request)))


def cancel_reservation(home: Home, seq: int) -> dict[str, Any]:
    """Cancel a job; return it as it is afterwards. WrongState once it has started."""
    job.cancel(home, seq)
    return _job(home, seq)


STREAM = "A job's progress as server-sent events: `job` at each change, `end` at the end"
JOB = json_schema(JobRequest)
LIST: Query = {
    "dataset": {**TEXT, "description": "only of this dataset"},
    "state": {**TEXT, "enum": list(PUBLIC_STATES), "description": "only in this state"},
    "after": "the `next` of the page before",
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LISTED, "description": "jobs on a page; 50 if left out"},
}
DOORS = (
    Door(
        "POST",
        "/v1/jobs",
        ("train",),
        submit_job,
        "Submit a job; it is charged now",
        202,
        JOB,
        json_schemas.JOB,
        on=NAMED,
    ),
    Door(
        "GET",
        "/v1/jobs",
        JOBS,
        list_jobs,
        "Jobs, the newest first",
        gives=json_schemas.JOBS,
        query=LIST,
        errors=(404,),
        on=LISTED,
    ),
    Door("GET", "/v1/jobs/{job}/events", JOBS, job_events, STREAM, gives=TEXT, media="text/event-stream"),
    Door(
        "GET",
        "/v1/jobs/{job}",
        JOBS,
        show_job,
        "A job's state, progress and result",
        gives=json_schemas.JOB,
    ),
    Door("DELETE", "/v1/jobs/{job}", ASKING, cancel_job, "Cancel a job before it started", gives=json_schemas.JOB),
    Door(
        "POST",
        "/v1/plans",
        ("train",),
        plan_job,
        "Price a job; spends nothing",
        takes=JOB,
        gives=json_schemas.PLAN,
        on=NAMED,
    ),
)

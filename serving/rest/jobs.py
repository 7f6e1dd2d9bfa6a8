"""The doors to jobs, plans and datasets. Each reserves or reads in the ledger; rows are opened by a worker
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from time import monotonic
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING, Access
from accountant.errors import BudgetRefused
from accountant.home import Home
from accountant.ledger.families.records import PUBLIC_STATES
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import MAX_KEY, check_key
from models.features.reading import MOST_NAMED
from serving.http.rights import JOBS, LISTED, NAMED, READS, seen_datasets, seen_families
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
from serving.process.watch.access_log import about
from serving.process.watch.metrics import REFUSALS
from serving.rest import json_schemas
from serving.rest.event_stream import Event, events
from serving.wire.errors import json_response
from serving.wire.request_bodies import Fields, check_fields, json_fields, known_query, query_int, query_text
from training.jobs import job
from training.learners.job_words import AUTO
from training.measuring.worth.evaluate import price_following
from training.planning import job_views, plans
from training.planning.plans import Asked
from training.tuning.tune import Tuning

NUMBER = (str, int, Decimal)
MOST_DIGITS = 40
MOST_VALUES = 64
MOST_LISTED = 200
PRICES_SECONDS = 1.5  # a list works prices out for so long; the rest are told as not worked out yet
REQUIRED: Fields = {"dataset": (str,), "epsilon": NUMBER}
OPTIONAL: Fields = {
    "learner": (str,),
    "delta": NUMBER,
    "parameters": (dict,),
    "model": (str,),
    "tuning": (dict,),
    "target": (str,),
    "promote": (bool,),
    "blocks": (str,),
}
KEYED: Fields = {**OPTIONAL, "evaluate": NUMBER, "idempotency_key": (str,)}


def check_parameters(parameters: Mapping[str, Any] | None) -> None:
    """Texts, lists of texts, numbers, booleans and nulls of ordinary size: 1e99999999 is eleven characters, and an
    integer of 40 MB.
    """
    for name, value in (parameters or {}).items():
        what, texts = f"parameters.{name[:80]}", value if isinstance(value, list) else [str(value)]
        if not isinstance(value, (*NUMBER, list)) and value is not None:  # a boolean is an int
            raise InputError(f"{what}: must be a text, a list of texts, a number, true, false or null")
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{what}: a list must be of texts")
        if not isinstance(value, list) and _is_long(texts[0]):
            raise InputError(f"{what}: must have at most {MOST_DIGITS} digits")
        if sum(map(len, texts)) > MOST_NAMED:
            raise InputError(f"{what}: must have at most {MOST_NAMED} characters")


def _is_long(text: str) -> bool:
    """Whether it is a number beyond ordinary size."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    return len(text) > MOST_DIGITS or (number.is_finite() and abs(number.adjusted()) > MOST_DIGITS)


def asked(body: dict[str, Any]) -> Asked:
    """A body as a job. InputError where its parameters or its tuning mean nothing."""
    check_parameters(body.get("parameters"))
    tuning = None if body.get("tuning") is None else _tuning(body["tuning"])
    return Asked(
        body["dataset"],
        body.get("learner", AUTO),
        body["epsilon"],
        body.get("delta"),
        body.get("parameters"),
        body.get("model"),
        tuning,
        body.get("target"),
        body.get("promote", False),
        body.get("evaluate"),
        body.get("blocks"),
    )


def _tuning(body: dict[str, Any]) -> Tuning:
    """{"grid": {"rounds": [50, 100]}, "runs": 6}: a list of values for each parameter to try."""
    fields = check_fields(body, {"grid": (dict,)}, {"runs": NUMBER})
    for key, values in fields["grid"].items():
        if not isinstance(values, list) or len(values) > MOST_VALUES:
            raise InputError(f"tuning.grid.{key[:80]}: must be a list of at most {MOST_VALUES} values")
        for value in values:
            check_parameters({key: value})
    check_parameters({"runs": fields.get("runs")})
    return Tuning(fields["grid"], fields.get("runs"))


async def submit_job(request: Request) -> Response:
    """Plan and reserve; 202 with the job's number at once. A worker process runs it."""
    body = await json_fields(request, REQUIRED, KEYED)
    held = await require_dataset(request, ("train",), body["dataset"])
    found = await with_prices(request, submitted, state(request).home, body, held)
    return json_response(found, 202, {"Location": f"/v1/jobs/{found['job']}"})


def submitted(home: Home, body: dict[str, Any], held: Access) -> dict[str, Any]:
    """Reserve and queue a job; its JSON. BudgetRefused, which is counted; Forbidden where it takes `promote` on its
    model, and that is not held."""
    with counting_refusals(body["dataset"]):
        key, promotes = body.get("idempotency_key"), _promotes(held, body)
        reserved = job.submit(home, asked(body), by=held.principal, key=key, promotes=promotes)
        return _job(home, reserved.seq)


async def plan_job(request: Request) -> Response:
    """As a job, spending nothing."""
    body = await json_fields(request, REQUIRED, KEYED)
    held = await require_dataset(request, ("train",), body["dataset"])
    return json_response(await with_prices(request, planned, state(request).home, body, held))


def _promotes(held: Access, body: dict[str, Any]) -> bool:
    return held.may("promote", model=body.get("model") or body["dataset"])


def planned(home: Home, body: dict[str, Any], held: Access) -> dict[str, Any]:
    """The plan of a job, which spends nothing; raises as `submitted`."""
    check_key(body.get("idempotency_key"))
    with counting_refusals(body["dataset"]):
        plan = plans.plan(home, asked(body), held.principal, _promotes(held, body))
        return plan.to_json() | price_following(home, plan.request, body.get("evaluate"), held.principal)


@contextmanager
def counting_refusals(dataset: str) -> Iterator[None]:
    """What is asked about this dataset, for the trail; BudgetRefused is counted."""
    try:
        yield
        about(dataset)
    except BudgetRefused as refused:
        about(dataset)
        REFUSALS.labels(dataset, refused.details["reason"]).inc()
        raise


async def show_job(request: Request) -> Response:
    """One job. 404 where there is none."""
    known_query(request)
    return json_response(await in_thread(_job, state(request).home, job_number(request)))


def _job(home: Home, seq: int) -> dict[str, Any]:
    return job_views.job_to_json(home, home.ledger.job(seq))


async def job_events(request: Request) -> Response:
    """Server-sent events: the job at each change, until it is over."""
    known_query(request)
    seq, token = job_number(request), caller(request)

    def event(home: Home, seen: str | None) -> Event | None:
        known = home.ledger.job(seq)
        placing = job_views.is_placing(home, known)  # before its version is looked up, so that the last event has it
        name = f"{known.public_state}:{known.done}" + (":placing" if placing else "")
        return None if name == seen else Event(name, job_views.job_to_json(home, known), placing)

    async def look(seen: str | None) -> Event | None:
        return await in_thread(event, state(request).home, seen)

    def good() -> bool:
        held = state(request).bearer(token.digest)
        return held is not None and held.access == access(request)  # else it comes back, and is asked anew

    return await events(request, access(request).principal, look, good)


async def list_jobs(request: Request) -> Response:
    """The newest first, a page at a time."""
    known_query(request, *LIST)
    chosen = query_text(request, "dataset"), query_text(request, "state")
    after, limit = query_int(request, "after", -1), query_int(request, "limit", 50, 1, MOST_LISTED)
    page = (*chosen, None if after < 0 else after, limit)
    return json_response(await in_thread(job_views.jobs_to_json, state(request).home, *page, access(request)))


async def cancel_job(request: Request) -> Response:
    """Give a reservation back; 409 once the job has started, for then its budget is spent."""
    known_query(request)
    return json_response(await in_thread(cancelled, state(request).home, job_number(request)))


def cancelled(home: Home, seq: int) -> dict[str, Any]:
    """Give a reservation back; the job afterwards. WrongState once it has started."""
    job.cancel(home, seq)
    return _job(home, seq)


async def list_datasets(request: Request) -> Response:
    """Every dataset that may be seen, with its budget; how many jobs still fit, as far as that is soon worked out."""
    known_query(request)
    home, held = state(request).home, access(request)

    def look() -> list[dict[str, Any]]:
        seen, end = seen_datasets(held, home.ledger.datasets()), monotonic() + PRICES_SECONDS
        return [job_views.dataset_to_json(home, each, detail=False, works_out=monotonic() < end) for each in seen]

    return json_response({"datasets": await with_prices(request, look)})


async def list_families(request: Request) -> Response:
    """Every family with the datasets of it that may be seen, and the budget that they share."""
    known_query(request)
    home, held = state(request).home, access(request)

    def look() -> list[dict[str, Any]]:
        return [job_views.family_to_json(each) for each in seen_families(held, home.ledger.datasets())]

    return json_response({"families": await in_thread(look)})


async def show_dataset(request: Request) -> Response:
    """One dataset, with quotas and what a job costs. 404 where there is none."""
    known_query(request)
    home, name = state(request).home, request.path_params["name"]
    return json_response(await with_prices(request, lambda: job_views.dataset_to_json(home, home.ledger.dataset(name))))


STREAM = "A job's progress as server-sent events: `job` at each change, `end` at the end"
DECIMAL = {"oneOf": [{"type": "number"}, {"type": "string"}], "description": "a decimal; a text keeps every digit"}
BLOCKS = {**TEXT, "description": "of a dataset that grows, which blocks: all, last:12, 3-7 or 4; each is charged"}
TUNING = {
    "type": "object",
    "description": "private tuning: values to try for each parameter, and how many runs on average",
    "additionalProperties": False,
    "required": ["grid"],
    "properties": {"grid": {"type": "object", "additionalProperties": {"type": "array"}}, "runs": DECIMAL},
}
ASKED = {
    "dataset": TEXT,
    "learner": {**TEXT, "default": AUTO, "description": "auto: the one that a public rule chooses"},
    "epsilon": DECIMAL,
    "delta": DECIMAL,
    "parameters": {"type": "object", "description": "of the learner, by name; its defaults when left out"},
    "tuning": TUNING,
    "model": TEXT,
    "target": {**TEXT, "description": "what to predict; must be said where the dataset has several targets"},
    "blocks": BLOCKS,
    "promote": {"type": "boolean", "description": "make its model champion of its name at once"},
    "evaluate": {**DECIMAL, "description": "epsilon at which the model is evaluated then, on what is kept aside"},
    "idempotency_key": {"type": "string", "minLength": 1, "maxLength": MAX_KEY},
}
JOB = {
    "type": "object",
    "additionalProperties": False,
    "required": ["dataset", "epsilon"],
    "properties": ASKED,
}
LIST: Query = {
    "dataset": {**TEXT, "description": "only of this dataset"},
    "state": {**TEXT, "enum": list(PUBLIC_STATES), "description": "only in this state"},
    "after": "the `next` of the page before",
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "description": "jobs on a page; 50 if left out"},
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
    Door(
        "GET",
        "/v1/datasets",
        READS,
        list_datasets,
        "Datasets and their budgets",
        gives=json_schemas.DATASETS,
        on=LISTED,
    ),
    Door(
        "GET",
        "/v1/families",
        READS,
        list_families,
        "Families, their datasets and the budget that each family shares",
        gives=json_schemas.FAMILIES,
        on=LISTED,
    ),
    Door(
        "GET",
        "/v1/datasets/{name}",
        READS,
        show_dataset,
        "A dataset and its budget",
        gives=json_schemas.DATASET,
    ),
)

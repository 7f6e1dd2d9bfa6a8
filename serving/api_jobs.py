"""The doors to jobs, plans and datasets. Each reserves or reads in the ledger; rows are opened by a worker
elsewhere.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.errors import BudgetRefused, UnknownName
from accountant.home import Home
from serving.bodies import Fields, json_fields, known_query
from serving.doors import caller, in_thread, state
from serving.errors import json_response
from serving.metrics import REFUSALS
from training import job
from training.job import Asked

NUMBER = (str, int, Decimal)
REQUIRED: Fields = {"dataset": (str,), "learner": (str,), "epsilon": NUMBER}
OPTIONAL: Fields = {"delta": NUMBER, "parameters": (dict,), "model": (str,)}
KEYED: Fields = {**OPTIONAL, "idempotency_key": (str,)}


def asked(body: dict[str, Any]) -> Asked:
    return Asked(
        body["dataset"],
        body["learner"],
        body["epsilon"],
        body.get("delta"),
        body.get("parameters"),
        body.get("model"),
    )


async def submit_job(request: Request) -> Response:
    """Plan and reserve; 202 with the job's number at once. A worker process runs it."""
    body = await json_fields(request, REQUIRED, KEYED)
    home, by = state(request).home, f"token:{caller(request).name}"
    found = await in_thread(_counting_refusals, _submit, home, asked(body), by, body.get("idempotency_key"))
    return json_response(found, 202, {"Location": f"/v1/jobs/{found['job']}"})


def _submit(home: Home, wanted: Asked, by: str, key: str | None) -> dict[str, Any]:
    return job.job_to_json(home, job.submit(home, wanted, by=by, key=key))


async def plan_job(request: Request) -> Response:
    """As a job, spending nothing."""
    body = await json_fields(request, REQUIRED, KEYED)
    planned = await in_thread(_counting_refusals, job.plan, state(request).home, asked(body))
    return json_response(planned.to_json())


def _counting_refusals(work: Any, home: Home, wanted: Asked, *more: Any) -> Any:
    try:
        return work(home, wanted, *more)
    except BudgetRefused:
        REFUSALS.labels(wanted.dataset, "budget").inc()
        raise


async def show_job(request: Request) -> Response:
    known_query(request)
    home, seq = state(request).home, _number(request)
    return json_response(await in_thread(lambda: job.job_to_json(home, home.ledger.job(seq))))


async def cancel_job(request: Request) -> Response:
    """Give a reservation back; 409 once the job has started, for then its budget is spent."""
    known_query(request)
    home, seq = state(request).home, _number(request)
    return json_response(await in_thread(_cancel, home, seq))


def _cancel(home: Home, seq: int) -> dict[str, Any]:
    home.ledger.release(seq)
    return job.job_to_json(home, home.ledger.job(seq))


def _number(request: Request) -> int:
    text = request.path_params["job"]
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise UnknownName(f"job={text[:40]!r}: no such job", job=text[:40])
    return int(text)


async def list_datasets(request: Request) -> Response:
    known_query(request)
    home = state(request).home
    return json_response({"datasets": await in_thread(_datasets, home)})


def _datasets(home: Home) -> list[dict[str, Any]]:
    return [job.dataset_to_json(home, dataset) for dataset in home.ledger.datasets()]


async def show_dataset(request: Request) -> Response:
    known_query(request)
    home, name = state(request).home, request.path_params["name"]
    return json_response(await in_thread(lambda: job.dataset_to_json(home, home.ledger.dataset(name))))

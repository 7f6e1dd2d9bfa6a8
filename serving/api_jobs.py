"""The doors to jobs, plans and datasets. Each reserves or reads in the ledger; rows are opened by a worker
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from types import ModuleType
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.errors import BudgetRefused, InputError, UnknownName
from accountant.home import Home
from serving.bodies import Fields, check_fields, json_fields, known_query
from serving.doors import TEXT, Door, caller, in_thread, state
from serving.errors import json_response
from serving.metrics import REFUSALS

if TYPE_CHECKING:
    from training.job import Asked, Tuning

NUMBER = (str, int, Decimal)
MOST_DIGITS = 40
MOST_VALUES = 64
REQUIRED: Fields = {"dataset": (str,), "learner": (str,), "epsilon": NUMBER}
OPTIONAL: Fields = {"delta": NUMBER, "parameters": (dict,), "model": (str,), "tuning": (dict,)}
KEYED: Fields = {**OPTIONAL, "idempotency_key": (str,)}


def training_job() -> ModuleType:
    """What trains takes a second or more to import (scikit-learn, numba), so it is imported once and in a thread."""
    from training import job

    return job


def check_parameters(parameters: Mapping[str, Any] | None) -> None:
    """Texts, numbers, booleans and nulls of ordinary size: 1e99999999 is eleven characters, and an integer of 40 MB."""
    for name, value in (parameters or {}).items():
        if not isinstance(value, NUMBER) and value is not None:  # a boolean is an int
            raise InputError(f"parameters.{name[:80]}: must be a text, a number, true, false or null")
        if len(str(value)) > MOST_DIGITS or _exponent(str(value)) > MOST_DIGITS:
            raise InputError(f"parameters.{name[:80]}: must have at most {MOST_DIGITS} digits")


def _exponent(text: str) -> int:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return 0
    return abs(number.adjusted()) if number.is_finite() else 0


def asked(body: dict[str, Any]) -> Asked:
    """Blocks, as everything here that speaks of training: call it in a thread."""
    check_parameters(body.get("parameters"))
    tuning = None if body.get("tuning") is None else _tuning(body["tuning"])
    found: Asked = training_job().Asked(
        body["dataset"],
        body["learner"],
        body["epsilon"],
        body.get("delta"),
        body.get("parameters"),
        body.get("model"),
        tuning,
    )
    return found


def _tuning(body: dict[str, Any]) -> Tuning:
    """{"grid": {"rounds": [50, 100]}, "runs": 6}: a list of values for each parameter to try."""
    fields = check_fields(body, {"grid": (dict,)}, {"runs": NUMBER})
    for key, values in fields["grid"].items():
        if not isinstance(values, list) or len(values) > MOST_VALUES:
            raise InputError(f"tuning.grid.{key[:80]}: must be a list of at most {MOST_VALUES} values")
        for value in values:
            check_parameters({key: value})
    check_parameters({"runs": fields.get("runs")})
    found: Tuning = training_job().Tuning(fields["grid"], fields.get("runs"))
    return found


async def submit_job(request: Request) -> Response:
    """Plan and reserve; 202 with the job's number at once. A worker process runs it."""
    body = await json_fields(request, REQUIRED, KEYED)
    found = await in_thread(_submit, state(request).home, body, f"token:{caller(request).name}")
    return json_response(found, 202, {"Location": f"/v1/jobs/{found['job']}"})


def _submit(home: Home, body: dict[str, Any], by: str) -> dict[str, Any]:
    with _refusals(body["dataset"]):
        job = training_job().submit(home, asked(body), by=by, key=body.get("idempotency_key"))
        return _job(home, job.seq)


async def plan_job(request: Request) -> Response:
    """As a job, spending nothing."""
    body = await json_fields(request, REQUIRED, KEYED)
    return json_response(await in_thread(_plan, state(request).home, body, f"token:{caller(request).name}"))


def _plan(home: Home, body: dict[str, Any], by: str) -> dict[str, Any]:
    with _refusals(body["dataset"]):
        found: dict[str, Any] = training_job().plan(home, asked(body), by).to_json()
        return found


@contextmanager
def _refusals(dataset: str) -> Iterator[None]:
    try:
        yield
    except BudgetRefused as refused:
        REFUSALS.labels(dataset, refused.details["reason"]).inc()
        raise


async def show_job(request: Request) -> Response:
    known_query(request)
    return json_response(await in_thread(_job, state(request).home, _number(request)))


def _job(home: Home, seq: int) -> dict[str, Any]:
    found: dict[str, Any] = training_job().job_to_json(home, home.ledger.job(seq))
    return found


async def cancel_job(request: Request) -> Response:
    """Give a reservation back; 409 once the job has started, for then its budget is spent."""
    known_query(request)
    return json_response(await in_thread(_cancel, state(request).home, _number(request)))


def _cancel(home: Home, seq: int) -> dict[str, Any]:
    home.ledger.release(seq)
    return _job(home, seq)


def _number(request: Request) -> int:
    text = request.path_params["job"]
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise UnknownName(f"job={text[:40]!r}: no such job", job=text[:40])
    return int(text)


async def list_datasets(request: Request) -> Response:
    known_query(request)
    return json_response({"datasets": await in_thread(_datasets, state(request).home)})


def _datasets(home: Home) -> list[dict[str, Any]]:
    return [training_job().dataset_to_json(home, dataset, detail=False) for dataset in home.ledger.datasets()]


async def show_dataset(request: Request) -> Response:
    known_query(request)
    return json_response(await in_thread(_dataset, state(request).home, request.path_params["name"]))


def _dataset(home: Home, name: str) -> dict[str, Any]:
    found: dict[str, Any] = training_job().dataset_to_json(home, home.ledger.dataset(name))
    return found


DECIMAL = {"oneOf": [{"type": "number"}, {"type": "string"}], "description": "a decimal; a text keeps every digit"}
TUNING = {
    "type": "object",
    "description": "private tuning: values to try for each parameter, and how many runs on average",
    "additionalProperties": False,
    "required": ["grid"],
    "properties": {"grid": {"type": "object", "additionalProperties": {"type": "array"}}, "runs": DECIMAL},
}
ASKED = {
    "dataset": TEXT,
    "learner": TEXT,
    "epsilon": DECIMAL,
    "delta": DECIMAL,
    "parameters": {"type": "object"},
    "tuning": TUNING,
    "model": TEXT,
    "idempotency_key": {"type": "string", "minLength": 1, "maxLength": 200},
}
JOB = {
    "type": "object",
    "additionalProperties": False,
    "required": ["dataset", "learner", "epsilon"],
    "properties": ASKED,
}
DOORS = (
    Door("POST", "/v1/jobs", ("train",), submit_job, "Submit a job; it is charged now", 202, JOB),
    Door("GET", "/v1/jobs/{job}", ("train", "audit"), show_job, "A job's state, progress and result"),
    Door("DELETE", "/v1/jobs/{job}", ("train",), cancel_job, "Cancel a job before it started"),
    Door("POST", "/v1/plans", ("train",), plan_job, "Price a job; spends nothing", takes=JOB),
    Door("GET", "/v1/datasets", ("train", "audit"), list_datasets, "Datasets and their budgets"),
    Door("GET", "/v1/datasets/{name}", ("train", "audit"), show_dataset, "A dataset and its budget"),
)

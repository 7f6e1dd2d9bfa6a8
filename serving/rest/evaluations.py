"""The doors to what models are worth: measured as a job, by a worker, and stated under a signature."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING, Access
from accountant.access.tokens import SCOPES
from accountant.home import Home
from models.worth import statements
from serving.http.rights import NAMED, hide_name, require_model
from serving.http.routes import Door, access, in_thread, job_number, require_dataset, state
from serving.rest import json_schemas
from serving.rest.jobs import counting_refusals
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_body, known_query
from training.jobs import job
from training.measuring.worth import evaluate
from training.planning import job_views
from training.requests import EvaluationRequest
from training.requests.base import json_schema


async def submit_evaluation(request: Request) -> Response:
    """Plan and reserve an evaluation; 202 with the job at once. A worker measures. A known result costs nothing
    again.
    """
    evaluation_request = EvaluationRequest.of(await json_body(request))
    rights = await _require_models(request, evaluation_request)
    job_json = await in_thread(reserve_evaluation, state(request).home, evaluation_request, rights.principal)
    return json_response(job_json, 202, {"Location": f"/v1/jobs/{job_json['job']}"})


def reserve_evaluation(home: Home, evaluation_request: EvaluationRequest, by: str) -> dict[str, Any]:
    """Reserve and queue an evaluation; return the job's JSON. BudgetRefused, which is counted."""
    with counting_refusals(evaluation_request.dataset):
        reserved = job.submit(home, evaluation_request, by=by, key=evaluation_request.idempotency_key)
    return job_views.job_to_json(home, home.ledger.job(reserved.seq))


async def _require_models(request: Request, evaluation_request: EvaluationRequest) -> Access:
    """Return the caller's rights. Forbidden unless they may evaluate on the dataset, and see each model that is named:
    the result is about the models.
    """
    rights = await require_dataset(request, ASKING, evaluation_request.dataset)
    for reference in (evaluation_request.model, evaluation_request.against):
        if reference is not None:
            await in_thread(require_model, rights, state(request).registry, SCOPES, reference)
    return rights


async def plan_evaluation(request: Request) -> Response:
    """Price an evaluation; spends nothing."""
    evaluation_request = EvaluationRequest.of(await json_body(request))
    rights = await _require_models(request, evaluation_request)
    return json_response(await in_thread(price_evaluation, state(request).home, evaluation_request, rights.principal))


def price_evaluation(home: Home, evaluation_request: EvaluationRequest, by: str) -> dict[str, Any]:
    """Return the plan of an evaluation, which spends nothing; raises as `submitted`."""
    with counting_refusals(evaluation_request.dataset):
        return evaluate.plan(home, evaluation_request, by).to_json()


async def show_evaluation(request: Request) -> Response:
    """Return a finished evaluation: figures, and what verifies them. 404 where there is none."""
    known_query(request)
    home, seq = state(request).home, job_number(request)
    envelope, proof, statement = await in_thread(statements.statement_of, home, seq)
    plain = statements.worth_to_json(seq, statement)
    with hide_name(access(request), seq):
        await in_thread(require_model, access(request), state(request).registry, SCOPES, plain["model"])
    body = {**plain, "envelope": orjson.Fragment(envelope), "proof": proof.decode()}
    return json_response(body)


ASKED = json_schema(EvaluationRequest)
DOORS = (
    Door(
        "POST",
        "/v1/evaluations",
        ASKING,
        submit_evaluation,
        "Measure what a model is worth; it is charged now",
        202,
        ASKED,
        json_schemas.JOB,
        on=NAMED,
    ),
    Door(
        "POST",
        "/v1/plans/evaluations",
        ASKING,
        plan_evaluation,
        "Price an evaluation; spends nothing",
        takes=ASKED,
        gives=json_schemas.PLANNED,
        on=NAMED,
    ),
    Door(
        "GET",
        "/v1/evaluations/{job}",
        SCOPES,
        show_evaluation,
        "What a model is worth, and the statement that says so",
        gives=json_schemas.EVALUATION,
        on=NAMED,
    ),
)

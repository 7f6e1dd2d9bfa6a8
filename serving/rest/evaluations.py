"""The doors to what models are worth: measured as a job, by a worker, and stated under a signature."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING, Access
from accountant.access.tokens import SCOPES
from accountant.home import Home
from dpserve_verify.privacy.budget import check_key
from models.worth import statements
from serving.http.rights import NAMED, require_model, unnamed
from serving.http.routes import TEXT, Door, access, in_thread, job_number, require_dataset, state
from serving.rest import json_schemas
from serving.rest.jobs import BLOCKS, DECIMAL, NUMBER, counting_refusals
from serving.wire.errors import json_response
from serving.wire.request_bodies import Fields, json_fields, known_query
from training.jobs import job
from training.measuring.worth import evaluate
from training.planning import job_views

REQUIRED: Fields = {"model": (str,), "dataset": (str,), "epsilon": NUMBER}
OPTIONAL: Fields = {
    "part": (str,), "against": (str,), "group": (str,), "scores": (bool,), "delta": NUMBER, "blocks": (str,),
    "idempotency_key": (str,),
}  # fmt: skip


async def submit_evaluation(request: Request) -> Response:
    """Plan and reserve; 202 with the job at once. A worker measures. What is known already costs nothing again."""
    body = await json_fields(request, REQUIRED, OPTIONAL)
    held = await _may(request, body)
    found = await in_thread(submitted, state(request).home, body, held.principal)
    return json_response(found, 202, {"Location": f"/v1/jobs/{found['job']}"})


def submitted(home: Home, body: dict[str, Any], by: str) -> dict[str, Any]:
    """Reserve and queue an evaluation; the job's JSON. BudgetRefused, which is counted."""
    with counting_refusals(body["dataset"]):
        reserved = job.submit(home, _asked(body), by=by, key=body.get("idempotency_key"))
    return job_views.job_to_json(home, home.ledger.job(reserved.seq))


async def _may(request: Request, body: dict[str, Any]) -> Access:
    """What its bearer may do. Forbidden unless they may ask of the dataset, and see each model that is named: what is
    found out is about the models.
    """
    held = await require_dataset(request, ASKING, body["dataset"])
    for reference in (body["model"], body.get("against")):
        if reference is not None:
            await in_thread(require_model, held, state(request).registry, SCOPES, reference)
    return held


async def plan_evaluation(request: Request) -> Response:
    """As an evaluation, spending nothing."""
    body = await json_fields(request, REQUIRED, OPTIONAL)
    held = await _may(request, body)
    return json_response(await in_thread(planned, state(request).home, body, held.principal))


def planned(home: Home, body: dict[str, Any], by: str) -> dict[str, Any]:
    """The plan of an evaluation, which spends nothing; raises as `submitted`."""
    check_key(body.get("idempotency_key"))
    with counting_refusals(body["dataset"]):
        return evaluate.plan(home, _asked(body), by).to_json()


def _asked(body: dict[str, Any]) -> evaluate.AskedWorth:
    more = body.get("part"), body.get("delta") or "0", body.get("against"), body.get("group"), bool(body.get("scores"))
    return evaluate.AskedWorth(body["model"], body["dataset"], body["epsilon"], *more, body.get("blocks"))


async def show_evaluation(request: Request) -> Response:
    """A finished evaluation: figures, and what verifies them. 404 where there is none."""
    known_query(request)
    home, seq = state(request).home, job_number(request)
    envelope, proof, found = await in_thread(statements.statement_of, home, seq)
    plain = statements.worth_to_json(seq, found)
    with unnamed(access(request), seq):
        await in_thread(require_model, access(request), state(request).registry, SCOPES, plain["model"])
    body = {**plain, "envelope": orjson.Fragment(envelope), "proof": proof.decode()}
    return json_response(body)


ASKED = {
    "type": "object",
    "additionalProperties": False,
    "required": ["model", "dataset", "epsilon"],
    "properties": {
        "model": {**TEXT, "description": "adult, adult@champion or adult@2"},
        "dataset": TEXT,
        "epsilon": DECIMAL,
        "delta": DECIMAL,
        "against": {**TEXT, "description": "another model, to be compared with on the same rows"},
        "group": {**TEXT, "description": "by the groups of this column, which the schema names"},
        "scores": {"type": "boolean", "description": "of three or more classes: AUROC and log loss too"},
        "blocks": BLOCKS,
        "part": {"enum": ["holdout", "training"], "description": "what is kept aside, unless training is asked for"},
        "idempotency_key": {"type": "string", "minLength": 1, "maxLength": 200},
    },
}
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

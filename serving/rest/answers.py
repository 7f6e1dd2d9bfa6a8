"""The doors to queries of counts, sums and means: answered as a job, by a worker, or from what was released before."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING
from accountant.home import Home
from serving.http.rights import NAMED, READS, hide_name
from serving.http.routes import Door, access, in_thread, job_number, require_dataset, state
from serving.rest import json_schemas
from serving.rest.jobs import counting_refusals
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_body, known_query
from training.jobs import job
from training.measuring.answers import answers
from training.planning import job_views
from training.requests import QueryRequest
from training.requests.base import json_schema


async def submit_query(request: Request) -> Response:
    """Plan and reserve an answer; 202 with the job at once. What follows from an earlier release is that one's job."""
    query_request = QueryRequest.of(await json_body(request))
    rights = await require_dataset(request, ASKING, query_request.dataset)
    job_json = await in_thread(reserve_answer, state(request).home, query_request, rights.principal)
    return json_response(job_json, 202, {"Location": f"/v1/jobs/{job_json['job']}"})


def reserve_answer(home: Home, query_request: QueryRequest, by: str) -> dict[str, Any]:
    """Reserve and queue an answer; return the job's JSON. BudgetRefused, which is counted."""
    with counting_refusals(query_request.dataset):
        reserved = job.submit(home, query_request, by=by, key=query_request.idempotency_key)
    return job_views.job_to_json(home, home.ledger.job(reserved.seq))


async def plan_query(request: Request) -> Response:
    """Price a query; spends nothing."""
    query_request = QueryRequest.of(await json_body(request))
    rights = await require_dataset(request, ASKING, query_request.dataset)
    return json_response(await in_thread(price_answer, state(request).home, query_request, rights.principal))


def price_answer(home: Home, query_request: QueryRequest, by: str) -> dict[str, Any]:
    """Return the plan of an answer, which spends nothing; raises as `submit_query`."""
    with counting_refusals(query_request.dataset):
        return answers.plan(home, query_request, by).to_json()


async def show_answer(request: Request) -> Response:
    """Return the table of a finished job, and what verifies it: its own query's, or that of `select`, where it follows
    from what was released. 404 where there is none.
    """
    known_query(request, "select")
    select = request.query_params.get("select")
    home, seq = state(request).home, job_number(request)
    envelope, proof, statement, answer = await in_thread(answers.answer_of, home, seq, select)
    with hide_name(access(request), seq):
        await require_dataset(request, READS, statement.form.rows.dataset)
    return json_response({**answer, "envelope": orjson.Fragment(envelope), "proof": proof.decode()})


ASKED = json_schema(QueryRequest)
SELECT = {"type": "string", "description": "another query, which follows from what was released"}
DOORS = (
    Door(
        "POST",
        "/v1/answers",
        ASKING,
        submit_query,
        "Answer a query of counts, sums and means; it is charged now, or follows from what was released",
        202,
        ASKED,
        json_schemas.JOB,
        on=NAMED,
    ),
    Door(
        "POST",
        "/v1/plans/answers",
        ASKING,
        plan_query,
        "Price a query; spends nothing",
        takes=ASKED,
        gives=json_schemas.PLANNED_ANSWER,
        on=NAMED,
    ),
    Door(
        "GET",
        "/v1/answers/{job}",
        READS,
        show_answer,
        "The table that a query was answered with, and the statement that it follows from",
        gives=json_schemas.ANSWER,
        on=NAMED,
        query={"select": SELECT},
    ),
)

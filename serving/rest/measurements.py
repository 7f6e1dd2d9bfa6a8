"""The doors to what is measured privately: submitted as a job, which a worker runs, and stated under a signature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING, Access
from accountant.access.tokens import SCOPES
from accountant.home import Home
from dpserve_verify.privacy.budget import check_key
from serving.http.rights import NAMED, READS, hide_name, require_model
from serving.http.routes import Door, access, in_thread, job_number, require_dataset, state, with_prices
from serving.process.prices import run_for_request
from serving.process.watch.metrics import counting_refusals
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_body, known_query, query_text
from training.jobs import measured
from training.kinds.registry import stated_steps
from training.planning import job_views
from training.requests import EvaluationRequest, ProfileRequest, QueryRequest
from training.requests.base import json_schema

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Measurement:
    """A kind of job that ends in a signed statement.

    Attributes:
        path: of its doors.
        request: class of what asks for it.
        query: fields of the query of the door that shows it, beside the job.
    """

    path: str
    request: Any
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def steps(self) -> Any:
        """Return the steps of its jobs."""
        return stated_steps(self.request)

    def reserve(self, home: Home, measurement: Any, by: str) -> Body:
        """Reserve and queue a job; return its JSON. BudgetRefused, which is counted."""
        plan = partial(run_for_request, measured.plan, measurement, by)
        with counting_refusals(measurement.dataset):
            key = check_key(measurement.idempotency_key)
            reserved = self.steps.reserve(home, plan, by=by, key=key)
        return job_views.job_to_json(home, home.ledger.job(reserved.seq))

    def price(self, measurement: Any, by: str) -> Body:
        """Return the plan, which spends nothing; raises as `reserve`."""
        with counting_refusals(measurement.dataset):
            plan: Body = orjson.loads(run_for_request(measured.price, measurement, by))
        return plan

    async def submit(self, request: Request) -> Response:
        """Plan and reserve; 202 with the job at once. A worker measures. A known result costs nothing again."""
        measurement = self.request.of(await json_body(request))
        rights = await require_measurable(request, measurement)
        job_json = await with_prices(request, self.reserve, state(request).home, measurement, rights.principal)
        return json_response(job_json, 202, {"Location": f"/v1/jobs/{job_json['job']}"})

    async def submit_plan(self, request: Request) -> Response:
        """Price a request; spends nothing."""
        measurement = self.request.of(await json_body(request))
        rights = await require_measurable(request, measurement)
        state(request).require_ready()
        return json_response(await with_prices(request, self.price, measurement, rights.principal))

    async def show(self, request: Request) -> Response:
        """Return what a finished job says, and what verifies it. 404 where there is none."""
        known_query(request, *self.query)
        select = query_text(request, "select")
        if select is None:
            envelope, proof, _, body = await in_thread(self.steps.read, state(request).home, job_number(request))
        else:  # how long it takes to read is the caller's choice
            state(request).require_ready()
            answer = measured.answer, job_number(request), select
            envelope, proof, raw = await with_prices(request, run_for_request, *answer)
            body = orjson.loads(raw)
        with hide_name(access(request), job_number(request)):
            if "model" in body:
                await in_thread(
                    require_model, access(request), state(request).registry.dataset_of, SCOPES, body["model"]
                )
            else:
                await require_dataset(request, READS, body["dataset"])
        return json_response({**body, "envelope": orjson.Fragment(envelope), "proof": proof.decode()})

    def doors(
        self, submits: str, prices: str, shows: str, plan: Body, gives: Body, scopes: tuple[str, ...] = READS
    ) -> tuple[Door, ...]:
        """Return its three doors, with what the description says of each. `scopes`: one of them may see what a finished
        job says.
        """
        takes = json_schema(self.request)
        submit, price, show = self.submit, self.submit_plan, self.show
        path, plans = f"/v1/{self.path}", f"/v1/plans/{self.path}"
        return (
            Door("POST", path, ASKING, submit, submits, 202, takes, json_schemas.JOB, on=NAMED),
            Door("POST", plans, ASKING, price, prices, takes=takes, gives=plan, on=NAMED),
            Door("GET", f"{path}/{{job}}", scopes, show, shows, gives=gives, on=NAMED, query=self.query),
        )


async def require_measurable(request: Request, measurement: Any) -> Access:
    """Return the caller's rights. Forbidden unless they may measure on the dataset, and see each model that is named:
    the result is about the models.
    """
    rights = await require_dataset(request, ASKING, measurement.dataset)
    for reference in (getattr(measurement, name, None) for name in ("model", "against")):
        if reference is not None:
            await in_thread(require_model, rights, state(request).registry.dataset_of, SCOPES, reference)
    return rights


SELECT = {"type": "string", "description": "another query, which follows from what was released"}
EVALUATION = Measurement("evaluations", EvaluationRequest)
ANSWER = Measurement("answers", QueryRequest, {"select": SELECT})
PROFILE = Measurement("profiles", ProfileRequest)
DOORS = (
    *EVALUATION.doors(
        "Measure what a model is worth; it is charged now",
        "Price an evaluation; spends nothing",
        "What a model is worth, and the statement that says so",
        json_schemas.PLANNED_EVALUATION,
        json_schemas.EVALUATION,
        SCOPES,
    ),
    *ANSWER.doors(
        "Answer a query of counts, sums and means; it is charged now, or follows from what was released",
        "Price a query; spends nothing",
        "The table that a query was answered with, and the statement that it follows from",
        json_schemas.PLANNED_ANSWER,
        json_schemas.ANSWER,
    ),
    *PROFILE.doors(
        "Count how the rows of a dataset are spread; it is charged now",
        "Price a profile; spends nothing",
        "How the rows of a dataset are spread, and the statement that says so",
        json_schemas.PLANNED_PROFILE,
        json_schemas.PROFILE,
    ),
)

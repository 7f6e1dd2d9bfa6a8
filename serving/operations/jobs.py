"""Jobs: their price, their submission, how far each is. Each reserves or reads in the ledger; rows are opened by a
worker elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field, WithJsonSchema

from accountant.access.grants import ASKING
from accountant.access.tokens import SCOPES
from accountant.ledger.families.records import PUBLIC_STATES
from accountant.ledger.questions import about_admitted, about_job
from accountant.system.lazy_import import later
from serving.http.rights import JOBS, LISTED, NAMED
from serving.operations import Caller, operation
from serving.operations.answers import Body, Count, shape
from training.requests import JobRequest

if TYPE_CHECKING:
    from training.jobs import job as training_job
    from training.measuring.worth import evaluate
    from training.planning import job_views, plans, starts
else:  # who asks a server prices and fits nothing
    training_job, evaluate = later("training.jobs.job"), later("training.measuring.worth.evaluate")
    job_views, plans = later("training.planning.job_views"), later("training.planning.plans")
    starts = later("training.planning.starts")

MAX_LISTED = 200
JOB = "/v1/jobs/{job}"
Job: TypeAlias = Annotated[Body, shape("JOB")]
State = Annotated[str | None, WithJsonSchema({"type": "string", "enum": [*PUBLIC_STATES]})]


@operation("POST", "/v1/jobs", "train", on=NAMED, status=202, needs_prices=True, counts_refusals=True)
def submit_job(caller: Caller, body: JobRequest) -> Job:
    """Submit a job; it is charged now. A worker runs it."""
    require_training(caller, body)
    reserved = training_job.submit(
        caller.home, body, by=caller.principal, key=body.idempotency_key, promotes=may_promote(caller, body)
    )
    with caller.home.ledger.remembering(about_admitted(reserved.seq, reserved.dataset, caller.principal)):
        return show_job.function(caller, reserved.seq)


@operation("POST", "/v1/plans", "train", on=NAMED, is_repeatable=True, needs_prices=True, counts_refusals=True)
def plan_job(caller: Caller, body: JobRequest) -> Annotated[Body, shape("PLAN")]:
    """Price a job; spends nothing."""
    require_training(caller, body)
    plan = plans.plan(caller.home, body, caller.principal, may_promote(caller, body))
    if body.evaluate is None:  # else what reads rows would be loaded
        return plan.to_json()
    return plan.to_json() | evaluate.price_following(caller.home, plan.request, body.evaluate, caller.principal)


@operation("GET", "/v1/jobs", *JOBS, on=LISTED, errors=(404,))
def list_jobs(
    caller: Caller,
    dataset: Annotated[str | None, Field(description="only of this dataset")] = None,
    state: Annotated[State, Field(description="only in this state")] = None,
    after: Annotated[Count | None, Field(description="the `next` of the page before")] = None,
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED, description="jobs on a page; 50 if left out")] = 50,
) -> Annotated[Body, shape("JOBS")]:
    """List jobs, the newest first."""
    return job_views.jobs_to_json(caller.home, dataset, state, after, limit, caller.rights)


@operation("GET", JOB, *JOBS)
def show_job(caller: Caller, job: int) -> Job:
    """Show a job's state, progress and result."""
    with caller.home.ledger.log.sharing(about_job(job)):
        return job_views.job_to_json(caller.home, caller.home.ledger.job(job))


@operation("DELETE", JOB, *ASKING)
def cancel_job(caller: Caller, job: int) -> Job:
    """Cancel a job and give its reservation back. Once it has started, its budget is spent, and it goes on."""
    training_job.cancel(caller.home, job)
    return show_job.function(caller, job)


def require_training(caller: Caller, body: JobRequest) -> None:
    """Raise Forbidden unless the caller may train on the dataset, and see the model to begin from."""
    caller.rights.require("train", dataset=body.dataset)
    if body.public is not None and not starts.is_digest(body.public):
        caller.require_model(SCOPES, body.public)


def may_promote(caller: Caller, body: JobRequest) -> bool:
    """Return whether the caller may promote versions of the model that the job makes."""
    return caller.rights.may("promote", model=body.model or body.dataset)


OPERATIONS = (submit_job, list_jobs, show_job, cancel_job, plan_job)

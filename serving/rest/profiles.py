"""The doors to profiles of datasets: counted as a job, by a worker, and stated under a signature."""

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
from training.measuring.profile import profile, release
from training.planning import job_views
from training.requests import ProfileRequest
from training.requests.base import json_schema


async def submit_profile(request: Request) -> Response:
    """Plan and reserve a profile; 202 with the job at once. A worker counts. A known result costs nothing again."""
    profile_request = ProfileRequest.of(await json_body(request))
    rights = await require_dataset(request, ASKING, profile_request.dataset)
    job_json = await in_thread(reserve_profile, state(request).home, profile_request, rights.principal)
    return json_response(job_json, 202, {"Location": f"/v1/jobs/{job_json['job']}"})


def reserve_profile(home: Home, profile_request: ProfileRequest, by: str) -> dict[str, Any]:
    """Reserve and queue a profile; return the job's JSON. BudgetRefused, which is counted."""
    with counting_refusals(profile_request.dataset):
        reserved = job.submit(home, profile_request, by=by, key=profile_request.idempotency_key)
    return job_views.job_to_json(home, home.ledger.job(reserved.seq))


async def plan_profile(request: Request) -> Response:
    """Price a profile; spends nothing."""
    profile_request = ProfileRequest.of(await json_body(request))
    rights = await require_dataset(request, ASKING, profile_request.dataset)
    return json_response(await in_thread(price_profile, state(request).home, profile_request, rights.principal))


def price_profile(home: Home, profile_request: ProfileRequest, by: str) -> dict[str, Any]:
    """Return the plan of a profile, which spends nothing; raises as `submitted`."""
    with counting_refusals(profile_request.dataset):
        return profile.plan(home, profile_request, by).to_json()


async def show_profile(request: Request) -> Response:
    """Return a finished profile: figures, counts, and what verifies them. 404 where there is none."""
    known_query(request)
    home, seq = state(request).home, job_number(request)
    envelope, proof, statement = await in_thread(release.profile_of, home, seq)
    with hide_name(access(request), seq):
        await require_dataset(request, READS, statement.form.rows.dataset)
    plain = release.profile_to_json(seq, statement)
    return json_response({**plain, "envelope": orjson.Fragment(envelope), "proof": proof.decode()})


async def list_profiles(request: Request) -> Response:
    """Return the profiles of a dataset, the newest first."""
    known_query(request)
    home, name = state(request).home, request.path_params["name"]
    await in_thread(home.ledger.dataset, name)
    return json_response({"profiles": await in_thread(release.profiles_of, home, name)})


ASKED = json_schema(ProfileRequest)
DOORS = (
    Door(
        "POST",
        "/v1/profiles",
        ASKING,
        submit_profile,
        "Count how the rows of a dataset are spread; it is charged now",
        202,
        ASKED,
        json_schemas.JOB,
        on=NAMED,
    ),
    Door(
        "POST",
        "/v1/plans/profiles",
        ASKING,
        plan_profile,
        "Price a profile; spends nothing",
        takes=ASKED,
        gives=json_schemas.PLANNED,
        on=NAMED,
    ),
    Door(
        "GET",
        "/v1/profiles/{job}",
        READS,
        show_profile,
        "How the rows of a dataset are spread, and the statement that says so",
        gives=json_schemas.PROFILE,
        on=NAMED,
    ),
    Door(
        "GET",
        "/v1/datasets/{name}/profiles",
        READS,
        list_profiles,
        "The profiles of a dataset, the newest first",
        gives=json_schemas.PROFILES,
    ),
)

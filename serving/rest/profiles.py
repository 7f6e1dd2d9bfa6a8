"""The doors to profiles of datasets: counted as a job, by a worker, and stated under a signature."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING
from accountant.home import Home
from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError
from serving.http.rights import NAMED, READS, hide_name
from serving.http.routes import Door, access, in_thread, job_number, require_dataset, state
from serving.rest import json_schemas
from serving.rest.jobs import counting_refusals
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_body, known_query, query_int, query_text
from training.jobs import job
from training.measuring.profile import profile, release
from training.planning import job_views
from training.requests import ProfileRequest
from training.requests.base import json_schema

synthetic_rows = later("training.measuring.profile.synthetic_rows")
SUFFIXES = {"parquet": "application/vnd.apache.parquet", "csv": "text/csv"}
MOST_SENT = 200_000  # synthetic rows in one answer


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


async def show_synthetic(request: Request) -> Response:
    """Return synthetic rows that follow from a finished profile, as a file: free."""
    known_query(request, "rows", "seed", "format")
    home, seq = state(request).home, job_number(request)
    suffix = query_text(request, "format") or "parquet"
    if suffix not in SUFFIXES:
        raise InputError(f"format={suffix[:40]!r}: must be parquet or csv")
    rows, seed = query_int(request, "rows", 0, 1, MOST_SENT) or None, query_int(request, "seed", 0)
    _, _, statement = await in_thread(release.profile_of, home, seq)
    dataset = statement.form.rows.dataset
    with hide_name(access(request), seq):
        await require_dataset(request, READS, dataset)
    raw = await in_thread(synthetic_file, home, seq, suffix, rows, seed, dataset)
    name = f'attachment; filename="{dataset}.synthetic.{suffix}"'
    return Response(raw, media_type=SUFFIXES[suffix], headers={"Content-Disposition": name})


def synthetic_file(home: Home, seq: int, suffix: str, rows: int | None, seed: int, dataset: str) -> bytes:
    """Return the bytes of a file of synthetic rows."""
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{dataset}.synthetic.{suffix}")
        synthetic_rows.from_profile(home, seq, path, rows, seed, dataset, MOST_SENT)
        return path.read_bytes()


async def list_profiles(request: Request) -> Response:
    """Return the profiles of a dataset, the newest first."""
    known_query(request)
    home, name = state(request).home, request.path_params["name"]
    await in_thread(home.ledger.dataset, name)
    return json_response({"profiles": await in_thread(release.profiles_of, home, name)})


ASKED = json_schema(ProfileRequest)
FILE = {"type": "string", "format": "binary"}
ROWS: dict[str, dict[str, Any]] = {
    "rows": {"type": "integer", "minimum": 1, "maximum": MOST_SENT, "description": "as many as were counted"},
    "seed": {"type": "integer", "minimum": 0, "description": "the same gives the same rows; 0 when left out"},
    "format": {"enum": [*SUFFIXES], "description": "parquet when left out"},
}
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
        "/v1/profiles/{job}/synthetic",
        READS,
        show_synthetic,
        "Synthetic rows that follow from a profile, as a file; free",
        media=SUFFIXES["parquet"],
        gives=FILE,
        also={SUFFIXES["csv"]: FILE},
        query=ROWS,
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

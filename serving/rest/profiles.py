"""The doors to what finished profiles give: synthetic rows, and their list."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.certificates.profile import PROFILE
from accountant.home import Home
from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError
from serving.http.rights import NAMED, READS, hide_name
from serving.http.routes import Door, access, in_snapshot, in_thread, job_number, require_dataset, state
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import known_query, query_int, query_text
from training.measuring.profile import release

synthetic_rows = later("training.measuring.profile.synthetic_rows")
SUFFIXES = {"parquet": "application/vnd.apache.parquet", "csv": "text/csv"}
MOST_SENT = 200_000  # synthetic rows in one answer


async def show_synthetic(request: Request) -> Response:
    """Return synthetic rows that follow from a finished profile, as a file: free."""
    known_query(request, "rows", "seed", "format")
    home, seq = state(request).home, job_number(request)
    suffix = query_text(request, "format") or "parquet"
    if suffix not in SUFFIXES:
        raise InputError(f"format={suffix[:40]!r}: must be parquet or csv")
    rows, seed = query_int(request, "rows", 0, 1, MOST_SENT) or None, query_int(request, "seed", 0)
    _, _, statement = await in_thread(PROFILE.open, home, seq)
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

    def read() -> list[dict[str, Any]]:
        home.ledger.dataset(name)  # which must be there
        return release.profiles_of(home, name)

    return json_response({"profiles": await in_snapshot(request, read)})


FILE = {"type": "string", "format": "binary"}
ROWS: dict[str, dict[str, Any]] = {
    "rows": {"type": "integer", "minimum": 1, "maximum": MOST_SENT, "description": "as many as were counted"},
    "seed": {"type": "integer", "minimum": 0, "description": "the same gives the same rows; 0 when left out"},
    "format": {"enum": [*SUFFIXES], "description": "parquet when left out"},
}
DOORS = (
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

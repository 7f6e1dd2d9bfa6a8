"""The doors to a verifier's files: those of a model, and the keys that this ledger signs with."""

from __future__ import annotations

import io
import zipfile

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.tokens import SCOPES
from models.onnx.portable import portable_files
from models.store.bundle import files_of
from serving.http.rights import NOTHING
from serving.http.routes import Door, in_thread, state
from serving.process.registry import Served
from serving.rest import json_schemas
from serving.rest.models import served_model
from serving.wire.request_bodies import known_query, query_flag

ZIP = "application/zip"


def content(served: Served) -> dict[str, bytes]:
    """Return the files of a verified model by their names."""
    return files_of(served.verified.travelling)


def zip_files(served: Served, portable: bool = False) -> bytes:
    """Return a model's files as a zip of one folder, with those of a portable export if asked. The same model gives the
    same bytes: no time is stored.
    """
    verified, packed = served.verified, io.BytesIO()
    more = portable_files(verified.ensemble, verified.travelling.onnx) if portable else {}
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in {**content(served), **more}.items():
            archive.writestr(zipfile.ZipInfo(f"{served.name}-{served.version}/{name}"), raw, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


async def bundle(request: Request) -> Response:
    """Return the folder of a model as a zip file: unpacked, it is what `dpserve verify` takes."""
    served = await served_model(request, more=("portable",))
    return Response(await in_thread(zip_files, served, query_flag(request, "portable")), media_type=ZIP)


async def trust(request: Request) -> Response:
    """Return `trust.json`. Who takes it from here trusts this server once; who compares it with a copy that came
    another way need not.
    """
    known_query(request)
    return Response(state(request).home.trust.to_json(), media_type="application/json")


TRUST = json_schemas.record(
    {
        "format": json_schemas.TEXT, "origin": json_schemas.TEXT,
        "issuers": json_schemas.array(json_schemas.ANY_OBJECT),
        "logs": json_schemas.array(json_schemas.ANY_OBJECT), "revoked": json_schemas.array(json_schemas.COUNT),
    },
    says="what a verifier pins",
)  # fmt: skip
PORTABLE = {"type": "boolean", "description": "true: with portable.onnx, in plain operators, and portable.json"}
DOORS = (
    Door(
        "GET", "/v1/models/{name}/bundle", SCOPES, bundle, "All files of a model", media=ZIP,
        gives={"type": "string", "format": "binary"}, query={"portable": PORTABLE},
    ),
    Door("GET", "/v1/trust", SCOPES, trust, "The keys that this ledger signs with", gives=TRUST, on=NOTHING),
)  # fmt: skip

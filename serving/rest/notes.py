"""The doors to notes and tags of datasets and models: who may see a thing reads its note, and a steward, or who may
promote, writes it.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.tokens import SCOPES
from accountant.home.notes import KINDS, MAX_TAGS, MAX_TEXT
from dpserve_verify.errors import InputError
from models.store.noted import change_note, read_note
from serving.http.rights import READS
from serving.http.routes import Door, in_thread, state
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_fields, known_query


async def show_note(request: Request) -> Response:
    """Return the note; an empty one where nobody wrote any."""
    known_query(request)
    return json_response(await in_thread(read_note, state(request).home, *_thing(request)))


async def write_note(request: Request) -> Response:
    """Put another text or other tags in the place of those that are there."""
    known_query(request)
    body = await json_fields(request, {}, {"text": (str,), "tags": (list,)})
    text, tags = body.get("text"), body.get("tags")
    if tags is not None and not all(isinstance(tag, str) for tag in tags):
        raise InputError("tags: must be a list of texts")
    return json_response(await in_thread(change_note, state(request).home, *_thing(request), text, tags))


def _thing(request: Request) -> tuple[str, str]:
    """Return what the path names: "dataset" or "model", and its name."""
    return request.url.path.split("/")[2].removesuffix("s"), request.path_params["name"]


NOTE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "text": {"type": "string", "maxLength": MAX_TEXT, "description": "left out: as it is"},
        "tags": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 40},
            "maxItems": MAX_TAGS,
            "description": "left out: as they are",
        },
    },
}
WHO = {"dataset": (READS, ("steward",)), "model": (SCOPES, ("promote",))}
DOORS = tuple(
    door
    for kind in KINDS
    for shape in [
        json_schemas.record(
            {kind: json_schemas.TEXT, "text": json_schemas.TEXT, "tags": json_schemas.array(json_schemas.TEXT)}
        )
    ]
    for path in [f"/v1/{kind}s/{{name}}/note"]
    for door in (
        Door("GET", path, WHO[kind][0], show_note, f"The note and the tags of a {kind}", gives=shape),
        Door("PUT", path, WHO[kind][1], write_note, f"Write a {kind}'s note or tags", takes=NOTE, gives=shape),
    )
)

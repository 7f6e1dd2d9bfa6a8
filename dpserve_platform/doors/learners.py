"""The doors to learners of others: what is admitted, its text and the report of its check, admission and removal."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import Access
from accountant.home import Home
from accountant.ledger import learner_admissions
from accountant.ledger.families.records import Why
from dpserve_platform.outside import admitted
from dpserve_platform.outside.sources import LONGEST_TEXT
from dpserve_platform.replay import admission_checks
from dpserve_platform.replay.admission_checks import AdmissionRequest
from dpserve_verify.errors import InputError
from serving.http.rights import LISTED, READS
from serving.http.routes import Door, access, in_thread, state
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import check_fields, json_fields, known_query, read_body, strict_json


async def list_learners(request: Request) -> Response:
    """Return the learners of others that are admitted, and the checks of those that were asked for."""
    known_query(request)
    home, rights = state(request).home, access(request)
    learners = await in_thread(seen_learners, home, rights)
    checks = await in_thread(admission_checks.checks, home) if rights.may("steward") else []
    return json_response({"learners": learners, "checks": checks})


def seen_learners(home: Home, rights: Access) -> list[dict[str, Any]]:
    """Return what is admitted for datasets that the caller may see; other datasets of these are left out."""
    seen = []
    for each in admitted.listed(home):
        named = each["datasets"]
        names = [name for name in named or () if rights.may(*READS, dataset=name)]
        if named is None or names:
            seen.append({**each, "datasets": None if named is None else names})
    return seen


async def show_learner(request: Request) -> Response:
    """Return one that is admitted, with its text and the report of its check."""
    known_query(request)
    return json_response(await in_thread(admitted.shown, state(request).home, request.path_params["learner"]))


async def admit(request: Request) -> Response:
    """Begin the check of a learner; it is admitted where the check refuses nothing. 202 at once."""
    known_query(request)
    body = check_fields(strict_json(await read_body(request, 4 * LONGEST_TEXT)), NEEDED, MORE, LONGEST_TEXT)
    names = body.get("datasets") or []
    if not all(isinstance(name, str) for name in names):
        raise InputError("datasets: must be a list of names")
    more = {key: body[key] for key in ("neighbours", "only") if body.get(key) is not None}
    about = (body["name"], body["text"], body["class"], body["author"], body["reason"])
    asked = AdmissionRequest(*about, datasets=tuple(names), **more)
    by = access(request).principal
    return json_response(await in_thread(admission_checks.ask, state(request).home, asked, by), 202)


async def remove(request: Request) -> Response:
    """End an admission: no further job runs it."""
    known_query(request)
    body = await json_fields(request, {"reason": (str,)})
    why = Why(access(request).principal, body["reason"])
    name = request.path_params["learner"]
    gone = await in_thread(learner_admissions.remove, state(request).home.ledger, name, why)
    return json_response({"name": gone.value["name"], "admitted": gone.seq})


NEEDED = dict.fromkeys(("name", "text", "class", "author", "reason"), (str,))
MORE: dict[str, tuple[type, ...]] = {"neighbours": (int,), "datasets": (list,), "only": (bool,)}
LINE = {
    "entry": json_schemas.COUNT,
    **dict.fromkeys(("name", "digest", "class", "author"), json_schemas.TEXT),
    "neighbours": json_schemas.COUNT,
    **dict.fromkeys(("by", "reason", "time"), json_schemas.TEXT),
    "datasets": {
        **json_schemas.maybe(json_schemas.array(json_schemas.TEXT)),
        "description": "for whose jobs alone it may run; null: for all",
    },
    "vouched": {
        **json_schemas.maybe(json_schemas.TEXT),
        "description": "of a program that reads rows: what it keeps by the word of who admitted it",
    },
    "jobs": {**json_schemas.COUNT, "description": "how many named it"},
}
CHECK = json_schemas.record(
    {
        "name": json_schemas.TEXT,
        "state": {"enum": [admission_checks.CHECKING, admission_checks.REFUSED]},
        "by": json_schemas.TEXT,
        "at": json_schemas.TEXT,
        "problem": {**json_schemas.maybe(json_schemas.TEXT), "description": "why it is not admitted"},
    }
)
REASON = {"type": "string", "minLength": 1, "maxLength": 500, "description": "stays in the ledger permanently"}
ADMIT = {
    "type": "object",
    "additionalProperties": False,
    "required": list(NEEDED),
    "properties": {
        "name": {"type": "string", "description": "what jobs call it: parameters.code"},
        "text": {"type": "string", "maxLength": LONGEST_TEXT, "description": "the learner's file"},
        "class": {"type": "string", "description": "the class in it"},
        "author": {"type": "string", "description": "who wrote it"},
        "reason": REASON,
        "neighbours": {"type": "integer", "minimum": 1, "maximum": admission_checks.MOST_NEIGHBOURS},
        "datasets": {"type": "array", "items": {"type": "string"}, "description": "whose schemas it is checked on too"},
        "only": {"type": "boolean", "description": "admitted for jobs on these datasets alone"},
    },
}
REMOVE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["reason"],
    "properties": {"reason": REASON},
}
STEWARD = ("steward",)
PATH = "/v1/learners"
DOORS = (
    Door(
        "GET", PATH, READS, list_learners, "Learners of others that are admitted", on=LISTED,
        gives=json_schemas.record(
            {"learners": json_schemas.array(json_schemas.record(LINE)), "checks": json_schemas.array(CHECK)}
        ),
    ),
    Door("POST", PATH, STEWARD, admit, "Check a learner of others, and admit it", 202, takes=ADMIT, gives=CHECK),
    Door(
        "GET", f"{PATH}/{{learner}}", ("steward", "audit"), show_learner, "A learner of others: its text and its check",
        gives=json_schemas.record({**LINE, "report": json_schemas.ANY_OBJECT, "text": json_schemas.TEXT}),
    ),
    Door(
        "POST", f"{PATH}/{{learner}}/remove", STEWARD, remove, "End an admission: no further job runs it",
        takes=REMOVE,
        gives=json_schemas.record({"name": json_schemas.TEXT, "admitted": json_schemas.COUNT}),
    ),
)  # fmt: skip

"""The doors by which a steward brings a file, says what its columns are, and registers it. What is said of its rows
reaches who brought it and nobody else; rows are read by another process (`training.datasets.drafts.steps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dpserve_verify.errors import InputError
from serving.http.routes import Door, access, in_thread, state, with_prices
from serving.process.config.settings import ServerSettings
from serving.process.prices import run_for_request
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import (
    check_fields,
    json_body,
    json_fields,
    known_query,
    query_int,
    read_body,
    strict_json,
)
from training.datasets.drafts.columns import MARKS, ROLES, ColumnGroup, require_same_unit
from training.datasets.drafts.drafts import AT_WORK, STATES, Draft, Drafts
from training.datasets.drafts.proposal import SchemaProposal, checked_text, text_of_answers
from training.requests.base import json_schema
from training.requests.registration import RegistrationRequest
from training.rows.schema.schema import MAX_BYTES

PART_BYTES = 4 << 20
BYTES = b"application/octet-stream"
STEWARD = ("steward",)
PATH = "/v1/drafts"
ANSWER = {"columns": (list,), "role": (str,)}
ANSWER_MORE = dict.fromkeys(("public", "type", *MARKS), (str,))


async def list_drafts(request: Request) -> Response:
    """Return the caller's drafts."""
    known_query(request)
    store, by = _store(request), access(request).principal
    drafts = await in_thread(store.all)
    return json_response({"drafts": [draft_to_json(draft) for draft in drafts if draft.by == by]})


async def begin_draft(request: Request) -> Response:
    """Announce a file that is to come, or name one on the server."""
    known_query(request)
    body = await json_fields(request, {}, {"file": (str,), "bytes": (int,), "path": (str,), "into": (str,)})
    if body.get("into"):
        await in_thread(state(request).home.ledger.dataset, body["into"])
    return json_response(
        draft_to_json(await in_thread(new_draft, _store(request), access(request).principal, body)), 201
    )


def new_draft(store: Drafts, by: str, body: Mapping[str, Any]) -> Draft:
    """Begin a draft of `file` and `bytes`, whose rows may be for a dataset (`into`), or of `path`."""
    names, settings = {name for name, value in body.items() if value is not None}, ServerSettings()
    if names == {"path"}:
        return store.begin_at(by, body["path"], settings.folders)
    if names - {"into"} != {"file", "bytes"}:
        raise InputError("draft: give `file` and `bytes`, or `path`")
    return store.begin(by, body["file"], body["bytes"], settings.upload_bytes, body.get("into") or "")


async def receive_part(request: Request) -> Response:
    """Receive a part of the file, of at most PART_BYTES; `received` says where the next one begins."""
    known_query(request, "at")
    at = query_int(request, "at", 0)
    store = _store(request)
    draft = await in_thread(find_draft, request, store)
    part = await read_body(request, PART_BYTES, BYTES)
    return json_response(draft_to_json(await in_thread(store.append, draft, at, part)))


async def show_draft(request: Request) -> Response:
    """Return a draft, with what is proposed of its columns, and its problems."""
    known_query(request)
    return json_response(draft_to_json(await in_thread(find_draft, request, _store(request))))


async def check_draft(request: Request) -> Response:
    """Say what its columns are, by answers or by a whole schema, and have every row checked."""
    known_query(request)
    body = strict_json(await read_body(request, 2 * MAX_BYTES))
    body = check_fields(body, {}, {"schema": (str,), "answers": (list,), "rows": (int,)}, MAX_BYTES)
    return json_response(draft_to_json(await with_prices(request, start_check, request, _store(request), body)), 202)


def start_check(request: Request, store: Drafts, body: Mapping[str, Any], seen: str = "") -> Draft:
    """Start the check of a draft by `schema`, or by `answers` and `rows`, which are read in a process beside this one;
    return the draft.
    """
    draft = find_draft(request, store)
    if body.get("schema") is not None:
        return store.check(draft, run_for_request(checked_text, str(body["schema"])), [], seen)
    if draft.proposal is None:
        raise InputError(f"draft: is {draft.state}; its columns are not known yet")
    answers = [check_fields(answer, ANSWER, ANSWER_MORE, MAX_BYTES) for answer in body.get("answers") or ()]
    said = [{name: value for name, value in answer.items() if value is not None} for answer in answers]
    text = run_for_request(text_of_answers, draft.proposal, said, body.get("rows") or 0)
    return store.check(draft, text, answers, seen)


async def register_draft(request: Request) -> Response:
    """Register it, permanently: with a total, or in the family of others."""
    known_query(request)
    body = await json_body(request)
    return json_response(draft_to_json(await in_thread(start_registration, request, _store(request), body)), 202)


def start_registration(request: Request, store: Drafts, body: Any, seen: str = "") -> Draft:
    """Start the registration of a draft; return the draft."""
    draft = find_draft(request, store)
    asked = RegistrationRequest.of(body)
    asked.require_answers()
    asked.check()
    require_same_unit(draft.answers, asked.unit)
    for member in asked.family:
        access(request).require("steward", dataset=state(request).home.ledger.member(member))
    return store.register(draft, asked.to_json(), seen)


async def delete_draft(request: Request) -> Response:
    """Delete it, with its rows."""
    known_query(request)
    store = _store(request)
    draft = await in_thread(find_draft, request, store)
    await in_thread(store.delete, draft)
    return json_response({"deleted": draft.id})


def find_draft(request: Request, store: Drafts) -> Draft:
    """Return the caller's draft that the path names. UnknownName."""
    return store.get(request.path_params["draft"], access(request).principal)


def draft_to_json(draft: Draft) -> dict[str, Any]:
    """Return a draft's JSON, for its steward."""
    return {
        "draft": draft.id, "file": draft.name, "state": draft.state, "bytes": draft.size, "received": draft.received,
        "columns": [group.to_json() for group in groups_of(draft)],
        "people": list((draft.proposal or {}).get("people", ())),
        "people_words": list((draft.proposal or {}).get("people_words", ())),
        "problems": list(draft.problems), "cells": list(draft.cells), "rows": draft.rows,
        "questions": list(draft.questions),
        "error": None if draft.state in AT_WORK else draft.refusal,
        "dataset": (draft.asked or {}).get("name") if draft.state == "registered" else None,
    }  # fmt: skip


def groups_of(draft: Draft) -> list[ColumnGroup]:
    """Return the groups of columns that a person answers for; none before the file was looked at."""
    return [] if draft.proposal is None else SchemaProposal.from_json(draft.proposal).groups()


def _store(request: Request) -> Drafts:
    return Drafts(state(request).home.path)


PROBLEM = json_schemas.record(
    {
        "column": json_schemas.TEXT, "found": json_schemas.TEXT, "remedy": json_schemas.TEXT,
        "remedies": json_schemas.array(json_schemas.ANY_OBJECT),
        "rows": json_schemas.array(json_schemas.COUNT), "count": json_schemas.COUNT,
    },
    says="`rows`: the first ones, as a spreadsheet counts; `found`: what stands there, in kind; `remedies`: steps, of "
    "which one is done, with the keys of the schema and their values",
)  # fmt: skip
LINE = json_schemas.record(
    {
        "columns": json_schemas.array(json_schemas.TEXT), "type": json_schemas.TEXT, "written": json_schemas.TEXT,
        "role": {"enum": list(ROLES)}, "wants": json_schemas.TEXT, "public": json_schemas.TEXT,
        "choices": json_schemas.array(json_schemas.TEXT), "named": json_schemas.TEXT,
        "marks": json_schemas.ANY_OBJECT, "cells": json_schemas.array(json_schemas.TEXT),
        "question": json_schemas.maybe(json_schemas.ANY_OBJECT),
    },
    says="columns of one type whose names differ by numbers alone, and what is proposed of them; `wants`: what a "
    "person must say; `cells`: the first ones, and `question`: some that may be read in several ways, with what they "
    "are by each of its `readings`, for who brought the file",
)  # fmt: skip
CELLS = json_schemas.record(
    {
        "column": json_schemas.TEXT,
        **dict.fromkeys(("fits", "clipped", "other", "missing", "refused", "like_listed"), json_schemas.REAL),
    },
    says="shares of the column's cells: `clipped` lie outside of the range, `other` are not listed, of which "
    "`like_listed` differ from a listed one in form alone, `refused` cannot be read",
)
DRAFT = json_schemas.record(
    {
        "draft": json_schemas.TEXT, "file": json_schemas.TEXT, "state": {"enum": list(STATES)},
        "bytes": json_schemas.COUNT, "received": json_schemas.COUNT, "columns": json_schemas.array(LINE),
        "people": json_schemas.array(json_schemas.TEXT), "people_words": json_schemas.array(json_schemas.TEXT),
        "problems": json_schemas.array(PROBLEM), "cells": json_schemas.array(CELLS),
        "rows": json_schemas.COUNT, "questions": json_schemas.array(json_schemas.TEXT),
        "error": json_schemas.maybe(json_schemas.ANY_OBJECT),
        "dataset": json_schemas.maybe(json_schemas.TEXT),
    },
    says="`error`: why the last step was refused; `rows`: how many were read; `questions`: what must be meant "
    "before they are registered (`as_read`); `people`: columns that may name a person, the likeliest first, with what "
    "tells them apart in `people_words`, for who brought the file",
)  # fmt: skip


def _takes(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": dict(properties)}


_TEXTS = {"type": "array", "items": {"type": "string"}}
BEGIN = _takes(
    {
        "file": {"type": "string", "minLength": 1, "maxLength": 200, "description": "its name, with its ending"},
        "bytes": {"type": "integer", "minimum": 1},
        "into": {"type": "string", "description": "a dataset that the rows are to be appended to, on the draft's page"},
        "path": {"type": "string", "description": "in their place: a file on the server, below DPSERVE_DATA_FOLDERS"},
    }
)
ANSWERS = _takes(
    {
        "columns": _TEXTS, "role": {"enum": list(ROLES)},
        "public": {"type": "string", "description": "LOW .. HIGH, FIRST .. LAST, or values with commas"},
        "type": {"type": "string"},
        **{name: {"type": "string", "description": words} for name, words in MARKS.items()},
    },
    "columns", "role",
)  # fmt: skip
CHECK = _takes(
    {
        "schema": {"type": "string", "description": "the whole schema, YAML; or in its place"},
        "answers": {"type": "array", "items": ANSWERS},
        "rows": {"type": "integer", "minimum": 1, "description": "about how many"},
    }
)  # fmt: skip
ASK = json_schema(RegistrationRequest)
AT: dict[str, Any] = {"at": {"type": "integer", "minimum": 0, "description": "of which byte the part is the first"}}
PART = {BYTES.decode(): {"type": "string", "format": "binary", "maxLength": PART_BYTES}}
ONE = f"{PATH}/{{draft}}"
DOORS = (
    Door("GET", PATH, STEWARD, list_drafts, "Your drafts: files on their way to be registered",
         gives=json_schemas.record({"drafts": json_schemas.array(DRAFT)})),
    Door("POST", PATH, STEWARD, begin_draft, "Begin to register a file", 201, takes=BEGIN, gives=DRAFT),
    Door("GET", ONE, STEWARD, show_draft, "A draft: what is proposed of its columns, and its problems", gives=DRAFT),
    Door("PUT", f"{ONE}/rows", STEWARD, receive_part, "Send a part of its file", gives=DRAFT, query=AT, also=PART),
    Door("POST", f"{ONE}/check", STEWARD, check_draft, "Say what its columns are; every row is checked", 202,
         takes=CHECK, gives=DRAFT),
    Door("POST", f"{ONE}/register", STEWARD, register_draft, "Register it, permanently", 202, takes=ASK, gives=DRAFT,
         errors=(422,)),
    Door("DELETE", ONE, STEWARD, delete_draft, "Delete a draft and its rows",
         gives=json_schemas.record({"deleted": json_schemas.TEXT})),
)  # fmt: skip

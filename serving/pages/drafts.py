"""Pages by which a steward registers a file: it comes in parts, its columns stand in a table, every problem is named,
and then the total is set, permanently. What is said of its rows is on the pages of who brought it and nowhere else.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dpserve_verify.certificates.plain_words import meaning
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.privacy.budget import Budget, Relation, parse_relation
from serving.http.routes import Door, access, in_thread, state
from serving.pages.datasets import every_dataset
from serving.pages.parts.ui import FORM, form_fields, page, parse_form, see_other
from serving.process.config.settings import ServerSettings
from serving.rest.drafts import begun, checked, drafted, groups_of, registering
from serving.wire.errors import status_of
from serving.wire.request_bodies import known_query, query_text, read_body
from training.datasets.drafts.columns import ROLES, ColumnGroup
from training.datasets.drafts.drafts import AT_WORK, READY, Draft, Drafts
from training.rows.schema.schema import KINDS
from training.rows.schema.schema_text import FILL_IN

HTML = "text/html"
COLUMN_BYTES, COLUMN_FIELDS = 1 << 21, 70_000
PERSON = ("person_epsilon", "person_delta")
IDS = ("one_person", "distinct_ids")  # what is asked about ids that look odd
ASKED = (
    "name",
    "unit",
    "contributions",
    "family",
    "epsilon",
    "delta",
    "relation",
    "holdout",
    "reason",
    "made_up",
    *PERSON,
    *IDS,
)
USUAL = {"contributions": "1", "relation": "add-remove"}  # what holds permanently is answered by whoever registers


async def drafts(request: Request) -> Response:
    """Return the page of the caller's drafts, with the form that begins one."""
    known_query(request)
    return await _list(request)


async def _list(request: Request, problem: DpserveError | None = None) -> Response:
    by, settings = access(request).principal, ServerSettings()
    found = [each for each in await in_thread(_store(request).all) if each.by == by]
    return page(
        request, "drafts.html", status=200 if problem is None else status_of(problem), drafts=found[::-1],
        folders=[str(each) for each in settings.folders], most=settings.upload_bytes,
        problem="" if problem is None else problem.message,
    )  # fmt: skip


async def begin_at(request: Request) -> Response:
    """Take a file that lies on the server."""
    fields = await form_fields(request, "path")
    try:
        draft = await in_thread(begun, _store(request), access(request).principal, {"path": fields["path"].strip()})
    except InputError as error:
        return await _list(request, error)
    return see_other(f"/ui/drafts/{draft.id}")


async def draft(request: Request) -> Response:
    """Return the page of a draft, as far as it has come."""
    known_query(request)
    return await _page(request, await in_thread(drafted, request, _store(request)))


async def _page(
    request: Request, found: Draft, problem: DpserveError | None = None, typed: dict[str, str] | None = None
) -> Response:
    groups = groups_of(found)
    said = {tuple(each["columns"]): each for each in found.answers}
    known = [each.registration.name for each in await in_thread(every_dataset, state(request).home)]
    told = None if problem is None else problem.message
    if problem is None and found.refusal and found.state not in AT_WORK:
        told = str(found.refusal["message"])
    asked = {
        **USUAL,
        "name": found.name.partition(".")[0].lower()[:64],
        **{key: str(value) for key, value in (found.asked or {}).items()},
    }
    text = await in_thread(_store(request).schema_text, found)
    records = re.search(r"^records: (\d+)", text, re.MULTILINE)
    roles = [name for group in groups if _said(group, said)["role"] == "unit" for name in group.columns]
    context: dict[str, Any] = {
        "draft": found,
        "working": found.state in AT_WORK,
        "table": [(at, group, _said(group, said)) for at, group in enumerate(groups)],
        "roles": ROLES,
        "kinds": KINDS,
        "fill_in": FILL_IN,
        "text": text,
        "records": (typed or {}).get("records") or (records[1] if records else ""),
        "problem": told,
        "known": known,
        "relations": [each.value for each in Relation],
        "columns": [name for group in groups for name in group.columns],
        "form": {**dict.fromkeys(ASKED, ""), **asked, **(typed or {})},
        "people": list(dict.fromkeys([*roles, *(found.proposal or {}).get("people", ())])),
        "targets": [name for group in groups if _said(group, said)["role"] == "target" for name in group.columns],
        "ready": found.state == READY,
    }
    registered = (found.asked or {}).get("name") if found.state == "registered" else None
    if registered:
        total = await in_thread(state(request).home.ledger.dataset, registered)
        context["first"] = f"{(Decimal(total.budget.epsilon) / 10).normalize():f}"
        context["targets"] = total.registration.targets
    return page(request, "draft.html", status=200 if problem is None else status_of(problem), **context)


def _said(group: ColumnGroup, said: dict[tuple[str, ...], dict[str, Any]]) -> dict[str, str]:
    """Return the values of a group's controls."""
    known = said.get(group.columns, {})
    usual = {"role": group.role, "type": group.type, "public": group.public, "written": ""}
    return {
        name: known.get(name) or (value if name in ("role", "type") or not known else "")
        for name, value in usual.items()
    }


async def meaning_of(request: Request) -> Response:
    """Return a part of the page: what the total promises."""
    known_query(request, "epsilon", "delta", "relation", "unit", *PERSON)
    try:
        total = Budget.of(query_text(request, "epsilon") or "", query_text(request, "delta") or "")
        relation = parse_relation(query_text(request, "relation") or Relation.ADD_REMOVE.value)
        typed = [query_text(request, name) or "" for name in PERSON]
        person = Budget.of(*typed) if all(typed) else None
        said = meaning(total, relation.value, query_text(request, "unit") or None, person)
    except InputError as error:
        said = error.message
    return page(request, "_meaning.html", said=said)


async def columns(request: Request) -> Response:
    """Declare what the columns are; every row is checked."""
    fields = dict(parse_form(await read_body(request, COLUMN_BYTES, FORM), COLUMN_FIELDS))
    found = await in_thread(drafted, request, _store(request))
    answers = []
    for at, group in enumerate(groups_of(found)):
        said = {name: fields.get(f"{name}.{at}", "").strip() for name in ("role", "type", "public", "written")}
        kind = "" if said["type"] in ("", group.type) else said["type"]
        answers.append({**said, "columns": list(group.columns), "type": kind, "role": said["role"] or group.role})
    number = fields.get("records", "").strip()
    body = {"answers": answers, "rows": int(number) if number.isascii() and number.isdigit() else 0}
    return await _checked(request, found, body)


async def schema(request: Request) -> Response:
    """Declare the columns by the schema itself; every row is checked."""
    fields = dict(parse_form(await read_body(request, COLUMN_BYTES, FORM)))
    found = await in_thread(drafted, request, _store(request))
    return await _checked(request, found, {"schema": fields.get("schema", "").replace("\r\n", "\n")})


async def _checked(request: Request, found: Draft, body: dict[str, Any]) -> Response:
    try:
        await in_thread(checked, request, _store(request), body)
    except InputError as error:
        shown = Draft(**{**vars(found), "answers": body.get("answers", found.answers)})
        return await _page(request, shown, error, {"records": str(body.get("rows") or "")})
    return see_other(f"/ui/drafts/{found.id}")


async def register(request: Request) -> Response:
    """Register it."""
    typed = {name: value.strip() for name, value in (await form_fields(request, *ASKED)).items()}
    found = await in_thread(drafted, request, _store(request))
    family = typed["family"]
    body: dict[str, Any] = {name: typed[name] for name in ("name", "unit", "relation", *PERSON) if typed[name]}
    if not family:
        body |= {name: typed[name] for name in ("epsilon", "delta", "holdout") if typed[name]}
    body |= {"family": [family] if family else [], "made_up": bool(typed["made_up"])}
    body |= {name: True for name in IDS if typed[name]}
    body |= {"new_people": bool(typed["reason"]), **({"reason": typed["reason"]} if typed["reason"] else {})}
    try:
        if not (typed["contributions"].isascii() and typed["contributions"].isdigit()):
            raise InputError("contributions: must be a whole number, 1 or more")
        body["contributions"] = int(typed["contributions"])
        await in_thread(registering, request, _store(request), {"name": "", **body})
    except DpserveError as error:
        return await _page(request, found, error, typed)
    return see_other(f"/ui/drafts/{found.id}")


async def delete(request: Request) -> Response:
    """Delete it, with its rows."""
    await form_fields(request)
    store = _store(request)
    await in_thread(store.delete, await in_thread(drafted, request, store))
    return see_other("/ui/drafts")


def _store(request: Request) -> Drafts:
    return Drafts(state(request).home.path)


STEWARD = ("steward",)
ONE = "/ui/drafts/{draft}"
DOORS = (
    Door("GET", "/ui/drafts", STEWARD, drafts, "Register a dataset", media=HTML, hidden=True),
    Door("POST", "/ui/drafts", STEWARD, begin_at, "Take a file of the server", 303, media=HTML, hidden=True),
    Door("GET", "/ui/drafts/meaning", STEWARD, meaning_of, "What a total means", media=HTML, hidden=True),
    Door("GET", ONE, STEWARD, draft, "A file on its way", media=HTML, hidden=True),
    Door("POST", f"{ONE}/columns", STEWARD, columns, "Say what its columns are", 303, media=HTML, hidden=True),
    Door("POST", f"{ONE}/schema", STEWARD, schema, "Give its schema", 303, media=HTML, hidden=True),
    Door("POST", f"{ONE}/register", STEWARD, register, "Register it", 303, media=HTML, hidden=True),
    Door("POST", f"{ONE}/delete", STEWARD, delete, "Delete it", 303, media=HTML, hidden=True),
)

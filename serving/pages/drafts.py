"""Pages by which a steward registers a file: it comes in parts, its columns stand in a table, every problem is named,
and then the total is set, permanently. What is said of its rows is on the pages of who brought it and nowhere else.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.errors import WrongState
from dpserve_verify.certificates.plain_words import meaning
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.formats.canonical import whole_number
from dpserve_verify.privacy.budget import Budget, Relation, parse_relation
from models.features.written import DELIMITERS, Form, list_encodings
from serving.http.routes import access, in_thread, page_door, state, with_prices
from serving.pages.datasets import every_dataset, offers
from serving.pages.parts.ui import FORM, form_fields, page, parse_form, see_other
from serving.process.config.settings import ServerSettings
from serving.rest.drafts import find_draft, groups_of, new_draft, start_check, start_registration
from serving.wire.request_bodies import known_query, query_text, read_body
from training.datasets.drafts.appending import require_records
from training.datasets.drafts.columns import MARKS, PATTERNS, ROLES, THOUSANDS, ColumnGroup, read_lines, write_lines
from training.datasets.drafts.drafts import AT_WORK, READY, Draft, Drafts
from training.rows.schema.schema import KINDS
from training.rows.schema.schema_text import FILL_IN

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
    "delta_outside",
    "relation",
    "holdout",
    "reason",
    "made_up",
    *PERSON,
    *IDS,
    "as_read",
)
LABELS = {
    "unit_mark": "unit beside the number", "written": "dates", "first_year": "first year of two digits",
    "true_words": "words for true", "false_words": "words for false", "missing_words": "words for missing",
    "outside": "most outside of the range", "other": "most values not listed",
}  # fmt: skip
APPENDED = ("records", "reason", "person_epsilon", "new_rows", "each_block", *IDS)
USUAL = {"contributions": "1", "relation": "add-remove"}  # what holds permanently is answered by whoever registers
_CUT = re.compile(r"\.(csv|tsv|txt|data)(\.gz|\.zst|\.zip)?$", re.IGNORECASE)  # files that are cut into cells


async def drafts(request: Request) -> Response:
    """Return the page of the caller's drafts, with the form that begins one."""
    known_query(request)
    return await _list(request)


async def _list(request: Request, problem: DpserveError | None = None) -> Response:
    by, settings = access(request).principal, ServerSettings()
    drafts = [draft for draft in await in_thread(_store(request).all) if draft.by == by]
    return page(
        request, "drafts.html", refusal=problem, drafts=drafts[::-1],
        folders=[str(folder) for folder in settings.folders], **offers(),
    )  # fmt: skip


async def begin_at(request: Request) -> Response:
    """Take a file that lies on the server."""
    fields = await form_fields(request, "path")
    try:
        draft = await in_thread(new_draft, _store(request), access(request).principal, {"path": fields["path"].strip()})
    except InputError as error:
        return await _list(request, error)
    return see_other(f"/ui/drafts/{draft.id}")


async def begin_sample(request: Request) -> Response:
    """Register the sample data."""
    await form_fields(request)
    draft = await in_thread(_store(request).begin_sample, access(request).principal)
    return see_other(f"/ui/drafts/{draft.id}")


async def draft(request: Request) -> Response:
    """Return the page of a draft, as far as it has come."""
    known_query(request)
    return await _page(request, await in_thread(find_draft, request, _store(request)))


async def _page(
    request: Request, draft: Draft, problem: DpserveError | None = None, typed: dict[str, str] | None = None
) -> Response:
    groups = groups_of(draft)
    answers = {tuple(row["columns"]): row for row in draft.answers}
    dataset_names = [row.registration.name for row in await in_thread(every_dataset, state(request).home)]
    message = None if problem is None else problem.message
    if problem is None and draft.refusal and draft.state not in AT_WORK:
        message = str(draft.refusal["message"])
    form = {
        **USUAL,
        "name": draft.name.partition(".")[0].lower()[:64],
        **{key: str(value) for key, value in (draft.asked or {}).items()},
    }
    text = await in_thread(_store(request).schema_text, draft)
    seen = await in_thread(_store(request).seen, await in_thread(find_draft, request, _store(request)))
    records = re.search(r"^records: (\d+)", text, re.MULTILINE)
    form_of_file = Form(**(draft.first_rows or {}).get("form", {}))
    named = [name for row in draft.answers if row["role"] == "unit" for name in row["columns"]]
    context: dict[str, Any] = {
        "draft": draft,
        "seen": seen,
        "working": draft.state in AT_WORK,
        "table": [(at, group, _control_values(group, answers)) for at, group in enumerate(groups)],
        "roles": ROLES,
        "kinds": KINDS,
        "fill_in": FILL_IN,
        "text": text,
        "records": (typed or {}).get("records") or (records[1] if records and not draft.into else ""),
        "problem": message,
        "known": dataset_names,
        "relations": [relation.value for relation in Relation],
        "columns": [name for group in groups for name in group.columns],
        "form": {**dict.fromkeys((*ASKED, *APPENDED), ""), **form, **(typed or {})},
        "unit": named[0] if named else "",
        "people": (draft.proposal or {}).get("people", ()),
        "people_words": (draft.proposal or {}).get("people_words", ()),
        "targets": [
            name for group in groups if _control_values(group, answers)["role"] == "target" for name in group.columns
        ],
        "ready": draft.state == READY,
        "thousands": [*THOUSANDS],
        "marks": LABELS,
        "patterns": PATTERNS,
        "encodings": list_encodings(),
        "delimiters": DELIMITERS,
        "file": form_of_file,
        "is_text": bool(_CUT.search(draft.name)),
        "lines": (typed or {}).get("lines") or write_lines(groups, answers),
        "lines_typed": "lines" in (typed or {}),
    }
    registered = (draft.asked or {}).get("name") if draft.state == "registered" else None
    if registered:
        total = await in_thread(state(request).home.ledger.dataset, registered)
        context["first"] = f"{(Decimal(total.budget.epsilon) / 10).normalize():f}"
        context["evaluate"] = "" if total.holdout is None else f"{float(total.budget.epsilon) / 3:.1g}"
        context["targets"] = total.registration.targets
    return page(request, "draft.html", refusal=problem, **context)


def _control_values(group: ColumnGroup, answers: dict[tuple[str, ...], dict[str, Any]]) -> dict[str, str]:
    """Return the values of a group's controls."""
    answer = answers.get(group.columns, {})
    usual = {"role": group.role, "type": group.type, "public": group.public, **dict.fromkeys(MARKS, ""), **group.marks}
    values = {name: answer.get(name) or ("" if name == "public" and answer else value) for name, value in usual.items()}
    return {**values, "marked": " ".join(answer.get(name, "") for name in MARKS if name != "written").strip()}


async def meaning_of(request: Request) -> Response:
    """Return a part of the page: what the total promises."""
    known_query(request, "epsilon", "delta", "relation", "unit", *PERSON)
    try:
        total = Budget.of(query_text(request, "epsilon") or "", query_text(request, "delta") or "")
        relation = parse_relation(query_text(request, "relation") or Relation.ADD_REMOVE.value)
        typed = [query_text(request, name) or "" for name in PERSON]
        person = Budget.of(*typed) if all(typed) else None
        text = meaning(total, relation.value, query_text(request, "unit") or None, person)
    except InputError as error:
        text = error.message
    return page(request, "_meaning.html", said=text)


async def columns(request: Request) -> Response:
    """Declare what the columns are; every row is checked."""
    fields = dict(parse_form(await read_body(request, COLUMN_BYTES, FORM), COLUMN_FIELDS))
    draft = await in_thread(find_draft, request, _store(request))
    answers = []
    for at, group in enumerate(groups_of(draft)):
        values = {name: fields.get(f"{name}.{at}", "").strip() for name in ("role", "type", "public", *MARKS)}
        kind = "" if values["type"] in ("", group.type) else values["type"]
        values |= {
            name: "" for name in MARKS if values[name] == group.marks.get(name)
        }  # each column's own, as proposed
        answers.append({**values, "columns": list(group.columns), "type": kind, "role": values["role"] or group.role})
    body = {"answers": answers, "rows": _count(fields.get("records", ""))}
    return await _check(request, draft, body, fields.get("seen", ""))


def _count(text: str) -> int:
    text = text.strip()
    return whole_number(text) or 0


async def lines(request: Request) -> Response:
    """Declare what the columns are by a line for each; every row is checked."""
    fields = dict(parse_form(await read_body(request, COLUMN_BYTES, FORM)))
    draft = await in_thread(find_draft, request, _store(request))
    typed = {"lines": fields.get("lines", "").replace("\r\n", "\n"), "records": fields.get("records", "")}
    try:
        answers = read_lines(groups_of(draft), typed["lines"])
    except InputError as error:
        return await _page(request, draft, error, typed)
    body = {"answers": answers, "rows": _count(typed["records"])}
    return await _check(request, draft, body, fields.get("seen", ""), typed)


async def file_form(request: Request) -> Response:
    """Read the file in another encoding, with another mark between cells, another sheet of it, or by other names: from
    the row on that has them, or by names that no row has.
    """
    fields = await form_fields(request, "encoding", "delimiter", "sheet", "names", "skip", "seen")
    draft = await in_thread(find_draft, request, _store(request))
    marks = {words: mark for mark, words in DELIMITERS.items()}
    if fields["encoding"] not in ("", *list_encodings()) or fields["delimiter"] not in ("", *marks):
        raise InputError("form: encoding and delimiter must be among those that the page lists")
    names = [name.strip() for name in fields["names"].split(",") if name.strip()]
    if not re.fullmatch("[0-9]{0,2}", fields["skip"]) or len({*names}) < len(names):
        raise InputError("form: names must name each column once, and up to 99 lines stand before the rows")
    form = {
        "encoding": fields["encoding"], "delimiter": marks.get(fields["delimiter"]), "sheet": fields["sheet"][:100],
        "columns": names, "skip": int(fields["skip"]) if fields["skip"] else None,
    }  # fmt: skip
    marked = {key: value for key, value in form.items() if value not in ("", [], None)}
    try:
        await in_thread(_store(request).look_again, draft, marked, fields["seen"])
    except WrongState as error:
        return await _page(request, draft, error)
    return see_other(f"/ui/drafts/{draft.id}")


async def schema(request: Request) -> Response:
    """Declare the columns by the schema itself; every row is checked."""
    fields = dict(parse_form(await read_body(request, COLUMN_BYTES, FORM)))
    draft = await in_thread(find_draft, request, _store(request))
    body = {"schema": fields.get("schema", "").replace("\r\n", "\n")}
    return await _check(request, draft, body, fields.get("seen", ""))


async def _check(
    request: Request, draft: Draft, body: dict[str, Any], seen: str, typed: dict[str, str] | None = None
) -> Response:
    try:
        await with_prices(request, start_check, request, _store(request), body, seen)
    except (InputError, WrongState) as error:
        shown = Draft(**{**vars(draft), "answers": body.get("answers", draft.answers)})
        return await _page(request, shown, error, typed or {"records": str(body.get("rows") or "")})
    return see_other(f"/ui/drafts/{draft.id}")


async def register(request: Request) -> Response:
    """Register it."""
    typed = {name: value.strip() for name, value in (await form_fields(request, *ASKED, "seen")).items()}
    draft = await in_thread(find_draft, request, _store(request))
    family = typed["family"]
    body: dict[str, Any] = {name: typed[name] for name in ("name", "unit", "relation", *PERSON) if typed[name]}
    if not family:
        body |= {name: typed[name] for name in ("epsilon", "delta", "delta_outside", "holdout") if typed[name]}
    body |= {"family": [family] if family else [], "made_up": bool(typed["made_up"])}
    body |= {name: True for name in (*IDS, "as_read") if typed[name]}
    body |= {"new_people": bool(typed["reason"]), **({"reason": typed["reason"]} if typed["reason"] else {})}
    try:
        body["contributions"] = whole_number(typed["contributions"])
        if body["contributions"] is None:
            raise InputError("contributions: must be a whole number, 1 or more")
        await in_thread(start_registration, request, _store(request), {"name": "", **body}, typed["seen"])
    except DpserveError as error:
        return await _page(request, draft, error, typed)
    return see_other(f"/ui/drafts/{draft.id}")


async def append(request: Request) -> Response:
    """Append its rows to the dataset that it was brought for."""
    typed = {name: value.strip() for name, value in (await form_fields(request, *APPENDED)).items()}
    draft = await in_thread(find_draft, request, _store(request))
    fields: dict[str, Any] = {name: True for name in ("new_rows", "each_block", *IDS) if typed[name]}
    fields |= {name: typed[name] for name in ("reason", "person_epsilon") if typed[name]}
    try:
        if not draft.into:
            raise InputError("draft: was brought to be registered, and not to be appended")
        fields["records"] = require_records(_count(typed["records"]) if typed["records"] else None)
        await in_thread(_store(request).register, draft, {"name": draft.into, **fields})
    except DpserveError as error:
        return await _page(request, draft, error, typed)
    return see_other(f"/ui/drafts/{draft.id}")


async def delete(request: Request) -> Response:
    """Delete it, with its rows."""
    await form_fields(request)
    store = _store(request)
    await in_thread(store.delete, await in_thread(find_draft, request, store))
    return see_other("/ui/drafts")


def _store(request: Request) -> Drafts:
    return Drafts(state(request).home.path)


STEWARD = ("steward",)
ONE = "/ui/drafts/{draft}"
DOORS = (
    page_door("GET", "/ui/drafts", STEWARD, drafts, "Register a dataset"),
    page_door("POST", "/ui/drafts", STEWARD, begin_at, "Take a file of the server", 303),
    page_door("POST", "/ui/drafts/sample", STEWARD, begin_sample, "Register the sample", 303),
    page_door("GET", "/ui/drafts/meaning", STEWARD, meaning_of, "What a total means"),
    page_door("GET", ONE, STEWARD, draft, "A file on its way"),
    page_door("POST", f"{ONE}/columns", STEWARD, columns, "Say what its columns are", 303),
    page_door("POST", f"{ONE}/lines", STEWARD, lines, "Say it by lines", 303),
    page_door("POST", f"{ONE}/form", STEWARD, file_form, "Read it otherwise", 303),
    page_door("POST", f"{ONE}/schema", STEWARD, schema, "Give its schema", 303),
    page_door("POST", f"{ONE}/register", STEWARD, register, "Register it", 303),
    page_door("POST", f"{ONE}/append", STEWARD, append, "Append its rows", 303),
    page_door("POST", f"{ONE}/delete", STEWARD, delete, "Delete it", 303),
)

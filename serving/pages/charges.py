"""The page by which a steward charges a release that was made elsewhere: what it would leave first, then the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from accountant.errors import WrongState
from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.left import describe_budget
from accountant.ledger.outside import describe_charges
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.formats.canonical import whole_number
from dpserve_verify.privacy.outside import EPSILON, KINDS, RENYI
from serving.http.routes import access, in_snapshot, in_thread, page_door, state
from serving.pages.job_form import STALE, body_of
from serving.pages.parts.commands import command
from serving.pages.parts.ui import form_fields, page, see_other
from serving.wire.request_bodies import known_query, strict_json
from training.datasets import decisions
from training.requests import ChargeRequest

PATH = "/ui/datasets/{name}/charge"
STATEMENT = "statement"
FIELDS = (
    *("kind", "figure", RENYI, STATEMENT, "key", "mechanism", "why", "document", "unit", "contributions", "another"),
    *("blocks", "delta"),
)
MOST_BYTES = 1 << 20  # of the form, with a statement
PRICED = "priced"


async def new(request: Request) -> Response:
    """Return the empty form."""
    known_query(request)
    return await _form(request, {})


async def submit(request: Request) -> Response:
    """Charge what the form showed the price of; anything else shows first what it would leave."""
    fields = {
        name: text.strip() for name, text in (await form_fields(request, *FIELDS, PRICED, most=MOST_BYTES)).items()
    }
    if not fields[PRICED]:
        return await _form(request, fields)
    name, by = request.path_params["name"], access(request).principal
    try:
        body = _body(fields)
        if fields[PRICED] != _digest(body):
            return await _form(request, fields, WrongState(STALE))
        await in_thread(decisions.charge, state(request).home, name, ChargeRequest.of(body), by)
    except DpserveError as error:
        return await _form(request, fields, error)
    return see_other(f"/ui/datasets/{name}#elsewhere")


def _body(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return what was typed as a body of POST /v1/datasets/NAME/charges. InputError where it is none."""
    parsed = {name: strict_json(fields[name].encode()) for name in (RENYI, STATEMENT) if fields[name]}
    body = body_of(ChargeRequest, {**fields, RENYI: "", STATEMENT: "", "key": ""}) | parsed
    if fields["figure"]:
        body[fields["kind"] if fields["kind"] in KINDS else EPSILON] = fields["figure"]
    if fields["key"]:
        body["key"] = fields["key"].replace("\r\n", "\n") + "\n"  # browsers end lines otherwise than keys do
    if fields["contributions"]:
        count = whole_number(fields["contributions"])
        body["contributions"] = fields["contributions"] if count is None else count
    return body


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(body, default=str, option=orjson.OPT_SORT_KEYS)).hexdigest()


async def _form(request: Request, fields: Mapping[str, str], problem: DpserveError | None = None) -> Response:
    home, name = state(request).home, request.path_params["name"]

    def charged() -> tuple[Dataset, dict[str, Any]]:
        dataset = home.ledger.dataset(name)
        return dataset, describe_charges(home.ledger, dataset)

    dataset, charges = await in_snapshot(request, charged)
    form = dict.fromkeys(FIELDS, "") | {name: text for name, text in fields.items() if name != PRICED}
    return page(
        request, "charge_new.html", refusal=problem, name=name, form=form, kinds=KINDS[:-1],
        unit=dataset.registration.unit.name, grown=dataset.last is not None,
        apart=charges.get("delta"),
        price=await in_thread(_price, home, name, form, access(request).principal),
    )  # fmt: skip


def _price(home: Home, name: str, form: Mapping[str, str], by: str) -> dict[str, Any] | None:
    """Return what the panel beside the form shows: what the charge would leave; None where no curve is filled in."""
    if not (form["figure"] or form[RENYI] or form[STATEMENT]):
        return None
    try:
        body = _body(form)
        shown = {"mechanism": "not said yet", "why": "not said yet"} | body
        plan = decisions.plan_charge(home, name, ChargeRequest.of(shown), by)
        used = 1 - float(describe_budget(home.ledger.dataset(name))["left"]["share"])
    except DpserveError as error:
        return {"problem": error.message, "refused": not isinstance(error, InputError)}
    after = 1 - float(plan["budget"]["left"]["share"])
    files = {RENYI: RENYI, STATEMENT: "from", "key": "key"}
    flags = {files.get(field, field): "FILE" if field in files else value for field, value in body.items()}
    words = command("charge", name, flags)
    is_whole = all(form[text] for text in ("mechanism", "why"))
    digest = _digest(body) if is_whole else ""
    shares = {"used": used, "takes": max(0.0, after - used)}
    return {"left": plan["budget"]["left"], "digest": digest, "command": words, **shares}


STEWARD = ("steward",)
DOORS = (
    page_door("GET", PATH, STEWARD, new, "Charge a release made elsewhere"),
    page_door("POST", PATH, STEWARD, submit, "Charge a release made elsewhere", 303),
)

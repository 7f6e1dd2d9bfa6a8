"""Pages by which somebody pays to measure: what a model is worth, or how a dataset's rows are spread. Each shows its
price first, and sends exactly what was priced.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING, Access
from accountant.errors import Forbidden, IdempotencyConflict, UnknownName, WrongState
from accountant.home import Home
from dpserve_verify.errors import BudgetRefused, DpserveError, InputError
from serving.http.rights import NAMED, seen_models
from serving.http.routes import Door, access, in_thread, page_door, require_dataset, state, with_prices
from serving.pages.datasets import every_dataset
from serving.pages.job_form import SENT, SLOW, STALE, body_of
from serving.pages.parts.commands import command
from serving.pages.parts.ui import form_fields, page, see_other
from serving.rest import measurements
from serving.rest.measurements import Measurement, require_measurable
from serving.wire.errors import TakesTooLong
from training.rows.schema.described import describe_columns, example_query

EXAMPLE = "select education, count(*), avg(age) from adult group by education"
BESIDE = ("idempotency_key", "priced")


@dataclass(frozen=True)
class Kind:
    """The form of a measurement. `on`: the field that the command names first; `fields`: those of the form."""

    measurement: Measurement
    verb: str
    on: str
    fields: tuple[str, ...]

    @property
    def path(self) -> str:
        """Return the page's path."""
        return f"/ui/{self.measurement.path}/new"


EVALUATION = Kind(
    measurements.EVALUATION, "evaluate", "model",
    ("model", "dataset", "epsilon", "part", "against", "group", "scores", "cover", "blocks"),
)  # fmt: skip
PROFILE = Kind(
    measurements.PROFILE, "profile", "dataset", ("dataset", "epsilon", "part", "columns", "around", "blocks")
)
ANSWER = Kind(measurements.ANSWER, "query", "dataset", ("dataset", "select", "epsilon", "part", "blocks"))


def _body(kind: Kind, fields: Mapping[str, str]) -> dict[str, Any]:
    return body_of(kind.measurement.request, {name: fields.get(name, "").strip() for name in kind.fields})


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()


async def _price(request: Request, kind: Kind, body: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the panel of the price shows; None where too little is filled in."""
    needed = {"dataset", kind.on, "select" if kind is ANSWER else "epsilon"}
    if not all(body.get(name) for name in needed):
        return None
    rest = {name: body[name] for name in body if name not in (kind.on, "select")}
    words = command(kind.verb, str(body[kind.on]), rest, [body["select"]] if kind is ANSWER else ())
    try:
        measurement = kind.measurement.request.of(body)
        rights = await require_measurable(request, measurement)
        plan = await with_prices(request, kind.measurement.price, measurement, rights.principal)
        return {"kind": "fits", "plan": plan, "digest": _digest(body), "command": words}
    except BudgetRefused as refused:
        return {"kind": "refused", "message": refused.message, "details": refused.details}
    except TakesTooLong:
        return {"kind": "wrong", "message": SLOW}
    except DpserveError as error:
        return {"kind": "wrong", "message": error.message}


async def new(request: Request, kind: Kind) -> Response:
    """Return the page of the form, with its price once enough is filled in."""
    fields = dict(request.query_params)
    if unknown := sorted(fields.keys() - {*kind.fields, *BESIDE}):
        raise InputError(f"{unknown[0][:80]!r} is no field of the form")
    return await _form(request, kind, fields)


async def _form(
    request: Request, kind: Kind, fields: Mapping[str, str], refusal: DpserveError | None = None, **words: Any
) -> Response:
    serving, rights = state(request), access(request)
    lines = seen_models(rights, serving.registry.to_json(), serving.registry)
    mine = next((line for line in lines if fields.get("model") in (line["model"], line["name"])), {})
    same = ("dataset", "target")
    others = [line["model"] for line in lines if line is not mine and all(line[key] == mine.get(key) for key in same)]
    form = {
        **dict.fromkeys((*EVALUATION.fields, *PROFILE.fields, *ANSWER.fields), ""),
        "dataset": mine.get("dataset") or "",
        **fields,
    }
    return page(
        request, "measure_new.html", refusal=refusal, kind=kind, others=others, **words,
        models=[line["model"] for line in lines] if kind is EVALUATION else (),
        datasets=await in_thread(_datasets, state(request).home, rights),
        form=form, price=await _price(request, kind, _body(kind, form)),
        example=await in_thread(_example, request, str(form["dataset"])) if kind is ANSWER else "",
        key=fields.get("idempotency_key") or uuid.uuid4().hex,
    )  # fmt: skip


def _datasets(home: Home, rights: Access) -> list[str]:
    """Return the names of the datasets that the caller may measure."""
    names = (dataset.registration.name for dataset in every_dataset(home))
    return [name for name in names if rights.may(*ASKING, dataset=name)]


def _example(request: Request, name: str) -> str:
    """Return a query that the dataset answers, where the caller may ask it; else one of the documentation's."""
    home, rights = state(request).home, access(request)
    try:
        if rights.may(*ASKING, dataset=name):
            dataset = home.ledger.dataset(name)
            return example_query(name, describe_columns(home, dataset))
    except UnknownName:
        pass
    return EXAMPLE


async def submit(request: Request, kind: Kind) -> Response:
    """Submit what was priced; anything else shows its price first."""
    fields = await form_fields(request, *kind.fields, *BESIDE)
    body = _body(kind, fields)
    if body.get("dataset"):
        await require_dataset(request, ASKING, str(body["dataset"]))
    if fields["priced"] != _digest(body):
        return await _form(request, kind, fields, WrongState(STALE))
    try:
        measurement = kind.measurement.request.of({**body, "idempotency_key": fields["idempotency_key"] or None})
        rights = await require_measurable(request, measurement)
        job = await with_prices(request, kind.measurement.reserve, state(request).home, measurement, rights.principal)
    except IdempotencyConflict as error:
        return await _form(request, kind, {**fields, "idempotency_key": ""}, error, problem=SENT)
    except BudgetRefused as refused:
        return await _form(request, kind, fields, refused, problem="")  # the price beside the form tells it
    except (InputError, Forbidden) as error:
        return await _form(request, kind, fields, error)
    return see_other(f"/ui/jobs/{job['job']}")


def _doors(kind: Kind, says: str) -> tuple[Door, Door]:
    return (
        page_door("GET", kind.path, ASKING, partial(new, kind=kind), says, on=NAMED),
        page_door("POST", kind.path, ASKING, partial(submit, kind=kind), says, 303, on=NAMED),
    )


DOORS = (
    *_doors(EVALUATION, "Measure a model"),
    *_doors(PROFILE, "Profile a dataset"),
    *_doors(ANSWER, "Query a dataset"),
)

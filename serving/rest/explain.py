"""The door to explanations: of each record, what each feature adds to what a model answers."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from dpserve_verify.errors import InputError
from models.explain.explain import logits, unit
from models.features.text_numbers import NO_TEXTS
from models.onnx.runtime import columns_from_records
from serving.http.rights import NAMED, restrict_to_allowed
from serving.http.routes import Door, access, in_thread, state
from serving.rest import json_schemas
from serving.rest.models import AT_ONCE, PREDICT, PREDICT_BYTES, RECORDS, Find, answer_records, parse
from serving.wire.bounds import check_answer
from serving.wire.errors import NotAdditive
from serving.wire.request_bodies import read_body
from serving.wire.work_time import check_time, in_turn


async def explain(request: Request) -> Response:
    """Predict records, with what each feature adds; in a thread, because it takes longer."""
    raw = await read_body(request, PREDICT_BYTES)
    serving = state(request)
    serving.require_ready()

    def answer() -> bytes:
        find = restrict_to_allowed(access(request), serving.registry.get)
        return orjson.dumps(explain_records(find, parse(raw)), option=orjson.OPT_SERIALIZE_NUMPY)

    content = await (in_thread(answer) if len(raw) <= AT_ONCE else in_turn(access(request).principal, answer))
    return Response(content, media_type="application/json")


def explain_records(find: Find, body: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with `base` and `contributions` in `unit`: log odds of two classes, a logit for each of K
    classes, a number's own unit.

    One score: base a number, contributions (n, features), pairs of features behind them, which `features` names as
    well. K: base (K,), contributions (n, features, K).
    NotAdditive for what is no sum over features; else raises as `answer_records`.
    """
    requested = find(body["model"]).verified.ensemble
    try:
        requested.as_sum()
    except InputError as error:
        raise NotAdditive(f"model={body['model']}: {error.message}", model=body["model"]) from None
    served, answer = answer_records(find, body)
    ensemble = served.verified.ensemble
    parts = len(ensemble.features) + len(requested.as_sum().pairs)
    check_answer(len(body["records"]), parts * ensemble.outputs)
    check_time()
    written = served.verified.format
    account = logits(ensemble, columns_from_records(ensemble.features, body["records"], RECORDS, NO_TEXTS, written))
    is_single = ensemble.outputs == 1
    return {
        **{name: value for name, value in answer.items() if name != "probabilities"},
        "unit": unit(ensemble),
        "base": account.base[0] if is_single else account.base,
        "features": account.features,
        "contributions": account.votes[:, :, 0].tolist() if is_single else account.votes.tolist(),
    }


DOORS = (
    Door(
        "POST",
        "/explain",
        ("predict",),
        explain,
        "What each feature adds, of records",
        takes=PREDICT,
        gives=json_schemas.EXPLAINED,
        on=NAMED,
    ),
)

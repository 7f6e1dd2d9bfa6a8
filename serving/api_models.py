"""The doors to models: predict, and what is served under which certificate."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from accountant.errors import InputError
from accountant.tokens import SCOPES
from models.ensemble import target_range
from models.runtime import columns_from_records
from serving.bodies import check_fields, known_query, read_body
from serving.doors import TEXT, Door, state
from serving.errors import TooLarge, json_response
from serving.registry import Registry, Served

PREDICT_BYTES = 16 << 20
RECORDS = 20_000
PREDICT_FIELDS = {"model": (str,), "records": (list,)}


async def predict(request: Request) -> Response:
    """Records in, labels and probabilities or numbers out. On the loop: the model takes microseconds."""
    raw = await read_body(request, PREDICT_BYTES)
    start = perf_counter()
    serving = state(request)
    serving.home  # noqa: B018 - NotReady
    served, answer = answer_records(serving.registry, parse(raw))
    response = Response(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")
    served.predictions.inc(len(answer["predictions"]))
    served.seconds.observe(perf_counter() - start)
    return response


def parse(raw: bytes) -> dict[str, Any]:
    """The body as JSON. Fast rather than strict about a key that stands twice: nothing is decided by a record's
    form.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InputError(f"body: not JSON: {error.msg} at character {error.pos}") from None
    return check_fields(body, PREDICT_FIELDS, {})


def answer_records(registry: Registry, body: dict[str, Any]) -> tuple[Served, dict[str, Any]]:
    """The model that answered, and its answer: with classes and probabilities, unless it is a number. RecordError names
    the first record and field that do not fit."""
    served = registry.get(body["model"])
    records = body["records"]
    if len(records) > RECORDS:
        raise TooLarge(f"records: {len(records)}; at most {RECORDS} a request", limit=RECORDS)
    found = served.verified
    predictions, probabilities = found.runtime.infer(columns_from_records(found.ensemble.features, records, RECORDS))
    answer = {"model": served.reference, "certificate": served.fragment, "predictions": predictions.tolist()}
    if not found.ensemble.classes:  # a number
        return served, answer
    return served, {**answer, "classes": found.ensemble.classes, "probabilities": probabilities}


async def list_models(request: Request) -> Response:
    known_query(request)
    serving = state(request)
    serving.home  # noqa: B018 - NotReady
    return json_response({"models": serving.registry.to_json()})


async def show_model(request: Request) -> Response:
    return json_response(_description(_served(request)))


async def show_certificate(request: Request) -> Response:
    """All that a verifier needs beside the model and the pinned keys; the exact bytes, as they are signed."""
    served = _served(request)
    bundle = served.verified.bundle
    return json_response(
        {
            "model": served.reference,
            "envelope": orjson.Fragment(bundle.envelope),
            "proof": bundle.proof.decode(),
            "statement": served.verified.certificate.statement,
        }
    )


def _served(request: Request) -> Served:
    known_query(request)
    serving = state(request)
    serving.home  # noqa: B018 - NotReady
    return serving.registry.get(request.path_params["name"])


def _description(served: Served) -> dict[str, Any]:
    ensemble = served.verified.ensemble
    return {
        "model": served.reference,
        "name": served.name,
        "version": served.version,
        "target": ensemble.target,
        "classes": ensemble.classes,
        "target_range": target_range(ensemble),
        "features": [feature.to_json() for feature in ensemble.features],
        "certificate": served.certificate,
    }


RECORD = {
    "type": "object",
    "description": "every feature of the model: a number, a text, true or false, or null where it is not known",
}
PREDICT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["model", "records"],
    "properties": {
        "model": {"type": "string", "description": "adult, adult@champion or adult@2"},
        "records": {"type": "array", "items": RECORD, "maxItems": RECORDS},
    },
}
PREDICTED = {
    "type": "object",
    "description": "of a model that answers a number, predictions are numbers, without classes and probabilities",
    "required": ["model", "certificate", "predictions"],
    "properties": {
        "model": TEXT,
        "certificate": {"type": "object"},
        "classes": {"type": "array"},
        "predictions": {"type": "array"},
        "probabilities": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    },
}
DOORS = (
    Door("POST", "/predict", ("predict",), predict, "Predict records", takes=PREDICT, gives=PREDICTED),
    Door("GET", "/v1/models", SCOPES, list_models, "Models, served or not"),
    Door("GET", "/v1/models/{name}", SCOPES, show_model, "A model: features, classes or range, certificate"),
    Door("GET", "/v1/models/{name}/certificate", SCOPES, show_certificate, "A certificate and its proof"),
)

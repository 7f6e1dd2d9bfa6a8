"""The application: every door of the service in one table, and the Starlette app made from it."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from accountant.tokens import SCOPES
from serving import api_explain, api_jobs, api_ledger, api_models
from serving.bodies import known_query
from serving.doors import Door
from serving.errors import json_response
from serving.openapi import openapi
from serving.state import ServingState

TEXT = {"type": "string"}
DECIMAL = {"oneOf": [{"type": "number"}, {"type": "string"}], "description": "a decimal; a text keeps every digit"}
TUNING = {
    "type": "object",
    "description": "private tuning: values to try for each parameter, and how many runs on average",
    "additionalProperties": False,
    "required": ["grid"],
    "properties": {"grid": {"type": "object", "additionalProperties": {"type": "array"}}, "runs": DECIMAL},
}
ASKED = {
    "dataset": TEXT,
    "learner": TEXT,
    "epsilon": DECIMAL,
    "delta": DECIMAL,
    "parameters": {"type": "object"},
    "tuning": TUNING,
    "model": TEXT,
    "idempotency_key": {"type": "string", "minLength": 1, "maxLength": 200},
}
JOB = {
    "type": "object",
    "additionalProperties": False,
    "required": ["dataset", "learner", "epsilon"],
    "properties": ASKED,
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
        "records": {"type": "array", "items": RECORD, "maxItems": api_models.RECORDS},
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
EXPLAINED = {
    "type": "object",
    "description": "prediction i comes of base + the sum of contributions[i], in `unit`. K classes: K numbers in place "
    "of each. A model of trees is answered with 422, not_additive.",
    "required": ["model", "certificate", "unit", "base", "features", "contributions", "predictions"],
    "properties": {
        "model": TEXT,
        "certificate": {"type": "object"},
        "classes": {"type": "array"},
        "unit": {"type": "string", "description": "log odds of the second class, logits (K classes), or the target"},
        "base": {"oneOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]},
        "features": {"type": "array", "items": TEXT},
        "contributions": {"type": "array", "items": {"type": "array"}},
        "predictions": {"type": "array"},
    },
}
AFTER = {"after": "index of the first entry wanted"}
GROWTH = {"from": "size of the earlier tree", "to": "size of the later one; the newest when left out"}
LEAF = {"leaf": "index of the entry", "size": "size of the tree; the newest when left out"}

DOORS = (
    Door("POST", "/predict", ("predict",), api_models.predict, "Predict records", takes=PREDICT, gives=PREDICTED),
    Door(
        "POST",
        "/explain",
        ("predict",),
        api_explain.explain,
        "What each feature adds, of records",
        takes=PREDICT,
        gives=EXPLAINED,
    ),
    Door("POST", "/v1/jobs", ("train",), api_jobs.submit_job, "Submit a job; it is charged now", 202, JOB),
    Door("GET", "/v1/jobs/{job}", ("train", "audit"), api_jobs.show_job, "A job's state, progress and result"),
    Door("DELETE", "/v1/jobs/{job}", ("train",), api_jobs.cancel_job, "Cancel a job before it started"),
    Door("POST", "/v1/plans", ("train",), api_jobs.plan_job, "Price a job; spends nothing", takes=JOB),
    Door("GET", "/v1/datasets", ("train", "audit"), api_jobs.list_datasets, "Datasets and their budgets"),
    Door("GET", "/v1/datasets/{name}", ("train", "audit"), api_jobs.show_dataset, "A dataset and its budget"),
    Door("GET", "/v1/models", SCOPES, api_models.list_models, "Models, served or not"),
    Door("GET", "/v1/models/{name}", SCOPES, api_models.show_model, "A model: features, classes or range, certificate"),
    Door(
        "GET",
        "/v1/models/{name}/certificate",
        SCOPES,
        api_models.show_certificate,
        "A certificate and its proof",
    ),
    Door("GET", "/v1/ledger", ("audit",), api_ledger.entries, "Entries, as the exact text hashed", query=AFTER),
    Door(
        "GET",
        "/v1/ledger/checkpoint",
        ("audit",),
        api_ledger.checkpoint,
        "The newest signed tree head",
        media="text/plain",
    ),
    Door("GET", "/v1/ledger/proof", ("audit",), api_ledger.proof, "An inclusion proof", query=LEAF),
    Door("GET", "/v1/ledger/consistency", ("audit",), api_ledger.growth, "A consistency proof", query=GROWTH),
    Door("GET", "/metrics", ("audit",), api_ledger.metrics, "Metrics for Prometheus", media="text/plain"),
    Door("GET", "/", SCOPES, api_ledger.about, "What this is"),
    Door("GET", "/livez", (), api_ledger.alive, "Whether the server is alive"),
    Door("GET", "/readyz", (), api_ledger.ready, "Whether it can be relied upon"),
)


def make_app(base: Callable[[], Mapping[str, Any]] = dict) -> Starlette:
    """Our routes, looking after their own state. `base` gives the OpenAPI description to merge ours into."""
    serving = ServingState()

    async def docs(request: Request) -> Response:
        known_query(request)
        return json_response(openapi(base(), DOORS))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with serving.watching():
            await anyio.to_thread.run_sync(api_jobs.training_job)  # or the first request would wait for the import
            gc.collect()
            gc.freeze()  # what was made up to here stays for ever: the collector need not look at it again
            yield

    documented = (*DOORS, Door("GET", "/docs.json", SCOPES, docs, "This description"))
    routes = [Route(door.path, door.endpoint, methods=[door.method]) for door in documented]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.state.serving = serving
    return app

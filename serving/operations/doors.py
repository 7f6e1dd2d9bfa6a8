"""The REST doors of operations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from inspect import Parameter, cleandoc, signature
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from serving.http.routes import Answer, Door, access, caller, in_snapshot, in_thread, path_number, state, with_prices
from serving.operations import A, Caller, Operation, P
from serving.operations.answers import SHAPE, answer_to_json, schema_of, without_null
from serving.process.registry import Served
from serving.process.state import ServingState
from serving.process.watch.metrics import counting_refusals
from serving.rest import json_schemas
from serving.wire import lists
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_body, known_query, query_int, query_text
from training.requests.base import json_schema


def doors(*operations: Operation[Any, Any]) -> tuple[Door, ...]:
    """Return the doors of these operations, in their order."""
    return tuple(_door(each) for each in operations)


def _door(asked: Operation[Any, Any]) -> Door:
    part = {} if "part" not in asked.parameters else lists.ARCHIVED if asked.has_archive else lists.PART
    query = {name: _field(asked, name) for name in asked.query}
    return Door(
        asked.method,
        asked.path,
        asked.scopes,
        _answering(asked, query),
        cleandoc(asked.function.__doc__ or "").partition("\n\n")[0].replace("\n", " ").removesuffix("."),
        status=asked.status,
        takes=json_schema(asked.parameters["body"]) if "body" in asked.parameters else None,
        gives=_in_full(schema_of(asked.answer)),
        query={**part, **{name.rstrip("_"): field for name, field in query.items()}},
        errors=asked.errors,
        on=asked.on,
        operation=asked,
    )


def _field(asked: Operation[Any, Any], name: str) -> dict[str, Any]:
    """Return the schema of a field of the query."""
    needed = signature(asked.function).parameters[name].default is Parameter.empty
    return without_null(schema_of(asked.parameters[name])) | ({"required": True} if needed else {})


def _in_full(schema: Any) -> Any:
    """Put the shapes that a schema names in their places."""
    if isinstance(schema, list):
        return [_in_full(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = getattr(json_schemas, schema[SHAPE]) if SHAPE in schema else {}
    return {**named, **{word: _in_full(value) for word, value in schema.items() if word != SHAPE}}


def _answering(asked: Operation[Any, Any], query: Mapping[str, Any]) -> Answer:
    async def answer(request: Request) -> Response:
        values = await _values(asked, query, request)
        look = partial(in_snapshot, request) if asked.method == "GET" else in_thread
        run = partial(with_prices, request) if asked.needs_prices else look
        done = await run(lambda: answer_to_json(serve(asked, caller_of(request), **values)))
        headers = {"Location": f"/v1/jobs/{done['job']}"} if asked.status == 202 else {}
        return json_response(done, 200 if getattr(values.get("body"), "dry_run", False) else asked.status, headers)

    return answer


def caller_of(request: Request) -> Caller:
    """Return who asks over HTTP, whose models the server finds."""
    serving = state(request)
    find, dataset_of = partial(_find, serving), serving.registry.dataset_of
    return Caller(serving.home, access(request), caller(request).created, find=find, dataset_of=dataset_of)


def _find(serving: ServingState, reference: str) -> Served:
    """Return a verified model, once the server has looked at its models."""
    serving.require_ready()
    return serving.registry.get(reference)


def serve(asked: Operation[P, A], who: Caller, *arguments: P.args, **values: P.kwargs) -> A:
    """Do what an operation says, at a server, whose doors look at rights before."""
    body: Any = values.get("body")
    with counting_refusals(body.dataset) if asked.counts_refusals else nullcontext():
        return asked.function(who, *arguments, **values)


async def _values(asked: Operation[Any, Any], query: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """Read what the request says of each parameter. InputError for what it should not say."""
    values: dict[str, Any] = {}
    for name in re.findall(r"{(\w+)}", asked.path):
        values[name] = path_number(request, name) if asked.parameters[name] is int else request.path_params[name]
    words = [name.rstrip("_") for name in query]
    if "part" in asked.parameters:
        values["part"] = lists.part_of(request, *words, *(["archived"] if asked.has_archive else []))
    else:
        known_query(request, *words)
    for (name, about), word in zip(query.items(), words, strict=True):
        if word in request.query_params or "required" in about:
            bounds = (about[bound] for bound in ("minimum", "maximum") if bound in about)
            is_number = about.get("type") == "integer"
            values[name] = query_int(request, word, None, *bounds) if is_number else query_text(request, word)
    if "body" in asked.parameters:
        values["body"] = asked.parameters["body"].of(await json_body(request))
    return values

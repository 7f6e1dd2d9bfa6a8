"""The REST doors of operations."""

from __future__ import annotations

import re
from functools import partial
from inspect import Parameter, cleandoc, signature
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from serving.http.routes import Answer, Door, access, caller, in_thread, path_number, state, with_prices
from serving.operations import Caller, Operation
from serving.operations.answers import SHAPE, answer_to_json, schema_of, without_null
from serving.process.registry import Served
from serving.process.state import ServingState
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
    return Door(
        asked.method,
        asked.path,
        asked.scopes,
        _answering(asked),
        cleandoc(asked.function.__doc__ or "").partition("\n\n")[0].replace("\n", " ").removesuffix("."),
        status=asked.status,
        takes=json_schema(asked.parameters["body"]) if "body" in asked.parameters else None,
        gives=_in_full(schema_of(asked.answer)),
        query={**part, **{name.rstrip("_"): _field(asked, name) for name in asked.query}},
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


def _answering(asked: Operation[Any, Any]) -> Answer:
    async def answer(request: Request) -> Response:
        values = await _values(asked, request)
        who = caller_of(request)
        run = partial(with_prices, request) if asked.needs_prices else in_thread
        done = await run(lambda: answer_to_json(asked.function(who, **values)))
        return json_response(done, 200 if getattr(values.get("body"), "dry_run", False) else asked.status)

    return answer


def _read(request: Request, name: str, schema: dict[str, Any]) -> int | str | None:
    """Read a field of the query as its schema says: a whole number or a text; None where it is left out."""
    if schema.get("type") != "integer":
        return query_text(request, name)
    number = query_int(request, name, None if "required" in schema else -1, schema["minimum"])
    return None if number < 0 else number


def caller_of(request: Request) -> Caller:
    """Return who asks over HTTP, whose models the server finds."""
    serving = state(request)
    return Caller(serving.home, access(request), caller(request).created, find=partial(_find, serving))


def _find(serving: ServingState, reference: str) -> Served:
    """Return a verified model, once the server has looked at its models."""
    serving.require_ready()
    return serving.registry.get(reference)


async def _values(asked: Operation[Any, Any], request: Request) -> dict[str, Any]:
    """Read what the request says of each parameter. InputError for what it should not say."""
    values: dict[str, Any] = {}
    for name in re.findall(r"{(\w+)}", asked.path):
        values[name] = path_number(request, name) if asked.parameters[name] is int else request.path_params[name]
    query = {name: name.rstrip("_") for name in asked.query}
    if "part" in asked.parameters:
        values["part"] = lists.part_of(request, *query.values(), *(["archived"] if asked.has_archive else []))
    else:
        known_query(request, *query.values())
    values |= {name: _read(request, word, _field(asked, name)) for name, word in query.items()}
    values = {name: value for name, value in values.items() if value is not None}
    if "body" in asked.parameters:
        values["body"] = asked.parameters["body"].of(await json_body(request))
    return values

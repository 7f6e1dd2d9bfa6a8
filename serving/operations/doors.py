"""The REST doors of operations."""

from __future__ import annotations

import re
from functools import partial
from inspect import cleandoc
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from serving.http.routes import Answer, Door, access, caller, in_thread, path_number, state, with_prices
from serving.operations import Caller, Operation
from serving.operations.answers import SHAPE, answer_to_json, schema_of, without_null
from serving.rest import json_schemas
from serving.wire import lists
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_body, known_query, query_text
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
        query={**part, **{name: without_null(schema_of(asked.parameters[name])) for name in asked.query}},
        errors=asked.errors,
        on=asked.on,
        operation=asked,
    )


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
        who = Caller(state(request).home, access(request), caller(request).created)
        run = partial(with_prices, request) if asked.needs_prices else in_thread
        done = await run(lambda: answer_to_json(asked.function(who, **values)))
        return json_response(done, 200 if getattr(values.get("body"), "dry_run", False) else asked.status)

    return answer


async def _values(asked: Operation[Any, Any], request: Request) -> dict[str, Any]:
    """Read what the request says of each parameter. InputError for what it should not say."""
    values: dict[str, Any] = {}
    for name in re.findall(r"{(\w+)}", asked.path):
        values[name] = path_number(request, name) if asked.parameters[name] is int else request.path_params[name]
    if "part" in asked.parameters:
        values["part"] = lists.part_of(request, *asked.query, *(["archived"] if asked.has_archive else []))
    else:
        known_query(request, *asked.query)
    values |= {name: query_text(request, name) for name in asked.query}
    if "body" in asked.parameters:
        values["body"] = asked.parameters["body"].of(await json_body(request))
    return values

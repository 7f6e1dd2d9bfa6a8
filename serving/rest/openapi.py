"""The OpenAPI description, made from the table of doors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from dpserve_verify.errors import DpserveError
from serving.http.routes import PROTOCOL, Door
from serving.rest import json_schemas
from serving.wire.errors import HTTP_CODES, status_of
from serving.wire.field_words import in_words

VERSION = "3.1.0"  # from 3.1 on a schema is a JSON Schema, which the shapes are
ABOUT = "Train models under differential privacy, account for every release, and serve them with certificates."
PROTOCOL_ERROR = "ProtocolError"
EXAMPLES = Path(__file__).with_name("examples.json")
MEANINGS = {
    400: "malformed",
    401: "no token that is good",
    403: "the token's scope, or the budget, does not allow it",
    404: "no such name",
    405: "no such method here",
    408: "the body did not come in time",
    409: "not in this state, a name that is taken, or an idempotency key that came with another body",
    413: "too large",
    415: "a body of another media type",
    422: "a record does not fit the schema; names record and field. Or a model of trees was asked to explain",
    429: "too many requests of this token; Retry-After says when to come again",
    500: "a fault of the server; its log has it",
    503: "not ready, or the model does not verify",
    504: "took too long; it may still be done",
}


def openapi(doors: Iterable[Door]) -> dict[str, Any]:
    """Return the description of the doors that are not hidden."""
    ours: dict[str, dict[str, Any]] = {}
    for door in (each for each in doors if not each.hidden):
        ours.setdefault(door.path, {})[door.method.lower()] = _operation(door)
    components = {"schemas": _error_schemas(), "securitySchemes": {"token": SCHEME}}
    info = {"title": "dpserve", "version": product_version(), "description": ABOUT}
    description = {"openapi": VERSION, "info": info, "paths": ours, "components": components}
    return {**description, "security": [{"token": []}]}


BYTES = {"type": "string", "format": "binary"}
SCHEME = {"type": "http", "scheme": "bearer", "description": "dpserve token create"}


def product_version() -> str:
    """Return the installed version of dpserve."""
    try:
        return version("dpserve")
    except PackageNotFoundError:  # a bento holds the sources, not the distribution
        return "bento"


def _operation(door: Door) -> dict[str, Any]:
    bodies: dict[str, Any] = {}
    if door.takes is not None:  # as `check_fields` has it: null stands for a field that may be left out
        required, fields = door.takes.get("required", ()), door.takes.get("properties", {})
        nullable = {name: type if name in required else json_schemas.maybe(type) for name, type in fields.items()}
        worded = {name: {**nullable[name], **in_words(name, type)} for name, type in fields.items()}
        bodies["application/json"] = {"schema": {**door.takes, "properties": worded}}
    bodies |= {media: {"schema": schema} for media, schema in door.also.items()}
    answers: dict[str, Any] = {door.media: {"schema": door.gives}}  # first: generators of clients take the first
    answers |= {media: {"schema": BYTES} for media in door.also if media != door.media}  # as asked, or as `Accept` says
    names = re.findall(r"{(\w+)(?::\w+)?}", door.path)
    in_path = [{"name": name, "in": "path", "required": True, "schema": json_schemas.TEXT} for name in names]
    responses: dict[str, Any] = {str(door.status): {"description": "done", "content": answers}}
    for status in statuses(door):
        form = PROTOCOL_ERROR if door.path.startswith(PROTOCOL) else f"Error{status}"
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{form}"}}}
        responses[str(status)] = {"description": MEANINGS[status], "content": content}
    example = examples().get(f"{door.method} {door.path}", {})
    for part, contents in (("request", bodies), ("response", answers)):
        if part in example:
            contents[example[part]["type"]]["example"] = example[part]["body"]
    values = _example_values(door.path, example["path"]) if example else {}
    parameters = [*in_path, *(_parameter(name, door.query[name]) for name in door.query)]
    about = next((part for part in door.path.split("/")[1:] if part not in ("v1", "")), "server")
    return {
        "tags": [about.partition(".")[0]],
        "summary": door.says,
        "description": f"Scope: {' or '.join(door.scopes)}." if door.scopes else "Open to everybody.",
        "operationId": re.sub(r"\W+", "_", f"{door.method.lower()}{door.path}").strip("_"),
        "parameters": [
            {**parameter, **({"example": values[parameter["name"]]} if parameter["name"] in values else {})}
            for parameter in parameters
        ],
        "responses": responses,
        "security": [{"token": []}] if door.scopes else [],
        **({"requestBody": {"required": True, "content": bodies}} if bodies else {}),
    }


@cache
def examples() -> dict[str, dict[str, Any]]:
    """Return an example of a request and an answer of a real server for each door, "METHOD /path": `path` with its
    query, `request` where it has a body, and `response`; of either the media type, and the body: JSON, a text, or how
    many bytes it has. Long texts and lists are cut short. tests/helpers/rest_story.py asks anew, and a test compares.
    """
    by_door: dict[str, dict[str, Any]] = json.loads(EXAMPLES.read_text("utf-8"))
    return by_door


def _example_values(path: str, address: str) -> dict[str, Any]:
    """Return the values of an example's address: for each name of the door's path, and for each field of its query."""
    plain, _, query = address.partition("?")
    match = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path), plain)
    assert match is not None, address
    fields = {name: int(value) if value.isdecimal() else value for name, value in parse_qsl(query)}
    return {**match.groupdict(), **fields}


def _parameter(name: str, about: str | Mapping[str, Any]) -> dict[str, Any]:
    schema = {**json_schemas.COUNT, "description": about} if isinstance(about, str) else dict(about)
    outside: dict[str, Any] = {key: schema.pop(key) for key in ("description", "required") if key in schema}
    return {"name": name, "in": "query", **outside, "schema": schema}


def statuses(door: Door) -> list[int]:
    """Return the statuses of a door's errors, sorted: they follow from what it takes and who may pass."""
    possible = {400, 503, *door.errors}  # a query that means nothing is refused everywhere
    possible |= {401, 403, 429, 504} if door.scopes else set()
    possible |= {404} if "{" in door.path or door.takes is not None else set()
    possible |= {408, 413, 415} if door.takes is not None or door.also else set()
    changes = door.method != "GET" and "predict" not in door.scopes
    possible |= {409} if changes else {422} if door.takes is not None else set()
    return sorted(possible & codes().keys())


def _error_schemas() -> dict[str, Any]:
    """Return an error schema for each status, with its codes, and one for all of them."""
    schemas = {f"Error{status}": _error(names) for status, names in codes().items()}
    return {
        "Error": {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in schemas]},
        PROTOCOL_ERROR: json_schemas.PROTOCOL_ERROR,
        **schemas,
    }


def _error(codes: Sequence[str]) -> json_schemas.Shape:
    """Return the schema of an error answer with one of these codes."""
    details = {code: json_schemas.DETAILS.get(code, json_schemas.ANY_OBJECT) for code in codes}
    forms = (
        json_schemas.record({"code": {"const": code}, "message": json_schemas.TEXT, "details": shape})
        for code, shape in details.items()
    )
    return json_schemas.record({"error": json_schemas.either(*forms)})


def codes() -> dict[int, list[str]]:
    """Return all error codes by HTTP status."""
    by_status: dict[int, set[str]] = {status: {code} for status, code in HTTP_CODES.items()}
    for kind in _errors(DpserveError):
        if "code" not in kind.__dict__:  # the same refusal: here, or as a client says it
            continue
        by_status.setdefault(status_of(kind("")), set()).add(kind.code)
    return {status: sorted(by_status[status]) for status in sorted(by_status)}


def _errors(kind: type[DpserveError]) -> Iterable[type[DpserveError]]:
    yield kind
    for below in kind.__subclasses__():
        if not below.__module__.startswith("dpserve."):  # the client's, which stand for an answer
            yield from _errors(below)

"""The OpenAPI description, made from the table of doors, so that it cannot speak of other doors than there are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from serving.doors import Door

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "details"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "details": {"type": "object"},
            },
        }
    },
}
ABOUT = "Train models under differential privacy, account for every release, and serve them with certificates."
MEANINGS = {
    400: "malformed",
    401: "no token that is good",
    403: "the token's scope, or the budget, does not allow it",
    404: "no such name",
    409: "not in this state, or an idempotency key that came with another body",
    413: "too large",
    422: "a record does not fit the schema; names record and field. Or a model of trees was asked to explain",
    503: "not ready, or the model does not verify",
}


def openapi(base: Mapping[str, Any], doors: Iterable[Door]) -> dict[str, Any]:
    """`base`, the description that BentoML makes, with our doors in place of its own of the same path."""
    paths: dict[str, Any] = {
        path: item for path, item in base.get("paths", {}).items() if path not in ("/healthz", "/metrics")
    }
    ours: dict[str, dict[str, Any]] = {}
    for door in doors:
        ours.setdefault(door.path, {})[door.method.lower()] = _operation(door)
    schemes = {"token": {"type": "http", "scheme": "bearer", "description": "dpserve token create"}}
    components = dict(base.get("components", {}))
    components["schemas"] = {**components.get("schemas", {}), "Error": ERROR}
    components["securitySchemes"] = schemes
    info = {"title": "dpserve", "version": _version(), "description": ABOUT}
    return {**base, "info": info, "paths": {**paths, **ours}, "components": components, "security": [{"token": []}]}


def _version() -> str:
    try:
        return version("dpserve")
    except PackageNotFoundError:  # a bento holds the sources, not the distribution
        return "bento"


def _operation(door: Door) -> dict[str, Any]:
    body = {} if door.takes is None else {"requestBody": {"required": True, "content": _content(door.takes)}}
    security: list[dict[str, list[str]]] = [{"token": []}] if door.scopes else []
    done = {str(door.status): {"description": "done", "content": {door.media: {"schema": door.gives}}}}
    return {
        "summary": door.says,
        "description": f"Scope: {' or '.join(door.scopes)}." if door.scopes else "Open to everybody.",
        "operationId": re.sub(r"\W+", "_", f"{door.method.lower()}{door.path}").strip("_"),
        "parameters": [*_in_path(door), *_in_query(door)],
        "responses": {**done, **_errors()},
        "security": security,
        **body,
    }


def _content(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _in_path(door: Door) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", door.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _in_query(door: Door) -> list[dict[str, Any]]:
    kind = {"type": "integer", "minimum": 0}
    return [{"name": name, "in": "query", "description": says, "schema": kind} for name, says in door.query.items()]


def _errors() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {str(status): {"description": says, "content": _content(schema)} for status, says in MEANINGS.items()}

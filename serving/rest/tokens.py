"""The door to tokens: who has one, for whom it acts, and how it ended. None of them can be read from it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from accountant.ledger import tokens
from serving.http.routes import Door, in_thread, state
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import known_query


async def listed(request: Request) -> Response:
    """All there ever were, the oldest first."""
    known_query(request)
    found = await in_thread(tokens.tokens, state(request).home.ledger)
    return json_response({"tokens": [token.to_json() for token in found]})


TOKEN = json_schemas.record(
    {
        "name": json_schemas.TEXT, "principal": json_schemas.TEXT, "scopes": json_schemas.array(json_schemas.TEXT),
        "hash": json_schemas.SHA256, "limits": json_schemas.ANY_OBJECT, "created": json_schemas.COUNT,
        "revoked": json_schemas.maybe(json_schemas.COUNT),
    },
    says="`hash` of the token itself; `created`, `revoked`: the entries that say so",
)  # fmt: skip
DOORS = (
    Door(
        "GET", "/v1/tokens", ("admin",), listed, "Tokens there ever were",
        gives=json_schemas.record({"tokens": json_schemas.array(TOKEN)}),
    ),
)  # fmt: skip

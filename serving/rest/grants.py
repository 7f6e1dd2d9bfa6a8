"""The doors to grants and tokens: who may do what, for admins. No token's secret can be read from them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access import grants, tokens
from accountant.access.grants import EVERYTHING, KINDS, Grant
from accountant.access.tokens import SCOPES
from accountant.ledger.families.records import Why
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import check_name
from serving.http.routes import Door, access, in_thread, path_number, state
from serving.rest import json_schemas
from serving.wire import lists
from serving.wire.errors import json_response
from serving.wire.list_parts import cut_grants, cut_tokens
from serving.wire.request_bodies import json_fields, known_query, query_text


async def list_grants(request: Request) -> Response:
    """Return all grants, ended ones too, the oldest first; or those of one principal."""
    part, whom = lists.part_of(request, "principal"), query_text(request, "principal")
    all_grants = await in_thread(grants.grants, state(request).home.ledger)
    visible = [grant for grant in all_grants if whom in (None, grant.principal)]
    wanted, following = cut_grants(part, visible)
    return json_response({"grants": [grant.to_json() for grant in wanted], "next": following})


async def list_tokens(request: Request) -> Response:
    """Return all tokens, revoked ones too, the oldest first."""
    part = lists.part_of(request)
    all_tokens = await in_thread(tokens.tokens, state(request).home.ledger)
    wanted, following = cut_tokens(part, all_tokens)
    return json_response({"tokens": [token.to_json() for token in wanted], "next": following})


async def add_grant(request: Request) -> Response:
    """Enter a grant; where the same one holds already, return that."""
    known_query(request)
    needed = {"principal": (str,), "scope": (str,), "on": (str, dict)}
    body = await json_fields(request, needed, {"expires": (str,)})
    kind, name = _object(body["on"])
    until = None if body.get("expires") is None else grants.time_of(body["expires"])
    wanted = Grant(body["principal"], body["scope"], kind, name, expires=until)
    (added,) = await in_thread(grants.add, state(request).home.ledger, [wanted], access(request).principal)
    return json_response(added.to_json())


def _object(on: Any) -> tuple[str, str]:
    if on == EVERYTHING:
        return EVERYTHING, ""
    if not isinstance(on, dict) or len(on) != 1 or (kind := next(iter(on))) not in KINDS:
        raise InputError(
            f'on: must be "{EVERYTHING}", or one of {list(KINDS)} with its name, as in {{"dataset": "adult"}}'
        )
    if not isinstance(on[kind], str):
        raise InputError(f"on: {kind} must be a text")
    return kind, check_name(kind, on[kind])


async def show_grant(request: Request) -> Response:
    """Return a grant, and what would stop with it."""
    known_query(request)
    stops = await in_thread(grants.stops, state(request).home.ledger, path_number(request, "grant"))
    return json_response(stops.to_json())


async def revoke_grant(request: Request) -> Response:
    """End a grant, permanently. A second time gets the same answer."""
    known_query(request)
    body = await json_fields(request, {"reason": (str,)})
    number, why = path_number(request, "grant"), Why(access(request).principal, body["reason"])
    ended = await in_thread(grants.revoke, state(request).home.ledger, number, why)
    return json_response(ended.to_json())


ON = json_schemas.either(
    {"const": EVERYTHING},
    {
        "type": "object", "additionalProperties": False, "minProperties": 1, "maxProperties": 1,
        "properties": {kind: {"type": "string", "minLength": 1, "maxLength": 64} for kind in KINDS},
    },
)  # fmt: skip
_GRANT = {
    "grant": json_schemas.COUNT, "principal": json_schemas.TEXT, "scope": {"enum": list(SCOPES)}, "on": ON,
    "expires": json_schemas.maybe(json_schemas.TIME), "revoked": json_schemas.maybe(json_schemas.COUNT),
}  # fmt: skip
GRANT = json_schemas.record(_GRANT, says="`grant`: the entry that made it; `revoked`: the one that ended it")
STOPS = json_schemas.record(
    {
        "tokens": json_schemas.array(json_schemas.TEXT), "still": json_schemas.maybe(json_schemas.COUNT),
        "jobs": json_schemas.array(json_schemas.COUNT),
    },
    says="`tokens` may no longer do it; `still`: another grant that covers all of it; `jobs`: asked for by it and not "
    "over, they go on",
)  # fmt: skip
ADD = {
    "type": "object",
    "additionalProperties": False,
    "required": ["principal", "scope", "on"],
    "properties": {
        "principal": {"type": "string", "minLength": 1, "maxLength": 200, "description": "whom tokens act for"},
        "scope": {"enum": list(SCOPES)},
        "on": ON,
        "expires": {"type": "string", "description": "2027-01-31, or to the second 2027-01-31T12:00:00Z, in UTC"},
    },
}
REVOKE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["reason"],
    "properties": {"reason": {"type": "string", "minLength": 1, "maxLength": 500}},
}
TOKEN = json_schemas.record(
    {
        "name": json_schemas.TEXT, "principal": json_schemas.TEXT, "scopes": json_schemas.array(json_schemas.TEXT),
        "hash": json_schemas.SHA256, "limits": json_schemas.ANY_OBJECT, "created": json_schemas.COUNT,
        "revoked": json_schemas.maybe(json_schemas.COUNT),
    },
    says="`hash` of the token itself; `created`, `revoked`: the entries that say so",
)  # fmt: skip
ADMIN = ("admin",)
PATH = "/v1/grants"
PRINCIPAL = {**lists.PART, "principal": {"type": "string", "description": "only of this principal"}}
DOORS = (
    Door(
        "GET", PATH, ADMIN, list_grants, "Grants: who may do what",
        gives=json_schemas.record({"grants": json_schemas.array(GRANT), "next": json_schemas.NEXT}), query=PRINCIPAL,
    ),
    Door("POST", PATH, ADMIN, add_grant, "Grant a scope", takes=ADD, gives=GRANT, errors=(404,)),
    Door(
        "GET", f"{PATH}/{{grant}}", ADMIN, show_grant, "A grant, and what would stop with it",
        gives=json_schemas.record({**_GRANT, "stops": STOPS}),
    ),
    Door("POST", f"{PATH}/{{grant}}/revoke", ADMIN, revoke_grant, "End a grant", takes=REVOKE, gives=GRANT),
    Door(
        "GET", "/v1/tokens", ADMIN, list_tokens, "Tokens there ever were",
        gives=json_schemas.record({"tokens": json_schemas.array(TOKEN), "next": json_schemas.NEXT}), query=lists.PART,
    ),
)  # fmt: skip

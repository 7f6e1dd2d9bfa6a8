"""The doors by which a steward changes what a dataset may spend: its family's total, each analyst's share of it, what
was spent of it elsewhere, and whether it takes jobs at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.tokens import resolve_principal
from accountant.home import Home
from accountant.ledger.families.left import describe_budget
from accountant.ledger.families.records import Why
from dpserve_verify.privacy.budget import exact_decimal
from serving.http.routes import Door, access, in_thread, state
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import json_body, json_fields, known_query
from training.datasets import decisions
from training.requests import ChargeRequest
from training.requests.base import json_schema


async def change_budget(request: Request) -> Response:
    """Change a total, by an entry with a reason; what was spent stays spent."""
    known_query(request)
    body = await json_fields(request, {"epsilon": (str,), "reason": (str,)})
    name, by = request.path_params["name"], access(request).principal
    return json_response(await in_thread(change_total, state(request).home, name, body["epsilon"], body["reason"], by))


def change_total(home: Home, name: str, epsilon: str, reason: str, by: str) -> dict[str, Any]:
    """Change the total of a dataset's family; return the budget's JSON."""
    dataset = home.ledger.change_budget(name, exact_decimal("epsilon", epsilon), reason, by)
    return {"dataset": name, "budget": describe_budget(dataset)}


async def set_quota(request: Request) -> Response:
    """Set how much of the budget one analyst may use; what they used already counts."""
    known_query(request)
    body = await json_fields(request, {"analyst": (str,), "share": (str,), "reason": (str,)})
    name, by = request.path_params["name"], access(request).principal
    values = body["analyst"], body["share"], body["reason"]
    return json_response(await in_thread(set_share, state(request).home, name, *values, by))


def set_share(home: Home, name: str, analyst: str, share: str, reason: str, by: str) -> dict[str, Any]:
    """Set an analyst's share of the budget; return the dataset's quotas."""
    analyst = resolve_principal(home.ledger, analyst)
    home.ledger.set_quota(name, analyst, exact_decimal("share", share), reason, by)
    return {"dataset": name, "quotas": home.ledger.quotas(name)}


async def charge(request: Request) -> Response:
    """Charge a release that was made elsewhere. It stays spent; more than is left is refused."""
    return await _judge_charge(request, decisions.charge)


async def plan_charge(request: Request) -> Response:
    """Show what a charge would leave; spends nothing."""
    return await _judge_charge(request, decisions.plan_charge)


async def _judge_charge(request: Request, judge: Callable[..., dict[str, Any]]) -> Response:
    known_query(request)
    body = ChargeRequest.of(await json_body(request))
    name, by = request.path_params["name"], access(request).principal
    return json_response(await in_thread(judge, state(request).home, name, body, by))


async def decide(request: Request) -> Response:
    """Withdraw, retire or restore a dataset, as the last part of the path says."""
    known_query(request)
    body = await json_fields(request, {"reason": (str,)})
    name, why = request.path_params["name"], Why(access(request).principal, body["reason"])
    act = request.url.path.rpartition("/")[2]
    return json_response(await in_thread(decisions.decide, state(request).home, name, act, why))


def _takes(**texts: str) -> dict[str, Any]:
    reason = {"type": "string", "minLength": 1, "maxLength": 500, "description": "stays in the ledger permanently"}
    fields = {name: {"type": "string", "description": says} for name, says in texts.items()} | {"reason": reason}
    return {"type": "object", "additionalProperties": False, "required": list(fields), "properties": fields}


STEWARD = ("steward",)
DATASET = "/v1/datasets/{name}"
DECIDED = {"dataset": json_schemas.TEXT, "entry": {"type": "integer", "description": "of the ledger, which says so"}}
RELEASES = {"releases": json_schemas.RELEASES}
ACTS = {
    decisions.WITHDRAW: ("Withdraw a registration that nothing was spent on", "withdrawn"),
    decisions.RETIRE: ("Let a dataset take no further job, schedule or block", "archived"),
    decisions.RESTORE: ("Take a retired dataset up again", "archived"),
}
DOORS = (
    Door(
        "POST", f"{DATASET}/budget", STEWARD, change_budget, "Change the total of a dataset's family",
        takes=_takes(epsilon="the new total, a decimal"),
        gives=json_schemas.record({"dataset": json_schemas.TEXT, "budget": json_schemas.FAMILY_BUDGET}),
    ),
    Door(
        "POST", f"{DATASET}/quotas", STEWARD, set_quota, "Set how much of the budget an analyst may use",
        takes=_takes(analyst='token:NAME, cli:USER or a principal; "*": all others', share="above 0 and at most 1"),
        gives=json_schemas.record({"dataset": json_schemas.TEXT, "quotas": json_schemas.array(json_schemas.QUOTA)}),
    ),
    Door(
        "POST", f"{DATASET}/charges", STEWARD, charge, "Charge a release that was made elsewhere",
        takes=json_schema(ChargeRequest),
        gives=json_schemas.record({**DECIDED, "budget": json_schemas.FAMILY_BUDGET}, RELEASES),
    ),
    Door(
        "POST", f"{DATASET}/charges/plan", STEWARD, plan_charge, "Show what a charge would leave; spends nothing",
        takes=json_schema(ChargeRequest),
        gives=json_schemas.record({"dataset": json_schemas.TEXT, "budget": json_schemas.FAMILY_BUDGET}, RELEASES),
    ),
    *(
        Door(
            "POST", f"{DATASET}/{act}", STEWARD, decide, summary,
            takes=_takes(), gives=json_schemas.record({**DECIDED, now: {"type": "boolean"}}),
        )
        for act, (summary, now) in ACTS.items()
    ),
)  # fmt: skip

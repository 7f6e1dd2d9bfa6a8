"""Which version answers to a model's name, and which are not served: decided by who may promote, and written into the
ledger.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema
from pydantic.dataclasses import dataclass

from dpserve_verify.entries.models import MOST_REASON, check_reason
from models.store import placing
from models.store.placing import Placed
from serving.operations import Caller, operation
from training.requests.base import CLOSED, Checked

NO_REASON = "no reason was given"
_WHY = {"type": "string", "minLength": 1, "maxLength": MOST_REASON, "pattern": r"\S"}
Why = Annotated[
    StrictStr,
    AfterValidator(check_reason),
    WithJsonSchema(_WHY),
    Field(description="it stays in the ledger permanently"),
]
MODEL, PROMOTES = "/v1/models/{name}", "promote"


@dataclass(frozen=True, config=CLOSED)
class PromoteRequest(Checked):
    """A version that the name alone shall mean."""

    version: Annotated[StrictInt, Field(ge=1)]
    reason: Why = NO_REASON
    if_better: Annotated[
        StrictBool,
        Field(description="only where a statement of worth shows that it is better than the champion"),
    ] = False
    although_not_better: Annotated[
        StrictBool,
        Field(description="also where its evaluation does not show that it is better than a constant answer"),
    ] = False


@dataclass(frozen=True, config=CLOSED)
class PlaceRequest(Checked):
    """Why a version is served no more, or again."""

    reason: Why


@operation("POST", f"{MODEL}/promote", PROMOTES)
def promote_model(caller: Caller, name: str, body: PromoteRequest) -> Placed:
    """Let a name mean this version."""
    flags = body.if_better, body.although_not_better
    return placing.promote(caller.home, f"{name}@{body.version}", body.reason, caller.principal, *flags)


@operation("POST", f"{MODEL}/retire", PROMOTES)
def retire_model(caller: Caller, name: str, body: PlaceRequest) -> Placed:
    """Serve name@version no more; its files and its certificate stay."""
    return placing.retire(caller.home, name, body.reason, caller.principal)


@operation("POST", f"{MODEL}/restore", PROMOTES)
def restore_model(caller: Caller, name: str, body: PlaceRequest) -> Placed:
    """Serve name@version again."""
    return placing.restore(caller.home, name, body.reason, caller.principal)


move_champion = replace(promote_model, path=f"{MODEL}/champion")
OPERATIONS = (promote_model, move_champion, retire_model, restore_model)

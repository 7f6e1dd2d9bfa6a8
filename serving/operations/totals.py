"""What a steward changes of what a dataset may spend: its family's total, each analyst's share of it, what was spent of
it elsewhere, and whether it takes jobs at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from accountant.access.tokens import resolve_principal
from accountant.ledger.families.left import describe_budget
from accountant.ledger.families.records import Why
from accountant.system.lazy_import import later
from dpserve_verify.privacy.budget import exact_decimal
from serving.operations import Caller, operation
from serving.operations.answers import Answer, Share, shape
from training.requests import ChargeRequest, Reasoned
from training.requests.base import CLOSED
from training.requests.fields import Text

if TYPE_CHECKING:
    from training.datasets import decisions
else:
    decisions = later("training.datasets.decisions")  # a list of datasets needs no reader of rows

STEWARD, DATASET = "steward", "/v1/datasets/{name}"
Entry = Annotated[int, Field(description="of the ledger, which says so")]
Budget = Annotated[dict[str, Any], shape("FAMILY_BUDGET")]
Releases = Annotated[list[dict[str, Any]] | None, shape("RELEASES")]


@dataclass(frozen=True, config=CLOSED)
class TotalRequest(Reasoned):
    """Another total for a dataset's family."""

    epsilon: Annotated[Text, Field(description="the new total, a decimal")] = ...  # type: ignore[assignment]


@dataclass(frozen=True, config=CLOSED)
class QuotaRequest(Reasoned):
    """How much of the budget one analyst may use."""

    analyst: Annotated[Text, Field(description='token:NAME, cli:USER or a principal; "*": all others')] = ...  # type: ignore[assignment]
    share: Annotated[Text, Field(description="above 0 and at most 1")] = ...  # type: ignore[assignment]


@dataclass(frozen=True)
class Total(Answer):
    """A dataset, and the budget of its family."""

    dataset: str
    budget: Budget


@dataclass(frozen=True)
class Quota(Answer):
    """What an analyst may use of a budget, and has used."""

    analyst: str
    quota: str | None
    used: Share


@dataclass(frozen=True)
class Quotas(Answer):
    """A dataset, and the quotas of its analysts."""

    dataset: str
    quotas: tuple[Quota, ...]


@dataclass(frozen=True)
class Charged(Answer):
    """A dataset that was charged, and the budget then."""

    dataset: str
    entry: Entry
    budget: Budget
    releases: Releases = None


@dataclass(frozen=True)
class Charging(Total):
    """A dataset, and the budget that a charge would leave."""

    releases: Releases = None


@dataclass(frozen=True)
class Withdrawn(Answer):
    """A dataset whose registration ended."""

    dataset: str
    withdrawn: bool
    entry: Entry


@dataclass(frozen=True)
class Archived(Answer):
    """A dataset, and whether it takes no further job."""

    dataset: str
    archived: bool
    entry: Entry


@operation("POST", f"{DATASET}/budget", STEWARD)
def change_budget(caller: Caller, name: str, body: TotalRequest) -> Total:
    """Change the total of a dataset's family, by an entry with a reason; what was spent stays spent."""
    total = exact_decimal("epsilon", body.epsilon)
    dataset = caller.home.ledger.change_budget(name, total, body.reason, caller.principal)
    return Total(name, describe_budget(dataset))


@operation("POST", f"{DATASET}/quotas", STEWARD)
def set_quota(caller: Caller, name: str, body: QuotaRequest) -> Quotas:
    """Set how much of the budget an analyst may use; what they used already counts."""
    ledger = caller.home.ledger
    analyst, share = resolve_principal(ledger, body.analyst), exact_decimal("share", body.share)
    ledger.set_quota(name, analyst, share, body.reason, caller.principal)
    return Quotas(name, tuple(Quota(**quota) for quota in ledger.quotas(name)))


@operation("POST", f"{DATASET}/charges", STEWARD)
def charge(caller: Caller, name: str, body: ChargeRequest) -> Charged:
    """Charge a release that was made elsewhere. It stays spent; more than is left is refused."""
    return Charged(**decisions.charge(caller.home, name, body, caller.principal))


@operation("POST", f"{DATASET}/charges/plan", STEWARD, is_repeatable=True)
def plan_charge(caller: Caller, name: str, body: ChargeRequest) -> Charging:
    """Show what a charge would leave; spends nothing."""
    return Charging(**decisions.plan_charge(caller.home, name, body, caller.principal))


@operation("POST", f"{DATASET}/withdraw", STEWARD)
def withdraw_dataset(caller: Caller, name: str, body: Reasoned) -> Withdrawn:
    """Withdraw a registration that nothing was spent on."""
    return Withdrawn(**_decide(caller, name, decisions.WITHDRAW, body))


@operation("POST", f"{DATASET}/retire", STEWARD)
def retire_dataset(caller: Caller, name: str, body: Reasoned) -> Archived:
    """Let a dataset take no further job, schedule or block."""
    return Archived(**_decide(caller, name, decisions.RETIRE, body))


@operation("POST", f"{DATASET}/restore", STEWARD)
def restore_dataset(caller: Caller, name: str, body: Reasoned) -> Archived:
    """Take a retired dataset up again."""
    return Archived(**_decide(caller, name, decisions.RESTORE, body))


def _decide(caller: Caller, name: str, act: str, body: Reasoned) -> Any:
    why = Why(caller.principal, body.reason)
    return decisions.decide(caller.home, name, act, why, caller.rights.operator)


OPERATIONS = (change_budget, set_quota, charge, plan_charge, withdraw_dataset, retire_dataset, restore_dataset)

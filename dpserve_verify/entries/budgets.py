"""Totals, quotas, and what is charged for releases made elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from dpserve_verify.entries.entry import (
    Accounts,
    Budget,
    EntryForm,
    Figure,
    Filter,
    Hex,
    Index,
    Json,
    Line,
    Mark,
    Name,
    Price,
    ReasonedForm,
    Text,
    Words,
)
from dpserve_verify.formats.forms import Form, Limits, form_field
from dpserve_verify.privacy.made_from import MOST

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import Replay


class BudgetChanged(EntryForm):
    """Another total at the same delta; what was spent stays."""

    type: Literal["budget-changed"]
    family: Text
    budget: Budget
    filter: Filter
    largest: Figure
    after: Accounts
    reason: Words
    by: Words


class QuotaSet(EntryForm):
    """How much of a family's total one analyst may use, or everybody else."""

    type: Literal["quota-set"]
    family: Text
    analyst: Words
    share: Figure
    reason: Words
    by: Words

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.books.judge_quota_set(self)


class ReleaseForm(Form):
    """A release of another ledger."""

    ledger: Text
    reservation: Index


class Charged(ReasonedForm):
    """What a release made elsewhere costs."""

    type: Literal["charged"]
    dataset: Name
    curve: Json
    mechanism: Line
    unit: Annotated[Literal["record", "person"], Limits(refusal="must be record or person")]
    price: Price
    after: Accounts
    document: Hex | None = form_field(absent=True)
    contributions: Annotated[int, Limits(low=1, high=10_000)] | None = form_field(absent=True)
    blocks: Text | None = form_field(absent=True)
    window: list[int] | None = form_field(absent=True)
    another: Mark | None = form_field(absent=True, about="the same was charged before, and this is another release")
    delta: Figure | None = form_field(absent=True)
    releases: Annotated[list[ReleaseForm], Limits(shortest=1, longest=MOST + 1)] | None = form_field(absent=True)

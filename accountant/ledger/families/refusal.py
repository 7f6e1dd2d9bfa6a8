"""What is said when a job does not fit: public figures alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accountant.ledger.families.families import Dataset, Family
from accountant.ledger.families.left import QUOTA, describe_accounts, left_of, room_words
from accountant.ledger.families.records import Request
from dpserve_verify.errors import BudgetRefused
from dpserve_verify.privacy.budget import short_delta, used_words
from dpserve_verify.privacy.filter import Price, price_to_json


def refusal(
    dataset: Dataset, request: Request, costs: Sequence[Price], would_fit: Mapping[str, Any] | None = None
) -> BudgetRefused:
    """Return the refusal of a job at `costs`, its price in each family, which one of them does not admit: asked, spent,
    left, and the epsilon and delta that would fit. Every part of it is public.
    """
    refusing = [pair for pair in zip(dataset.families, costs, strict=True) if not pair[0].admits(pair[1])]
    # closed first; then of families the first, of blocks the one with the least left
    family, cost = max(refusing, key=lambda pair: (pair[0].whole is not None, pair[0].share if pair[0].block else 0.0))
    delta = request.budget.delta
    summary, by_quota = describe_accounts([family], delta), family.filter.admits(family.used, cost)
    left = left_of(dataset.families, delta, dataset.window)
    left_json = left.to_json()
    asked_json = {**request.budget.to_json(), "price": price_to_json(cost, family.filter.orders)}
    room = left_json["one_job"]
    is_told = would_fit is None or (room is not None and room["epsilon"] == would_fit["epsilon"])
    fits = "" if is_told or would_fit is None else f"; by this learner, epsilon {would_fit['epsilon']} would fit"
    of = QUOTA if left.least.kind == QUOTA else "budget"
    reserved = float(summary["reserved"]["share"])
    held = f" ({100 * reserved:.0f} % by jobs that have not started)" if reserved >= 0.01 else ""
    if family.whole is not None:
        fits = f"; closed by job {family.whole.job}, which took the whole total"
    quota = family.quota if by_quota else None
    why = "" if quota is None else f"{quota.analyst} may use {quota.share} of it; "
    which: dict[str, Any] = {} if family.block is None else {"block": family.block}
    at = "" if delta == family.budget.delta else f" at delta {short_delta(delta)}"
    where = "" if family.block is None else f", block {family.block}"
    if family.person:
        where, which = ", one person over all its blocks", {"person": True}
    message = (
        f"dataset={request.dataset}{where}: epsilon {request.budget.epsilon}{at} does not fit; "
        f"{why}{used_words(left.share, of)}{held}. "
        f"{room_words(left_json)}{fits}"
    )
    return BudgetRefused(
        message, dataset=request.dataset, asked=asked_json, spent=summary["spent"], left=left_json,
        reserved=summary["reserved"], reason="quota" if by_quota else "budget", would_fit=would_fit,
        account=summary["account"], **which,
    )  # fmt: skip


def outgrown_refusal(job: int, family: Family, dataset: Dataset, request: Request) -> BudgetRefused:
    """Return the refusal of a reserved `job` at its start: `family`'s total was lowered since, and it is given back.
    `dataset` stands as it did when this was decided.
    """
    summary = describe_accounts([family])
    message = (
        f"job {job}: is given back, no row was read: the total of dataset {request.dataset} was lowered to epsilon "
        f"{family.budget.epsilon} after it had been reserved, and beside the {summary['spent']['epsilon']} that "
        f"is spent epsilon {request.budget.epsilon} does not fit"
    )
    return BudgetRefused(
        message, dataset=dataset.registration.name, asked=request.budget.to_json(), spent=summary["spent"],
        left=summary["left"], reserved=summary["reserved"], reason="budget", would_fit=None, job=job,
    )  # fmt: skip

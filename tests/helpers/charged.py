"""Whether what is charged covers what was drawn, release by release of a plan."""

from __future__ import annotations

from accountant.home import Home
from accountant.privacy.claims import price
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.filter import Price
from training.planning import plans
from training.requests import JobRequest


def covers(used: Price, cost: Price) -> bool:
    figures = zip((used.pure, used.unbounded, *used.rdp), (cost.pure, cost.unbounded, *cost.rdp), strict=True)
    return all(ours >= theirs for ours, theirs in figures)


def check_charged(opened: Home, asked: JobRequest, draws: int, before: Price | None = None) -> None:
    """`draws`: releases that jobs as `asked` have begun to draw, since `before` was charged."""
    dataset = opened.ledger.dataset(asked.dataset)
    plan = plans.plan(opened, asked).recipe.plan
    jobs, rest = divmod(draws, len(plan))
    cost = dataset.most_used.filter.nothing()
    for _ in range(jobs):
        cost += price(plan, dataset.most_used.filter.orders)
    cost += price(Plan.of([plan[index] for index in range(rest)]), dataset.most_used.filter.orders)
    assert covers(dataset.most_used.used if before is None else dataset.most_used.used - before, cost)

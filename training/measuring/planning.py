"""What planning has in common wherever rows are counted for a signed statement: whose rows, what it costs, whether it
is admitted. The same request again is answered by the statement that stands, for nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from accountant.home import Home
from accountant.ledger.families.block_rows import require_window
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.left import left
from accountant.ledger.families.records import HOLDOUT, Request
from accountant.ledger.families.refusal import refusal
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import Budget
from training.learners.job_words import window_to_json
from training.requests import EvaluationRequest, ProfileRequest, QueryRequest
from training.rows.schema.schema import Schema, schema_of
from training.session.learner import Recipe

TRAINING, ALL = "training", "all"


@dataclass(frozen=True)
class Planned:
    """What counts rows, and fits. `known`: the job whose statement answers it already. Nothing is spent yet."""

    request: Request
    recipe: Recipe
    dataset: Dataset
    known: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the price, what it buys, and what would be left."""
        claimed, costs = self.recipe.claim, self.dataset.costs(self.recipe.plan)
        after = self.dataset if self.known is not None else self.dataset.with_job(costs, claimed)
        return {
            "dataset": self.request.dataset,
            "part": part_of(self.dataset),
            **window_to_json(self.dataset),
            "epsilon": decimal_string(claimed.epsilon) if self.known is None else "0",
            "delta": decimal_string(claimed.delta),
            **self.bought(),
            "known": self.known,
            "left": left(after, claimed.delta).to_json(),
        }

    @abstractmethod
    def bought(self) -> dict[str, Any]:
        """Return what is counted, and how exactly."""


def part_of(dataset: Dataset, request: Request | None = None) -> str:
    """Return the part whose accounts these are, in the words of a statement; of institutions the request says whether
    each counts the rows that it keeps aside.
    """
    if dataset.families[0].part is not None or (request and request.parameters.get("part") == HOLDOUT):
        return HOLDOUT
    return ALL if dataset.holdout is None else TRAINING


def open_account(
    home: Home, asked: EvaluationRequest | ProfileRequest | QueryRequest, part: str | None, by: str | None
) -> tuple[Dataset, Budget, Schema]:
    """Return the dataset with the account of the part that is counted (None: what learners read), the budget of the
    job, and the schema. InputError where its rows cannot be counted, or not for this budget.
    """
    dataset = home.ledger.dataset(asked.dataset, by, part, asked.blocks, rows=False)
    require_window(dataset, asked.blocks)
    if dataset.registration.remote:
        raise InputError(f"dataset={asked.dataset}: its rows stay with their owners, and cannot be counted here")
    if part is not None and dataset.holdout is None:
        raise InputError(f"dataset={asked.dataset}: keeps no rows aside; leave --part out")
    budget = Budget.of(str(asked.epsilon), str(dataset.delta if asked.delta is None else asked.delta))
    dataset.check_delta(budget)
    return dataset, budget, schema_of(home, dataset)


def require_admitted(dataset: Dataset, request: Request, recipe: Recipe, smaller: Iterator[Budget]) -> None:
    """Raise BudgetRefused where the release would not be admitted now, with the first of the `smaller` budgets: each
    surely would be.
    """
    if not is_admitted(dataset, recipe):
        fitting = next(smaller, None)
        raise refusal(dataset, request, dataset.costs(recipe.plan), None if fitting is None else fitting.to_json())


def is_admitted(dataset: Dataset, recipe: Recipe) -> bool:
    """Tell whether these releases would be admitted now."""
    costs = dataset.costs(recipe.plan)
    return dataset.refusing(costs) is None or dataset.can_close(recipe.claim, costs)

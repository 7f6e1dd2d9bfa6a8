"""Describing a job and rehearsing it: what it would cost, what would be left, what would fit. Spends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from accountant.budget import Budget, exact_decimal, from_nano, nano
from accountant.canonical import decimal_string
from accountant.errors import InputError, UnknownName
from accountant.families import Dataset, refusal
from accountant.home import Home
from accountant.names import check_name
from accountant.prices import Price
from accountant.records import Request
from training.calibrate import Recipe
from training.datasets import schema_of
from training.learners import LEARNERS, PrivateClassifier
from training.schema import Schema
from training.session import Public

OWN = {"schema", "epsilon", "delta", "relation"}


@dataclass(frozen=True)
class Asked:
    """A job in the words of the one who asks. `delta` None: the dataset's; `model` None: the dataset's name."""

    dataset: str
    learner: str
    epsilon: str | float | Decimal
    delta: str | float | Decimal | None = None
    parameters: Mapping[str, Any] | None = None
    model: str | None = None


@dataclass(frozen=True)
class Planned:
    """A job that fits: its request, its recipe (unit, plan, claim), its price in each family. Nothing is spent yet."""

    request: Request
    recipe: Recipe
    costs: tuple[Price, ...]
    dataset: Dataset

    def to_json(self) -> dict[str, Any]:
        after = self.dataset.with_job(self.costs)
        return {
            "dataset": self.request.dataset,
            "learner": self.request.learner,
            "epsilon": decimal_string(self.recipe.claim.epsilon),
            "delta": decimal_string(self.recipe.claim.delta),
            "rounds": len(self.recipe.plan),
            "unit": decimal_string(self.recipe.unit),
            "relation": self.dataset.registration.relation.value,
            "left": {**after.summary()["left"], "jobs": after.jobs_left(self.costs)},
            "model": self.request.model,
            "certificate": None,
        }


def learner_of(name: str, parameters: Mapping[str, Any] | None = None) -> PrivateClassifier:
    """The learner of that name with these public parameters; InputError names what it would take."""
    if name not in LEARNERS:
        raise UnknownName(f"learner={name!r}: no such learner; there are {sorted(LEARNERS)}", learner=name)
    kind = LEARNERS[name]
    known = set(kind().get_params()) - OWN
    unknown = set(parameters or {}) - known
    if unknown:
        raise InputError(f"parameters {sorted(unknown)}: {name} takes {sorted(known)}")
    defaults = kind().get_params()
    return kind(**{key: _parameter(key, value, defaults[key]) for key, value in (parameters or {}).items()})


def _parameter(key: str, value: Any, default: Any) -> Any:
    """A value from the command line or JSON as the type its default has."""
    if value is None or isinstance(default, bool):
        if value in (None, True, False, "true", "false"):
            return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        raise InputError(f"{key}={value!r}: must be true or false")
    if isinstance(default, str):
        return str(value)
    number = exact_decimal(key, value) if not isinstance(value, bool) else None
    if number is None or (not isinstance(default, float) and number != int(number)):
        raise InputError(f"{key}={value!r}: must be a {'number' if isinstance(default, float) else 'whole number'}")
    return float(number) if isinstance(default, float) else int(number)


def plan(home: Home, asked: Asked, by: str | None = None) -> Planned:
    """Rehearse and price. BudgetRefused where it would not be admitted now, with what would fit. Spends nothing.

    `by`: the analyst, whose quota counts as well.
    """
    dataset = home.ledger.dataset(asked.dataset, by)
    request, learner = request_of(dataset, asked)
    public = public_of(dataset, schema_of(home, dataset), request.budget)
    recipe = learner.recipe(public)
    costs = dataset.costs(recipe.plan)
    if dataset.refusing(costs):
        raise refusal(dataset, request, recipe.plan, would_fit(dataset, learner, public))
    return Planned(request, recipe, costs, dataset)


def request_of(dataset: Dataset, asked: Asked) -> tuple[Request, PrivateClassifier]:
    learner = learner_of(asked.learner, asked.parameters)
    budget = Budget.of(str(asked.epsilon), str(dataset.delta if asked.delta is None else asked.delta))
    budget.check_delta(dataset.registration.records)
    if budget.delta > dataset.delta:
        raise InputError(f"delta={budget.delta}: dataset {asked.dataset} has {dataset.delta} in all")
    model = check_name("model", asked.model or asked.dataset)
    return Request(asked.dataset, asked.learner, budget, _stored_parameters(learner), model), learner


def _stored_parameters(learner: PrivateClassifier) -> dict[str, str | int | bool | None]:
    """Every hyper-parameter, defaults included; floats as their shortest decimal text."""
    found = {key: value for key, value in learner.get_params().items() if key not in OWN}
    return {
        key: decimal_string(Decimal(repr(value))) if isinstance(value, float) else value for key, value in found.items()
    }


def public_of(dataset: Dataset, schema: Schema, budget: Budget) -> Public:
    registration = dataset.registration
    return Public(
        schema.features,
        schema.target,
        schema.classes,
        schema.records,
        registration.relation,
        budget,
        dataset.delta == 0,
        registration.unit.contributions,
    )


def would_fit(dataset: Dataset, learner: PrivateClassifier, public: Public) -> dict[str, str] | None:
    """Largest epsilon below the asked one, in steps of 1e-3, that this learner could still get at this delta; None if
    none.
    """
    low, high = 0, nano(public.budget.epsilon) // 10**6
    while high > low:
        middle = (low + high + 1) // 2
        recipe = _recipe_at(learner, public, from_nano(middle * 10**6))
        fits = recipe is not None and dataset.refusing(dataset.costs(recipe.plan)) is None
        low, high = (middle, high) if fits else (low, middle - 1)
    return Budget(from_nano(low * 10**6), public.budget.delta).to_json() if low else None


def _recipe_at(learner: PrivateClassifier, public: Public, epsilon: Decimal) -> Recipe | None:
    try:
        return learner.recipe(replace(public, budget=Budget(epsilon, public.budget.delta)))
    except InputError:
        return None


def jobs_left(home: Home, dataset: Dataset) -> dict[str, int]:
    """For each learner, how many jobs at a tenth of the total epsilon still fit by defaults."""
    reference = Budget(from_nano(max(1, nano(dataset.budget.epsilon) // 10)), dataset.delta)
    public = public_of(dataset, schema_of(home, dataset), reference)
    found = {name: _reference(name, public) for name in LEARNERS}
    return {name: dataset.jobs_left(dataset.costs(recipe.plan)) for name, recipe in found.items() if recipe}


@lru_cache(maxsize=1024)
def _reference(name: str, public: Public) -> Recipe | None:
    return _recipe_at(LEARNERS[name](), public, public.budget.epsilon)

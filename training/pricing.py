"""Pricing: pure functions of public numbers, remembered, and worked out wherever `WHERE` says.

A price takes up to some tenths of a second of arithmetic. A command works it out at once; a server, which others wait
for, hands it to a process beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from accountant import canonical
from accountant.budget import Budget
from accountant.errors import InputError
from accountant.ledger.families import Dataset
from accountant.ledger.records import Request
from accountant.privacy.claims import claim
from accountant.privacy.events import BoundedRange, Plan, Release
from training.calibrate import STILL_WANTED
from training.job_words import AUTO, CHOSEN
from training.learner import Learner, Recipe
from training.learners import LEARNERS
from training.parameters import learner_of, stored
from training.plan_warnings import warnings_of
from training.session import Public
from training.tuning.tune import Tuned, fits_of
from training.would_fit import would_fit, would_fit_by_unit

MOST_PLAN = canonical.ENTRY_LIMIT - 4096  # bytes: the rest of the entry says who asks for what


def here(function: Callable[..., Any], *arguments: Any) -> Any:
    """At once, in this thread."""
    return function(*arguments)


def while_wanted(check: Callable[[], None], function: Callable[..., Any], *arguments: Any) -> Any:
    """As `here`, until `check` raises: it is asked before each rehearsal and each claim."""
    before = STILL_WANTED.set(check)
    try:
        return function(*arguments)
    finally:
        STILL_WANTED.reset(before)


# Calls one of the functions below with its arguments: all of them frozen, so that they may go to another process.
WHERE: ContextVar[Callable[..., Any]] = ContextVar("dpserve.pricing", default=here)


@dataclass(frozen=True)
class Offer:
    """What a job would be: its recipe, warnings that go with it, and the settings that a tuned one tries."""

    recipe: Recipe
    warnings: tuple[str, ...] = ()
    tuning: dict[str, Any] | None = None


def offer_for(request: Request, public: Public) -> Offer:
    """InputError where what is asked for cannot be."""
    found: Offer = _remembered(work_out_offer, request.learner, _text(request), public)
    return found


def fit_for(request: Request, public: Public, dataset: Dataset, unit: Decimal) -> dict[str, str] | None:
    """What a refusal says: the largest budget at this delta that this learner could still get; None if none is.
    `unit`: of what was refused.
    """
    found: dict[str, str] | None = _remembered(work_out_fit, request.learner, _text(request), public, dataset, unit)
    return found


def references_for(public: Public) -> dict[str, Recipe]:
    """Every learner's recipe by defaults, of those that are for this target and have a plan so cheap. No recipe depends
    on what the target is called, so targets of one kind are priced once.
    """
    alike = replace(public, target="", classes=public.classes and tuple(map(str, range(len(public.classes)))))
    found: dict[str, Recipe] = _remembered(work_out_references, tuple(LEARNERS), alike)
    return found


def _text(request: Request) -> str:
    return canonical.encode(dict(request.parameters)).decode()


@lru_cache(maxsize=1024)
def _remembered(function: Callable[..., Any], *arguments: Any) -> Any:
    return WHERE.get()(function, *arguments)


def work_out_offer(learner: str, parameters: str, public: Public) -> Offer:
    """As `offer_for`."""
    fits = _learner(learner, parameters)
    recipe = fits.recipe(public)
    if (size := len(canonical.encode(recipe.plan.to_json(), 1 << 24))) > MOST_PLAN:
        raise InputError(
            f"learner {learner}: its {len(recipe.plan)} releases differ so much that an entry of the ledger does "
            f"not hold them ({size} bytes, at most {MOST_PLAN}); ask for fewer rounds, or less depth"
        )
    if isinstance(fits, Tuned):
        return Offer(recipe, tuning=fits.to_json(public, recipe.unit))
    return Offer(recipe, tuple(warnings_of(fits, public, recipe)))


def work_out_fit(name: str, parameters: str, public: Public, dataset: Dataset, unit: Decimal) -> dict[str, str] | None:
    """As `fit_for`. What was left to `auto` may get another learner where it asks for less."""
    learner = _learner(name, parameters, at_any=True)
    if any(family.whole for family in dataset.families):
        return None
    total = min(family.budget.epsilon for family in dataset.families)
    whole = replace(public, budget=Budget(total, public.budget.delta))
    try:
        if total < public.budget.epsilon and dataset.gives_whole(learner.recipe(whole).claim):
            return whole.budget.to_json()
    except InputError:  # no plan is so cheap
        pass

    def admits(plan: Plan) -> bool:
        return dataset.refusing(dataset.costs(plan)) is None

    if isinstance(learner, Tuned):
        epsilon = would_fit_by_unit(learner, public, admits, learner.guess(public))
    else:
        epsilon = would_fit(learner, public, admits, unit)
    return None if epsilon is None else Budget(epsilon, public.budget.delta).to_json()


def work_out_references(learners: tuple[str, ...], public: Public) -> dict[str, Recipe]:
    """As `references_for`."""
    found = {}
    for name in learners:
        if name == AUTO:  # which is one of the others
            continue
        try:
            found[name] = LEARNERS[name]().recipe(public)
        except InputError:
            continue
    return found


def _learner(name: str, parameters: str, at_any: bool = False) -> Learner | Tuned:
    """`at_any`: as it was asked for, at whatever budget: by `auto`, where that chose it and no parameter was given."""
    given: Any = canonical.decode_canonical(parameters.encode())
    if at_any and given.pop(CHOSEN, None) is not None and given == stored(learner_of(name)):
        return LEARNERS[AUTO]()
    return fits_of(name, given)


def warm() -> None:
    """Load what a price takes, and what that loads at its first."""
    assert all(LEARNERS.values())
    claim(Plan.of([Release("warm", "none", "range", 1, BoundedRange(Decimal("0.01")))] * 8), Decimal("0.000001"))

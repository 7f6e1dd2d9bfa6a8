"""Working prices out: rehearsals, calibrations and searches, from public numbers alone. Loads the learners that are
asked for; `training.planning.price_cache` remembers what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from accountant.errors import InputError
from accountant.formats import canonical
from accountant.ledger.families.families import Dataset
from accountant.privacy import adaptive
from accountant.privacy.budget import Budget
from accountant.privacy.claims import CHEAP_BOUNDS, claim
from accountant.privacy.events import BoundedRange, Plan, Release
from training.calibration.calibrate import STILL_WANTED, WITHIN
from training.calibration.plan_warnings import warnings_of
from training.calibration.would_fit import would_fit, would_fit_by_unit
from training.learners import LEARNERS
from training.learners.job_words import AUTO, CHOSEN
from training.learners.parameters import learner_of, stored
from training.session.learner import Learner, Offer, Recipe
from training.session.session import Public
from training.tuning.tune import Tuned, fits_of

MOST_PLAN = canonical.ENTRY_LIMIT - 4096  # bytes: the rest of the entry says who asks for what


def while_wanted(check: Callable[[], None], function: Callable[..., Any], *arguments: Any) -> Any:
    """As `here`, until `check` raises: it is asked before each rehearsal and each claim."""
    before = STILL_WANTED.set(check)
    try:
        return function(*arguments)
    finally:
        STILL_WANTED.reset(before)


def offer(learner: str, parameters: str, public: Public) -> Offer:
    """As `pricing.offer_for`."""
    fits = _learner(learner, parameters)
    recipe = fits.recipe(public)
    if (size := len(canonical.encode(recipe.plan.to_json(), 1 << 24)) + len(parameters)) > MOST_PLAN:
        raise InputError(
            f"learner {learner}: its {len(recipe.plan)} releases differ so much that an entry of the ledger does "
            f"not hold them ({size} bytes, at most {MOST_PLAN}); ask for fewer rounds, or less depth"
        )
    if isinstance(fits, Tuned):
        return Offer(recipe, tuning=fits.to_json(public, recipe.unit))
    return Offer(recipe, tuple(warnings_of(fits, public, recipe)))


def floor(learner: str, parameters: str, public: Public) -> Recipe:
    """As `pricing.floor_for`."""
    before = WITHIN.set(CHEAP_BOUNDS)
    try:
        return _learner(learner, parameters).recipe(public)
    finally:
        WITHIN.reset(before)


def fit(name: str, parameters: str, public: Public, dataset: Dataset, unit: Decimal) -> dict[str, str] | None:
    """As `pricing.fit_for`. What was left to `auto` may get another learner where it asks for less."""
    learner = _learner(name, parameters, at_any=True)
    if any(family.whole for family in dataset.families):
        return None
    total = min(family.budget.epsilon for family in dataset.own)
    whole = replace(public, budget=Budget(total, public.budget.delta))
    try:
        if total < public.budget.epsilon and dataset.has_whole:
            recipe = learner.recipe(whole)
            if dataset.gives_whole(recipe.claim, dataset.costs(recipe.plan)):
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


def references(learners: tuple[str, ...], public: Public) -> dict[str, Recipe]:
    """As `pricing.references_for`."""
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


def warm_for_many() -> None:
    """Load what makes a price quick and takes as long to load as a few prices: for a process that works out many."""
    adaptive.load_rules()

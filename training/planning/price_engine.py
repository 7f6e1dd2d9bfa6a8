"""The price engine: what a job costs, worked out from public numbers alone and remembered by this process.

A price takes up to some tenths of a second of arithmetic. A command works it out at once. A server, which others wait
for, sets `ENGINE.run` once, to hand prices to a process beside it: whatever is handed over is frozen, and the functions
are those of this module. Nothing here is believed where money is: the ledger prices a plan itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from threading import Lock
from typing import Any, TypeVar, TypeVarTuple

from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import Request
from accountant.privacy.claims import CHEAP_BOUNDS, claim
from dpserve_verify.certificates.releases import kinds_of
from dpserve_verify.errors import InputError
from dpserve_verify.formats import canonical
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import BoundedRange, Plan, Release
from training.calibration.calibrate import STILL_WANTED
from training.calibration.plan_warnings import warnings_of
from training.calibration.would_fit import would_fit, would_fit_by_unit
from training.learners import LEARNERS
from training.learners.choice import choose
from training.learners.job_words import CHOSEN
from training.learners.parameters import learner_of, stored
from training.requests import AUTO
from training.session.learner import Learner, Offer, Recipe
from training.session.session import Public
from training.tuning.tune import Tuned, fits_of

MAX_PLAN_BYTES = canonical.ENTRY_LIMIT - 4096  # the rest of the entry says who asks for what
MAX_REMEMBERED = 1024
UNKNOWN = object()
Price = TypeVar("Price")
Ts = TypeVarTuple("Ts")


def run_at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """Work it out in this thread."""
    return function(*arguments)


class PriceEngine:
    """A bounded memory of prices, and the one door to where they are worked out.

    run: calls a function with its arguments, here or elsewhere.
    """

    def __init__(self) -> None:
        self.run: Callable[..., Any] = run_at_once
        self._prices: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = Lock()

    def price(self, function: Callable[[*Ts], Price], *arguments: *Ts) -> Price:
        """Return what `function` gives for these hashable arguments. What it raises is not remembered."""
        answer: Price = self.recall(function, *arguments)
        if answer is UNKNOWN:
            answer = self.run(function, *arguments)
            with self._lock:
                self._prices[(function, *arguments)] = answer
                while len(self._prices) > MAX_REMEMBERED:
                    self._prices.popitem(last=False)
        return answer

    def recall(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what was worked out before, or UNKNOWN."""
        key = (function, *arguments)
        with self._lock:
            if key in self._prices:
                self._prices.move_to_end(key)
            return self._prices.get(key, UNKNOWN)

    def forget(self) -> None:
        """Clear the memory, as in a new process."""
        with self._lock:
            self._prices.clear()


ENGINE = PriceEngine()


def price_key(request: Request) -> tuple[str, str]:
    """Return the learner of a request, and its parameters as canonical JSON: how it is priced and remembered."""
    return request.learner, canonical.encode(dict(request.parameters)).decode()


def without_labels(public: Public) -> tuple[tuple[str, ...], Public]:
    """Return the learners, and what is public with its target and classes by number: what a recipe depends on. Targets
    of one kind are so priced once.
    """
    classes = public.classes and tuple(map(str, range(len(public.classes))))
    return tuple(LEARNERS), replace(public, target="", classes=classes)


def offer(learner: str, parameters: str, public: Public) -> Offer:
    """Price a job. InputError where what is asked for cannot be."""
    fits = _learner(learner, parameters)
    recipe = fits.recipe(public)
    if (size := len(canonical.encode(recipe.plan.to_json(), 1 << 24)) + len(parameters)) > MAX_PLAN_BYTES:
        raise InputError(
            f"learner {learner}: its {len(recipe.plan)} releases differ so much that an entry of the ledger does "
            f"not hold them ({size} bytes, at most {MAX_PLAN_BYTES}); ask for fewer rounds, or less depth"
        )
    if isinstance(fits, Tuned):
        return Offer(recipe, tuning=fits.to_json(public, recipe.unit))
    return Offer(recipe, tuple(warnings_of(fits, public, recipe)))


def floor(learner: str, parameters: str, public: Public) -> Recipe:
    """Price the same by the bounds that are cheap: what is asked for costs as much, or more. InputError as `offer`.

    `learner`, `parameters`: not of a tuned job.
    """
    fits: Any = _learner(learner, parameters)
    recipe: Recipe = fits.recipe(public, CHEAP_BOUNDS)
    return recipe


def fit(name: str, parameters: str, public: Public, dataset: Dataset, unit: Decimal) -> dict[str, str] | None:
    """Find the largest budget at this delta that this learner could still get, for a refusal; None if there is none.
    What was left to `auto` may get another learner where it asks for less.

    `unit`: of what was refused.
    """
    learner = _learner(name, parameters, at_any=True)
    if any(family.whole for family in dataset.families):
        return None
    total = min(family.budget.epsilon for family in dataset.own)
    at_total = replace(public, budget=Budget(total, public.budget.delta))
    try:
        if total < public.budget.epsilon and dataset.is_untouched:
            recipe = learner.recipe(at_total)
            if dataset.can_close(recipe.claim, dataset.costs(recipe.plan)):
                return at_total.budget.to_json()
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
    """Price every learner by its defaults, of those that are for this target and have a plan so cheap."""
    recipes = {}
    for name in learners:
        if name == AUTO:  # which is one of the others
            continue
        learner: Any = LEARNERS[name]()
        if not learner.is_listed_for(public):
            continue
        try:
            recipes[name] = learner.recipe(public)
        except InputError:
            continue
    return recipes


def first(learners: tuple[str, ...], public: Public) -> Recipe:
    """Plan a job of the whole budget by the learner that `auto` chooses: by all bounds only where those that are cheap
    find no plan. InputError where there is none.

    `learners`: all there are, for the price to be remembered by.
    """
    learner: Any = LEARNERS[choose(public).learner]()
    try:
        recipe: Recipe = learner.recipe(public, CHEAP_BOUNDS)
    except InputError:
        recipe = learner.recipe(public)
    kinds_of(recipe.plan)
    return recipe


def _learner(name: str, parameters: str, at_any: bool = False) -> Learner | Tuned:
    """Return the learner of a request. `at_any`: `auto` itself where it chose the learner and no parameter was
    given.
    """
    fields: Any = canonical.decode_canonical(parameters.encode())
    if at_any and fields.pop(CHOSEN, None) is not None and fields == stored(learner_of(name)):
        return LEARNERS[AUTO]()
    return fits_of(name, fields)


def run_while_wanted(check: Callable[[], None], function: Callable[..., Any], *arguments: Any) -> Any:
    """Work it out in this thread until `check` raises: it is called before each rehearsal and each claim."""
    before = STILL_WANTED.set(check)
    try:
        return function(*arguments)
    finally:
        STILL_WANTED.reset(before)


def warm() -> None:
    """Load what a price takes, and what that loads at its first."""
    assert all(LEARNERS.values())
    claim(Plan.of([Release("warm", "none", "range", 1, BoundedRange(Decimal("0.01")))] * 8), Decimal("0.000001"))

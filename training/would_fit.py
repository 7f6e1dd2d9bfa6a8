"""The largest epsilon that would still be admitted: what a refusal says. Public numbers alone; nothing is spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import count
from math import ceil, inf, log
from typing import NamedTuple

from accountant.budget import Budget, from_nano, nano
from accountant.errors import InputError
from accountant.privacy.claims import claim
from accountant.privacy.events import Plan
from training.calibrate import calibrate, rehearse
from training.learner import Rehearsable
from training.session import Public

STEP = 10**6  # nano: epsilon is told in thousandths
LOWER = 4  # steps down from where the search ended: it calibrates from nearby, a job does not


def would_fit(
    learner: Rehearsable,
    public: Public,
    refused: Plan,
    admits: Callable[[Plan], bool],
    fullness: Callable[[Plan], float],
) -> Decimal | None:
    """Largest epsilon below the asked one, in steps of 1e-3, whose plan is admitted; None if none is.

    `refused`: the plan of what was asked. `fullness` guides: above 1 for a plan that does not fit, and smooth in
    epsilon. `admits` decides.
    """
    trial = _Trial(learner, public)
    low, high = _Tried(0, 0.0), _Tried(-(-nano(public.budget.epsilon) // STEP), fullness(refused))
    for turn in count(1):
        if high.step - low.step <= 1:
            break
        step = _between(low, high, turn % 3 == 0)
        plan = trial.plan(step)
        tried = _Tried(step, inf if plan is None else fullness(plan))
        if plan is not None and admits(plan):
            low = tried
        else:
            high = tried
    lower = range(low.step, max(0, low.step - LOWER), -1)
    return next((from_nano(step * STEP) for step in lower if _admitted(learner, public, step, admits)), None)


class _Tried(NamedTuple):
    step: int
    full: float


def _between(low: _Tried, high: _Tried, halve: bool) -> int:
    """Where it is just full if a price grows like a power of epsilon: the square, until two are known."""
    guess = (low.step + high.step) / 2
    if not halve and low.full <= 1 < high.full < inf:
        power = 2.0 if low.full <= 0 else log(high.full / low.full) / log(high.step / low.step)
        guess = high.step * high.full ** (-1 / power) if power > 0 else guess
    return min(max(ceil(guess), low.step + 1), high.step - 1)


class _Trial:
    """Plans of a learner at one epsilon after the other, each calibrated from the unit of the one before."""

    def __init__(self, learner: Rehearsable, public: Public) -> None:
        self.learner, self.public = learner, public
        self._last: tuple[int, Decimal] | None = None

    def plan(self, step: int) -> Plan | None:
        public = _at(self.public, step)
        near = None if self._last is None else from_nano(max(1, nano(self._last[1]) * step // self._last[0]))
        try:
            found = calibrate(self.learner, public, public.budget, self.learner.guess(public) or near)
        except InputError:  # too little for a plan of so many releases
            return None
        self._last = (step, found.unit)
        return found.plan


def would_fit_by_unit(
    learner: Rehearsable, public: Public, admits: Callable[[Plan], bool], guess: Decimal
) -> Decimal | None:
    """As `would_fit`, looked for by the unit: for plans whose price takes less to compute than their claim. Then a
    little lower, until it fits. `guess`: a unit near that of what was refused.
    """
    low, high = 0, 2 * nano(guess)
    for _ in range(12):
        middle = (low + high) // 2
        if admits(rehearse(learner, public, from_nano(max(1, middle)))):
            low = middle
        else:
            high = middle
    near = nano(claim(rehearse(learner, public, from_nano(max(1, low))), public.budget.delta).epsilon) // STEP
    lower = (near, near - 1, near - 1 - near // 50, near - 2 - near // 10)
    return next(
        (from_nano(step * STEP) for step in lower if step > 0 and _admitted(learner, public, step, admits)), None
    )


def _admitted(learner: Rehearsable, public: Public, step: int, admits: Callable[[Plan], bool]) -> bool:
    try:
        return admits(learner.recipe(_at(public, step)).plan)
    except InputError:
        return False


def _at(public: Public, step: int) -> Public:
    return replace(public, budget=Budget(from_nano(step * STEP), public.budget.delta))

"""The largest epsilon that would still be admitted: what a refusal says. Public numbers alone; nothing is spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from accountant.privacy.claims import claim
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, from_nano, nano
from dpserve_verify.privacy.events import Plan
from training.calibration.calibrate import rehearse, scale_plan
from training.session.learner import Rehearsable
from training.session.session import Public

STEP = 10**6  # nano: epsilon is told in thousandths
LOWER = 4  # steps down from where the search ended: it guesses at plans, a job does not
TURNS = 8  # of the search: each comes nearer, unless a public rule jumps there


def would_fit(learner: Rehearsable, public: Public, admits: Callable[[Plan], bool], unit: Decimal) -> Decimal | None:
    """Return the largest epsilon below the asked one, in steps of 1e-3, whose plan is admitted; None if none is.

    What is admitted is found by prices, which take no time: the largest unit at which the plan of an epsilon is. What
    that claims is the next epsilon to try, since public rules may give it more rounds or fewer. `unit`: of what was
    refused. What is told was rehearsed, calibrated and admitted.
    """
    asked_steps = -(-nano(public.budget.epsilon) // STEP)
    step, claimed_steps, best = asked_steps, 0, 0
    for _ in range(TURNS):
        claimed_steps = min(_largest_claim(learner, _at(public, step), admits, unit) // STEP, asked_steps - 1)
        best = max(best, step) if claimed_steps >= step else best
        if claimed_steps <= best:
            break
        step = claimed_steps
    start = max(best, claimed_steps)
    lower = range(start, max(0, start - LOWER), -1)
    return next((from_nano(steps * STEP) for steps in lower if _is_admitted(learner, public, steps, admits)), None)


def _largest_claim(learner: Rehearsable, public: Public, admits: Callable[[Plan], bool], unit: Decimal) -> int:
    """Return what the plan for this budget claims, in nano-units, at the largest unit at which it is admitted; 0: at
    none.
    """
    plan, low, high = rehearse(learner, public, unit), 0, nano(public.budget.epsilon)

    def at(found: int) -> Plan:
        return scale_plan(plan, Fraction(found, nano(unit)))

    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if admits(at(middle)) else (low, middle - 1)
    return nano(claim(at(low), public.budget.delta).epsilon) if low else 0


def would_fit_by_unit(
    learner: Rehearsable, public: Public, admits: Callable[[Plan], bool], guess: Decimal
) -> Decimal | None:
    """Search as `would_fit` does, by the unit: for plans whose price takes less to compute than their claim. Then a
    little lower, until it fits. `guess`: a unit near that of what was refused.
    """
    low, high = 0, 2 * nano(guess)
    for _ in range(12):
        middle = (low + high) // 2
        if admits(rehearse(learner, public, from_nano(max(1, middle)))):
            low = middle
        else:
            high = middle
    top = nano(claim(rehearse(learner, public, from_nano(max(1, low))), public.budget.delta).epsilon) // STEP
    lower = (
        top,
        top - 1,
        top - 1 - top // 50,
        top - 2 - top // 10,
    )
    return next(
        (from_nano(step * STEP) for step in lower if step > 0 and _is_admitted(learner, public, step, admits)), None
    )


def _is_admitted(learner: Rehearsable, public: Public, step: int, admits: Callable[[Plan], bool]) -> bool:
    try:
        return admits(learner.recipe(_at(public, step)).plan)
    except InputError:
        return False


def _at(public: Public, step: int) -> Public:
    return replace(public, budget=Budget(from_nano(step * STEP), public.budget.delta))

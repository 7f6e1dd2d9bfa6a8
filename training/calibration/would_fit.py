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
from training.calibration.calibrate import grown, rehearse
from training.session.learner import Rehearsable
from training.session.session import Public

STEP = 10**6  # nano: epsilon is told in thousandths
LOWER = 4  # steps down from where the search ended: it guesses at plans, a job does not
TURNS = 8  # of the search: each comes nearer, unless a public rule jumps there


def would_fit(learner: Rehearsable, public: Public, admits: Callable[[Plan], bool], unit: Decimal) -> Decimal | None:
    """Largest epsilon below the asked one, in steps of 1e-3, whose plan is admitted; None if none is.

    What is admitted is found by prices, which take no time: the largest unit at which the plan of an epsilon is. What
    that claims is the next epsilon to try, since public rules may give it more rounds or fewer. `unit`: of what was
    refused. What is told was rehearsed, calibrated and admitted.
    """
    asked = -(-nano(public.budget.epsilon) // STEP)
    step, found, best = asked, 0, 0
    for _ in range(TURNS):
        found = min(_largest_claim(learner, _at(public, step), admits, unit) // STEP, asked - 1)
        best = max(best, step) if found >= step else best
        if found <= best:
            break
        step = found
    start = max(best, found)
    lower = range(start, max(0, start - LOWER), -1)
    return next((from_nano(each * STEP) for each in lower if _admitted(learner, public, each, admits)), None)


def _largest_claim(learner: Rehearsable, public: Public, admits: Callable[[Plan], bool], unit: Decimal) -> int:
    """What the plan for this budget claims, in nano-units, at the largest unit at which it is admitted; 0: at none."""
    plan, low, high = rehearse(learner, public, unit), 0, nano(public.budget.epsilon)

    def at(found: int) -> Plan:
        return grown(plan, Fraction(found, nano(unit)))

    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if admits(at(middle)) else (low, middle - 1)
    return nano(claim(at(low), public.budget.delta).epsilon) if low else 0


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

"""Calibration: the largest unit whose plan stays within a target (epsilon, delta).

Rehearsals are dear, claims less so. Nearly every plan at another unit is the same plan with every price so much larger,
so the search is made on what a plan will probably be. What is found is rehearsed, and counts only as it was rehearsed;
where the plan was another there, the search goes on by rehearsals alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from itertools import count
from math import ceil, log
from typing import Any, Protocol

from accountant.privacy.claims import BOUNDS, CHEAP_BOUNDS, PURE, claim
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import MAX_EPSILON, Budget, from_nano, nano
from dpserve_verify.privacy.events import MAX_NOISE, Event, Gaussian, Plan, RepeatAndSelect, SimpleEvent
from training.session.learner import Recipe, Rehearsable
from training.session.session import Public, Rehearsal

POWER = 1.1  # of epsilon in the unit, before two trials tell it
MIN_APART = 20  # digits between two claims that tell the power
CLOSE_SHARE = 1e-7  # of the target: a claim so near is as good as it
NEAR_SHARE = 1e-3  # of the target: so near that claims by dear bounds go on from there
DIGIT = 1e-6  # that claims are rounded up to

# Called before each rehearsal and each claim: raises where nobody waits for what they are made for any more.
STILL_WANTED: ContextVar[Callable[[], None]] = ContextVar("dpserve.still_wanted", default=lambda: None)


class Trial(Protocol):
    """A recipe at so many nano-units, its claim by these of `BOUNDS`."""

    def __call__(self, unit: int, bounds: tuple[str, ...] = BOUNDS) -> Recipe: ...


def rehearse(learner: Rehearsable, public: Public, unit: Decimal) -> Plan:
    """Return what `learner` would release at this unit, in its order. No row is read, nothing is spent."""
    STILL_WANTED.get()()
    rehearsal = Rehearsal(public, unit)
    learner.learn(rehearsal)
    return rehearsal.plan


def calibrate(
    learner: Rehearsable,
    public: Public,
    target: Budget,
    guess: Decimal | None = None,
    within: tuple[str, ...] = BOUNDS,
) -> Recipe:
    """Find the largest unit whose claim at target.delta is at most target.epsilon, nearly.

    The bounds that are cheap are asked first, and from there upwards all of them. InputError where no unit fits, or
    what fits has a claim of 0.

    guess: a unit to begin at, which saves trials.
    within: the bounds to claim by. With fewer than all of them, what is found costs no more than the job.
    """

    @lru_cache(maxsize=2)  # the last cheap trial is the first of the others
    def rehearse_at(unit: int) -> tuple[Rehearsal, Plan, Any]:
        STILL_WANTED.get()()
        rehearsal = Rehearsal(public, from_nano(unit))
        blank = learner.learn(rehearsal)
        return rehearsal, rehearsal.plan, blank

    def trial(unit: int, bounds: tuple[str, ...] = within) -> Recipe:
        STILL_WANTED.get()()
        rehearsal, plan, blank = rehearse_at(unit)
        return Recipe(from_nano(unit), plan, claim(plan, target.delta, bounds), rehearsal.first, blank)

    start = trial(min(nano(target.epsilon if guess is None else guess), nano(target.epsilon)), CHEAP_BOUNDS)

    def likely(unit: int, bounds: tuple[str, ...] = within) -> Recipe:
        STILL_WANTED.get()()
        plan = scale_plan(start.plan, Fraction(unit, nano(start.unit)))
        return Recipe(from_nano(unit), plan, claim(plan, target.delta, bounds))

    guessed = _search(likely, start.unit, guess is not None, target.epsilon)
    recipe = guessed and trial(nano(guessed.unit))
    if guessed is None or recipe is None or recipe.claim.epsilon != guessed.claim.epsilon:  # the plan is another there
        is_near = guess is not None or guessed is not None
        recipe = _search(trial, (guessed or start).unit, is_near, target.epsilon)
    if recipe is None:
        raise InputError(
            f"epsilon={target.epsilon}: too small for this plan of releases; ask for more, or for fewer rounds"
        )
    if not recipe.claim.epsilon:  # within delta it may do anything: no certificate says so
        raise InputError(
            f"epsilon={target.epsilon}: no more than 0 at delta={target.delta}; ask for more epsilon, or less delta"
        )
    return recipe


def _search(trial: Trial, unit: Decimal, is_near: bool, epsilon: Decimal) -> Recipe | None:
    """Return the recipe at the largest unit that fits, nearly; search downwards from `unit` first where that is near.
    None where none fits.
    """
    cheap = partial(trial, bounds=CHEAP_BOUNDS)
    start = _search_down(cheap, nano(unit), epsilon) if is_near else _find_near(cheap, epsilon)
    return None if start is None else _search_up(trial, trial(nano(start.unit)), epsilon)


def _find_near(trial: Trial, epsilon: Decimal) -> Recipe | None:
    """Return a recipe whose claim is near the target, for `_search_up` to go on from; of pure claims the largest."""
    recipe = _search_down(trial, nano(epsilon), epsilon)
    if recipe is None or recipe.claim.bound == PURE:
        return _bisect(trial, epsilon)
    return _search_up(trial, recipe, epsilon, 10**4, NEAR_SHARE)


def _bisect(trial: Trial, epsilon: Decimal) -> Recipe | None:
    """Find the recipe by bisection from 0: pure claims to the last digit, others to a ten-thousandth."""
    low, high = 0, nano(epsilon)
    best: Recipe | None = None
    if high and trial(1).claim.epsilon > epsilon:
        return None
    while high - low > (0 if best is None or best.claim.bound == PURE else low // 10**4):
        middle = (low + high + 1) // 2
        recipe = trial(middle)
        if recipe.claim.epsilon <= epsilon:
            low, best = middle, recipe
        else:
            high = middle - 1
    return best


def _search_down(trial: Trial, unit: int, epsilon: Decimal) -> Recipe | None:
    """Return the first recipe that fits, downwards from a guess in ever larger steps."""
    unit, step = min(unit, nano(epsilon)), Fraction(99, 100)
    while unit > 0:
        recipe = trial(unit)
        if recipe.claim.epsilon <= epsilon:
            return recipe
        unit = int(unit * step * min(Fraction(1), Fraction(epsilon) / Fraction(recipe.claim.epsilon)))
        step *= step
    return None


def _search_up(trial: Trial, best: Recipe, epsilon: Decimal, share: int = 10**6, close: float = CLOSE_SHARE) -> Recipe:
    """Search upwards from a recipe that fits. Epsilon is nearly a power of the unit, so each guess is where the power
    through the last two trials comes to the target; by halves every fifth time, since it may jump where the bound
    changes its grid. Done where the unit is known within 1 / `share`, or the claim is the target but for a share
    `close`, and that tells the unit within a ten-thousandth.
    """
    target, low, high = float(epsilon), nano(best.unit), nano(epsilon) + 1
    last, power, below = (low, float(best.claim.epsilon)), POWER, float(best.claim.epsilon - epsilon)
    for turn in count():
        is_close = -below <= close * target and target / 10**4 >= DIGIT  # so near that the unit is known as well
        if is_close or high - low <= max(1, low // (share if below else 10**4)):
            break
        if not below:  # the target to its last digit: whether so little more still fits
            guess = low + max(1, low // 10**4) if turn % 3 < 2 else (low + high) // 2
        elif turn % 5 == 4 or not DIGIT < last[1] < float("inf"):
            guess = (low + high) // 2
        else:  # both are rounded up, by half a digit as a rule
            guess = int(last[0] * ((target - DIGIT / 2) / (last[1] - DIGIT / 2)) ** (1 / power))
        recipe = trial(min(max(guess, low + 1), high - 1))
        claimed = float(recipe.claim.epsilon)
        if MIN_APART * DIGIT < abs(claimed - last[1]) < float("inf") and min(claimed, last[1]) > 0:  # not rounding
            power = min(4.0, max(0.5, log(claimed / last[1]) / log(nano(recipe.unit) / last[0])))
        last = nano(recipe.unit), claimed
        if recipe.claim.epsilon <= epsilon:
            best, low, below = recipe, nano(recipe.unit), float(recipe.claim.epsilon - epsilon)
        else:
            high = nano(recipe.unit)
    return best


def scale_plan(plan: Plan, factor: Fraction) -> Plan:
    """Return the plan at a unit `factor` times as large, where every price grows with the unit. A guess, no promise."""

    def scale_simple(event: SimpleEvent) -> SimpleEvent:
        if isinstance(event, Gaussian):
            return Gaussian(min(MAX_NOISE, from_nano(max(1, ceil(nano(event.noise_multiplier) / factor)))))
        return replace(event, epsilon=min(MAX_EPSILON, from_nano(max(1, int(nano(event.epsilon) * factor)))))

    def scale_event(event: Event) -> Event:
        if isinstance(event, RepeatAndSelect):
            return replace(event, runs=tuple((scale_simple(run), n) for run, n in event.runs))
        return scale_simple(event)

    return Plan(tuple((replace(release, event=scale_event(release.event)), n) for release, n in plan.runs))

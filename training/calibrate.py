"""Calibration is bisection over rehearsals: the largest unit whose plan stays within a target (epsilon, delta)."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from accountant.budget import Budget, from_nano, nano
from accountant.errors import InputError
from accountant.events import Plan
from accountant.prices import Claim, claim
from training.session import Public, Rehearsal, Releaser


class Fits(Protocol):
    """The learner's real fit: it runs unchanged on a rehearsal and on a session."""

    def _fit(self, session: Releaser) -> Any: ...


@dataclass(frozen=True)
class Recipe:
    """A plan with the unit it was rehearsed at and the claim it supports. Public in all its parts."""

    unit: Decimal
    plan: Plan
    claim: Claim


def rehearse(learner: Fits, public: Public, unit: Decimal) -> Plan:
    rehearsal = Rehearsal(public, unit)
    learner._fit(rehearsal)
    return rehearsal.plan


def calibrate(learner: Fits, public: Public, target: Budget) -> Recipe:
    """Recipe with the largest unit, in steps of 1e-9, whose claim at target.delta is at most target.epsilon."""
    low, high = 0, nano(target.epsilon)
    best: Recipe | None = None
    while high > low:
        middle = (low + high + 1) // 2
        plan = rehearse(learner, public, from_nano(middle))
        found = claim(plan, target.delta)
        if found.epsilon <= target.epsilon:
            low, best = middle, Recipe(from_nano(middle), plan, found)
        else:
            high = middle - 1
    if best is None:
        raise InputError(
            f"epsilon={target.epsilon}: too small for this plan of releases; ask for more, or for fewer rounds"
        )
    return best

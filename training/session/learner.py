"""What a learner is to the rest of the platform, whatever it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from accountant.privacy.claims import Claim
from dpserve_verify.privacy.events import Plan

if TYPE_CHECKING:
    from models.forms.ensemble import Ensemble
    from training.session.session import Public, Rehearsal, Releaser


@dataclass(frozen=True)
class Recipe:
    """A plan with the unit it was rehearsed at and the claim it supports. Public in all its parts.

    `first`: epsilon of the plan's first selection, and its candidates; None where there is no selection. `blank`: what
    was learnt from the blank answers of that rehearsal, as large as what will be released, until it was looked at.
    """

    unit: Decimal
    plan: Plan
    claim: Claim
    first: tuple[Decimal, int] | None = None
    blank: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Offer:
    """What a job would be: its recipe, warnings that go with it, and the settings that a tuned one tries."""

    recipe: Recipe
    warnings: tuple[str, ...] = ()
    tuning: dict[str, Any] | None = None


class Rehearsable(Protocol):
    """What can be rehearsed, calibrated and played: a learner, or the private selection among some."""

    def learn(self, session: Rehearsal) -> Any:
        """Release, go on with what came back, return what was released. Runs unchanged on a rehearsal and a session."""

    def recipe(self, public: Public) -> Recipe:
        """Check, rehearse and calibrate to the public budget; InputError where that cannot be."""

    def guess(self, public: Public) -> Decimal | None:
        """Return a unit near the one that calibration looks for, where one is known: saves dear rehearsals."""


class Learner(Rehearsable, Protocol):
    """An estimator with public parameters, whose `learn` is its only way to rows. `name`: what a job asks for."""

    name: ClassVar[str]

    def learn(self, session: Releaser) -> Ensemble:
        """Release, go on with what came back, and return what was released, as a model."""

    def check(self, public: Public) -> None:
        """Raise InputError where a parameter or the schema does not fit this learner."""

    def rounds_for(self, public: Public) -> int:
        """Return the rounds of the plan, by the parameters or the public rule."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor and their values, those of the promise included."""

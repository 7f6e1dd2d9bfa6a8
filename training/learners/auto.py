"""`auto` as an estimator: what the chosen learner does, by its defaults."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from accountant.privacy.claims import BOUNDS
from models.forms.ensemble import Ensemble
from training.learners.base.private_learner import PrivateClassifier, PrivateLearner, PrivateRegressor
from training.learners.choice import CHOICES, Choice, choose
from training.requests import AUTO
from training.session.learner import Recipe
from training.session.session import Public, Releaser


class AutoLearner(PrivateLearner):
    """Base of `AutoClassifier` and `AutoRegressor`: they do what the chosen learner does by its defaults, which a
    public rule chooses from the declared records, epsilon, delta, features and target. No parameter but which columns
    it reads: who wants to set another names the learner.

    After `fit`: `choice_`, which learner it was and why.
    """

    name: ClassVar[str] = AUTO

    def check(self, public: Public) -> None:
        """Raise InputError where no learner takes such a job."""
        choose(public)

    def recipe(self, public: Public, bounds: tuple[str, ...] = BOUNDS) -> Recipe:
        """Return the recipe of the chosen learner."""
        return _choose_learner(public).recipe(public, bounds)

    def rounds_for(self, public: Public) -> int:
        """Return the rounds of the chosen learner."""
        return _choose_learner(public).rounds_for(public)

    def guess(self, public: Public) -> Decimal | None:
        """Return the unit that the chosen learner guesses."""
        return _choose_learner(public).guess(public)

    def learn(self, session: Releaser) -> Ensemble:
        """Learn as the chosen learner does."""
        return _choose_learner(session.public).learn(session)

    @property
    def choice_(self) -> Choice:
        """Return which learner was chosen, and why."""
        self._released()
        return choose(self.public_facts(self.schema_))


class AutoClassifier(AutoLearner, PrivateClassifier):
    """The learner that a public rule chooses, for classes; on the platform, for a number too."""


class AutoRegressor(AutoLearner, PrivateRegressor):
    """The learner that a public rule chooses, for a number in a public range."""


def _choose_learner(public: Public) -> PrivateLearner:
    return CHOICES[choose(public).learner]()

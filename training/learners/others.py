"""Learners of others (docs/reference/others.md): the ledger says which are admitted, and an extension runs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from accountant.ledger.learner_admissions import OUTSIDE, VOUCHED
from accountant.system import extensions

if TYPE_CHECKING:
    from accountant.home import Home
    from training.session.learner import Learner
    from training.session.session import Public

OF_OTHERS = OUTSIDE, VOUCHED


class Others(Protocol):
    """What an extension brings that runs learners of others. All raise InputError or ModelInvalid where what a job
    names is not kept as it was admitted.
    """

    def learner_of(self, name: str, parameters: Mapping[str, Any]) -> Learner:
        """Return the learner of one of the names OF_OTHERS, with these public parameters."""

    def resolve(self, home: Home, learner: str, parameters: Mapping[str, Any] | None, dataset: str) -> dict[str, Any]:
        """Return a job's parameters, with what the ledger says of the admission that they name."""

    def begin(self, home: Home, public: Public, parameters: Mapping[str, Any]) -> Public:
        """Add the text that a job's parameters name to what it may know."""

    def check_runs(self, home: Home, parameters: Mapping[str, Any]) -> None:
        """Raise InputError where what a job's parameters name cannot run here."""

    def listed(self, home: Home) -> list[dict[str, Any]]:
        """Return the admissions that stand, by name."""

    def describe(self, home: Home, name: str) -> tuple[dict[str, Any], str, list[tuple[str, str]]]:
        """Return an admission that stands: for programs, in a sentence, and in lines for people."""


def others() -> Others:
    """Return what runs learners of others. InputError where the extension that does is not installed."""
    return cast(Others, extensions.brought("others", "platform"))

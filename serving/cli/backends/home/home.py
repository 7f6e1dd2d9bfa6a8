"""The backend of a home on this machine. Each topic is loaded when a command first uses it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from accountant.home import Home
from serving.cli.backends.abstract import Backend
from serving.cli.backends.user import require_access
from serving.operations import A, Caller, Operation, P, at_home

if TYPE_CHECKING:
    from serving.cli.backends import abstract


class HomeBackend(Backend):
    """The home that DPSERVE_HOME names, or the one in its usual place: rows, keys and ledger are here."""

    def ask(self, asked: Operation[P, A], *arguments: P.args, **values: P.kwargs) -> A:
        """Do what an operation says, for this user, with the files of the home."""
        home = Home.open()
        caller, body = Caller(home, require_access(home), by=self.by), values.get("body")
        if getattr(body, "public", None) is not None:  # of a job: it may be a file of this machine
            from serving.cli.backends.home.jobs import with_start

            values["body"] = with_start(caller, cast(Any, body))
        return at_home(asked, caller, *arguments, **values)

    @cached_property
    def bundles(self) -> abstract.Bundles:
        """Return the backend's part for the files of one model."""
        from serving.cli.backends.home.bundles import HomeBundles

        return HomeBundles()

    @cached_property
    def jobs(self) -> abstract.Jobs:
        """Return the backend's part for training jobs."""
        from serving.cli.backends.home.jobs import HomeJobs

        return HomeJobs(self.note)

    @cached_property
    def ledger(self) -> abstract.Ledger:
        """Return the backend's part for the ledger and its keys."""
        from serving.cli.backends.home.ledger import HomeLedger

        return HomeLedger()

    @cached_property
    def measurements(self) -> abstract.Measurements:
        """Return the backend's part for evaluations and profiles."""
        from serving.cli.backends.home.measurements import HomeMeasurements

        return HomeMeasurements()

    @cached_property
    def models(self) -> abstract.Models:
        """Return the backend's part for released models."""
        from serving.cli.backends.home.models import HomeModels

        return HomeModels()

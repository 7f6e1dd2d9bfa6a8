"""The backend of a home on this machine. Each topic is loaded when a command first uses it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from serving.cli.backends.abstract import Backend

if TYPE_CHECKING:
    from serving.cli.backends import abstract


class HomeBackend(Backend):
    """The home that DPSERVE_HOME names, or the one in its usual place: rows, keys and ledger are here."""

    @cached_property
    def bundles(self) -> abstract.Bundles:
        """The files of one model."""
        from serving.cli.backends.home.bundles import HomeBundles

        return HomeBundles()

    @cached_property
    def campaigns(self) -> abstract.Campaigns:
        """Campaigns among owners."""
        from serving.cli.backends.home.campaigns import HomeCampaigns

        return HomeCampaigns()

    @cached_property
    def datasets(self) -> abstract.Datasets:
        """Datasets and budgets."""
        from serving.cli.backends.home.datasets import HomeDatasets

        return HomeDatasets()

    @cached_property
    def grants(self) -> abstract.Grants:
        """Grants and tokens."""
        from serving.cli.backends.home.grants import HomeGrants

        return HomeGrants()

    @cached_property
    def jobs(self) -> abstract.Jobs:
        """Training jobs."""
        from serving.cli.backends.home.jobs import HomeJobs

        return HomeJobs(self.note)

    @cached_property
    def ledger(self) -> abstract.Ledger:
        """The ledger and its keys."""
        from serving.cli.backends.home.ledger import HomeLedger

        return HomeLedger()

    @cached_property
    def measurements(self) -> abstract.Measurements:
        """Evaluations and profiles."""
        from serving.cli.backends.home.measurements import HomeMeasurements

        return HomeMeasurements(self.note)

    @cached_property
    def models(self) -> abstract.Models:
        """Released models."""
        from serving.cli.backends.home.models import HomeModels

        return HomeModels()

    @cached_property
    def schedules(self) -> abstract.Schedules:
        """Jobs once a period."""
        from serving.cli.backends.home.schedules import HomeSchedules

        return HomeSchedules()

"""Datasets of a home and their budgets."""

from __future__ import annotations

from accountant.home import Home
from accountant.ledger.families.left import families_of
from serving.cli.backends.abstract import Body, Datasets
from training.planning.job_views import dataset_to_json, family_to_json, problems_of


class HomeDatasets(Datasets):
    """As `Datasets` says, with the files of the home."""

    def list_all(self) -> list[Body]:
        """Return every dataset."""
        home = Home.open()
        return [dataset_to_json(home, dataset, detail=False) for dataset in home.ledger.datasets()]

    def list_families(self) -> list[Body]:
        """Return every family."""
        home = Home.open()
        datasets = home.ledger.datasets()
        problems = problems_of(home, datasets)
        return [family_to_json(family, problems) for family in families_of(datasets)]

    def get(self, name: str) -> Body:
        """Return one dataset."""
        home = Home.open()
        return dataset_to_json(home, home.ledger.dataset(name))

"""Datasets of a home and their budgets."""

from __future__ import annotations

from accountant.home import Home
from accountant.ledger.archive import archived
from accountant.ledger.families.left import families_of
from serving.cli.backends.abstract import Body, Datasets
from serving.wire.list_parts import Part, cut_datasets, cut_families
from training.planning.job_views import dataset_to_json, family_to_json, problems_of


class HomeDatasets(Datasets):
    """As `Datasets` says, with the files of the home."""

    def list_part(self, part: Part) -> Body:
        """Return datasets."""
        home = Home.open()
        datasets, following = cut_datasets(part, home.ledger.datasets(), archived(home.ledger, "dataset"))
        return {"datasets": [dataset_to_json(home, each, detail=False) for each in datasets], "next": following}

    def list_families(self, part: Part) -> Body:
        """Return families."""
        home = Home.open()
        datasets = home.ledger.datasets()
        rows, following = cut_families(part, families_of(datasets), archived(home.ledger, "dataset"))
        problems = problems_of(home, datasets)
        return {"families": [family_to_json(row, problems) for row in rows], "next": following}

    def get(self, name: str) -> Body:
        """Return one dataset."""
        home = Home.open()
        return dataset_to_json(home, home.ledger.dataset(name))

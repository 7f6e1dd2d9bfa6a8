"""Datasets of a home and their budgets."""

from __future__ import annotations

from accountant.home import Home
from accountant.ledger.archive import archived
from accountant.ledger.families.left import families_of
from serving.cli.backends.abstract import Body, Datasets
from serving.cli.backends.user import this_user
from serving.wire.list_parts import Part, cut_datasets, cut_families
from training.planning.job_views import dataset_to_json, family_to_json, problems_of


class HomeDatasets(Datasets):
    """As `Datasets` says, with the files of the home."""

    def list_part(self, part: Part) -> Body:
        """Return datasets."""
        home, user = Home.open(), this_user()
        datasets, following = cut_datasets(part, home.ledger.datasets(user), archived(home.ledger, "dataset"))
        described = [dataset_to_json(home, each, detail=False, analyst=user) for each in datasets]
        return {"datasets": described, "next": following}

    def list_families(self, part: Part) -> Body:
        """Return families."""
        home = Home.open()
        datasets = home.ledger.datasets(this_user())
        rows, following = cut_families(part, families_of(datasets), archived(home.ledger, "dataset"))
        problems = problems_of(home, datasets)
        return {"families": [family_to_json(row, problems) for row in rows], "next": following}

    def get(self, name: str) -> Body:
        """Return one dataset."""
        home, user = Home.open(), this_user()
        return dataset_to_json(home, home.ledger.dataset(name, user), analyst=user)

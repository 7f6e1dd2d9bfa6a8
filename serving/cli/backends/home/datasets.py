"""Datasets of a home and their budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accountant.home import Home
from accountant.ledger.archive import archived
from accountant.ledger.families.left import families_of
from accountant.ledger.families.records import Why
from accountant.system.lazy_import import later
from serving.cli.backends.abstract import Body, Datasets
from serving.cli.backends.user import require_access, this_user
from serving.wire.list_parts import Part, cut_datasets, cut_families
from training.planning.job_views import dataset_to_json, family_to_json, problems_of
from training.requests import ChargeRequest

if TYPE_CHECKING:
    from training.datasets import decisions
else:
    decisions = later("training.datasets.decisions")  # a list of datasets needs no reader of rows


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

    def decide(self, name: str, act: str, reason: str) -> Body:
        """Withdraw, retire or restore a dataset."""
        home = Home.open()
        access = require_access(home, "steward", dataset=name)
        return decisions.decide(home, name, act, Why(this_user(), reason), access.operator)

    def charge(self, name: str, request: Body, plan: bool) -> Body:
        """Charge a release that was made elsewhere, or plan to."""
        home = Home.open()
        require_access(home, "steward", dataset=name)
        judge = decisions.plan_charge if plan else decisions.charge
        return judge(home, name, ChargeRequest.of(request), this_user())

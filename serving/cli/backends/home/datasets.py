"""Datasets of a home and their budgets."""

from __future__ import annotations

from typing import Any

from accountant.home import Home
from accountant.ledger.families.left import families_of
from training.planning.job_views import dataset_to_json, family_to_json


def listed(detail: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Every dataset, where there is `detail` with what still fits; and every family."""
    home = Home.open()
    found = home.ledger.datasets()
    bodies = [dataset_to_json(home, dataset, detail=False) for dataset in found] if detail else []
    return bodies, [family_to_json(each) for each in families_of(found)]


def shown(name: str) -> dict[str, Any]:
    """One dataset, with quotas and what still fits."""
    home = Home.open()
    return dataset_to_json(home, home.ledger.dataset(name))

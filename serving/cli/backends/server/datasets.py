"""Datasets at a server and their budgets."""

from __future__ import annotations

from typing import Any

from serving.cli.backends.server.asking import asking


def listed(detail: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Every dataset, where there is `detail` with what still fits; and every family."""
    with asking() as service:
        bodies = [dict(each.raw) for each in service.datasets()] if detail else []
        return bodies, [dict(each.raw) for each in service.families()]


def shown(name: str) -> dict[str, Any]:
    """One dataset, with quotas and what still fits."""
    with asking() as service:
        return dict(service.dataset(name).raw)

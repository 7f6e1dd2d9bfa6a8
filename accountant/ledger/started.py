"""A job that has started: what `Ledger.start` hands to the one who may read rows."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from accountant.ledger.families import Dataset
from accountant.ledger.records import Request
from accountant.privacy.events import Plan


@dataclass(frozen=True)
class Started:
    """The right to read rows for one job, once. Only `Ledger.start` makes it."""

    seq: int
    dataset: Dataset
    request: Request
    unit: Decimal
    plan: Plan

"""Every page in one table. Pages are for people: they are no part of the OpenAPI description."""

from __future__ import annotations

from serving import ui_audit, ui_datasets, ui_home, ui_jobs, ui_ledger, ui_models, ui_tokens
from serving.doors import Door

PAGES: tuple[Door, ...] = (
    *ui_home.DOORS,
    *ui_datasets.DOORS,
    *ui_jobs.DOORS,
    *ui_models.DOORS,
    *ui_ledger.DOORS,
    *ui_audit.DOORS,
    *ui_tokens.DOORS,
)

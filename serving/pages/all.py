"""Every page in one table. Pages are for people: they are no part of the OpenAPI description."""

from __future__ import annotations

from serving.http.routes import Door
from serving.pages import audit, campaigns, datasets, home, jobs, ledger, models, profiles, tokens
from serving.pages.growing import schedules
from serving.pages.manual import manual
from serving.pages.tasks import drafts, edits

PAGES: tuple[Door, ...] = (
    *home.DOORS,
    *datasets.DOORS,
    *profiles.DOORS,
    *drafts.DOORS,
    *jobs.DOORS,
    *schedules.DOORS,
    *campaigns.DOORS,
    *models.DOORS,
    *edits.DOORS,
    *ledger.DOORS,
    *audit.DOORS,
    *tokens.DOORS,
    *manual.DOORS,
)

"""Every page in one table. Pages are for people: they are no part of the OpenAPI description."""

from __future__ import annotations

from itertools import chain

from accountant.system import extensions
from serving.http.routes import Door
from serving.pages import (
    audit,
    charges,
    comparison,
    datasets,
    drafts,
    edits,
    home,
    jobs,
    keeping,
    ledger,
    manual,
    measurements,
    models,
    people,
    profiles,
    schedules,
    service,
    sso,
    tokens,
)

PAGES: tuple[Door, ...] = (
    *home.DOORS,
    *sso.DOORS,
    *datasets.DOORS,
    *people.DOORS,
    *charges.DOORS,
    *measurements.DOORS,
    *profiles.DOORS,
    *drafts.DOORS,
    *jobs.DOORS,
    *schedules.DOORS,
    *service.DOORS,
    *chain(*extensions.load("pages")),
    *models.DOORS,
    *comparison.DOORS,
    *edits.DOORS,
    *ledger.DOORS,
    *audit.DOORS,
    *tokens.DOORS,
    *keeping.DOORS,
    *manual.DOORS,
)

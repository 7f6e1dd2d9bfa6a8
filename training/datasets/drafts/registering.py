"""Registration of rows as a `RegistrationRequest` says: the same from a terminal and from a browser."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from accountant.access.grants import Access
from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import NewPeople
from accountant.ledger.families.row_queries import RowQuery
from dpserve_verify.privacy.budget import Relation
from training.datasets import datasets, made_up
from training.datasets.copy_guard import Asker
from training.requests.registration import RegistrationRequest
from training.rows.tables.file_check import FileCheck


def register_requested(
    home: Home,
    request: RegistrationRequest,
    rows: Path,
    schema: Path,
    by: str,
    origin: str | None = None,
    query: RowQuery | None = None,
    access: Access | None = None,
    look: Callable[[FileCheck], None] | None = None,
) -> Dataset:
    """Register `rows`, as `by` asked for. `origin`: where they came from, if not from there; `query`: by which.
    `access`: what `by` may see; None: they hold the home's keys. `look` shows them what becomes of the cells before
    anything is entered, and raises to end the registration; None: what is asked then must be answered by the request.
    """
    request.check()
    look = look or partial(FileCheck.require_meant, is_meant=request.as_read)
    made_up.require_real(rows, request.made_up)
    return datasets.register(
        home, request.name, rows, schema, request.total(), Relation(request.relation), request.unit,
        request.contributions,
        [home.ledger.member(name) for name in request.family],
        None if request.reason is None else NewPeople(request.reason, by), request.family_name,
        request.share(), origin, request.person(), query, Asker(by, access, look), request.said_ids(),
    )  # fmt: skip

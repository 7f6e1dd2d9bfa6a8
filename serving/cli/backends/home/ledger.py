"""The ledger of a home: audited where it lies, and copied out of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from accountant.audit.audit import audit_place
from accountant.audit.export import export
from accountant.audit.tree_of_entries import Report
from accountant.errors import DpserveError, InputError
from accountant.home import TRUST, Home, place
from accountant.keys.trust import PublicKeys
from accountant.log.collect import kept
from models.store.decisions import finish_decisions, undone
from models.store.versions import champions
from serving.process.watch.audit_runs import bundles_of


def audited(
    seen: list[str], trust: Path | None, progress: Callable[[int, int | None], None]
) -> tuple[Report, list[str], PublicKeys]:
    """The report on the whole of it, the checkpoints that it was held against, and the keys that it was judged by."""
    if trust is not None:
        raise InputError("--trust: a home is judged by its own trust.json; export the ledger to judge it by another")
    home = place(os.environ)[0]
    cosigned = kept(home)
    notes = [*seen, *([] if cosigned is None else [cosigned])]
    models = home / "models"
    if undone(models):
        with suppress(DpserveError, OSError):  # a home that does not open: the audit says what is amiss
            finish_decisions(Home.open())
    report = audit_place(
        bundles=bundles_of(models), seen=notes, progress=progress, champions=partial(champions, models)
    )
    return report, notes, PublicKeys.from_json((home / TRUST).read_bytes())


def exported(out: Path) -> int:
    """Into a new folder, as an auditor takes it; the number of entries."""
    return export(Home.open(), out)


def checkpoint() -> str:
    """The newest signed tree head."""
    return Home.open().ledger.log.checkpoint()

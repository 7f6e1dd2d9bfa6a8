"""Edits of a home's released models: certified, and stored as a version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accountant.home import Home
from accountant.ledger.model_names import require_edit
from models.edit.curves import to_curves
from models.edit.edit_list import edit_all
from models.edit.editing import EditNote
from serving.cli.released.opened import Opened
from serving.cli.terminal import allowed, this_user
from training.finish.derive import derive


def made(base: Opened, edits: Sequence[Any], why: str, by: str | None, promote: bool) -> dict[str, Any]:
    """The new version, and the edits as they stand in it."""
    home, before = Home.open(), to_curves(base.verified.ensemble)
    name, dataset = base.reference.partition("@")[0], base.verified.certificate.form.dataset.name
    require_edit(home.ledger, allowed(home), name, dataset, promote)
    after = edit_all(before, edits, EditNote(by or this_user(), why))
    place = derive(home, base.verified, after, promote)
    done = after.edits[len(before.edits) :]
    return {"model": f"{place.parent.name}@{place.name}", "edits": [edit.to_json() for edit in done]}

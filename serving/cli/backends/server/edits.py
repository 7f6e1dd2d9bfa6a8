"""Edits of a server's released models: asked for by their certificate's entry, so of what was verified here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accountant.errors import InputError
from serving.cli.backends.server.asking import asking
from serving.cli.released.opened import Opened


def made(base: Opened, edits: Sequence[Any], why: str, by: str | None, promote: bool) -> dict[str, Any]:
    """The new version, and the edits as they stand in it. The token says who edits."""
    if by is not None:
        raise InputError("by: a server enters whom the token acts for; leave it out")
    entry = base.verified.certificate.issued
    with asking() as service:
        done = service.edit(base.reference, edits, why, entry=entry, promote=promote)
    return {"model": done["model"], "edits": done["edits"]}

"""Which version of a home's model answers to its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from accountant.home import Home
from models.store import placing
from serving.cli.terminal import allowed, this_user

ACTS: Mapping[str, Callable[..., placing.Placed]] = {
    "promote": placing.promote,
    "retire": placing.retire,
    "restore": placing.restore,
}


def placed(act: str, name: str, why: str, by: str | None, flags: Mapping[str, bool]) -> dict[str, Any]:
    """Promote, retire or restore a version; what came of it."""
    home = Home.open()
    allowed(home, "promote", model=name.partition("@")[0])
    return ACTS[act](home, name, why, by or this_user(), **flags).to_json()

"""Which version of a model at a server answers to its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accountant.errors import InputError
from serving.cli.backends.server.asking import asking


def placed(act: str, name: str, why: str, by: str | None, flags: Mapping[str, bool]) -> dict[str, Any]:
    """Promote, retire or restore a version; what came of it. The token says who does it."""
    if by is not None:
        raise InputError("by: a server enters whom the token acts for; leave it out")
    model, _, version = name.partition("@")
    with asking() as service:
        if act != "promote":
            return dict((service.retire if act == "retire" else service.restore)(name, why))
        if not version.isdigit():
            raise InputError(f"model={name}: must name a version, {model}@2 for instance")
        return dict(service.promote(model, int(version), why, **flags))

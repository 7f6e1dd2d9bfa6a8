"""Settings that people write: exactly what is known, each of its type."""

from __future__ import annotations

from typing import Any

from accountant.errors import InputError


def only(found: dict[str, Any], needed: dict[str, type], optional: dict[str, type]) -> dict[str, Any]:
    """All of `needed`, and nothing beside `optional`, each of its type; InputError else."""
    known = needed | optional
    for name in sorted(needed.keys() - found.keys()):
        raise InputError(f"{name}: is missing")
    for name, value in found.items():
        if name not in known or type(value) is not known[name]:
            raise InputError(f"{name}: is not a setting, or not of its type; there are {sorted(known)}")
    return dict(found)

"""Settings that people write: exactly what is known, each of its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accountant.errors import InputError

Kind = type | tuple[type, ...]


def only(found: dict[str, Any], needed: Mapping[str, Kind], optional: Mapping[str, Kind]) -> dict[str, Any]:
    """All of `needed`, and nothing beside `optional`, each of its type or of one of its types; InputError else."""
    known = {**needed, **optional}
    for name in sorted(needed.keys() - found.keys()):
        raise InputError(f"{name}: is missing")
    for name, value in found.items():
        kinds = known.get(name, ())
        if type(value) not in (kinds if isinstance(kinds, tuple) else (kinds,)):
            raise InputError(f"{name}: is not a setting, or not of its type; there are {sorted(known)}")
    return dict(found)

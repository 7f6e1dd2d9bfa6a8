"""Settings that people write: exactly what is known, each of its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpserve_verify.errors import InputError

Kind = type | tuple[type, ...]


def check_settings(
    settings: dict[str, Any], needed: Mapping[str, Kind], optional: Mapping[str, Kind]
) -> dict[str, Any]:
    """Require all of `needed` and nothing beside `optional`, each of its type or one of its types. InputError else."""
    kinds_by_name = {**needed, **optional}
    for name in sorted(needed.keys() - settings.keys()):
        raise InputError(f"{name}: is missing")
    for name, value in settings.items():
        kinds = kinds_by_name.get(name, ())
        if type(value) not in (kinds if isinstance(kinds, tuple) else (kinds,)):
            raise InputError(f"{name}: is not a setting, or not of its type; there are {sorted(kinds_by_name)}")
    return dict(settings)

"""Files of settings that people write: exactly what is known, each of its type, and what all of them say alike."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import exact_decimal
from dpserve_verify.system.files import PRIVATE, write_new
from local.campaign.asking import check_url, seen_beside
from local.reports.forecast import read_least_worth

Kind = type | tuple[type, ...]
T = TypeVar("T")
_READERS: Mapping[Any, tuple[Kind, Callable[[str, Any], Any]]] = {
    Decimal: (str, exact_decimal),
    Decimal | None: (str, lambda _, text: read_least_worth(text)),
    int: (int, lambda _, number: number),
    tuple[str, ...]: (list, lambda _, texts: tuple(texts)),
}


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


def read_toml(path: Path, needed: Mapping[str, Kind], optional: Mapping[str, Kind]) -> dict[str, Any]:
    """Read a file of settings, with what all of them say of the service. InputError where it is not there, or says
    something that is not understood.
    """
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as TOML ({type(error).__name__})") from None
    every, some = {"url": str, "trust": str, "policy": dict}, {"ca": str, "witnesses": str}
    return check_settings(raw, {**every, **needed}, {**some, **optional})


def read_place(path: Path, top: Mapping[str, Any], ledger: Path) -> dict[str, Any]:
    """Return the fields of a `Place` from what `read_toml` has read of `path`. `ledger`: beside it is what was seen."""
    beside = {name: path.parent / top[name] for name in ("ca", "witnesses") if name in top}
    seen = seen_beside(ledger, beside.get("witnesses"))
    return {"url": check_url(top["url"]), "trust": path.parent / top["trust"], "ca": beside.get("ca"), "seen": seen}


def read_policy(kind: type[T], raw: dict[str, Any], **others: Any) -> T:
    """Read a [policy] as a dataclass, whose other fields are given. InputError names the first field that is wrong."""
    hints = get_type_hints(kind)
    own = [field for field in fields(cast(Any, kind)) if field.name not in others]
    needed = {field.name: _READERS[hints[field.name]][0] for field in own if field.default is MISSING}
    optional = {field.name: _READERS[hints[field.name]][0] for field in own if field.default is not MISSING}
    texts = check_settings(raw, needed, optional)
    return kind(**{name: _READERS[hints[name]][1](name, value) for name, value in texts.items()}, **others)


def write_settings(path: Path, text: str, check: Callable[[Path], T]) -> T:
    """Write a new file of settings, and return what `check` says of it. InputError where it is there, or something in
    it is not understood: then there is no file.
    """
    if path.exists():
        raise InputError(f"{path}: is there already; give another name, or edit it")
    write_new(path, text.encode(), PRIVATE)
    try:
        return check(path)
    except InputError:
        path.unlink()
        raise


def spell(value: Any) -> str:
    """Spell a value as TOML does, which is as JSON does."""
    return json.dumps(value, ensure_ascii=False)

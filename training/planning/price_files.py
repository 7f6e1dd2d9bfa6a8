"""Figures that are told and never charged, kept in the home so that the next command need not work them out again.

They follow from public numbers alone. Each stands under the digest of all that it follows from: what was asked, by
every argument in full, and the sources that work it out. Nothing here is believed where money is: a job is rehearsed
and calibrated anew, and the ledger prices its plan itself. What cannot be read is worked out again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from accountant.privacy.claims import Claim
from accountant.privacy.events import plan_from_json
from accountant.system.files import PRIVATE, replace_unsynced
from training.session.learner import Offer, Recipe

MOST = 400  # figures; some kilobytes each
ROOMS = ("accountant", "models", "training")


def kept(folder: Path, about: tuple[Any, ...], work: Callable[[], Any]) -> Any:
    """What `work` gives, or gave an earlier process that asked about the same. The value is of texts, numbers, lists,
    dicts by texts, recipes, and what an offer is, which comes back as a dict; None within those alone."""
    known = found(folder, about)
    return known if known is not None else _keep(_place(folder, about), work())


def found(folder: Path, about: tuple[Any, ...]) -> Any:
    """What an earlier process has kept of this; None where there is nothing."""
    with suppress(Exception):  # not there, or not as it was written: whatever it is, it is only made again
        body = json.loads(_place(folder, about).read_bytes())
        if hashlib.sha256(body["value"].encode()).hexdigest() == body["sha256"]:
            return json.loads(body["value"], object_hook=_revived)
    return None


def _place(folder: Path, about: tuple[Any, ...]) -> Path:
    return folder / f"{hashlib.sha256(repr((sources(), about)).encode()).hexdigest()}.json"


def _keep(path: Path, value: Any) -> Any:
    text = json.dumps(value, default=_told)
    with suppress(OSError):  # a full disk keeps nobody from hearing a price
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _make_room(path.parent)
        body = {"value": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
        replace_unsynced(path, json.dumps(body).encode(), PRIVATE)
    return value


@cache
def sources() -> str:
    """A digest of which sources work prices out: their names, sizes and times of change."""
    root, found = Path(__file__).parents[2], hashlib.sha256()
    for room in ROOMS:
        for folder, below, names in os.walk(root / room):
            below.sort()
            for name in sorted(each for each in names if each.endswith(".py")):
                status = os.stat(f"{folder}/{name}")
                found.update(f"{folder}/{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return found.hexdigest()


def _make_room(folder: Path) -> None:
    """The oldest give way."""
    files = [path for path in folder.iterdir() if path.suffix == ".json"]
    if len(files) >= MOST:
        for path in sorted(files, key=lambda each: each.stat().st_mtime_ns)[: len(files) - MOST + MOST // 10]:
            path.unlink(missing_ok=True)


def _told(value: Any) -> Any:
    if isinstance(value, Offer):
        return {"recipe": value.recipe, "warnings": value.warnings, "tuning": value.tuning}
    if not isinstance(value, Recipe):
        raise TypeError(type(value).__name__)
    first, claimed = value.first, value.claim
    return {
        "unit": str(value.unit),
        "plan": value.plan.to_json(),
        "claim": [str(claimed.epsilon), str(claimed.delta), claimed.order, claimed.bound],
        "first": None if first is None else [str(first[0]), first[1]],
    }


def _revived(body: dict[str, Any]) -> Any:
    if body.keys() != {"unit", "plan", "claim", "first"}:
        return body
    epsilon, delta, order, bound = body["claim"]
    first = body["first"] and (Decimal(body["first"][0]), body["first"][1])
    claimed = Claim(Decimal(epsilon), Decimal(delta), order, bound)
    return Recipe(Decimal(body["unit"]), plan_from_json(body["plan"]), claimed, first)

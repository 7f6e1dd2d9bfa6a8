"""The models that somebody else's learner may return, read strictly: by the reader of the forms that dpserve serves."""

from __future__ import annotations

from typing import Any

from dpserve_platform.outside.process import OutsideFailed
from dpserve_verify.errors import ModelInvalid
from models.forms.classes import HELD
from models.forms.ensemble import Ensemble
from models.forms.registry import ensemble_from_json
from models.forms.trees import TreeEnsemble
from training.session.session import Public

MOST_NUMBERS = 1 << 18  # of a model: exported it takes no more than its file may
GREATEST = 1 << 32  # whole number in it, in size
PARTS = {"features", "groups", "terms"}  # of a pair


def read_model(said: Any, public: Public) -> Ensemble:
    """Read a model: `constant`, `link` by which scores count, and whole `terms` of each feature's codes (of three
    classes or more one for each class), with or without `pairs` of features; or of two classes `trees`.
    """
    classes = public.classes or ()
    with_trees = isinstance(said, dict) and "trees" in said
    needed = {"trees" if with_trees else "terms", "constant", "link"}
    if not isinstance(said, dict) or not needed <= set(said) <= needed | (set() if with_trees else {"pairs"}):
        raise OutsideFailed(
            "learner: a model has terms (and maybe pairs), constant and link; or trees in place of terms"
        )
    if with_trees and len(classes) != 2:
        raise OutsideFailed("learner: trees tell two classes apart; of more, and of a number, a model has terms")
    if not isinstance(said["link"], float) or not 0 < said["link"] < 1e6:
        raise OutsideFailed("learner: link must be a number above 0")
    pairs = said.get("pairs")
    if isinstance(pairs, list) and any(isinstance(pair, dict) and set(pair) != PARTS for pair in pairs):
        raise OutsideFailed(f"learner: a pair has {', '.join(sorted(PARTS))}")
    _check_numbers([value for name, value in said.items() if name != "link"])
    head: dict[str, Any] = {
        "type": "trees" if with_trees else "classes" if len(classes) > 2 else "additive",
        "target": public.target,
        "features": [feature.to_json() for feature in public.features],
        **({"classes": [*classes]} if classes else {"target_range": [*(public.target_range or ())]}),
    }
    try:
        ensemble = ensemble_from_json(
            {**head, **{key: value for key, value in said.items() if (key, value) != ("pairs", [])}}
        )
    except ModelInvalid as error:
        raise OutsideFailed(f"learner: its model: {error.message:.300}") from None
    if isinstance(ensemble, TreeEnsemble) and ensemble.largest > HELD:
        raise OutsideFailed(f"learner: its trees add up to {ensemble.largest}; at most {HELD}, or it would be rounded")
    return ensemble


def _check_numbers(said: list[Any]) -> None:
    """Count the numbers of a model, however they are nested, and bound each. OutsideFailed where they are too many."""
    left, count = list(said), 0
    while left:
        value = left.pop()
        if isinstance(value, list | dict):
            left += value if isinstance(value, list) else value.values()
        elif not isinstance(value, str):
            whole_number(value, -GREATEST, GREATEST)
            count += 1
    if count > MOST_NUMBERS:
        raise OutsideFailed(f"learner: its model has {count} numbers; at most {MOST_NUMBERS}")


def whole_number(value: Any, low: int, high: int) -> int:
    """Return a whole number in a range. OutsideFailed where it is another, a truth value or a fraction."""
    if type(value) is not int or not low <= value <= high:
        raise OutsideFailed(f"learner: {value!r:.60} must be a whole number from {low} to {high}")
    return value

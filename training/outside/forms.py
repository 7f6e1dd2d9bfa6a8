"""The models that somebody else's learner may return, read strictly."""

from __future__ import annotations

from typing import Any

from models.forms.additive import AdditiveEnsemble
from models.forms.ensemble import Ensemble
from training.outside.process import OutsideFailed
from training.session.session import Public


def read_model(said: Any, public: Public) -> Ensemble:
    """Read an additive model: whole `terms` of each feature's codes, `constant`, and `link` by which scores count."""
    if public.classes is not None and len(public.classes) != 2:
        raise OutsideFailed("learner: models of others tell two classes apart, or give a number")
    if not isinstance(said, dict) or set(said) != {"terms", "constant", "link"} or not isinstance(said["terms"], list):
        raise OutsideFailed("learner: a model has terms, constant and link")
    rows = [line if isinstance(line, list) else [] for line in said["terms"]]
    if [len(line) for line in rows] != [feature.bins for feature in public.features]:
        raise OutsideFailed("learner: terms must be of every feature, one for each of its bins")
    terms = tuple(tuple(whole_number(v, -(1 << 32), 1 << 32) for v in line) for line in rows)
    link = said["link"]
    if not isinstance(link, float) or not 0 < link < 1e6:
        raise OutsideFailed("learner: link must be a number above 0")
    constant = whole_number(said["constant"], -(1 << 32), 1 << 32)
    return AdditiveEnsemble(
        public.features, public.target, public.classes or (), public.target_range, link, constant, terms
    )


def whole_number(value: Any, low: int, high: int) -> int:
    """Return a whole number in a range. OutsideFailed where it is another, a truth value or a fraction."""
    if type(value) is not int or not low <= value <= high:
        raise OutsideFailed(f"learner: {value!r:.60} must be a whole number from {low} to {high}")
    return value

"""The forms of released models, by the word that ensemble.json begins with. A new one is a class in a file beside this
one, and a line here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpserve_verify.errors import ModelInvalid
from models.forms.additive import AdditiveEnsemble
from models.forms.classes import ClassesEnsemble
from models.forms.curves_trees import CurvesAndTrees
from models.forms.ensemble import Ensemble
from models.forms.lines import LineEnsemble
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble

FORMS: dict[str, type[Ensemble]] = {
    form.word: form
    for form in (VotingEnsemble, TreeEnsemble, AdditiveEnsemble, ClassesEnsemble, LineEnsemble, CurvesAndTrees)
}


def ensemble_from_json(body: Mapping[str, Any]) -> Ensemble:
    """Read what `Ensemble.to_json` wrote; anything else raises ModelInvalid."""
    try:
        form = FORMS.get(body["type"])
        if form is not None:
            return form.from_json(body)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelInvalid(f"ensemble.json: not a released ensemble ({error})") from error
    *first, last = map(repr, FORMS)
    raise ModelInvalid(f"type={body['type']!r}: must be {', '.join(first)} or {last}")


def ensemble_bytes(ensemble: Ensemble) -> bytes:
    """Return the content of ensemble.json: the same ensemble gives the same bytes."""
    body = json.dumps(ensemble.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return body.encode() + b"\n"


def ensemble_from_bytes(raw: bytes) -> Ensemble:
    """Read what `ensemble_bytes` wrote. Anything that is not exactly what it writes raises ModelInvalid."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelInvalid(f"ensemble.json: not JSON ({error})") from error
    if not isinstance(body, dict):
        raise ModelInvalid("ensemble.json: must be an object")
    ensemble = ensemble_from_json(body)
    if ensemble_bytes(ensemble) != raw:
        raise ModelInvalid("ensemble.json: not in its one canonical form")
    return ensemble

"""The forms of released models, by the word that ensemble.json begins with. A new one is a class in a file beside this
one, and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accountant.errors import ModelInvalid
from models.forms.additive import AdditiveEnsemble
from models.forms.ensemble import Ensemble
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble

FORMS: dict[str, type[Ensemble]] = {form.word: form for form in (VotingEnsemble, TreeEnsemble, AdditiveEnsemble)}


def ensemble_from_json(body: Mapping[str, Any]) -> Ensemble:
    """Inverse of `Ensemble.to_json`; anything else raises ModelInvalid."""
    try:
        form = FORMS.get(body["type"])
        if form is not None:
            return form.from_json(body)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelInvalid(f"ensemble.json: not a released ensemble ({error})") from error
    *others, last = map(repr, FORMS)
    raise ModelInvalid(f"type={body['type']!r}: must be {', '.join(others)} or {last}")

"""An additive model of several classes: what is exported answers as it does; what is none is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from additive_models import FEATURES, THREE, records

from dpserve_verify.errors import ModelInvalid
from models.explain.card import model_card
from models.explain.picture import picture
from models.forms.classes import round_to_classes
from models.forms.registry import ensemble_bytes, ensemble_from_bytes, ensemble_from_json
from models.onnx.export import to_onnx
from models.onnx.nodes import EXACT
from models.onnx.runtime import OnnxModel

CLAIM = {"epsilon": "2", "delta": "0", "relation": "replace-one", "unit": "one owner"}


def drawn(seed: int):
    rng = np.random.default_rng(seed)
    terms = [rng.standard_normal((feature.bins, 3)) for feature in FEATURES]
    terms[-1][:] = 0
    return round_to_classes(FEATURES, "income", THREE, 1.5, rng.standard_normal(3), terms), terms


@pytest.mark.parametrize("seed", range(3))
def test_exported_model_answers_as_the_sums_say(seed):
    (model, terms), columns = drawn(seed), records(seed)
    assert EXACT // 4 < model.largest < EXACT
    codes = [feature.encode(columns[feature.name]) for feature in FEATURES]
    exact = sum(term[code] for term, code in zip(terms, codes, strict=True))
    found = model.link * (model.scores(columns) - np.array(model.constant))
    np.testing.assert_allclose(found, 1.5 * exact, atol=1e-4)
    labels, probabilities = OnnxModel(to_onnx(model, {})).predict(columns)
    assert labels.tolist() == model.predict(columns).tolist()
    np.testing.assert_allclose(probabilities, model.probabilities(columns), atol=1e-6)
    assert ensemble_from_bytes(ensemble_bytes(model)) == model
    assert to_onnx(model.fullest(FEATURES), {})


def test_what_is_no_such_model_is_refused():
    model, _ = drawn(0)
    body = model.to_json()
    wrong = (
        {"classes": ["a", "b"]}, {"constant": [1, 2]}, {"constant": [1, 2, 0.5]}, {"constant": [0, 0, EXACT]},
        {"terms": body["terms"][:-1]}, {"terms": [body["terms"][0][:-1], *body["terms"][1:]]}, {"link": 0},
        {"terms": [[[1, 2]] * feature.bins for feature in FEATURES]}, {"terms": 3}, {"more": 1}, {"constant": 3},
    )  # fmt: skip
    for lie in wrong:
        with pytest.raises(ModelInvalid):
            ensemble_from_json(body | lie)


def test_drawn_carded_and_without_what_moves_nothing(tmp_path):
    model, _ = drawn(1)
    assert set(model.importances()) == {feature.name for feature in FEATURES[:-1]}
    for ending in ("svg", "html"):
        picture(model, "the claim", tmp_path / f"out.{ending}")
        assert b"the claim" in (tmp_path / f"out.{ending}").read_bytes()
    assert "number to the score of each class" in model_card(model, CLAIM)
    assert replace(model, constant=(0, 0, 0)).account().count("<tr>") == 4

"""Lines: what is exported answers as the ensemble does, to the last vote; what is no line is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from additive_models import FEATURES, THREE, records

from dpserve_verify.errors import InputError, ModelInvalid
from models.explain.card import model_card
from models.explain.picture import picture
from models.forms.lines import LineEnsemble
from models.forms.registry import ensemble_bytes, ensemble_from_bytes, ensemble_from_json
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel
from models.parts.lines import LARGEST, Choice, Line
from serving.pages.parts import shapes as page_shapes

FIRST = Line(900, -3, ((-9, -2, 1, 4, 0), (3, -5, 0, 2), (1, -1, 0), (0, 0, 0)))
SECOND = Line(400, 0, ((1, 1, 1, 1, -1), (0, 0, 0, 0), (0, 0, 0), (0, 0, 0)))
MODEL = LineEnsemble(FEATURES, "income", ("<=50K", ">50K"), (FIRST, SECOND), 1 / 512)
CLAIM = {"epsilon": "2", "delta": "0", "relation": "replace-one", "unit": "one owner"}


def random_model(seed: int, count: int = 9) -> LineEnsemble:
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        terms = tuple(tuple(map(int, rng.integers(-(2**20), 2**20, feature.bins))) for feature in FEATURES)
        lines.append(Line(int(rng.integers(1, 1024)), int(rng.integers(-(2**20), 2**20)), terms))
    return replace(MODEL, lines=tuple(lines))


def test_scores_are_votes_of_signs():
    codes = [np.array(code) for code in ([3, 0], [0, 1], [0, 1], [0, 0])]  # sums 4 + 3 + 1 - 3, -9 - 5 - 1 - 3; 1, 1
    assert MODEL.coded_scores(codes)[:, 0].tolist() == [1300, -500]
    assert FIRST.sums([np.array([2]), np.array([3]), np.array([2]), np.array([0])]).tolist() == [0]
    assert FIRST.sides([np.array([2]), np.array([3]), np.array([2]), np.array([0])]).tolist() == [-1]  # 0 is not above


@pytest.mark.parametrize("seed", range(4))
def test_exported_model_answers_as_the_ensemble_does(seed):
    model, columns = random_model(seed), records(seed)
    labels, probabilities = OnnxModel(to_onnx(model, {})).predict(columns)
    assert labels.tolist() == model.predict(columns).tolist()
    np.testing.assert_allclose(probabilities, model.probabilities(columns), atol=1e-6)
    assert len(set(labels.tolist())) == 2


def test_saved_loaded_and_refused():
    assert ensemble_from_bytes(ensemble_bytes(MODEL)) == MODEL
    body = MODEL.to_json()
    line = body["lines"][0]
    wrong = (
        {**line, "weight": 0}, {**line, "weight": 1.5}, {**line, "constant": True}, {**line, "more": 1},
        {**line, "terms": line["terms"][:-1]}, {**line, "terms": [*line["terms"][:-1], [0, 0]]},
        {**line, "constant": LARGEST}, {**line, "terms": 3}, [],
    )  # fmt: skip
    for lie in wrong:
        with pytest.raises(ModelInvalid):
            ensemble_from_json({**body, "lines": [lie]})
    for change in ({"lines": {}}, {"classes": ["a", "b", "c"]}, {"link": 0}):
        with pytest.raises(ModelInvalid):
            ensemble_from_json({**body, **change})
    with pytest.raises(ModelInvalid, match="one at least"):
        to_onnx(replace(MODEL, lines=()), {})
    assert to_onnx(MODEL.fullest(FEATURES), {})


def test_importances_are_of_what_moves_votes():
    found = MODEL.importances()
    assert "idle" not in found
    assert next(iter(found)) == "age"
    twice = replace(MODEL, lines=(replace(FIRST, weight=1800),))
    assert np.isclose(twice.importances()["owner"], 2 * replace(MODEL, lines=(FIRST,)).importances()["owner"])
    with pytest.raises(InputError, match="importances"):
        MODEL.as_sum()


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_drawn_and_carded(ending, tmp_path):
    picture(MODEL, "the claim", tmp_path / f"out.{ending}")
    assert b"the claim" in (tmp_path / f"out.{ending}").read_bytes()
    card = model_card(MODEL, CLAIM)
    assert "A majority of lines that answers whether income is" in card
    assert "Each of 2 lines" in card
    shown = page_shapes.picture(MODEL)
    assert (shown["parts"], shown["of"]) == ("Lines", 2)
    assert shown["trees"][0].startswith("weight 900: -3 and at most age 13,")


def random_choices(seed: int, count: int = 5) -> LineEnsemble:
    models = [random_model(3 * seed + at, count).lines for at in range(3)]
    choices = tuple(
        Choice(each[0].weight, tuple(line.constant for line in each), tuple(line.terms for line in each))
        for each in zip(*models, strict=True)
    )
    return replace(MODEL, classes=THREE, lines=choices)


@pytest.mark.parametrize("seed", range(3))
def test_choices_of_three_classes_are_votes_and_the_same_in_onnx(seed):
    model, columns = random_choices(seed), records(seed)
    labels, probabilities = OnnxModel(to_onnx(model, {})).predict(columns)
    assert labels.tolist() == model.predict(columns).tolist()
    np.testing.assert_allclose(probabilities, model.probabilities(columns), atol=1e-6)
    assert set(labels.tolist()) == set(THREE)
    assert (model.scores(columns).sum(axis=1) == sum(line.weight for line in model.lines)).all()
    assert ensemble_from_bytes(ensemble_bytes(model)) == model


def test_choices_are_strict_explained_and_carded():
    first, second, idle = ((1, 0, 0), (5, 5, 9)), ((0, 2, 0), (5, 5, 5)), ((0, 0, 0), (0, 0, 0))
    features = (FEATURES[2], replace(FEATURES[2], name="other"))
    model = LineEnsemble(features, "y", THREE, (Choice(100, (0, 0, 5), (first, second, idle)),), 1 / 512)
    codes = [np.array([0, 1, 2]), np.array([0, 0, 2])]  # sums 6 5 5; 5 7 5; 9 5 5
    assert model.coded_scores(codes).tolist() == [[100, 0, 0], [0, 100, 0], [100, 0, 0]]
    assert model.coded_scores([np.array([2]), np.array([0])]).tolist() == [[100, 0, 0]]  # 5 5 5: the first of equals
    assert model.importances() == {"other": 100 * 4 / 7, FEATURES[2].name: 100 * 3 / 7}
    assert "Each of 1 choices" in model_card(model, CLAIM)
    body, of = model.to_json(), model.to_json()["lines"][0]
    wrong = (
        {**of, "constant": 3}, {**of, "constant": [0, 0]}, {**of, "terms": of["terms"][:2]}, {**of, "terms": [3, 3, 3]},
        {**of, "constant": [0, 0, 1.5]}, {**of, "constant": [0, 0, LARGEST]}, {**of, "terms": [[[1]]] * 3}, {},
    )  # fmt: skip
    for lie in wrong:
        with pytest.raises(ModelInvalid):
            ensemble_from_json({**body, "lines": [lie]})
    with pytest.raises(ModelInvalid):
        replace(model, classes=("low", "high"))
    with pytest.raises(ModelInvalid):
        replace(MODEL, classes=THREE)

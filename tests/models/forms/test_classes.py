"""An additive model of several classes: what is exported answers as it does; what is none is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from additive_models import FEATURES, THREE, records

from dpserve_verify.errors import ModelInvalid
from models.explain.card import model_card
from models.explain.explain import contributions, pair_shapes
from models.explain.picture import picture
from models.forms.classes import round_to_classes
from models.forms.registry import ensemble_bytes, ensemble_from_bytes, ensemble_from_json
from models.onnx.export import to_onnx
from models.onnx.nodes import EXACT
from models.onnx.runtime import OnnxModel
from models.parts.pairs import PairTerm

CLAIM = {"epsilon": "2", "delta": "0", "relation": "replace-one", "unit": "one owner"}


def drawn(seed: int):
    rng = np.random.default_rng(seed)
    terms = [rng.standard_normal((feature.bins, 3)) for feature in FEATURES]
    terms[-1][:] = 0
    return round_to_classes(FEATURES, "income", THREE, 1.5, rng.standard_normal(3), terms), terms


def paired(seed: int):
    """The same with two pairs, of texts among others, a number for each class and cell."""
    rng = np.random.default_rng(seed)
    groups = {0: (0, 0, 1, 2, 3), 1: (1, 0, 2, 2), 2: (0, 1, 0)}
    pairs = tuple(
        PairTerm((a, b), (groups[a], groups[b]), cells)
        for a, b, rows, columns in ((0, 1, 4, 3), (1, 2, 3, 2))
        for cells in [tuple(tuple(tuple(c) for c in r) for r in rng.integers(-900, 900, (rows, columns, 3)).tolist())]
    )
    terms = tuple(tuple(map(tuple, rng.integers(-900, 900, (f.bins, 3)).tolist())) for f in FEATURES)
    counts = tuple(tuple(range(-1, feature.bins - 1)) for feature in FEATURES)
    return replace(drawn(seed)[0], link=0.001, constant=(5, -70, 100), terms=terms, pairs=pairs, counts=counts)


@pytest.mark.parametrize("seed", range(3))
def test_pairs_add_a_number_for_each_class(seed, tmp_path):
    model, columns = paired(seed), records(seed)
    codes = [feature.encode(columns[feature.name]) for feature in FEATURES]
    expected = np.array(model.constant) + sum(np.array(t)[c] for t, c in zip(model.terms, codes, strict=True))
    for pair in model.pairs:
        (a, b), (first, second) = pair.features, pair.groups
        expected += np.array([pair.terms[first[i]][second[j]] for i, j in zip(codes[a], codes[b], strict=True)])
    assert model.scores(columns).tolist() == expected.tolist()
    labels, probabilities = OnnxModel(to_onnx(model, {})).predict(columns)
    assert labels.tolist() == model.predict(columns).tolist()
    np.testing.assert_allclose(probabilities, model.probabilities(columns), atol=1e-6)
    assert ensemble_from_bytes(ensemble_bytes(model)) == model
    assert to_onnx(model.fullest(FEATURES), {})
    account = contributions(model, columns)
    np.testing.assert_allclose(account.base + account.votes.sum(axis=1), model.link * expected, atol=1e-9)
    shapes = pair_shapes(model)
    assert {(shape.feature, shape.label) for shape in shapes} == {
        (name, label) for name in ("age & work <b>", "work <b> & owner") for label in THREE
    }
    assert {"age & work <b>", "work <b> & owner"} < set(model.importances())
    picture(model, "the claim", tmp_path / "out.html")
    assert "work &lt;b&gt; &amp; owner: middle" in (tmp_path / "out.html").read_text()
    assert "on average over the released" in model.card_section()
    assert "at most" in replace(model, counts=()).card_section()
    shares = np.maximum(model.counts[0], 0) / np.maximum(model.counts[0], 0).sum()
    sizes = [np.abs(column - shares @ column) @ shares for column in np.array(model.terms[0]).T]
    assert model.importances()["age"] == pytest.approx(model.link * max(sizes))


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
    cell = {"features": [1, 2], "groups": [[0] * 4, [0, 1, 0]], "terms": [[[1, 2, 3], [4, 5, 6]]]}
    assert ensemble_from_json(body | {"link": 1.0, "terms": [[[1, 2, 3]] * f.bins for f in FEATURES], "pairs": [cell]})
    wrong = (
        {"classes": ["a", "b"]}, {"constant": [1, 2]}, {"constant": [1, 2, 0.5]}, {"constant": [0, 0, EXACT]},
        {"terms": body["terms"][:-1]}, {"terms": [body["terms"][0][:-1], *body["terms"][1:]]}, {"link": 0},
        {"terms": [[[1, 2]] * feature.bins for feature in FEATURES]}, {"terms": 3}, {"more": 1}, {"constant": 3},
        *({"pairs": wrong} for wrong in ([], [cell | {"terms": [[[1, 2], [3, 4]]]}], [cell | {"terms": [[1, 2]]}])),
        {"pairs": [cell, cell]}, {"pairs": [cell | {"errors": [[1.0, 2.0]]}]}, {"counts": [[1]]}, {"counts": []},
        {"counts": [[0.5] * f.bins for f in FEATURES]}, {"counts": [3]}, {"pairs": [cell | {"counts": [[1]]}]},
        {"pairs": [cell | {"terms": [[[EXACT, 0, 0]] * 2]}]},
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

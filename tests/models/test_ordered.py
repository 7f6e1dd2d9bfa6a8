"""A category in an order: codes are ranks, tests compare them, and every form of a model says and exports the same."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pytest

from dpserve_verify.errors import ModelInvalid
from models.edit.edit_parts import part_of
from models.explain.card import model_card
from models.explain.compare import compare
from models.explain.explain import shapes
from models.features.features import (
    FEW_VALUES,
    CategoricalFeature,
    NumericFeature,
    OrderedFeature,
    feature_from_json,
)
from models.features.notes import notes_of
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.onnx.export import to_onnx
from models.onnx.portable import codes_of, to_portable
from models.onnx.runtime import OnnxModel
from models.parts.trees import Leaf, Split, tree_text
from models.parts.votes import Vote, describe

TOWN = OrderedFeature("town", ("a", "other", "c", "d"), (3, 0, 4, 1, 2))  # in order: other, d, what is not listed, a, c
FEATURES = (NumericFeature("age", (18.0, 65.0)), TOWN)
TREES = (
    Split("above", 1, 1, Split("is", 1, 5, Leaf(50), Leaf(7)), Split("is", 1, 5, Leaf(-3), Leaf(2))),
    Split("above", 1, 3, Leaf(11), Split("is", 1, 2, Leaf(-20), Split("above", 0, 0, Leaf(1), Leaf(0)))),
)
VOTES = tuple(
    Vote(test, 1, code, 3 + code, 0) for test, codes in (("above", range(4)), ("is", range(6))) for code in codes
)
MODELS = (
    TreeEnsemble(FEATURES, "t", ("no", "yes"), TREES, -1, 0.4),
    VotingEnsemble(FEATURES, "t", ("no", "yes"), VOTES, 0.4),
    VotingEnsemble(FEATURES, "t", (0, 1, 2), tuple(Vote(v.test, 1, v.code, v.weight, v.code % 3) for v in VOTES), 0.4),
)
TEXTS = [*TOWN.values, "elsewhere", "missing", "", None]
COLUMNS = {"age": np.linspace(0, 90, len(TEXTS)), "town": np.array(TEXTS, object)}


def test_codes_are_ranks_and_labels_their_inverse():
    assert TOWN.encode(TEXTS).tolist() == [3, 0, 4, 1, 2, 2, 5, 5]
    assert [TOWN.label(code) for code in range(TOWN.bins)] == ["other", "d", "any other value", "a", "c", "missing"]
    assert (TOWN.cuts, TOWN.missing, TOWN.other, TOWN.single_codes) == (4, 5, 2, tuple(range(6)))
    names = tuple(map(str, range(FEW_VALUES + 1)))
    assert OrderedFeature("x", names, tuple(range(FEW_VALUES + 2))).single_codes == (FEW_VALUES + 2,)
    assert notes_of([TOWN], {}, {"town": np.array(["elsewhere", "d", None], object)}) == [
        [{"field": "town", "note": "unknown"}],
        [],
        [{"field": "town", "note": "missing"}],
    ]


def test_an_order_survives_json_and_a_wrong_one_is_refused():
    assert feature_from_json(json.loads(json.dumps(TOWN.to_json()))) == TOWN
    plain = CategoricalFeature("town", TOWN.values)
    assert feature_from_json(plain.to_json()) == plain != TOWN
    for ranks in ([0, 1, 2, 3], [0, 1, 2, 3, 3], [0, 1, 2, 3, 5], [0, 1, 2, 3, 4.0], [True, 0, 2, 3, 4]):
        with pytest.raises(ModelInvalid, match="ranks"):
            feature_from_json({**TOWN.to_json(), "ranks": ranks})


def test_tests_are_said_by_the_values_that_pass():
    assert describe(TREES[0], FEATURES) == "town is neither missing nor other or d"
    assert describe(Vote("above", 1, 0, 1), FEATURES) == "town is neither missing nor other"
    assert describe(TREES[1], FEATURES) == "town is c"
    names = tuple(f"v{at}" for at in range(20))
    many = OrderedFeature("x", names, tuple(range(21)))
    assert many.text_above(9) == "is neither missing nor v0, v1, v2, v3 or one of 6 more"
    assert many.text_above(18) == "is v19 or other"
    assert "town is c?" in "\n".join(tree_text(TREES[1], FEATURES))


@pytest.mark.parametrize("model", MODELS, ids=["trees", "votes", "votes of three"])
def test_files_graphs_and_words_agree(model):
    """Above a rank is never missing; the graph and the portable one answer as the model does for every text."""
    assert ensemble_from_bytes(ensemble_bytes(model)) == model
    exported = to_onnx(model, {})
    labels, chances = OnnxModel(exported).predict(COLUMNS)
    assert labels.tolist() == model.predict(COLUMNS).tolist()
    np.testing.assert_allclose(chances, model.probabilities(COLUMNS), rtol=0, atol=1e-6)
    feed = {}
    for about in codes_of(model)["inputs"]:
        cells = COLUMNS[about["feature"]["name"]]
        if codes := about.get("codes"):
            cells = [codes["missing"] if not text else codes["texts"].get(text, codes["other"]) for text in cells]
        feed[about["input"]] = np.array(cells)[:, np.newaxis]
    answers = onnxruntime.InferenceSession(to_portable(model, exported)).run(None, feed)
    np.testing.assert_allclose(answers[1], chances, rtol=0, atol=1e-6)
    about = {"epsilon": "0.5", "delta": "0.000001", "relation": "add-remove", "unit": "one record", "learner": "lazybb"}
    assert "town" in model_card(model, about)


def test_the_one_above_a_rank_is_the_one_by_hand():
    """By the trees' own arithmetic, text by text: the first tree asks rank > 1, and inside it whether it is missing."""
    first = {"a": 7, "other": 2, "c": 7, "d": 2, "elsewhere": 7, None: -3}
    second = {"a": 0, "other": 0, "c": 11, "d": 0, "elsewhere": -20, None: 0}
    for text in first:
        columns = {"age": np.array([0.0]), "town": np.array([text], object)}
        assert MODELS[0].scores(columns).ravel().tolist() == [-1 + first[text] + second[text]]


def test_an_ordered_and_a_declared_category_are_compared_and_edited_by_name():
    plain = VotingEnsemble((FEATURES[0], CategoricalFeature("town", TOWN.values)), "t", ("no", "yes"), VOTES[4:], 0.4)
    comparison = compare(MODELS[1], plain, ("ordered", "declared"))
    assert comparison is not None
    assert [bin.label for bin in shapes(MODELS[1])[-1].bins] == list(TOWN.labels)
    assert part_of(TOWN, "d") == [1]
    assert part_of(TOWN, "other") == [0]
    assert part_of(TOWN, "any other value") == [2]
    assert part_of(TOWN, "missing") == [5]

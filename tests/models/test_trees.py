"""Tree ensembles: scores by hand, JSON both ways, the exported graph on every row of Adult and beside every border, and
what may be said of trees."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import exp, inf, nan, nextafter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pyarrow.parquet as pq
import pytest
from border_columns import borders
from onnx import TensorProto, helper

from dpserve_verify.errors import InputError, ModelInvalid
from models.explain.card import model_card
from models.explain.explain import contributions, shapes
from models.explain.picture import picture
from models.explain.vega_panels import LIGHT
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature, encode_columns
from models.forms.registry import ensemble_bytes, ensemble_from_bytes, ensemble_from_json
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel, columns_from_records
from models.onnx.trees import merged
from models.parts.answers import probabilities_of
from models.parts.trees import MAX_DEPTH, MAX_WEIGHT, Leaf, Split, route, tree_text
from models.parts.votes import Vote, holds
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import columns_of

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
FEATURES = (
    NumericFeature("age", (18.0, 27.5, 65.0)),
    CategoricalFeature("work", ("Private", "State")),
    BooleanFeature("owner"),
    CategoricalFeature("race", ("A", "B")),
)
FIRST = Split(
    "above",
    0,
    1,  # age > 27.5
    Split("is", 1, 0, Leaf(5), Leaf(2)),  # work is Private
    Split("is", 0, 4, Leaf(-7), Split("is", 2, 1, Leaf(1), Leaf(-1))),  # age is missing; owner is true
)
SECOND = Split("is", 1, 3, Leaf(4), Leaf(0))  # work is missing
ENSEMBLE = TreeEnsemble(FEATURES, "income", ("<=50K", ">50K"), (FIRST, SECOND), -1, 0.4)
CLAIM = {"epsilon": "0.5", "delta": "0.000001", "relation": "add-remove", "unit": "one record"}


def columns_of_one(age, work, owner, race="A"):
    return {"age": [age], "work": [work], "owner": [owner], "race": [race]}


# ---- scores -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "work", "owner", "score"),
    [
        (40, "Private", False, 5 - 1),
        (inf, "State", False, 2 - 1),
        (27.5, "Private", True, 1 - 1),
        (nextafter(27.5, inf), None, True, 2 + 4 - 1),
        (18, "elsewhere", nan, -1 - 1),
        (nan, "", True, -7 + 4 - 1),
        (-inf, "State", False, -1 - 1),
    ],
)
def test_scores_by_hand(age, work, owner, score):
    columns = columns_of_one(age, work, owner)
    assert ENSEMBLE.scores(columns).tolist() == [[score]]
    assert ENSEMBLE.predict(columns).tolist() == [">50K" if score > 0 else "<=50K"]  # a tie is class 0
    assert ENSEMBLE.probabilities(columns)[0, 1] == pytest.approx(1 / (1 + exp(-0.4 * score)), abs=1e-15)


def test_missing_is_never_above():
    codes = [np.arange(5)]
    for code in range(3):
        assert route(Split("above", 0, code, Leaf(1), Leaf(0)), codes, [5])[-1] == 0
    assert holds("above", 0, 5).tolist() == [False, True, True, True, False]


def test_route_is_the_walk_of_each_row():
    rng = np.random.default_rng(0)
    widths = [feature.bins for feature in FEATURES]
    codes = [rng.integers(0, width, 300).astype(np.uint8) for width in widths]
    tree = random_tree(FEATURES, 6, rng)
    assert route(tree, codes, widths).tolist() == [walk(tree, [int(c[i]) for c in codes], widths) for i in range(300)]
    assert route(Leaf(3), codes, widths).tolist() == [3] * 300
    assert route(tree, [code[:0] for code in codes], widths).tolist() == []


def walk(tree, row, widths):
    while isinstance(tree, Split):
        value, missing = row[tree.feature], widths[tree.feature] - 1
        passes = value == tree.code if tree.test == "is" else value != missing and value > tree.code
        tree = tree.yes if passes else tree.no
    return tree.weight


def random_tree(features, depth, rng):
    if depth == 0 or rng.random() < 0.15:
        return Leaf(int(rng.integers(-9, 10)))
    i = int(rng.integers(len(features)))
    tests = [("above", code) for code in range(features[i].cuts)] + [("is", code) for code in features[i].single_codes]
    test, code = tests[rng.integers(len(tests))]
    return Split(test, i, int(code), *(random_tree(features, depth - 1, rng) for _ in range(2)))


# ---- JSON ---------------------------------------------------------------------------------------------------------


def test_json_and_back():
    assert ensemble_from_json(json.loads(json.dumps(ENSEMBLE.to_json()))) == ENSEMBLE
    assert ensemble_from_bytes(ensemble_bytes(ENSEMBLE)) == ENSEMBLE
    assert ENSEMBLE.to_json()["type"] == "trees"
    assert ENSEMBLE.to_json()["trees"][1] == ["is", 1, 3, 4, 0]
    stump = TreeEnsemble(FEATURES, "t", (0, 1), (Leaf(3),), 0, 1.0)
    assert ensemble_from_bytes(ensemble_bytes(stump)) == stump


def deep(depth):
    return ["is", 2, 1, 1, deep(depth - 1)] if depth else 0


def test_depth_is_bounded():
    assert ensemble_from_json({**ENSEMBLE.to_json(), "trees": [deep(MAX_DEPTH)]})
    with pytest.raises(ModelInvalid, match="deep"):
        ensemble_from_json({**ENSEMBLE.to_json(), "trees": [deep(MAX_DEPTH + 1)]})
    tower = Leaf(0)
    for _ in range(MAX_DEPTH + 1):
        tower = Split("is", 2, 1, Leaf(1), tower)
    with pytest.raises(ModelInvalid, match="deep"):
        TreeEnsemble(FEATURES, "t", (0, 1), (tower,), 0, 1.0)


BAD_TREES = [
    ["below", 0, 0, 1, 2],
    ["always", 0, 0, 1, 2],
    ["above", 0, 3, 1, 2],
    ["above", 1, 0, 1, 2],
    ["above", 2, 0, 1, 2],
    ["above", 0, -1, 1, 2],
    ["is", 0, 1, 1, 2],  # one bin of a number takes two splits
    ["is", 0, 5, 1, 2],
    ["is", 1, 4, 1, 2],
    ["is", 4, 0, 1, 2],
    ["is", -1, 0, 1, 2],
    ["is", True, 0, 1, 2],
    ["is", 1, False, 1, 2],
    ["is", 1, 0.0, 1, 2],
    ["is", 1, "0", 1, 2],
    [["is"], 1, 0, 1, 2],
    ["is", 1, 0, 1],
    ["is", 1, 0, 1, 2, 3],
    ["is", 1, 0, 1, None],
    ["is", 1, 0, 1, 0.5],
    ["is", 1, 0, 1, True],
    ["is", 1, 0, 1, ["is", 9, 0, 1, 1]],
    [],
    None,
    "is",
    1.0,
    {},
    MAX_WEIGHT + 1,
]


@pytest.mark.parametrize("tree", BAD_TREES, ids=str)
def test_refused_trees(tree):
    with pytest.raises(ModelInvalid):
        ensemble_from_json({**ENSEMBLE.to_json(), "trees": [3, tree]})


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["a", "b", "c"]},
        {"classes": ["a", 1]},
        {"constant": 0.5},
        {"constant": None},
        {"constant": True},
        {"link": 0},
        {"link": nan},
        {"trees": None},
        {"trees": 3},
        {"trees": {"is": 1}},
        {"features": []},
        {"votes": []},
        {"bends": 3},
        {"bends": [[1]]},
        {"bends": [[0, 0.1]]},
        {"bends": [[2.0, 0.1]]},
        {"bends": [[3, 0.1], [2, 0.1]]},
        {"bends": [[2, 0.1], [2, 0.2]]},
        {"bends": [[2, 0]]},
        {"bends": [[2, nan]]},
        {"bends": [[each, 0.1] for each in range(1, 18)]},
    ],
)
def test_refused_ensembles(change):
    with pytest.raises(ModelInvalid):
        ensemble_from_json({**ENSEMBLE.to_json(), **change})


@pytest.mark.parametrize("key", sorted(ENSEMBLE.to_json()))
def test_every_key_is_needed(key):
    with pytest.raises(ModelInvalid):
        ensemble_from_json({name: value for name, value in ENSEMBLE.to_json().items() if name != key})


# ---- the exported graph -------------------------------------------------------------------------------------------


def scores_in(raw, columns):
    """What the graph has before it answers: its scores (N, 1)."""
    model = onnx.load_from_string(raw)
    model.graph.output.append(helper.make_tensor_value_info("/score", TensorProto.FLOAT, ["N", 1]))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {}
    for each in session.get_inputs():
        values = columns[each.name]
        texts = np.array([text or "" for text in values], object) if each.type == "tensor(string)" else None
        feed[each.name] = (np.asarray(values, np.float64) if texts is None else texts).reshape(-1, 1)
    [scores] = session.run(["/score"], feed)
    return scores


def assert_same(ensemble, columns):
    raw = to_onnx(ensemble, {})
    scores = ensemble.scores(columns)
    assert np.array_equal(scores_in(raw, columns), scores)
    labels, probabilities = OnnxModel(raw).predict(columns)
    assert labels.tolist() == ensemble.predict(columns).tolist()
    np.testing.assert_allclose(probabilities, ensemble.probabilities(columns), rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [("no", "yes"), (0, 1), (3, -5), ("é", "<b>")])
def test_random_trees_beside_every_border(classes):
    rng = np.random.default_rng(len(str(classes)))
    for depth in (0, 1, 2, 3, 6, 9):
        for features in (FEATURES, FEATURES[:1], FEATURES[1:2], FEATURES[::-1]):
            trees = tuple(random_tree(features, depth, rng) for _ in range(int(rng.integers(0, 12))))
            ensemble = TreeEnsemble(features, "t", classes, trees, int(rng.integers(-4, 5)), 0.3)
            assert_same(ensemble, borders(features, 80, rng))


def test_every_test_of_every_feature():
    rng = np.random.default_rng(5)
    for i, feature in enumerate(FEATURES):
        numeric = isinstance(feature, NumericFeature)
        tests = [("above", code) for code in range(feature.cuts)]
        tests += [("is", code) for code in range(feature.missing if numeric else 0, feature.bins)]
        for test, code in tests:
            ensemble = TreeEnsemble(FEATURES, "t", (0, 1), (Split(test, i, code, Leaf(3), Leaf(-2)),), 0, 0.5)
            assert_same(ensemble, borders(FEATURES, 40, rng))


BENT = replace(ENSEMBLE, bends=((-3, 0.1), (2, 1.5), (4, 0.2)))


def test_log_odds_bend_away_from_zero():
    """-8 to 9, by hand; beside no score does the label change, and what has no bends is written as it was."""
    scores = np.arange(-8, 10)
    by_hand = [0.4 * max(s, -3) + 0.1 * min(s + 3, 0) for s in range(-8, 1)]
    by_hand += [0.4 * min(s, 2) + 1.5 * min(max(s - 2, 0), 2) + 0.2 * max(s - 4, 0) for s in range(1, 10)]
    found = probabilities_of(scores[:, None], BENT.link, BENT.bends)
    np.testing.assert_allclose(found[:, 1], 1 / (1 + np.exp(-np.array(by_hand))), rtol=1e-12)
    assert ((found[:, 1] > 0.5) == (scores > 0)).all()
    assert ensemble_from_bytes(ensemble_bytes(BENT)) == BENT
    assert "bends" not in ENSEMBLE.to_json()
    assert "beyond 4" in BENT.card_section()
    assert "beyond" not in ENSEMBLE.card_section()


def test_bent_log_odds_beside_every_border():
    rng = np.random.default_rng(7)
    for number in range(8):
        trees = tuple(random_tree(FEATURES, 3, rng) for _ in range(9))
        scores = sorted({int(each) for each in rng.integers(-20, 20, 5)} - {0})
        bends = tuple((score, float(slope)) for score, slope in zip(scores, rng.uniform(0.05, 2, 5), strict=False))
        ensemble = TreeEnsemble(FEATURES, "t", (0, 1), trees, number - 4, 0.3, bends)
        assert_same(ensemble, borders(FEATURES, 80, rng))


@pytest.mark.slow
def test_every_row_of_adult():
    schema = parse_schema((DATA / "adult.schema.yaml").read_bytes())
    rng = np.random.default_rng(11)
    trees = tuple(random_tree(schema.features, depth, rng) for depth in (1, 2, 3, 4, 5, 6) * 8)
    ensemble = TreeEnsemble(schema.features, "income", schema.classes, trees, 3, 0.05)
    for part in ("train", "test"):
        columns = columns_of(schema, pq.read_table(DATA / f"adult_{part}.parquet"))
        assert len(np.unique(ensemble.scores(columns))) > 50
        assert_same(ensemble, columns)


def test_records_missing_values_and_no_rows():
    records = [
        {"age": 39, "work": "Private", "owner": True, "race": None},
        {"age": None, "work": None, "owner": None, "race": "C"},
    ]
    model = OnnxModel(to_onnx(ENSEMBLE, {}))
    labels, probabilities = model.infer(columns_from_records(FEATURES, records, 9))
    assert labels.tolist() == [">50K", "<=50K"]
    assert probabilities[:, 1] == pytest.approx([1 / (1 + exp(-0.4 * 4)), 1 / (1 + exp(0.4 * 4))], abs=1e-6)
    labels, probabilities = model.predict({name: [] for name in ("age", "work", "owner", "race")})
    assert (labels.shape, probabilities.shape) == ((0,), (0, 2))


def test_scores_beyond_float32_are_refused():
    fits = TreeEnsemble(FEATURES, "t", (0, 1), (Split("is", 2, 1, Leaf((1 << 24) - 3), Leaf(0)), Leaf(1)), -1, 1e-7)
    assert_same(fits, borders(FEATURES, 30, np.random.default_rng(0)))
    for trees, constant in [
        ((Leaf(1 << 24),), 0),
        ((), 1 << 24),
        ((Split("is", 2, 1, Leaf(-(1 << 23)), Leaf(0)), FIRST), (1 << 23) - 7),
        ((Leaf(MAX_WEIGHT),), 0),
    ]:
        with pytest.raises(ModelInvalid, match="float32"):
            to_onnx(TreeEnsemble(FEATURES, "t", (0, 1), trees, constant, 1.0), {})


def test_trees_of_one_form_become_one():
    twin = Split("is", 1, 3, Leaf(-1), Leaf(2))
    assert merged((SECOND, FIRST, twin, Leaf(1), Leaf(2))) == [Split("is", 1, 3, Leaf(3), Leaf(2)), FIRST, Leaf(3)]
    once = to_onnx(TreeEnsemble(FEATURES, "t", (0, 1), (SECOND,), 0, 1.0), {})
    often = to_onnx(TreeEnsemble(FEATURES, "t", (0, 1), (SECOND,) * 500, 0, 1.0), {})
    assert len(once) == len(often)


def test_only_what_trees_ask_is_read():
    graph = onnx.load_from_string(to_onnx(ENSEMBLE, {})).graph
    assert [each.name for each in graph.input] == ["age", "work", "owner", "race"]
    assert {name for node in graph.node for name in node.input} >= {"age", "work", "owner"}
    assert "race" not in {name for node in graph.node for name in node.input}


def test_same_ensemble_same_bytes():
    again = ensemble_from_bytes(ensemble_bytes(ENSEMBLE))
    assert to_onnx(again, {"a": "1"}) == to_onnx(ENSEMBLE, {"a": "1"})


# ---- for people ---------------------------------------------------------------------------------------------------


def test_importances_by_hand():
    """First: (3.5 - -3.5) / 2 of age, plus half of (5 - 2) / 2 of work, ... ; second: (4 - 0) / 2 of work."""
    assert ENSEMBLE.importances() == {
        "age": abs(3.5 - (-7 + 0) / 2) / 2 + 0.5 * abs(-7 - 0) / 2,
        "work": 0.5 * (5 - 2) / 2 + (4 - 0) / 2,
        "owner": 0.25 * (1 - -1) / 2,
    }
    assert list(ENSEMBLE.importances()) == ["age", "work", "owner"]


def test_stumps_weigh_as_the_same_votes():
    votes = VotingEnsemble(FEATURES, "t", (0, 1), (Vote("above", 0, 1, 3), Vote("is", 1, 0, -2)), 1.0)
    stumps = (Split("above", 0, 1, Leaf(3), Leaf(-3)), Split("is", 1, 0, Leaf(-2), Leaf(2)))
    trees = TreeEnsemble(FEATURES, "t", (0, 1), stumps, 0, 1.0)
    assert trees.importances() == votes.importances() == {"age": 3, "work": 2}
    columns = borders(FEATURES, 50, np.random.default_rng(1))
    assert trees.scores(columns).tolist() == votes.scores(columns).tolist()


def test_text():
    assert tree_text(FIRST, FEATURES) == [
        "age > 27.5?",
        "  yes: work is Private?",
        "    yes: +5",
        "    no: +2",
        "  no: age is missing?",
        "    yes: -7",
        "    no: owner is true?",
        "      yes: +1",
        "      no: -1",
    ]


@pytest.mark.parametrize(
    "reading", [lambda e: e.vote_table(), shapes, lambda e: contributions(e, columns_of_one(1, "x", 0))]
)
def test_an_additive_reading_is_refused(reading):
    with pytest.raises(InputError, match="its trees ask features together"):
        reading(ENSEMBLE)


def test_picture_and_page(tmp_path):
    [panel] = ENSEMBLE.panels(LIGHT)
    assert panel.labels == ("age", "work", "owner")
    assert ENSEMBLE.notes("claim")[-1] == "Of no importance: race."
    odd = TreeEnsemble(
        (CategoricalFeature("<b>", ("<i>",)),), "t", (0, 1), (Split("is", 0, 0, Leaf(1), Leaf(0)),), 0, 1
    )
    for name, ensemble in (("trees.png", ENSEMBLE), ("none.png", TreeEnsemble(FEATURES, "t", (0, 1), (), 0, 1.0))):
        picture(ensemble, "claim", tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    picture(odd, "claim", tmp_path / "trees.html")
    page = (tmp_path / "trees.html").read_text("utf-8")
    assert "&lt;b&gt; is &lt;i&gt;?\n  yes: +1\n  no: +0" in page
    assert not re.search(r"<(img|b|i)\b", page)


def test_card():
    card = model_card(ENSEMBLE, {**CLAIM, "learner": "lazybb-tree"})
    assert "A sum of decision trees by the learner lazybb-tree that answers whether income is " in card
    assert "Each of 2 trees asks a record some questions and adds a number to its score, which starts at -1." in card
    assert "| 5.25 | age |\n| 2.75 | work |\n| 0.25 | owner |\n" in card
    assert "Trees are associations" in card


def test_columns_are_named():
    with pytest.raises(InputError, match="race"):
        ENSEMBLE.scores({"age": [1], "work": ["x"], "owner": [0]})


def test_scores_of_codes_are_those_of_the_records():
    columns = borders(FEATURES, 90, np.random.default_rng(3))
    codes = encode_columns(FEATURES, columns)
    assert ENSEMBLE.coded_scores(codes).tolist() == ENSEMBLE.scores(columns).tolist()

"""The exported model answers as the ensemble does, on every kind of value; records are checked before they reach it."""

from __future__ import annotations

import json
from math import inf, nan, nextafter

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from accountant.errors import RecordError
from dpserve_verify.errors import InputError, ModelInvalid
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.onnx.check import check_graph
from models.onnx.export import to_onnx
from models.onnx.from_sklearn import EnsembleClassifier
from models.onnx.runtime import OnnxModel, columns_from_records
from models.onnx.texts import numbers_of_texts
from models.parts.trees import Leaf, Split
from models.parts.votes import Vote

AGE = NumericFeature("age", (18.0, 27.5, 65.0))
WORK = CategoricalFeature("work", ("Private", "State", "missing", "nul\0", "é", "other"))
OWNER = BooleanFeature("owner")
FEATURES = (AGE, WORK, OWNER)
ENSEMBLE = VotingEnsemble(
    FEATURES, "income", ("<=50K", ">50K"), (Vote("above", 0, 1, 2), Vote("is", 1, 0, 1), Vote("is", 2, 1, -1)), 0.4
)


def values_of(feature):
    """Values that sit on, beside and far from every border of a feature."""
    match feature:
        case NumericFeature():
            near = [f(edge) for edge in feature.edges for f in (float, _below, _above)]
            return [*near, 0.0, -0.0, 1e300, -1e300, inf, -inf, nan]
        case BooleanFeature():
            return [0.0, 1.0, nan]
    return [*feature.values, "", None, "other", "missing", "Private ", "nul", "\0", "None", "nan", "日本"]


def _below(edge):
    return nextafter(edge, -inf)


def _above(edge):
    return nextafter(edge, inf)


def columns_of(features, count, rng):
    columns = {}
    for feature in features:
        values = values_of(feature)
        cells = [values[i % len(values)] for i in rng.permutation(count)]
        columns[feature.name] = cells if isinstance(feature, CategoricalFeature) else np.array(cells)
    return columns


def assert_same(ensemble, model, columns):
    labels, probabilities = model.predict(columns)
    assert labels.tolist() == ensemble.predict(columns).tolist()
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities, ensemble.probabilities(columns), rtol=0, atol=1e-6)


numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
names = st.integers(0, 5).map(lambda i: f"feature {i}")
numeric = st.builds(
    NumericFeature, names, st.lists(numbers, max_size=9).map(lambda edges: tuple(sorted({e + 0.0 for e in edges})))
)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
categorical = st.builds(CategoricalFeature, names, st.lists(texts, max_size=6, unique=True).map(tuple))
features = st.lists(
    st.one_of(numeric, categorical, st.builds(BooleanFeature, names)),
    min_size=1,
    max_size=5,
    unique_by=lambda f: f.name,
)


CLASSES = [
    ("no", "yes"),
    (0, 1),
    (1, -1),
    ("<=50K", ">50K"),
    ("a", "é", "<c>"),
    (3, -1, 0),
    tuple(range(10)),
    tuple(map(str, range(10))),
]


@st.composite
def ensembles(draw):
    found = tuple(draw(features))
    classes = draw(st.sampled_from(CLASSES))
    votes = []
    for _ in range(draw(st.integers(0, 12))):
        index = draw(st.integers(0, len(found) - 1))
        weight = draw(st.integers(-3, 3))
        tests = [("above", code) for code in range(found[index].cuts)]
        tests += [("is", code) for code in range(found[index].bins)] + [("always", 0)]
        test, code = draw(st.sampled_from(tests))
        votes.append(Vote(test, index, code, weight, draw(st.integers(0, len(classes) - 1)) if len(classes) > 2 else 0))
    return VotingEnsemble(found, "target", classes, tuple(votes), draw(st.floats(1e-3, 10)))


@pytest.mark.slow
@settings(max_examples=150)
@given(ensembles(), st.integers(0, 2**32 - 1))
def test_onnx_equals_the_ensemble(ensemble, seed):
    model = OnnxModel(to_onnx(ensemble, {}))
    assert_same(ensemble, model, columns_of(ensemble.features, 60, np.random.default_rng(seed)))


def test_every_value_of_every_feature():
    rng = np.random.default_rng(1)
    votes = tuple(
        Vote(test, i, code, int(rng.integers(1, 4)) * (-1) ** code)
        for i, feature in enumerate(FEATURES)
        for test, codes in (("above", range(feature.cuts)), ("is", range(feature.bins)))
        for code in codes
    )
    ensemble = VotingEnsemble(FEATURES, "t", (0, 1), votes, 0.3)
    assert_same(ensemble, OnnxModel(to_onnx(ensemble, {})), columns_of(FEATURES, 500, rng))


@pytest.mark.parametrize("votes", [(), (Vote("always", 0, 0, 1),), (Vote("is", 2, 1, 1), Vote("is", 2, 1, -1))])
@pytest.mark.parametrize("order", [FEATURES, FEATURES[::-1], (WORK, AGE, OWNER)])
def test_ensembles_that_look_at_nothing(votes, order):
    ensemble = VotingEnsemble(order, "t", ("a", "b"), tuple(v for v in votes if v.test == "always"), 1.0)
    assert_same(ensemble, OnnxModel(to_onnx(ensemble, {})), columns_of(order, 20, np.random.default_rng(0)))


def test_a_tie_is_class_0():
    model = OnnxModel(to_onnx(ENSEMBLE, {}))
    labels, probabilities = model.predict({"age": [20, 30], "work": ["Private", "State"], "owner": [0, 1]})
    assert ENSEMBLE.scores({"age": [20, 30], "work": ["Private", "State"], "owner": [0, 1]}).tolist() == [[0], [0]]
    assert labels.tolist() == ["<=50K", "<=50K"]
    assert probabilities.tolist() == [[0.5, 0.5], [0.5, 0.5]]


THREE = VotingEnsemble(
    FEATURES,
    "sort",
    ("a", "b", "c"),
    (Vote("above", 0, 1, 2, 0), Vote("is", 1, 0, 3, 1), Vote("is", 1, 7, 3, 2), Vote("is", 2, 1, 2, 2)),
    0.5,
)


def test_a_tie_of_three_is_the_first_class():
    columns = {"age": [30, 20, 20, 20], "work": ["x", "Private", "Private", "x"], "owner": [1, 1, 0, 0]}
    assert THREE.scores(columns).tolist() == [[2, -3, -1], [-2, 3, -1], [-2, 3, -5], [-2, -3, -5]]
    ties = VotingEnsemble(FEATURES, "t", (7, 5, 3), (Vote("is", 2, 1, 1, 1), Vote("is", 2, 1, 1, 2)), 1.0)
    for ensemble, labels in ((THREE, ["a", "b", "b", "a"]), (ties, [5, 5, 7, 7])):
        assert_same(ensemble, OnnxModel(to_onnx(ensemble, {})), columns)
        assert ensemble.predict(columns).tolist() == labels


def test_great_scores_of_three_classes():
    """Differences of great numbers, where single precision would be too coarse."""
    votes = (Vote("is", 2, 1, 4_000_000, 0), Vote("above", 0, 1, 3_999_999, 1), Vote("is", 1, 0, 3_999_998, 2))
    ensemble = VotingEnsemble(FEATURES, "t", ("a", "b", "c"), votes, 0.37)
    assert_same(ensemble, OnnxModel(to_onnx(ensemble, {})), columns_of(FEATURES, 200, np.random.default_rng(0)))


def test_every_combination_of_many_classes_and_categories():
    work = CategoricalFeature("work", tuple(f"v{i}" for i in range(300)))
    votes = tuple(Vote("is", 0, i, 1 + i % 7, i % 40) for i in range(302))
    ensemble = VotingEnsemble((work,), "t", tuple(range(40)), votes, 0.3)
    assert_same(ensemble, OnnxModel(to_onnx(ensemble, {})), {"work": [*work.values, "", None, "?"]})


@pytest.mark.parametrize("ensemble", [ENSEMBLE, THREE])
def test_no_rows(ensemble):
    labels, probabilities = OnnxModel(to_onnx(ensemble, {})).predict({"age": [], "work": [], "owner": []})
    assert labels.shape == (0,)
    assert probabilities.shape == (0, len(ensemble.classes))


def test_largest_exact_score():
    fits = VotingEnsemble(FEATURES, "t", (0, 1), (Vote("above", 0, 0, (1 << 24) - 2), Vote("is", 2, 1, 1)), 1e-7)
    model = OnnxModel(to_onnx(fits, {}))
    assert_same(fits, model, columns_of(FEATURES, 50, np.random.default_rng(0)))
    for votes in [(Vote("always", 0, 0, 1 << 24),), (Vote("above", 0, 0, 1 << 23), Vote("is", 1, 0, -(1 << 23)))]:
        with pytest.raises(ModelInvalid, match="float32"):
            to_onnx(VotingEnsemble(FEATURES, "t", (0, 1), votes, 1.0), {})


def test_largest_exact_score_is_of_one_class():
    votes = tuple(Vote("always", 0, 0, (1 << 24) - 1, k) for k in range(3))
    to_onnx(VotingEnsemble(FEATURES, "t", (0, 1, 2), votes, 1e-7), {})
    with pytest.raises(ModelInvalid, match="float32"):
        to_onnx(VotingEnsemble(FEATURES, "t", (0, 1, 2), (*votes, Vote("is", 1, 0, 1, 2)), 1e-7), {})


def test_same_ensemble_same_bytes():
    again = VotingEnsemble(FEATURES, "income", ("<=50K", ">50K"), ENSEMBLE.votes, 0.4)
    assert to_onnx(ENSEMBLE, {"b": "2", "a": "1"}) == to_onnx(again, {"a": "1", "b": "2"})
    assert to_onnx(ENSEMBLE, {"a": "1"}) != to_onnx(ENSEMBLE, {"a": "2"})


def test_what_the_file_says():
    model = onnx.load_from_string(to_onnx(ENSEMBLE, {"certificate": "abc"}))
    assert (model.producer_name, model.producer_version, model.doc_string, model.domain) == ("dpserve", "", "", "")
    assert {each.key: each.value for each in model.metadata_props} == {
        "certificate": "abc",
        "classes": '["<=50K", ">50K"]',
    }
    assert [each.name for each in model.graph.input] == ["age", "work", "owner"]
    assert [each.name for each in model.graph.output] == ["label", "probabilities"]


def test_runtime_says_what_it_takes():
    model = OnnxModel(to_onnx(ENSEMBLE, {"certificate": "abc"}))
    assert model.inputs == {"age": "tensor(double)", "work": "tensor(string)", "owner": "tensor(double)"}
    assert model.classes == ("<=50K", ">50K")
    assert model.metadata["certificate"] == "abc"
    assert OnnxModel(to_onnx(VotingEnsemble(FEATURES, "t", (0, 1), (), 1.0), {})).classes == (0, 1)


def test_metadata_cannot_pretend_other_classes():
    with pytest.raises(ModelInvalid, match="classes"):
        to_onnx(ENSEMBLE, {"classes": '["a", "b"]'})


def test_absent_columns_are_named():
    with pytest.raises(InputError, match="owner"):
        OnnxModel(to_onnx(ENSEMBLE, {})).predict({"age": [1], "work": ["x"]})


# ---- records ----------------------------------------------------------------------------------------------------

GOOD = {"age": 39, "work": "Private", "owner": True}


def test_records_become_columns():
    records = [GOOD, {"age": 2.5, "work": "", "owner": False}, {"age": None, "work": None, "owner": None}]
    columns = columns_from_records(FEATURES, records, 3)
    np.testing.assert_array_equal(columns["age"], [39, 2.5, nan])
    assert columns["work"].tolist() == ["Private", "", ""]
    np.testing.assert_array_equal(columns["owner"], [1, 0, nan])
    model = OnnxModel(to_onnx(ENSEMBLE, {}))
    for ours, theirs in zip(model.infer(columns), model.predict(columns), strict=True):
        assert ours.tolist() == theirs.tolist()
    assert model.infer(columns)[0].tolist() == ENSEMBLE.predict(columns).tolist()


def test_texts_are_looked_up_before_the_graph_as_within_it():
    """Objects, fixed width and numbers alike, against the whole graph, which has its look-ups still."""
    raw = to_onnx(ENSEMBLE, {})
    model, texts = OnnxModel(raw), ["Private", "", "other \0", "Zürich 🦉", *ENSEMBLE.features[1].values]
    assert model.texts.keys() == {"work"}
    count = len(texts)
    wanted = ENSEMBLE.predict({"age": np.full(count, 30.0), "work": texts, "owner": np.ones(count)}).tolist()
    known = model.texts["work"]
    for column in (
        np.array(texts, object),
        np.array(texts),
        known.of(np.array(texts, object)),
        known.of(np.array(texts)),
    ):
        label, chances = model.infer({"age": np.full(count, 30.0), "work": column, "owner": np.ones(count)})
        assert label.tolist() == wanted
        session = onnxruntime.InferenceSession(raw)
        feed = {
            "age": np.full((count, 1), 30.0),
            "work": np.array(texts, object)[:, None],
            "owner": np.ones((count, 1)),
        }
        assert chances.tolist() == session.run(["probabilities"], feed)[0].tolist()


@pytest.mark.parametrize("odd", ["a text twice", "another reader", "no number for all others"])
def test_what_could_be_read_in_two_ways_stays_with_the_graph(odd):
    model = onnx.ModelProto.FromString(to_onnx(ENSEMBLE, {}))
    node = next(node for node in model.graph.node if node.op_type == "LabelEncoder")
    said = {each.name: each for each in node.attribute}
    if odd == "a text twice":
        said["keys_strings"].strings[1] = said["keys_strings"].strings[0]
    elif odd == "another reader":
        model.graph.node.append(onnx.helper.make_node("Identity", [node.input[0]], ["again"]))
    else:
        node.attribute.remove(said["default_float"])
    before = model.SerializeToString(deterministic=True)
    assert numbers_of_texts(model) == {}
    assert model.SerializeToString(deterministic=True) == before


def test_no_records():
    assert {name: len(column) for name, column in columns_from_records(FEATURES, [], 1).items()} == {
        "age": 0,
        "work": 0,
        "owner": 0,
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [("age", bad) for bad in ("x", "1,5", nan, inf, -inf, True, [1], {}, 10**400, -(10**400))]
    + [("work", bad) for bad in (1, 1.5, True, ["Private"], {}, "\ud800")]
    + [("owner", bad) for bad in (2, 0.5, "maybe", nan, [])],
)
@pytest.mark.parametrize("others", [[], [None] * 3])
def test_record_errors_name_record_and_field(field, value, others):
    nulls = [dict.fromkeys(GOOD, other) for other in others]
    with pytest.raises(RecordError) as caught:
        columns_from_records(FEATURES, [GOOD, *nulls, {**GOOD, field: value}, {}], 10)
    assert caught.value.details == {"record": 1 + len(nulls), "field": field}
    assert f"records[{1 + len(nulls)}].{field}=" in caught.value.message
    assert len(caught.value.message) < 200


def test_absent_and_unknown_fields():
    with pytest.raises(RecordError, match=r"records\[0\]\.owner: is missing") as caught:
        columns_from_records(FEATURES, [{"age": 1, "work": "x"}], 1)
    assert caught.value.details == {"record": 0, "field": "owner"}
    with pytest.raises(RecordError, match=r"records\[1\]\.income: is not a field"):
        columns_from_records(FEATURES, [GOOD, {**GOOD, "income": "<=50K"}], 2)
    with pytest.raises(RecordError, match=r"records\[0\]\.owner: is missing"):
        columns_from_records(FEATURES, [{"age": 1, "work": "x", "Owner": True}], 1)


@pytest.mark.parametrize("record", [None, 3, "age", [1, 2, 3], ["age", "work", "owner"]])
def test_records_are_objects(record):
    with pytest.raises(RecordError, match=r"records\[1\]"):
        columns_from_records(FEATURES, [GOOD, record], 2)


def test_too_many_records():
    with pytest.raises(RecordError) as caught:
        columns_from_records(FEATURES, [GOOD] * 3, 2)
    assert caught.value.details == {"records": 3, "limit": 2}


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@given(st.lists(st.fixed_dictionaries({"age": json_values, "work": json_values, "owner": json_values}), max_size=4))
def test_any_json_is_taken_or_refused_by_name(records):
    error = None
    try:
        columns = columns_from_records(FEATURES, records, 4)
    except RecordError as caught:
        error = caught
    if error is None:
        assert len(OnnxModel(to_onnx(ENSEMBLE, {})).infer(columns)[0]) == len(records)
    else:
        assert error.details["field"] in GOOD
        assert json.dumps(error.to_json())


# ---- inside scikit-learn pipelines --------------------------------------------------------------------------------

OPSETS = {"": 17, "ai.onnx.ml": 3}


def as_table(features, columns):
    return np.column_stack([np.array(columns[feature.name], dtype=object) for feature in features])


def converted(pipeline, types):
    model = convert_sklearn(pipeline, initial_types=types, options={"zipmap": False}, target_opset=OPSETS)
    raw = model.SerializeToString()
    check_graph(raw)
    return onnx.load_from_string(raw), _session(raw)


def _session(raw):
    import onnxruntime

    return onnxruntime.InferenceSession(raw, providers=["CPUExecutionProvider"])


TREES = TreeEnsemble(
    FEATURES,
    "income",
    (0, 1),
    (Split("above", 0, 1, Split("is", 1, 0, Leaf(3), Leaf(-1)), Split("is", 2, 1, Leaf(2), Leaf(-2))),),
    0,
    0.4,
)


@pytest.mark.parametrize("ensemble", [ENSEMBLE, THREE, TREES])
def test_pipeline_over_raw_records_has_the_exported_nodes(ensemble):
    pipeline = Pipeline([("votes", EnsembleClassifier(ensemble))])
    kinds = {AGE: DoubleTensorType, WORK: StringTensorType, OWNER: DoubleTensorType}
    model, session = converted(pipeline, [(feature.name, kinds[feature]([None, 1])) for feature in FEATURES])
    exported = onnx.load_from_string(to_onnx(ensemble, {}))
    assert sorted(node.op_type for node in model.graph.node) == sorted(node.op_type for node in exported.graph.node)
    columns = columns_of(FEATURES, 200, np.random.default_rng(2))
    columns["work"] = ["" if text is None else text for text in columns["work"]]
    table = as_table(FEATURES, columns)
    feed = {
        f.name: np.asarray(columns[f.name], dtype=None if f is not WORK else object).reshape(-1, 1) for f in FEATURES
    }
    label, probabilities = session.run(None, feed)
    assert label.tolist() == pipeline.predict(table).tolist()
    np.testing.assert_allclose(probabilities, pipeline.predict_proba(table), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [DoubleTensorType, FloatTensorType])
def test_pipeline_behind_a_column_transformer(kind):
    features = (NumericFeature("a", (0.5, 1.5)), BooleanFeature("b"), NumericFeature("c", (-1.0, 4.0)))
    votes = (Vote("above", 0, 1, 2), Vote("is", 1, 2, 1), Vote("above", 2, 0, -3), Vote("is", 2, 3, 1))
    ensemble = VotingEnsemble(features, "t", (3, 7), votes, 0.7)
    order = ColumnTransformer([("last", "passthrough", [2]), ("rest", "passthrough", [1, 0])])
    pipeline = Pipeline([("order", order), ("votes", EnsembleClassifier(ensemble))])
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.choice([-1.0, 4, 5, nan], 99), rng.choice([0.0, 1, nan], 99), rng.choice([0.5, 1, 2], 99)])
    pipeline.fit(X)
    assert 5 < (pipeline.predict(X) == 7).sum() < 95
    _, session = converted(pipeline, [("X", kind([None, 3]))])
    label, probabilities = session.run(None, {"X": X.astype(np.float64 if kind is DoubleTensorType else np.float32)})
    assert label.tolist() == pipeline.predict(X).tolist()
    np.testing.assert_allclose(probabilities, pipeline.predict_proba(X), rtol=0, atol=1e-6)


def test_pipeline_over_one_text_table():
    features = (WORK, CategoricalFeature("sex", ("Female", "Male")))
    ensemble = VotingEnsemble(features, "t", ("a", "b"), (Vote("is", 0, 1, 2), Vote("is", 1, 0, -1)), 0.5)
    pipeline = Pipeline([("votes", EnsembleClassifier(ensemble))])
    X = np.array([[work, sex] for work in ("State", "?", "") for sex in ("Female", "Male", "")], dtype=object)
    _, session = converted(pipeline, [("X", StringTensorType([None, 2]))])
    assert session.run(None, {"X": X})[0].tolist() == pipeline.predict(X).tolist()


def test_pipeline_with_the_wrong_inputs_is_refused():
    pipeline = Pipeline([("votes", EnsembleClassifier(ENSEMBLE))])
    for types in ([("X", DoubleTensorType([None, 3]))], [("X", DoubleTensorType([None, 2]))]):
        with pytest.raises(ModelInvalid):
            convert_sklearn(pipeline, initial_types=types, target_opset=OPSETS)
    with pytest.raises(InputError, match="shape"):
        pipeline.predict(np.zeros((4, 2)))


def test_classifier_keeps_scikit_learn_manners():
    classifier = clone(EnsembleClassifier(ENSEMBLE))
    assert classifier.get_params()["ensemble"] is not None
    assert classifier.classes_.tolist() == ["<=50K", ">50K"]
    table = np.array([[20, "Private", 0], [70, "Private", 0]], dtype=object)
    before = classifier.predict(table).tolist()
    assert classifier.fit(table, ["x", "y"]).predict(table).tolist() == before == ["<=50K", ">50K"]

"""Additive ensembles as ONNX: labels exactly, probabilities, values and contributions closely, on every row of Adult
and beside every border; what is computed only when asked for; and that scikit-learn pipelines convert."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pyarrow.parquet as pq
import pytest
from border_columns import borders
from onnx import ModelProto
from skl2onnx import to_onnx as skl_to_onnx
from skl2onnx.common.data_types import DoubleTensorType, StringTensorType
from sklearn.pipeline import Pipeline

from dpserve_verify.errors import InputError, ModelInvalid
from models.explain.explain import contributions
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.forms.additive import AdditiveEnsemble
from models.forms.voting import VotingEnsemble
from models.onnx.check import check_graph
from models.onnx.export import to_onnx
from models.onnx.from_sklearn import EnsembleRegressor
from models.onnx.nodes import EXACT
from models.onnx.runtime import OnnxModel
from models.parts.votes import Vote
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import columns_of

DATA = Path(__file__).resolve().parents[3] / "examples" / "data"
FEATURES = (
    CategoricalFeature("work", ("Private", "State")),
    NumericFeature("age", (18.0, 27.5, 65.0)),
    BooleanFeature("owner"),
    CategoricalFeature("race", ("A", "B")),
    NumericFeature("constant", ()),
)


def made(features, rng, size=3000, **kind):
    terms = tuple(tuple(int(v) for v in rng.integers(-size, size + 1, feature.bins)) for feature in features)
    known = {"classes": ("no", "yes"), "target_range": None, "link": 1 / size, "constant": 5, "terms": terms}
    return AdditiveEnsemble(features, "t", **{**known, **kind})


def number(features, rng, size=3000, **more):
    return made(features, rng, size, classes=(), target_range=(-2.0, 1.5), **more)


def bent(features, rng, size=3000):
    return made(
        features, rng, size, bends=((-2 * size, 0.5 / size), (-1, 2 / size), (1, 1.5 / size), (size + 1, 0.2 / size))
    )


def assert_same(ensemble, columns):
    model = OnnxModel(to_onnx(ensemble, {}))
    answers, probabilities = model.predict(columns)
    if ensemble.classes:
        assert answers.tolist() == ensemble.predict(columns).tolist()
        np.testing.assert_allclose(probabilities, ensemble.probabilities(columns), rtol=0, atol=1e-6)
    else:
        low, high = ensemble.target_range
        assert answers.dtype == np.float64
        assert probabilities.shape == (len(answers), 0)
        np.testing.assert_allclose(answers, ensemble.values(columns), rtol=0, atol=1e-6 * (high - low))
        assert ((answers >= low) & (answers <= high)).all()
    told, wanted = model.contributions(columns), contributions(ensemble, columns)
    np.testing.assert_allclose(told, wanted.votes[:, :, 0], rtol=1e-6, atol=1e-9)
    assert model.base == wanted.base[0]
    raw = ensemble.scores(columns)[:, 0] * ensemble.link
    middle = 0 if ensemble.classes else sum(ensemble.target_range) / 2
    np.testing.assert_allclose(model.base + told.sum(axis=1, dtype=np.float64), middle + raw, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [made, number])
def test_every_row_of_adult(kind):
    schema = parse_schema((DATA / "adult.schema.yaml").read_bytes())
    ensemble = kind(schema.features, np.random.default_rng(3))
    columns = columns_of(schema, pq.read_table(DATA / "adult_test.parquet"))
    assert len(np.unique(ensemble.scores(columns))) > 1000
    assert len(columns["age"]) == 16281
    assert_same(ensemble, columns)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [made, number, bent])
@pytest.mark.parametrize("size", [1, 3000, EXACT - 1, EXACT, 1 << 40, 1 << 49])
def test_random_terms_beside_every_border(kind, size):
    rng = np.random.default_rng(size % 1000)
    for features in (FEATURES, FEATURES[:1], FEATURES[1:2], FEATURES[2:3], FEATURES[-1:], FEATURES[::-1]):
        assert_same(kind(features, rng, size), borders(features, 200, rng))


def test_great_scores_that_cancel_keep_their_sign():
    """One unit above and below zero, out of terms of 2^50: float32 sums would lose it."""
    great = 1 << 50
    terms = ((great, great + 1, great - 1, 0), (-great,) * 5, (0, 0, 0))
    ensemble = AdditiveEnsemble(FEATURES[:3], "t", ("no", "yes"), None, 1.0, 0, terms)
    columns = {"work": ["Private", "State", "x"], "age": [1, 2, 3], "owner": [0, 1, 0]}
    assert ensemble.scores(columns)[:, 0].tolist() == [0, 1, -1]
    labels, probabilities = OnnxModel(to_onnx(ensemble, {})).predict(columns)
    assert labels.tolist() == ["no", "yes", "no"]
    np.testing.assert_allclose(probabilities, ensemble.probabilities(columns), atol=1e-6)


@pytest.mark.parametrize("kind", [made, number])
def test_counts_centre_the_contributions(kind):
    rng = np.random.default_rng(1)
    counts = tuple(tuple(int(v) for v in rng.integers(-5, 90, feature.bins)) for feature in FEATURES)
    assert_same(replace(kind(FEATURES, rng), counts=counts), borders(FEATURES, 60, rng))


@pytest.mark.parametrize("kind", [made, number])
def test_terms_that_move_nothing(kind):
    rng = np.random.default_rng(2)
    ensemble = kind(FEATURES, rng, terms=tuple((7,) * f.bins if f.name == "age" else (0,) * f.bins for f in FEATURES))
    assert_same(ensemble, borders(FEATURES, 30, rng))
    assert not OnnxModel(to_onnx(ensemble, {})).contributions(borders(FEATURES, 30, rng)).any()


@pytest.mark.parametrize("kind", [made, number])
def test_no_rows(kind):
    model = OnnxModel(to_onnx(kind(FEATURES, np.random.default_rng(0)), {}))
    columns = {feature.name: [] for feature in FEATURES}
    answers, probabilities = model.predict(columns)
    assert (answers.shape, len(probabilities)) == ((0,), 0)
    assert model.contributions(columns).shape == (0, len(FEATURES))


def test_what_the_file_says_of_itself():
    model = onnx.load_from_string(to_onnx(number(FEATURES, np.random.default_rng(0)), {"dataset": "d"}))
    known = {prop.key: prop.value for prop in model.metadata_props}
    assert (json.loads(known["classes"]), json.loads(known["target_range"])) == ([], [-2.0, 1.5])
    assert known["dataset"] == "d"
    assert [output.name for output in model.graph.output] == ["value", "contributions"]
    two = onnx.load_from_string(to_onnx(made(FEATURES, np.random.default_rng(0)), {}))
    assert [output.name for output in two.graph.output] == ["label", "probabilities", "contributions"]
    assert "target_range" not in {prop.key for prop in two.metadata_props}


@pytest.mark.parametrize("name", ["classes", "target_range", "base"])
def test_metadata_that_the_export_writes(name):
    with pytest.raises(ModelInvalid, match="written by the export"):
        to_onnx(made(FEATURES, np.random.default_rng(0)), {name: "x"})


def test_same_ensemble_same_bytes():
    one, other = (to_onnx(number(FEATURES, np.random.default_rng(5)), {"a": "1"}) for _ in range(2))
    assert one == other


def test_contributions_are_computed_only_when_asked_for():
    ensemble = made(FEATURES, np.random.default_rng(0))
    model = OnnxModel(to_onnx(ensemble, {}))
    assert [output.name for output in model._session.get_outputs()] == ["label", "probabilities"]
    assert "_accounts" not in vars(model)
    model.contributions(borders(FEATURES, 3, np.random.default_rng(0)))
    assert "_accounts" in vars(model)


def test_votes_and_trees_tell_no_contributions():
    voting = VotingEnsemble(FEATURES, "t", ("no", "yes"), (Vote("above", 1, 0, 3),), 0.5)
    with pytest.raises(InputError, match="what each feature adds"):
        OnnxModel(to_onnx(voting, {})).contributions(borders(FEATURES, 3, np.random.default_rng(0)))


def test_a_feature_may_have_the_outputs_name():
    features = (*FEATURES, NumericFeature("contributions", (1.0,)))
    rng = np.random.default_rng(0)
    ensemble, columns = made(features, rng), borders(features, 50, rng)
    model = OnnxModel(to_onnx(ensemble, {}))
    assert model.predict(columns)[0].tolist() == ensemble.predict(columns).tolist()
    with pytest.raises(InputError):
        model.contributions(columns)


@pytest.mark.parametrize(
    ("name", "value"), [("base", "x"), ("base", "inf"), ("classes", '["a", "b"]'), ("classes", "{}"), ("classes", None)]
)
def test_metadata_that_does_not_fit_is_refused(name, value):
    model = ModelProto.FromString(to_onnx(number(FEATURES, np.random.default_rng(0)), {}))
    props = {prop.key: prop.value for prop in model.metadata_props} | {name: value}
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {key: text for key, text in props.items() if text is not None})
    with pytest.raises(ModelInvalid):
        OnnxModel(model.SerializeToString())


def test_a_base_without_contributions_is_refused():
    model = ModelProto.FromString(to_onnx(number(FEATURES, np.random.default_rng(0)), {}))
    del model.graph.output[1]
    opened = OnnxModel(model.SerializeToString())
    with pytest.raises(ModelInvalid, match="contributions"):
        opened.contributions(borders(FEATURES, 1, np.random.default_rng(0)))


def test_a_target_beyond_its_number_is_refused():
    model = ModelProto.FromString(to_onnx(made(FEATURES, np.random.default_rng(0)), {}))
    [node] = [node for node in model.graph.node if "contributions" in node.output]
    [targets] = [each for each in node.attribute if each.name == "target_ids"]
    targets.ints[0] = len(FEATURES)
    with pytest.raises(ModelInvalid, match="n_targets"):
        check_graph(model.SerializeToString())


def test_a_regressor_in_a_pipeline():
    rng = np.random.default_rng(7)
    ensemble = number(FEATURES, rng)
    columns = borders(FEATURES, 80, rng)
    kinds = [StringTensorType if isinstance(f, CategoricalFeature) else DoubleTensorType for f in FEATURES]
    inputs = [(f.name, kind([None, 1])) for f, kind in zip(FEATURES, kinds, strict=True)]
    pipeline = Pipeline([("terms", EnsembleRegressor(ensemble))])
    model = skl_to_onnx(pipeline, initial_types=inputs, target_opset={"": 17, "ai.onnx.ml": 3})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {
        f.name: np.array([v or "" for v in columns[f.name]], object).reshape(-1, 1)
        if isinstance(f, CategoricalFeature)
        else np.array(columns[f.name], np.float64).reshape(-1, 1)
        for f in FEATURES
    }
    [values] = session.run(None, feed)
    np.testing.assert_allclose(values[:, 0], ensemble.values(columns), rtol=0, atol=1e-9)
    table = np.array([columns[f.name] for f in FEATURES], object).T
    assert pipeline.predict(table).tolist() == ensemble.values(columns).tolist()

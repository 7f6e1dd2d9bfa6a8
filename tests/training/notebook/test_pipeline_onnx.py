"""A Pipeline with a learner in it, as skl2onnx converts it, answers as it does; learners alone load nothing of it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
from skl2onnx import to_onnx
from skl2onnx.common.data_types import DoubleTensorType, StringTensorType
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer
from small_home import ROOT

from dpserve.learners import Columns, DPEBMRegressor, DPRandomForestClassifier, LazyBB
from dpserve_verify.errors import InputError, ModelInvalid

PLAIN = {"zipmap": False}
X = np.random.default_rng(0).uniform(0, 1, (400, 3))
Y = np.where(X[:, 0] > 0.6, "yes", "no")
TWO = Columns(low=0, high=1, bins=8, classes=["no", "yes"])
RULE = Columns(
    low=0, high=1, bins=8, classes=["no", "yes"], columns={"town": {"type": "categorical", "values": ["Ulm", "Köln"]}}
)
TABLE = pa.table({"a": X[:, 0], "town": np.where(X[:, 1] > 0.5, "Ulm", "x"), "b": X[:, 2]})
INPUTS = {"b": DoubleTensorType([None, 1]), "town": StringTensorType([None, 1]), "a": DoubleTensorType([None, 1])}


def answers(model, feed):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)


@pytest.mark.parametrize(
    ("learner", "y"),
    [
        (LazyBB(schema=TWO, epsilon=2, rounds=20), Y),
        (LazyBB(schema=replace(TWO, classes=[3, 1, 2]), epsilon=2, rounds=20), 1 + np.digitize(X[:, 0], [0.4, 0.7])),
        (DPRandomForestClassifier(schema=TWO, epsilon=2), Y),
        (DPEBMRegressor(schema=Columns(low=0, high=1, bins=8, target_range=[0, 1]), epsilon=2, pairs="0"), X[:, 0]),
    ],
)  # fmt: skip
def test_a_whole_pipeline_answers_as_it_did(learner, y):
    whole = make_pipeline(Normalizer(), learner).fit(X, y)
    options = {} if isinstance(learner, DPEBMRegressor) else PLAIN
    found, *chances = answers(to_onnx(whole, X[:1], options=options), {"X": X})
    assert found.reshape(-1).tolist() == whole.predict(X).tolist()
    for probabilities in chances:
        np.testing.assert_allclose(probabilities, whole.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("leave", ["", "b", "town"])
def test_columns_are_read_by_name_and_those_not_read_are_passed_over(leave):
    whole = Pipeline([("model", LazyBB(schema=RULE, epsilon=2, rounds=20, without=leave))]).fit(TABLE, Y)
    feed = {name: TABLE[name].to_numpy().reshape(-1, 1) for name in INPUTS}
    model = to_onnx(whole, initial_types=list(INPUTS.items()), options=PLAIN)
    labels, chances = answers(model, {**feed, "town": feed["town"].astype(object)})
    assert labels.tolist() == whole.predict(TABLE).tolist()
    np.testing.assert_allclose(chances, whole.predict_proba(TABLE), atol=1e-6)


def test_what_cannot_be_converted_is_refused():
    with pytest.raises(InputError, match="not fitted"):
        to_onnx(make_pipeline(LazyBB(schema=TWO)), X[:1], options=PLAIN)
    fitted = LazyBB(schema=TWO, epsilon=2, rounds=20).fit(X, Y)
    with pytest.raises(ModelInvalid, match="one column per feature"):
        to_onnx(fitted, X[:1, :2], options=PLAIN)


AFRESH = """
import pickle, sys
import training.learners
training.learners.LEARNERS["lazybb"]
assert "skl2onnx" not in sys.modules, "a learner is loaded without it"
whole = pickle.load(open(sys.argv[1], "rb"))
from skl2onnx import to_onnx
import numpy as np
to_onnx(whole, np.zeros((1, 3)), options={"zipmap": False})
"""


def test_a_pipeline_that_was_pickled_converts_elsewhere(tmp_path):
    whole = make_pipeline(LazyBB(schema=TWO, epsilon=2, rounds=20)).fit(X, Y)
    (tmp_path / "whole.pickle").write_bytes(pickle.dumps(whole))
    command = [sys.executable, "-c", AFRESH, str(tmp_path / "whole.pickle")]
    subprocess.run(command, check=True, cwd=ROOT)


def test_learners_fit_where_skl2onnx_is_not_installed(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "skl2onnx"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "models.onnx.from_sklearn")
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    assert LazyBB(schema=TWO, epsilon=2, rounds=20).fit(X, Y).predict(X[:1]).shape == (1,)

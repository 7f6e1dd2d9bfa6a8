"""The portable export answers as the exported model does, bit for bit in ONNX Runtime and closely in the reference
runtime, beside every border of every form of model; and it has plain operators and no texts."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from additive_models import BARE, FEATURES
from border_columns import borders
from every_form import MODELS, TWO, trees
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from dpserve_verify.errors import ModelInvalid
from models.forms.trees import TreeEnsemble
from models.onnx.export import to_onnx
from models.onnx.portable import codes_of, portable_files, to_portable


def both_feeds(ensemble, columns):
    """The same records for the exported model, and for the portable one."""
    plain, coded = {}, {}
    for about in codes_of(ensemble)["inputs"]:
        cells = columns[about["feature"]["name"]]
        if "codes" in about:
            codes, texts = about["codes"], ["" if cell is None else cell for cell in cells]
            places = [codes["missing"] if text == "" else codes["texts"].get(text, codes["other"]) for text in texts]
            plain[about["input"]] = np.array(texts, object)[:, np.newaxis]
            coded[about["input"]] = np.array(places, np.int64)[:, np.newaxis]
        else:
            plain[about["input"]] = coded[about["input"]] = np.array(cells, np.float64)[:, np.newaxis]
    return plain, coded


def check(ensemble, count, seed=0):
    exported = to_onnx(ensemble, {"model": "made"})
    portable = to_portable(ensemble, exported)
    plain, coded = both_feeds(ensemble, borders(ensemble.features, count, np.random.default_rng(seed)))
    wanted = onnxruntime.InferenceSession(exported).run(None, plain)
    names = [each.name for each in onnx.load_from_string(portable).graph.output]
    same = onnxruntime.InferenceSession(portable).run(None, coded)
    near = ReferenceEvaluator(onnx.load_from_string(portable)).run(None, coded)
    classes = list(ensemble.classes)
    for name, ours, theirs, reference in zip(names, wanted, same, near, strict=True):
        if name == "label" and isinstance(classes[0], str):
            ours = np.array([classes.index(text) for text in ours])
        assert theirs.shape == reference.shape == ours.shape, name
        np.testing.assert_array_equal(theirs, ours, err_msg=name)
        np.testing.assert_allclose(reference, ours, rtol=0, atol=0 if name == "label" else 1e-6, err_msg=name)
    return portable


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_of_model_answers_as_it_did(kind):
    model = onnx.load_from_string(check(MODELS[kind], 150))
    assert [opset.domain for opset in model.opset_import] == [""]
    assert {node.domain for node in model.graph.node} == {""}
    values = [*model.graph.input, *model.graph.output]
    assert onnx.TensorProto.STRING not in [each.type.tensor_type.elem_type for each in values]
    assert onnx.TensorProto.STRING not in [each.data_type for each in model.graph.initializer]


@settings(max_examples=25)
@given(st.lists(trees(FEATURES), max_size=6), st.integers(0, 99))
def test_trees_of_any_form_answer_as_they_did(grown, seed):
    check(TreeEnsemble(FEATURES, "income", TWO, tuple(grown), 0, 0.4), 40, seed)


def test_files_say_what_the_numbers_mean():
    exported = to_onnx(MODELS["trees"], {"model": "made"})
    files = portable_files(MODELS["trees"], exported)
    assert files == portable_files(MODELS["trees"], exported)
    codes = json.loads(files["portable.json"])
    assert codes["classes"] == list(TWO)
    assert codes["inputs"][1]["codes"] == {"texts": {"Private": 0, "State & co": 1}, "other": 2, "missing": 3}
    metadata = {each.key: each.value for each in onnx.load_from_string(files["portable.onnx"]).metadata_props}
    assert metadata["portable_of"] == codes["portable_of"]
    assert metadata["model"] == "made"


def test_a_node_that_is_unknown_is_refused():
    model = onnx.load_from_string(to_onnx(BARE, {}))
    model.graph.node.append(
        onnx.helper.make_node("Scaler", ["age"], ["x"], domain="ai.onnx.ml", scale=[1.0], offset=[0.0])
    )
    with pytest.raises(ModelInvalid, match="Scaler"):
        to_portable(BARE, model.SerializeToString())

"""The portable export answers as the exported model does, bit for bit in ONNX Runtime and closely in the reference
runtime, beside every border of every form of model; and it has plain operators and no texts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from additive_models import BARE, FEATURES, NUMBER, THREE
from border_columns import borders
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from dpserve_verify.errors import ModelInvalid
from models.features.features import CategoricalFeature, DateFeature, NumericFeature
from models.forms.additive import AdditiveEnsemble
from models.forms.classes import round_to_classes
from models.forms.lines import LineEnsemble
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.onnx.export import to_onnx
from models.onnx.nodes import EXACT
from models.onnx.portable import codes_of, portable_files, to_portable
from models.parts.lines import Choice, Line
from models.parts.pairs import PairTerm
from models.parts.trees import Leaf, Split, codes_of_tests
from models.parts.votes import Vote

RANDOM = np.random.default_rng(7)
TWO = ("<=50K", ">50K")


def a_line(weight):
    terms = tuple(tuple(map(int, RANDOM.integers(-99, 99, feature.bins))) for feature in FEATURES)
    return Line(weight, -3, terms)


def a_choice(weight):
    lines = [a_line(weight) for _ in THREE]
    return Choice(weight, tuple(line.constant for line in lines), tuple(line.terms for line in lines))


MANY_VOTES = tuple(
    Vote(test, at, code, int(RANDOM.integers(1, 9)), int(RANDOM.integers(0, 3)))
    for at, feature in enumerate(FEATURES)
    for test, codes in (("above", range(feature.cuts)), ("is", range(feature.bins)))
    for code in codes
)
VOTES = tuple(replace(vote, output=0) for vote in MANY_VOTES)
TREES = (
    Split("above", 0, 1, Split("is", 1, 0, Leaf(5), Leaf(2)), Split("is", 0, 4, Leaf(-7), Leaf(3))),
    Split("is", 1, 3, Leaf(4), Split("is", 2, 1, Leaf(1), Split("is", 2, 2, Leaf(9), Leaf(-1)))),
    Leaf(-2),
)
PAIR = PairTerm((0, 1), ((0, 0, 1, 1, 2), (0, 1, 1, 1)), ((100, 200), (300, -400), (500, 600)))
PAIRED = replace(BARE, pairs=(PAIR, PairTerm((1, 2), ((0, 1, 0, 2), (0, 1, 0)), ((10, 20), (30, -40), (50, 60)))))
PAIR_OF_THREE = PairTerm(
    (0, 1), PAIR.groups, (((1, 2, 3), (4, 5, 6)), ((-7, 8, 9), (0, 0, 0)), ((5, 5, -5), (1, 1, 1)))
)
TERMS = [RANDOM.standard_normal((feature.bins, 3)) for feature in FEATURES]
DAY = DateFeature("day", (19723.0, 19800.5))
MODELS = {
    "votes": VotingEnsemble(FEATURES, "income", TWO, VOTES, 0.4),
    "votes of numbers": VotingEnsemble(FEATURES, "income", (1, -1), VOTES, 1),
    "votes on many": VotingEnsemble(FEATURES, "income", THREE, MANY_VOTES, 0.4),
    "votes on many numbers": VotingEnsemble(FEATURES, "income", (7, -7, 2), MANY_VOTES, 0.4),
    "no votes": VotingEnsemble(FEATURES, "income", THREE, (), 0.4),
    "trees": TreeEnsemble(FEATURES, "income", TWO, TREES, -1, 0.4),
    "additive": BARE,
    "bent": replace(BARE, bends=((-200, 0.002), (-1, 0.02), (1, 0.01), (201, 0.001))),
    "great scores": replace(BARE, constant=EXACT + 1, link=1e-7),
    "number": NUMBER,
    "pairs": PAIRED,
    "number of pairs": replace(PAIRED, classes=(), target_range=(100.0, 500.0)),
    "classes": round_to_classes(FEATURES, "income", THREE, 1.5, np.ones(3), TERMS),
    "pairs of three": replace(
        round_to_classes(FEATURES, "income", THREE, 1.5, np.ones(3), TERMS),
        constant=(1, 2, 3), terms=tuple(((100, 20, -3),) * f.bins for f in FEATURES), pairs=(PAIR_OF_THREE,),
    ),
    "lines": LineEnsemble(FEATURES, "income", TWO, (a_line(900), a_line(400)), 1 / 512),
    "choices": LineEnsemble(FEATURES, "income", THREE, (a_choice(900), a_choice(400), a_choice(401)), 1 / 512),
    "dates": AdditiveEnsemble((DAY,), "t", ("no", "yes"), None, 0.1, 1, ((3, -4, 5, 6),)),
    "texts alone": AdditiveEnsemble((FEATURES[1],), "label", ("no", "yes"), None, 0.1, 1, ((3, -4, 5, 6),)),
    "names of outputs": AdditiveEnsemble(
        (NumericFeature("label", (1.0,)), CategoricalFeature("value", ("a",))), "t", (0, 1), None, 0.1, 1,
        ((3, -4, 5), (1, -1, 2)),
    ),
}  # fmt: skip


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


@st.composite
def trees(draw, features, deep=5):
    if deep == 0 or draw(st.booleans()):
        return Leaf(draw(st.integers(-9, 9)))
    at = draw(st.integers(0, len(features) - 1))
    asked = codes_of_tests(features)[at]
    test, code = draw(st.sampled_from([(test, code) for test, codes in asked.items() for code in codes]))
    return Split(test, at, code, *(draw(trees(features, deep - 1)) for _ in range(2)))


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

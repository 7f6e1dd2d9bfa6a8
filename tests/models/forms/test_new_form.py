"""The recipe "add a model form", walked through with a toy: one class, one line of the registry; all else follows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest
from additive_models import COLUMNS, FEATURES

from dpserve_verify.errors import InputError, ModelInvalid
from models.edit.editing import to_additive
from models.explain.card import model_card
from models.explain.compare import compare
from models.explain.explain import contributions, logits
from models.explain.picture import picture
from models.features.features import Feature
from models.forms import registry
from models.forms.ensemble import Ensemble, SumEnsemble
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.forms.voting import VotingEnsemble
from models.onnx.export import to_onnx
from models.onnx.nodes import Graph, Inputs, Namer, regressor
from models.onnx.runtime import OnnxModel
from models.parts.answers import ClassLabel, Scores, check_head, head_from_json
from serving.cli.app import run
from serving.cli.released import explain as cli_explain
from serving.pages.parts import shapes as page_shapes

CLAIM = {"epsilon": "0.5", "delta": "0", "relation": "add-remove", "unit": "one record"}


@dataclass(frozen=True)
class Constant(SumEnsemble):
    """The same score for everybody. A sum over features, so that shapes, contributions, nodes and edits are there."""

    word = "constant"
    noun = "A constant"
    parts = "Numbers"

    features: tuple[Feature, ...]
    target: str
    classes: tuple[ClassLabel, ...]
    constant: int
    link: float

    def __post_init__(self) -> None:
        check_head(self.features, self.classes, self.link)

    def tables(self) -> tuple[list[Scores], Scores]:
        return [np.zeros((f.bins, 1), np.int64) for f in self.features], np.array([self.constant], np.int64)

    def numbers(self) -> dict[str, Any]:
        return {"constant": self.constant}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        features, target, classes, link = head_from_json(body, {"constant"})
        return cls(features, target, classes, body["constant"], link)

    def card_section(self) -> str:
        return f"The score is {self.constant}, whatever the record says."


@dataclass(frozen=True)
class Opaque(Constant):
    """The same, but no sum over features as far as anybody is told: it brings its nodes, its sizes and its text."""

    word = "opaque"
    adds_up = False
    panels = Ensemble.panels
    score_unit = "score"
    as_sum = Ensemble.as_sum
    summary = Ensemble.summary

    def score_graph(self, inputs: Inputs, name: Namer, target: str) -> Graph:
        return Graph((regressor([(self.constant,)], inputs.numbers, target),))

    def sizes(self) -> dict[str, float]:
        return {"age": 2.0, "idle": 0.0}

    def texts(self) -> list[str]:
        return [f"always {self.constant}"]


TOYS = [form(FEATURES, "income", ("<=50K", ">50K"), 3, 0.5) for form in (Constant, Opaque)]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for form in (Constant, Opaque):
        monkeypatch.setitem(registry.FORMS, form.word, form)


@pytest.mark.parametrize("toy", TOYS)
def test_saved_and_loaded(toy):
    assert ensemble_from_bytes(ensemble_bytes(toy)) == toy
    with pytest.raises(ModelInvalid, match="holds"):
        registry.ensemble_from_json({**toy.to_json(), "more": 1})


def test_unknown_before_it_is_registered(monkeypatch):
    monkeypatch.delitem(registry.FORMS, "opaque")
    with pytest.raises(ModelInvalid, match="'additive', 'classes', 'lines', 'curves-and-trees' or 'constant'"):
        ensemble_from_bytes(ensemble_bytes(TOYS[1]))


@pytest.mark.parametrize("toy", TOYS)
def test_exported(toy):
    model = OnnxModel(to_onnx(toy, {}))
    labels, probabilities = model.predict(COLUMNS)
    assert labels.tolist() == toy.predict(COLUMNS).tolist() == [">50K"] * 3
    np.testing.assert_allclose(probabilities, toy.probabilities(COLUMNS), atol=1e-6)


def test_a_sum_is_explained_compared_and_edited():
    toy = TOYS[0]
    account = contributions(toy, COLUMNS)
    assert (account.base + account.votes.sum(axis=1)).tolist() == [[1.5]] * 3  # link x score
    assert (logits(toy, COLUMNS).votes == account.votes).all()
    other = VotingEnsemble(FEATURES, "income", ("<=50K", ">50K"), (), 1.0)
    assert {each.more for each in compare(toy, other, ("a", "b")).differences} == {0.0}
    edited = to_additive(toy)
    assert (edited.link * edited.scores(COLUMNS)).tolist() == [[1.5]] * 3


def test_what_is_no_sum_has_importances_alone():
    toy = TOYS[1]
    assert toy.importances() == {"age": 2.0}
    for reading in (lambda: contributions(toy, COLUMNS), toy.vote_table, lambda: to_additive(toy)):
        with pytest.raises(InputError, match="model"):
            reading()


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("ending", ["svg", "png", "html"])
def test_drawn(toy, ending, tmp_path):
    picture(toy, "the claim", tmp_path / f"out.{ending}")
    drawn = (tmp_path / f"out.{ending}").read_bytes()
    assert drawn.startswith(b"\x89PNG") if ending == "png" else b"the claim" in drawn


@pytest.mark.parametrize("toy", TOYS)
def test_carded(toy):
    card = model_card(toy, CLAIM)
    assert "A constant that answers whether income is" in card
    assert "The score is 3, whatever the record says." in card
    assert "Numbers are associations in the training data" in card


@pytest.mark.parametrize("toy", TOYS)
def test_shown_by_the_page_and_the_command_line(toy, monkeypatch, capsys, tmp_path):
    found = page_shapes.picture(toy)
    assert (found["form"], found["features"]) == (toy.word, [])
    assert found.get("trees", ["always 3"]) == ["always 3"]
    verified = SimpleNamespace(ensemble=toy, certificate=None)
    opened = SimpleNamespace(reference=f"{toy.word}@1", verified=verified)
    monkeypatch.setattr(
        cli_explain, "backend", lambda: SimpleNamespace(bundles=SimpleNamespace(open=lambda name: opened))
    )
    assert run(["model", "explain", toy.word, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert [each["feature"] for each in body["features"]] == list(toy.importances())

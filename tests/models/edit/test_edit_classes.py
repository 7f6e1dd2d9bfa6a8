"""Edits of models of three classes or more: each class has its curves, and an edit changes one of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import ledgers
import numpy as np
import pytest
import three_classes
from additive_models import FEATURES, THREE, records
from in_process import Site, code

from accountant.audit.audit import audit_place
from accountant.home import Home
from dpserve_verify.certificates.bundle import read_bundle
from dpserve_verify.certificates.certificate import digest
from dpserve_verify.errors import InputError, ModelInvalid
from models.edit import editing
from models.edit.changes import changes
from models.edit.curves import curves_of, editable, put_back, same_but_for_terms, to_curves
from models.edit.edit_list import edit_all
from models.edit.editing import EditNote
from models.explain.explain import logits
from models.forms.classes import ClassesEnsemble, round_to_classes
from models.forms.registry import ensemble_bytes, ensemble_from_bytes, ensemble_from_json
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel
from models.parts.pairs import PairTerm
from models.parts.votes import Vote
from models.store.bundle import ModelStore
from models.store.loading import load_of_home
from serving.app import DOORS
from serving.cli.app import run

pytestmark = pytest.mark.home("made", folder=True)

NOTE = EditNote("ann", "a review", "2026-05-03T10:00:00Z")
VOTES = (Vote("above", 0, 1, 3, 0), Vote("is", 1, 0, 2, 1), Vote("is", 2, 1, 1, 2), Vote("always", 0, 0, 2, 2))


def drawn(seed: int) -> ClassesEnsemble:
    rng = np.random.default_rng(seed)
    terms = [rng.standard_normal((feature.bins, 3)) for feature in FEATURES]
    return round_to_classes(FEATURES, "income", THREE, 1.0, rng.standard_normal(3), terms)


@pytest.mark.parametrize("link", [1e-7, 0.03, 0.5, 3.0])
def test_votes_of_three_classes_become_curves_with_the_same_answers(link):
    votes, columns = VotingEnsemble(FEATURES, "income", THREE, VOTES, link), records(1)
    found = to_curves(votes)
    assert isinstance(found, ClassesEnsemble)
    assert found.link <= max(link / 2, 1 / 65536)
    np.testing.assert_allclose(found.probabilities(columns), votes.probabilities(columns), atol=1e-12)
    assert (found.predict(columns) == votes.predict(columns)).all()
    assert all((np.max(term, axis=0) == -np.min(term, axis=0)).all() for term in found.terms)
    assert to_curves(found) is found
    assert editable(votes)


def test_an_edit_changes_one_class_alone_and_is_what_is_exported():
    before, columns = drawn(0), records(0)
    asked = [
        {"feature": "age", "class": "middle", "set": {"bins": "..18", "to": -0.5}},
        {"feature": "work <b>", "class": "high", "zero": "Private"},
        {"feature": "age", "class": "low", "monotone": "increasing"},
    ]
    after = edit_all(before, asked, NOTE)
    assert before.edits == ()
    assert [json.loads(edit.what)["class"] for edit in after.edits] == ["middle", "high", "low"]
    assert {(row["class"], row["feature"]) for row in changes(before, after)} == {
        ("middle", "age"), ("high", "work <b>"), ("low", "age"),
    }  # fmt: skip
    moved = [np.array(now) - np.array(was) for was, now in zip(before.terms, after.terms, strict=True)]
    assert not moved[0][1:, 1].any()  # of the class in the middle the first bin
    assert editing.values_of(curves_of(after, "middle"), "age")[0] == pytest.approx(-0.5, abs=after.link)
    rising = editing.values_of(curves_of(after, "low"), "age")[:-1].tolist()
    assert rising == sorted(rising)
    labels, probabilities = OnnxModel(to_onnx(after, {})).predict(columns)
    assert labels.tolist() == after.predict(columns).tolist()
    np.testing.assert_allclose(probabilities, after.probabilities(columns), atol=1e-6)
    assert (probabilities != OnnxModel(to_onnx(before, {})).predict(columns)[1]).any()
    account = logits(after, columns)
    np.testing.assert_allclose(account.base + account.votes.sum(axis=1), after.link * after.scores(columns), atol=1e-9)
    assert ensemble_from_bytes(ensemble_bytes(after)) == after
    assert b'"edits"' not in ensemble_bytes(before)
    assert same_but_for_terms(before, after)
    assert not same_but_for_terms(before, replace(after, constant=(0, 0, 0)))
    assert not same_but_for_terms(before, replace(after, link=2 * after.link))
    assert "a review" in after.account()
    assert put_back(before, "low", curves_of(before, "low")) == before


def test_a_pair_of_features_is_edited_for_one_class():
    cells = (((1, 20, 300), (-4, 50, 600)), ((7, 80, -900), (0, 0, 0)))
    pair = PairTerm((1, 2), ((0, 1, 1, 1), (0, 1, 0)), cells)
    terms = tuple(((1, 2, 3),) * feature.bins for feature in FEATURES)
    before = ClassesEnsemble(FEATURES, "income", THREE, 0.001, (1, 2, 3), terms, pairs=(pair,))
    after = edit_all(before, [{"feature": "work <b> & owner", "class": "middle", "zero": "all"}], NOTE)
    assert after.pairs[0].terms == tuple(tuple((low, 0, high) for low, _, high in row) for row in cells)
    assert after.terms == before.terms
    assert {row["class"] for row in changes(before, after)} == {"middle"}
    assert same_but_for_terms(before, after)
    assert not same_but_for_terms(before, replace(after, pairs=(replace(pair, groups=((1, 0, 0, 0), (0, 1, 0))),)))
    assert put_back(before, "low", curves_of(before, "low")) == before


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        ({"feature": "age", "zero": "all"}, "class=None: must be said, the model has a curve for each of low, middle"),
        ({"feature": "age", "class": "tall", "zero": "all"}, "class='tall'"),
        ({"feature": "age", "class": ["low"], "zero": "all"}, "class="),
        ({"feature": "height", "class": "low", "zero": "all"}, "feature='height'"),
        ({"feature": "age", "class": "low", "set": {"bins": "all", "to": 1e5}}, "this model holds up to"),
        ({"feature": "age", "class": "low", "smooth": {"weights": "counts"}}, "released no counts"),
    ],
)
def test_what_is_no_edit_of_it_is_refused(edit, problem):
    with pytest.raises(InputError, match="edit 1: ") as found:
        edit_all(drawn(0), [edit], NOTE)
    assert problem in found.value.message


def test_a_class_is_left_out_where_features_have_one_curve_and_trees_have_none():
    two = VotingEnsemble(FEATURES, "income", ("no", "yes"), (), 0.5)
    with pytest.raises(InputError, match="leave the class out"):
        edit_all(to_curves(two), [{"feature": "age", "class": "yes", "zero": "all"}], NOTE)
    with pytest.raises(InputError, match="sum over features"):
        to_curves(TreeEnsemble(FEATURES, "income", ("a", "b"), (), 0, 0.5))


def test_classes_that_are_numbers_are_said_either_way():
    model = round_to_classes(FEATURES, "grade", (1, 2, 3), 1.0, np.zeros(3), [np.ones((f.bins, 3)) for f in FEATURES])
    for said in (2, "2"):
        (edit,) = edit_all(model, [{"feature": "age", "class": said, "zero": "all"}], NOTE).edits
        assert json.loads(edit.what)["class"] == 2


def test_edits_that_are_none_are_refused_in_a_file():
    body = edit_all(drawn(0), [{"feature": "age", "class": "low", "zero": "all"}], NOTE).to_json()
    assert ensemble_from_json(body).edits
    (edit,) = body["edits"]
    for lie in ([], {}, [edit | {"feature": "height"}], [edit | {"what": "x"}], [edit | {"by": ""}]):
        with pytest.raises(ModelInvalid):
            ensemble_from_json(body | {"edits": lie})


# ---- certified, from the command line and over REST


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kin")
    home = Home.init(ledgers.place(folder / "home"))
    three_classes.train(home, folder)
    home.ledger.log.database.close()
    return home.path


@pytest.mark.slow
def test_the_command_line_edits_one_class_and_the_version_is_certified(home, capsys):
    def said(*arguments: str) -> dict:
        assert run([*arguments, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    shown = said("model", "edit", "kin", "--feature", "sex", "--class", "Husband", "--show")
    assert (shown["class"], [each["values"] for each in shown["bins"]][:2]) == ("Husband", ["Female", "Male"])
    spent = Home.open(ledgers.place(home)).ledger.dataset("kin")
    never = ("--feature", "sex", "--class", "Husband", "--set", "Female=-6", "--why", "a word of the census")
    body = said("model", "edit", "kin", *never)
    assert (body["model"], body["epsilon_spent"]) == ("kin@2", "0")
    assert [(row["class"], row["feature"], row["values"]) for row in body["changed"]] == [("Husband", "sex", "Female")]
    assert run(["model", "edit", "kin", *never]) != 0
    assert "kin@2 has these already" in capsys.readouterr().err
    bundle = home / "models" / "kin" / "2"
    assert said("verify", str(bundle))["ok"]
    assert said("ledger", "audit")["ok"]
    opened = Home.open(ledgers.place(home))
    found = load_of_home(opened, ModelStore(opened.models).resolve("kin@2"), "kin")
    public = found.certificate.statement["predicate"]["public"]
    assert public["edits"] == [edit.to_json() for edit in found.ensemble.edits]
    assert json.loads(public["edits"][0]["what"])["class"] == "Husband"
    assert public["ensemble"] == digest(read_bundle(bundle).ensemble)
    assert opened.ledger.dataset("kin") == spent
    assert "a word of the census" in (bundle / "card.md").read_text()
    told = said("model", "explain", "kin@2")
    drawn = {(shape["class"], shape["feature"]): shape["bins"] for shape in told["shapes"]}
    assert [each["label"] for each in drawn["Husband", "sex"]][:2] == ["Female", "Male"]
    women, men = (each["adds"] for each in drawn["Husband", "sex"][:2])
    assert women < men - 4  # as it was set
    assert max(told["features"], key=lambda one: one["importance"])["feature"] == "sex"


def test_over_rest_a_class_is_asked_for_and_forgeries_are_found(home):
    site = Site(Home.open(ledgers.place(home)), DOORS)
    secret = site.token("boss", "promote")
    at = "/v1/models/kin"
    first = site.bear(secret, "GET", f"{at}/curve?feature=age").json()
    assert (first["class"], first["classes"]) == ("Husband", list(three_classes.KIN))
    assert first["unit"] == "log odds of Husband"
    curve = site.bear(secret, "GET", f"{at}/curve?feature=age&class=Own-child").json()
    assert curve["class"] == "Own-child"
    assert curve["bins"] != first["bins"]
    assert code(site.bear(secret, "GET", f"{at}/curve?class=aunt")) == (400, "bad_input")
    one = {"feature": "age", "class": "Own-child", "set": {"bins": [[0, 1]], "to": 0.5}}
    without = {name: value for name, value in one.items() if name != "class"}
    refused = site.bear(secret, "POST", f"{at}/edits", json={"edits": [without], "reason": "x"})
    assert (*code(refused), "must be said" in refused.text) == (400, "bad_input", True)
    body = {"edits": [one], "reason": "children are young", "entry": curve["entry"]}
    tried = site.bear(secret, "POST", f"{at}/edits", json={**body, "dry_run": True}).json()
    assert [(row["class"], row["bin"]) for row in tried["changed"]] == [("Own-child", 0), ("Own-child", 1)]
    done = site.bear(secret, "POST", f"{at}/edits", json=body).json()
    assert (done["model"], done["changed"]) == ("kin@2", tried["changed"])
    site.look()
    now = site.bear(secret, "GET", "/v1/models/kin@2/curve?feature=age&class=Own-child").json()["bins"]
    assert [each["adds"] for each in now[:2]] == [pytest.approx(0.5, abs=1e-4)] * 2
    assert site.bear(secret, "GET", "/v1/models/kin@2/curve?feature=age").json()["bins"] == first["bins"]
    assert audit_place(ledgers.place(home), bundles=ledgers.bundles(home)).ok
    path = home / "models" / "kin" / "2" / "ensemble.json"
    path.chmod(0o600)
    forged = json.loads(path.read_bytes())
    forged["edits"][0]["what"] = forged["edits"][0]["what"].replace("Own-child", "Husband")
    path.write_bytes(ensemble_bytes(ensemble_from_json(forged)))
    assert run(["verify", str(path.parent)]) == 4

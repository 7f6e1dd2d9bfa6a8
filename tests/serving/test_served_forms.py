"""Every form of ensemble goes all the way: released, certified, verified, served, predicted, explained. By a learner
that spends a little on nothing and returns what the test wants."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from given_models import Given

from accountant.home import Home
from accountant.ledger.families.records import NewPeople
from dpserve_verify.privacy.budget import Budget, Relation
from models.forms.classes import ClassesEnsemble
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.parts.pairs import PairTerm
from models.parts.trees import Leaf, Split
from models.parts.votes import Vote
from models.store.loading import load_verified
from serving.cli.app import run
from serving.process.registry import Registry
from serving.rest.models import answer_records
from training.datasets.datasets import register
from training.jobs import job
from training.learners import LEARNERS
from training.requests import JobRequest

pytestmark = pytest.mark.home("made")

SCHEMA = """
target: {{name: sort, classes: {classes}}}
records: 60
features:
  age: {{type: numeric, edges: [20, 40, 60]}}
  colour: {{type: categorical, values: [red, green]}}
  member: {{type: boolean}}
"""
VOTES = (Vote("above", 0, 1, 2, 0), Vote("is", 1, 0, 3, 1), Vote("is", 1, 3, 3, 2), Vote("is", 2, 1, 2, 2))
TREE = Split("above", 0, 1, Split("is", 1, 0, Leaf(3), Leaf(-1)), Split("is", 2, 1, Leaf(2), Leaf(-2)))
RECORDS = [
    {"age": 30, "colour": "red", "member": False},
    {"age": 50.5, "colour": None, "member": True},
    {"age": None, "colour": "blue", "member": None},
    {"age": 41, "colour": "green", "member": False},
    {"age": 70, "colour": "red", "member": True},
]


PAIR = PairTerm((1, 2), ((0, 1, 1, 1), (0, 1, 0)), (((9, 0, 0, 1), (0, 8, 0, 1)), ((0, 0, 7, 1), (0, 0, 0, 6))))


class Released(Given):
    def ensemble(self, public):
        if len(public.classes) == 4:
            terms = tuple(tuple((code, 2, -code, 1) for code in range(f.bins)) for f in public.features)
            return ClassesEnsemble(
                public.features, public.target, public.classes, 0.1, (1, 2, 3, 4), terms, pairs=(PAIR,)
            )
        if len(public.classes) > 2:
            return VotingEnsemble(public.features, public.target, public.classes, VOTES, 0.5)
        return TreeEnsemble(public.features, public.target, public.classes, (TREE,), -1, 0.5)


FORMS = {"paired": ["w", "x", "y", "z"], "many": ["a", "b,c", "d"], "numbered": [3, 1, 2], "trees": ["no", "yes"]}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forms")
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEARNERS, Released.name, Released)
        for name, classes in FORMS.items():
            (folder / "schema.yaml").write_text(SCHEMA.format(classes=json.dumps(classes)))
            rows = pa.table(
                {
                    "age": np.arange(60.0) + len(name),
                    "colour": ["red", "green", "blue"] * 20,
                    "member": [True, False] * 30,
                    "sort": [classes[i % len(classes)] for i in range(60)],
                }
            )
            pq.write_table(rows, folder / f"{name}.parquet")
            budget = Budget.of(1, "1e-3")
            data, schema = folder / f"{name}.parquet", folder / "schema.yaml"
            register(
                home, name, data, schema, budget, Relation.ADD_REMOVE, None, new_people=NewPeople("a test", "steward")
            )
            job.train(home, JobRequest(name, Released.name, "0.5", "0.001"), by="test")
    return home


@pytest.mark.parametrize("name", FORMS)
def test_certified_and_verified(home, name):
    found = load_verified(home.models / name / "1", home.trust)
    assert found.certificate.form.public.classes == [str(label) for label in FORMS[name]]
    assert found.ensemble.classes == found.runtime.classes == tuple(FORMS[name])
    assert found.travelling.card == found.bundle.card


@pytest.mark.parametrize("name", FORMS)
def test_served(home, name):
    registry = Registry()
    registry.refresh(home)
    served, answer = answer_records(registry.get, {"model": name, "records": RECORDS})
    ensemble = served.verified.ensemble
    columns = {key: [record[key] for record in RECORDS] for key in RECORDS[0]}
    columns = {key: [np.nan if v is None and key != "colour" else v for v in values] for key, values in columns.items()}
    assert answer["classes"] == tuple(FORMS[name])
    assert answer["predictions"] == ensemble.predict(columns).tolist()
    assert answer["probabilities"].shape == (len(RECORDS), len(FORMS[name]))
    np.testing.assert_allclose(answer["probabilities"], ensemble.probabilities(columns), rtol=0, atol=1e-6)
    assert len(set(answer["predictions"])) > 1


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predicted_into_a_file(home, tmp_path, name, suffix):
    pq.write_table(pa.Table.from_pylist(RECORDS), tmp_path / "in.parquet")
    out = tmp_path / f"out.{suffix}"
    assert run(["predict", name, "--data", str(tmp_path / "in.parquet"), "--out", str(out)]) == 0
    table = pa.csv.read_csv(out) if suffix == "csv" else pq.read_table(out)
    assert table.column_names == ["label", *(f"p_{label}" for label in FORMS[name])]
    total = sum(np.asarray(table[f"p_{label}"], np.float64) for label in FORMS[name])
    np.testing.assert_allclose(total, np.ones(len(RECORDS)), atol=1e-6)
    assert set(table["label"].to_pylist()) <= set(FORMS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_shown_and_explained(home, tmp_path, capsys, name):
    assert run(["model", "show", name]) == 0
    assert " or ".join(map(str, FORMS[name])) in capsys.readouterr().out
    out = tmp_path / "page.html"
    assert run(["model", "explain", name, "--out", str(out), "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert {each["feature"] for each in body["features"]} - {"colour & member"} == {"age", "colour", "member"}
    assert out.read_text().startswith("<!doctype html>")
    if name == "paired":
        assert {each["class"] for each in body["pairs"]} == set(FORMS[name])
        assert "colour &amp; member: z" in out.read_text()
        return
    if name == "trees":
        assert body["votes"] == []
    else:
        assert {line["class"] for line in body["votes"]} == set(FORMS[name])
    assert run(["model", "explain", name]) == 0
    head = ["MOVES", "THE", "SCORE", "BY", "FEATURE"] if name == "trees" else ["VOTES", "FOR", "WHERE"]
    assert capsys.readouterr().out.splitlines()[0].split() == head

"""A model that answers a number goes all the way: released, certified, verified, served, predicted, shown. By a learner
that spends a little on nothing and returns what the test wants."""

from __future__ import annotations

import json

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from given_models import Given

from accountant.home import Home
from accountant.ledger.families.records import NewPeople
from dpserve_verify.privacy.budget import Budget, Relation
from models.forms.additive import AdditiveEnsemble
from models.onnx.runtime import columns_from_records
from models.store.loading import load_verified
from serving.cli.app import run
from serving.process.registry import Registry
from serving.rest.json_schemas import PREDICTED
from serving.rest.models import _description, answer_records
from training.datasets.datasets import register
from training.jobs import job
from training.learners import LEARNERS
from training.requests import JobRequest

pytestmark = pytest.mark.home("made")

MADE = NewPeople("made rows", "test")
SCHEMAS = {
    "rent": "target: {name: rent, range: [0, 2000]}",
    "vote": 'target: {name: rent, classes: ["low", "high"]}',
}
FEATURES = """
records: 60
features:
  age: {type: numeric, edges: [20, 40, 60]}
  colour: {type: categorical, values: [red, green]}
  member: {type: boolean}
"""
TERMS = ((-90, 0, 40, 300, 7), (10, -20, 5, 3), (0, 25, -1))
RECORDS = [
    {"age": 30, "colour": "red", "member": False},
    {"age": 50.5, "colour": None, "member": True},
    {"age": None, "colour": "blue", "member": None},
    {"age": 12, "colour": "green", "member": False},  # this and the next: beyond the range, clipped
    {"age": 70, "colour": "red", "member": True},
]
VALUES = [1000 + 10 * s for s in (1 + 0 + 10, 1 + 40 + 3 + 25, 1 + 7 + 5 - 1)] + [0, 2000]


class Released(Given):
    def ensemble(self, public):
        link = 10.0 if public.classes is None else 0.01
        return AdditiveEnsemble(
            public.features, public.target, public.classes or (), public.target_range, link, 1, TERMS
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEARNERS, Released.name, Released)
        for name, target in SCHEMAS.items():
            data, schema = folder / f"{name}.parquet", folder / f"{name}.yaml"
            schema.write_text(target + FEATURES)
            rent = np.arange(60) * 50.0 if name == "rent" else ["low", "high"] * 30
            columns = {"age": np.arange(60.0), "colour": ["red", "green", "blue"] * 20, "member": [True, False] * 30}
            pq.write_table(pa.table({**columns, "rent": rent}), data)
            register(home, name, data, schema, Budget.of(1, "1e-3"), Relation.ADD_REMOVE, None, new_people=MADE)
            job.train(home, JobRequest(name, Released.name, "0.5", "0.001"), by="test")
    return home


def served(home, name):
    registry = Registry()
    registry.refresh(home)
    return answer_records(registry.get, {"model": name, "records": RECORDS})


def test_certified_and_verified(home):
    found = load_verified(home.models / "rent" / "1", home.trust)
    assert found.certificate.form.public.classes is None
    assert found.ensemble.classes == found.runtime.classes == ()
    assert found.ensemble.target_range == (0.0, 2000.0)
    assert json.loads(found.runtime.metadata["target_range"]) == [0.0, 2000.0]
    assert found.travelling.card == found.bundle.card
    assert "a number from 0 to 2000" in found.bundle.card.decode()


def test_a_number_is_served_without_classes(home):
    model, answer = served(home, "rent")
    assert answer["predictions"] == VALUES
    assert answer.keys() == {"model", "target", "certificate", "predictions"}
    assert set(PREDICTED["required"]) <= answer.keys() <= set(PREDICTED["properties"])
    body = json.loads(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY))
    assert body["predictions"] == VALUES
    described = json.loads(orjson.dumps(_description(model)))
    assert (described["classes"], described["target_range"]) == ([], [0.0, 2000.0])


def test_classes_are_served_as_ever(home):
    model, answer = served(home, "vote")
    columns = columns_from_records(model.verified.ensemble.features, RECORDS, 9)
    assert answer["classes"] == ("low", "high")
    assert answer["predictions"] == model.verified.ensemble.predict(columns).tolist()
    assert set(answer["predictions"]) == {"low", "high"}
    assert np.allclose(answer["probabilities"], model.verified.ensemble.probabilities(columns), atol=1e-6)
    assert _description(model)["target_range"] is None


def test_no_records_no_answers(home):
    registry = Registry()
    registry.refresh(home)
    assert answer_records(registry.get, {"model": "rent", "records": []})[1]["predictions"] == []


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predicted_into_a_file(home, tmp_path, suffix):
    pq.write_table(pa.Table.from_pylist(RECORDS), tmp_path / "in.parquet")
    out = tmp_path / f"out.{suffix}"
    assert run(["predict", "rent", "--data", str(tmp_path / "in.parquet"), "--out", str(out)]) == 0
    table = pa.csv.read_csv(out) if suffix == "csv" else pq.read_table(out)
    assert table.column_names == ["value"]
    assert table["value"].to_pylist() == VALUES


def test_listed_shown_and_exported(home, tmp_path, capsys):
    assert run(["model", "list"]) == 0
    assert "rent@1" in capsys.readouterr().out
    assert run(["model", "show", "rent"]) == 0
    assert "rent: a number from 0 to 2000" in capsys.readouterr().out
    assert run(["model", "show", "rent", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["classes"], body["target_range"]) == ([], [0.0, 2000.0])
    for option in ("--certificate", "--registry"):
        assert run(["model", "show", "rent", option]) == 0
    assert run(["model", "export", "rent", "--out", str(tmp_path / "out")]) == 0
    trust = tmp_path / "trust.json"
    trust.write_bytes((home.path / "trust.json").read_bytes())
    assert run(["verify", str(tmp_path / "out"), "--trust", str(trust)]) == 0

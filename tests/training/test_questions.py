"""One table, several questions: registered once, three models on one budget, each certified for what it predicts."""

from __future__ import annotations

import json
import shlex
from dataclasses import astuple, replace

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledgers import unjudged
from pages import blocks

from accountant.access.grants import access_of
from accountant.certificates.statement import sign
from accountant.errors import IdempotencyConflict
from accountant.home import Home
from accountant.ledger.families.records import NewPeople
from dpserve.types import Dataset, Job, Plan
from dpserve_verify.audit.replay import Replay
from dpserve_verify.certificates.bundle import FILES
from dpserve_verify.certificates.certificate import digest
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.written_page import to_text
from dpserve_verify.errors import InputError, LedgerInvalid, ModelInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.budget import Budget, Relation
from models.store.loading import load_verified
from serving.cli.app import run
from serving.operations import Caller
from serving.operations.jobs import plan_job, submit_job
from serving.pages.job_form import Form, price_of
from serving.pages.parts.entry_text import describe
from serving.process.registry import Registry
from serving.rest.json_schemas import DATASETS, PREDICTED
from serving.rest.models import answer_records
from training.datasets.datasets import register
from training.finish.release import bundle_of
from training.jobs import job
from training.planning import plans
from training.planning.job_views import dataset_to_json
from training.planning.plans import public_of
from training.requests import JobRequest
from training.rows.schema.schema import schema_of
from training.session.session import Public

pytestmark = pytest.mark.home("made")

ROWS, TOTAL = 600, Budget.of("4", "1e-5")
SCHEMA = """\
targets:
  income: {classes: [low, high], also_feature: true}
  region: {classes: [north, south, east], missing: leave-out}
  hours: {range: [0, 80]}
records: 600
features:
  age: {type: numeric, edges: [20, 40, 60]}
  income: {type: categorical, values: [low, high]}
  colour: {type: categorical, values: [red, green]}
ignore: [note]
"""
LEARNERS = {"income": "lazybb", "region": "lazybb", "hours": "ebm"}
RECORD = {"age": 70.0, "income": "high", "colour": "red"}


def people() -> pa.Table:
    draw = np.random.default_rng(7)
    age = draw.uniform(0, 80, ROWS)
    region = np.where(draw.random(ROWS) < 0.1, "", np.array(["north", "south", "east"])[(age // 27).astype(int)])
    columns = {"age": age, "income": np.where(age > 40, "high", "low"), "region": region, "hours": age}
    return pa.table({**columns, "colour": draw.choice(["red", "green"], ROWS), "note": ["x"] * ROWS})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("questions")
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    pq.write_table(people(), folder / "rows.parquet")
    (folder / "schema.yaml").write_text(SCHEMA)
    register(home, "d", folder / "rows.parquet", folder / "schema.yaml", TOTAL, Relation.ADD_REMOVE, None)
    for target, learner in LEARNERS.items():
        job.train(home, JobRequest("d", learner, "1", model=target, target=target), by="test", key=f"key-{target}")
    return home


@pytest.mark.slow
@pytest.mark.parametrize("target", LEARNERS)
def test_the_model_its_certificate_its_card_and_its_graph_name_the_target(home, target):
    found = load_verified(home.models / target / "1", home.trust)
    public = found.certificate.form.public
    assert public.target == found.ensemble.target == found.runtime.metadata["target"] == target
    assert public.classes == {"income": ["low", "high"], "region": ["north", "south", "east"]}.get(target)
    assert f"Model card: {target}" in found.bundle.card.decode()
    assert f"one of several targets, to learn {target}" in " ".join(to_text(plain(found.certificate)).split())
    inputs = ["age", "colour"] if target == "income" else ["age", "income", "colour"]  # of the others, with permission
    assert public.inputs == [feature.name for feature in found.ensemble.features] == inputs


@pytest.mark.slow
def test_three_models_stand_on_one_budget_and_the_audit_holds(home, capsys):
    assert len(home.ledger.datasets()) == 1
    dataset = home.ledger.dataset("d")
    jobs = [entry for entry in entries(home) if entry.value["type"] == "reserved"]
    assert [entry.value["target"] for entry in jobs] == list(LEARNERS)
    sums = [float(entry.value["price"]["rdp"][str(dataset.orders[0])]) for entry in jobs]
    assert float(dataset.most_used.used.rdp[0]) / 1e9 == pytest.approx(sum(sums), rel=1e-6)
    assert run(["ledger", "audit"]) == 0
    for target in LEARNERS:
        assert run(["verify", str(home.models / target / "1"), "--trust", str(home.path / "trust.json")]) == 0
    capsys.readouterr()
    text = " ".join(describe(entry).words for entry in entries(home))
    assert "A job predicts one of: income, region, hours." in text
    assert "for a model named region that predicts region: epsilon" in text


def entries(home):
    return [home.ledger.log.entry(at) for at in range(home.ledger.log.size())]


FORGED = {
    "another target": ("reserved", {"target": "age"}, "target: must be one"),
    "no target": ("reserved", {"target": None}, "target: must be one"),
    "one target": ("dataset-registered", {"targets": ["income"]}, "two or more"),
    "a target twice": ("dataset-registered", {"targets": ["income", "income"]}, "two or more"),
    "no text": ("dataset-registered", {"targets": ["income", 1]}, "two or more"),
    "targets of another kind": ("committed", {"targets": ["income", "hours"]}, "exactly the fields"),
}


@pytest.mark.parametrize(("kind", "change", "says"), FORGED.values(), ids=FORGED)
def test_the_auditor_judges_targets_by_its_own_rules(home, kind, change, says):
    replay = Replay(home.trust)
    for entry in entries(home):
        if entry.value["type"] == kind:
            body = canonical.encode({**entry.value, **change})
            with pytest.raises(LedgerInvalid, match=says):
                replay.read(entry.seq, body)
            return
        replay.read(entry.seq, entry.body)
    raise AssertionError(f"no entry is {kind}")


def test_a_job_pays_for_its_own_question_alone(home):
    """The plan of one target is that of a schema which has this target alone: the others cost nothing."""
    dataset = home.ledger.dataset("d")
    for target, learner in LEARNERS.items():
        asked = JobRequest("d", learner, "0.1", target=target)
        request, made = plans.request_of(home, dataset, asked)
        question = schema_of(home, dataset).question(target)
        public = public_of(dataset, question, request.budget)
        assert public == Public.of(question, Relation.ADD_REMOVE, request.budget, False)
        assert plans.plan(home, asked).recipe == made.recipe(replace(public, target=target))


def test_predictions_name_the_target(home, tmp_path, capsys):
    registry = Registry()
    registry.refresh(home)
    for target in LEARNERS:
        record = {name: value for name, value in RECORD.items() if name != target}
        _, answer = answer_records(registry.get, {"model": target, "records": [record]})
        body = json.loads(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY))
        assert body["target"] == target
        assert set(PREDICTED["required"]) <= body.keys() <= set(PREDICTED["properties"])
    pq.write_table(pa.Table.from_pylist([RECORD]), tmp_path / "in.parquet")
    words = ["predict", "income", "--data", str(tmp_path / "in.parquet"), "--out", str(tmp_path / "out.parquet")]
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == "income"
    assert run(words) == 0
    assert "income of 1 records predicted with income@1" in capsys.readouterr().out
    assert run(["model", "show", "region"]) == 0
    assert "region: north or south or east" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["income", "region"])
def test_a_certificate_that_names_another_target_is_refused(home, target):
    """Signed and entered with the real keys: the released numbers themselves say what they predict."""
    folder = home.models / "income" / "1"
    whole = load_verified(folder, home.trust)
    forged = canonical.decode(dsse.parse(whole.bundle.envelope).payload, 1 << 20)
    forged["predicate"]["public"]["target"] = target
    envelope = sign(payload := canonical.encode(forged, 1 << 20), home.keys)
    entry = {name: whole.certificate.entry[name] for name in ("reservation", "model", "name")}
    with unjudged(), home.ledger.log.writing() as writer:
        index = writer.append("issued", statement=digest(payload), **entry)
    made = bundle_of(home, whole.ensemble, whole.bundle.onnx, envelope, index)
    for name, content in zip(FILES, astuple(made), strict=True):
        (folder / name).write_bytes(content)
    command = ["verify", str(folder), "--trust", str(home.path / "trust.json")]
    if target == "income":
        assert run(command) == 0
        return
    with pytest.raises(ModelInvalid, match="another target than the certificate names"):
        load_verified(folder, home.trust)
    assert run(command) == 4


def _operator(home):
    return Caller(home, access_of(home.ledger, "cli:test", operator=True))


WHICH = "d has 3, and a model predicts one: income, region, hours; which one\\? Say it with --target NAME"


def test_a_job_says_which_target(home, capsys):
    size = home.ledger.log.size()
    with pytest.raises(InputError, match=WHICH) as caught:
        job.train(home, JobRequest("d", "lazybb", "0.1"), by="test")
    assert caught.value.details == {"targets": ["income", "region", "hours"]}
    with pytest.raises(InputError, match="'age' is none of dataset d: income, region, hours"):
        job.train(home, JobRequest("d", "lazybb", "0.1", target="age"), by="test")
    for body in ({}, {"target": "age"}):
        with pytest.raises(InputError, match="income, region, hours"):
            plan_job.function(_operator(home), JobRequest("d", "lazybb", "0.1", **body))
    for command in ("plan", "train"):
        assert run([command, "d", "--learner", "lazybb", "--epsilon", "0.1"]) == 2
        assert "--target NAME" in capsys.readouterr().err
    assert home.ledger.log.size() == size
    assert run(["plan", "d", "--learner", "lazybb", "--epsilon", "0.1", "--target", "region"]) == 0
    assert "lazybb on d, which predicts region" in capsys.readouterr().out
    assert run(["plan", "d", "--learner", "lazybb", "--epsilon", "0.1", "--target", "hours"]) == 2
    assert "is a number" in capsys.readouterr().err
    assert run(["dataset", "show", "d"]) == 0
    assert "income, region, hours; a job says --target" in capsys.readouterr().out


def test_a_key_stands_for_a_job_on_one_target(home):
    asked = JobRequest("d", "lazybb", "1", model="income", target="income")
    assert job.submit(home, asked, by="test", key="key-income").model == "income"
    with pytest.raises(IdempotencyConflict):
        job.submit(home, replace(asked, target="region"), by="test", key="key-income")


def test_the_doors_take_and_name_the_target(home):
    asked = JobRequest("d", "lazybb", "0.1", target="region")
    assert Plan.of(plan_job.function(_operator(home), asked)).target == "region"
    assert Job.of(submit_job.function(_operator(home), asked)).target == "region"
    shown = dataset_to_json(home, home.ledger.dataset("d"))
    assert Dataset.of(shown).targets == ["income", "region", "hours"]
    assert "targets" in DATASETS["properties"]["datasets"]["items"]["properties"]
    assert set(shown["budget"]["jobs_left"]) >= {"lazybb", "ebm", "forest"}


def test_the_form_takes_the_target(home):
    import asyncio

    def priced(**fields):
        pairs = {"dataset": "d", "learner": "lazybb", "epsilon": "0.1", **fields}
        return asyncio.run(price_of(home, Form.of(pairs.items()), _operator(home).rights))

    assert "Choose a target:" in priced()["message"]
    found = priced(target="income")
    assert (found["kind"], found["plan"]["target"]) == ("fits", "income")
    assert found["digest"] != priced(target="region")["digest"]


@pytest.mark.slow
def test_the_page_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    schema, commands = blocks("docs/reference/training.md", "(?:yaml|sh)", "Several targets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    (tmp_path / "people.yaml").write_text(schema)
    pq.write_table(people().drop_columns(["colour"]), tmp_path / "people.parquet")
    assert run(["init"]) == 0
    lines = commands.splitlines()
    assert len(lines) == 8
    for line in lines:
        assert run(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)
    assert "answers      region: north or south or east" in capsys.readouterr().out
    assert pq.read_table(tmp_path / "hours.parquet").column_names == ["value"]


def test_with_one_target_naming_it_is_no_other_request(home, tmp_path):
    (tmp_path / "one.yaml").write_text(
        "target: {name: y, classes: [a, b]}\nrecords: 50\nfeatures: {x: {type: boolean}}\n"
    )
    pq.write_table(pa.table({"x": [True, False] * 25, "y": ["a", "b"] * 25}), tmp_path / "one.parquet")
    few = NewPeople("fifty others", "steward")
    register(
        home, "one", tmp_path / "one.parquet", tmp_path / "one.yaml", TOTAL, Relation.ADD_REMOVE, None, new_people=few
    )
    dataset = home.ledger.dataset("one")
    silent, named = (
        plans.request_of(home, dataset, JobRequest("one", "lazybb", "1", target=y))[0] for y in (None, "y")
    )
    assert silent == named
    assert "target" not in silent.to_json()
    with pytest.raises(InputError, match="'x' is none of dataset one: y"):
        plans.plan(home, JobRequest("one", "lazybb", "1", target="x"))
    assert "targets" not in dataset_to_json(home, dataset, detail=False)

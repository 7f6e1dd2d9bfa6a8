"""Which columns a job reads: named in public, refused before anything is charged, and then the model reads no other."""

from __future__ import annotations

import re
import shlex
from decimal import Decimal
from inspect import signature

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_home import ROOT, write_files

from accountant.access.grants import access_of
from accountant.home import Home
from accountant.ledger.families.families import Started
from dpserve_cluster.driver import manifest
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.reading import MAX_CHARACTERS
from models.store.loading import load_verified
from serving.cli.app import run
from serving.operations import Caller
from serving.operations.jobs import plan_job
from serving.pages.job_form import Form
from training.datasets.datasets import folders_of, open_rows, register
from training.jobs import job
from training.learners import LEARNERS
from training.learners.base.estimator import Estimator
from training.learners.boosting.lazybb import LazyBB
from training.learners.docs import learners_to_json
from training.learners.parameters import learner_of
from training.measuring.worth.evaluate import check_fits
from training.planning import plans, price_engine
from training.requests import EvaluationRequest, JobRequest, TuningRequest
from training.rows.schema.schema import parse_schema, schema_of
from training.rows.tables.partition_source import Source
from training.session.session import Public

ROWS, TOTAL = 1000, Budget.of("20", "1e-5")
SCHEMA = """\
target: {name: ill, classes: [well, sick]}
records: 1000
features:
  age: {type: numeric, range: [0, 80], bins: 8}
  answer: {type: categorical, values: [well, sick]}
  colour: {type: categorical, values: [red, green]}
  "a, b": {type: numeric, range: [0, 1], bins: 4}
"""
OTHERS = {"without": "answer"}


def people() -> pa.Table:
    """`answer` is the target itself, which age tells three times of four."""
    draw = np.random.default_rng(11)
    age = draw.uniform(0, 80, ROWS)
    ill = np.where((age > 40) ^ (draw.random(ROWS) < 0.25), "sick", "well")
    columns = {"age": age, "answer": ill, "colour": draw.choice(["red", "green"], ROWS), "a, b": draw.random(ROWS)}
    return pa.table({**columns, "ill": ill})


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    found = Home.init({"DPSERVE_HOME": str(folder / "home")})
    pq.write_table(people(), folder / "rows.parquet")
    (folder / "schema.yaml").write_text(SCHEMA)
    register(
        found, "d", folder / "rows.parquet", folder / "schema.yaml", TOTAL, Relation.ADD_REMOVE, "record",
        holdout=Decimal("0.2"),
    )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def both(home):
    """d@1 reads everything, d@2 all but the answer."""
    return [job.train(home, JobRequest("d", "auto", "4", parameters=p), by="test", key=str(p)) for p in ({}, OTHERS)]


CHOICES = {
    "all": ({}, ["age", "answer", "colour", "a, b"]),
    "said to be all": ({"features": "all", "without": ""}, ["age", "answer", "colour", "a, b"]),
    "all by name": ({"features": '["a, b", "age", "answer", "colour"]'}, ["age", "answer", "colour", "a, b"]),
    "some, in the schema's order": ({"features": "colour, age"}, ["age", "colour"]),
    "a list": ({"features": ["a, b"]}, ["a, b"]),
    "all but one": ({"without": "answer"}, ["age", "colour", "a, b"]),
    "all but a list": ({"without": '["a, b","answer"]'}, ["age", "colour"]),
}
WRONG = {
    "no feature": ({"without": "anwser"}, "'anwser' is no feature .* did you mean 'answer'"),
    "nothing like it": ({"features": "zzz"}, "there are age, answer, colour, a, b"),
    "the target": ({"features": "ill"}, "'ill' is no feature"),
    "twice": ({"features": "age,age"}, "stands there twice"),
    "both": ({"features": "age", "without": "answer"}, "not both"),
    "nothing left": ({"without": '["age","answer","colour","a, b"]'}, "none is left"),
    "none": ({"features": "[]"}, "none is left"),
    "a blank": ({"features": "age,"}, "'' is no feature"),
    "a number": ({"features": "[1]"}, "must be names"),
    "a table": ({"without": '{"age": 1}'}, "is no feature"),
    "cut off": ({"without": '["age"'}, "must be names"),
    "deep": ({"without": "[" * 10_000}, "must be names"),
    "huge": ({"without": "x" * (MAX_CHARACTERS + 1)}, f"at most {MAX_CHARACTERS} characters"),
}


@pytest.mark.parametrize(("given", "names"), CHOICES.values(), ids=CHOICES)
def test_names_choose_columns_in_the_schema_s_order(given, names):
    read = parse_schema(SCHEMA.encode()).question("ill", given)
    assert [feature.name for feature in read.features] == names


@pytest.mark.parametrize("word", ["features", "without"])
@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), True, 0, -1, {}, {"age"}, b"age", [["age"]], [None]], ids=repr
)
def test_what_are_no_names_is_refused_by_every_estimator(word, bad):
    schema = parse_schema(SCHEMA.encode())
    for learner in LEARNERS.values():
        with pytest.raises(InputError, match=f"{word}=.*: must be names"):
            learner(schema=schema, **{word: bad}).public_facts()


@pytest.mark.parametrize(("given", "says"), WRONG.values(), ids=WRONG)
def test_what_is_no_choice_is_refused_and_costs_nothing(home, given, says):
    before = home.ledger.log.size()
    for learner in ("auto", "lazybb"):
        with pytest.raises(InputError, match=says):
            job.submit(home, JobRequest("d", learner, "0.5", parameters=given), by="test")
    assert home.ledger.log.size() == before


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_takes_the_choice_as_one_of_what_it_takes(home, learner):
    (about,) = [each for each in learners_to_json() if each["name"] == learner]
    kinds = {each["name"]: each["kind"] for each in about["parameters"]}
    assert kinds["features"] == kinds["without"] == "text"
    planned = plans.plan(home, JobRequest("d", learner, "0.5", parameters={"features": "age,colour"}))
    assert planned.request.parameters["features"] == "age,colour"


def test_kinds_are_those_of_the_defaults():
    """A field for `cuts` once took whole numbers, and its default is a word."""
    kinds = {"whole": int, "number": int | float, "boolean": bool, "choice": str | float | bool, "text": str}
    for learner in learners_to_json():
        for each in learner["parameters"]:
            assert each["default"] is None or isinstance(each["default"], kinds[each["kind"]]), each
            assert (each["kind"] == "choice") is bool(each["choices"])


def test_parameters_are_those_of_init_where_a_python_gives_the_signature_of_new(monkeypatch):
    """Python 3.11.2 does, which Debian 12 has: forms had no parameters there, and a job with one ended by KeyError."""
    before = learners_to_json()
    monkeypatch.setattr(Estimator, "__signature__", signature(Estimator.__new__), raising=False)
    assert learners_to_json() == before
    assert learner_of("lazybb", {"rounds": 5}).rounds == 5


def test_a_request_that_names_nothing_is_the_one_of_before(home):
    known = plans.plan(home, JobRequest("d", "lazybb", "0.5")).request
    assert (
        known
        == plans.plan(home, JobRequest("d", "lazybb", "0.5", parameters={"features": "all", "without": ""})).request
    )
    assert not {"features", "without"} & known.parameters.keys()


def opened(home, **parameters):
    dataset = home.ledger.dataset("d")
    request = plans.plan(home, JobRequest("d", "lazybb", "0.5", parameters=parameters)).request
    return open_rows(home, Started(1, dataset, request, Decimal(1), None), schema_of(home, dataset))


def test_rows_of_the_job_have_those_columns_alone(home):
    read, whole = opened(home, features='["a, b","age"]'), opened(home)
    assert np.array_equal(read.bins, whole.bins[[0, 3]])
    assert np.array_equal(read.labels, whole.labels)
    for own, place in ((0, 0), (1, 3)):
        assert np.array_equal(read.cell_counts(own, 40_000), whole.cell_counts(place, 40_000))
    asked = whole.binned([parse_schema(SCHEMA.encode()).features[at] for at in (0, 3)])  # as an evaluation does
    assert np.array_equal(asked.bins, read.bins)
    for rows in (read, whole):
        rows.close()


@pytest.mark.parametrize("given", [{}, {"without": "f0"}], ids=["all", "all but one"])
def test_a_table_whose_names_are_longer_together_than_a_job_may_name_is_learnt_from(tmp_path, given):
    """The bound is of what a request names, not of what its job then reads: it was charged before that was seen."""
    names = ["f0", *(f"{at:0190}" for at in range(MAX_CHARACTERS // 190 + 1))]
    found = Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    draw = np.random.default_rng(3)
    answers = draw.choice(["well", "sick"], 50)
    pq.write_table(pa.table({**{name: draw.random(50) for name in names}, "ill": answers}), tmp_path / "rows.parquet")
    lines = "".join(f'  "{name}": {{type: numeric, range: [0, 1], bins: 4}}\n' for name in names)
    text = "target: {name: ill, classes: [well, sick]}\nrecords: 50\nfeatures:\n" + lines
    (tmp_path / "schema.yaml").write_text(text)
    register(found, "w", tmp_path / "rows.parquet", tmp_path / "schema.yaml", TOTAL, Relation.ADD_REMOVE, "record")
    asked = JobRequest("w", "lazybb", "1", parameters={"rounds": 2, **given})
    assert job.train(found, asked, by="test")["state"] == "issued"
    read = [each.name for each in load_verified(found.models / "w" / "1", found.trust).ensemble.features]
    assert read == names[len(given) :]


def test_hosts_of_a_cluster_are_told_which(home):
    dataset = home.ledger.dataset("d")
    folder = folders_of(home, dataset)[0]
    source = Source(folder, schema_of(home, dataset), None, fine=True, features=("age",))
    for piece in manifest(
        [source], folder / "schema.yaml", [1 << 20], 2, lambda source, digests: [*map(list, map(digests, source.files))]
    ):
        assert [feature.name for feature in piece.source.asked.features] == ["age"]


def test_a_model_reads_what_it_learnt_from_and_its_certificate_says_so(home, both):
    everything, others = (load_verified(home.models / "d" / str(one["version"]), home.trust) for one in both)
    for found, names in ((everything, ["age", "answer", "colour", "a, b"]), (others, ["age", "colour", "a, b"])):
        assert [feature.name for feature in found.ensemble.features] == names
        assert found.certificate.form.public.inputs == names
    table = people()
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in ("age", "colour", "a, b")}
    told = others.ensemble.predict(columns)
    right = np.mean(told == table["ill"].to_numpy(zero_copy_only=False))
    assert 0.65 < right < 0.85  # by age alone; with the answer it is all of them


@pytest.mark.parametrize("against", [None, "d@1"])
def test_models_of_other_columns_are_measured_and_compared_on_the_same_rows(home, both, against):
    said = job.measure(home, EvaluationRequest("d@2", "d", "4", against=against), by="test")["worth"]
    figures = {each["metric"]: each["value"] for each in said["metrics"]}
    if against is None:
        assert 0.6 < float(figures["accuracy"]) < 0.9
    else:
        assert float(figures["accuracy_difference"]) < -0.1  # the other one reads the answer


def test_a_model_of_a_column_that_the_rows_have_otherwise_is_not_measured(home, both):
    others = load_verified(home.models / "d" / "2", home.trust).ensemble
    about = home.ledger.dataset("d").registration
    assert check_fits(others, parse_schema(SCHEMA.encode()), about) == "ill"
    for change in (("red, green", "red, green, blue"), ("colour:", "hue:"), ("range: [0, 80]", "range: [0, 90]")):
        with pytest.raises(InputError, match="reads features that dataset d has otherwise: ..(colour|age)"):
            check_fits(others, parse_schema(SCHEMA.replace(*change).encode()), about)
    lines = SCHEMA.splitlines()
    turned = "\n".join([*lines[:3], lines[5], *lines[3:5], lines[6]])
    with pytest.raises(InputError, match="in another order"):
        check_fits(others, parse_schema(turned.encode()), about)


def test_a_refusal_says_what_would_fit_of_the_same_columns(home):
    asked = JobRequest("d", "lazybb-tree", "20.01", parameters={"features": "age"})
    with pytest.raises(BudgetRefused) as refused:
        plans.plan(home, asked)
    fits = refused.value.details["would_fit"]["epsilon"]
    assert (
        plans.plan(home, JobRequest("d", "lazybb-tree", fits, parameters={"features": "age"})).request.budget.epsilon
        > 0
    )


def test_all_runs_of_a_tuned_job_read_the_same(home):
    grid = TuningRequest({"rounds": [5, 10]})
    planned = plans.plan(home, JobRequest("d", "lazybb", "1", parameters={"without": "answer"}, tuning=grid))
    assert planned.request.parameters["without"] == "answer"
    job.train(
        home, JobRequest("d", "lazybb", "1", parameters={"without": "answer"}, tuning=grid, model="tuned"), by="test"
    )
    found = load_verified(home.models / "tuned" / "1", home.trust).ensemble
    assert [feature.name for feature in found.features] == ["age", "colour", "a, b"]
    with pytest.raises(InputError, match="all runs of a job read the same columns"):
        plans.plan(home, JobRequest("d", "lazybb", "1", tuning=TuningRequest({"features": ["age", "colour"]})))


def test_names_and_plan_share_the_room_of_an_entry(monkeypatch):
    text = canonical.encode({"features": "age,colour"}).decode()
    public = Public.of(parse_schema(SCHEMA.encode()), Relation.ADD_REMOVE, Budget.of("1", "1e-6"), False)
    plan = price_engine.offer("lazybb", text, public).recipe.plan
    monkeypatch.setattr(price_engine, "MAX_PLAN_BYTES", len(canonical.encode(plan.to_json())) + len(text))
    price_engine.offer("lazybb", text, public)
    monkeypatch.setattr(price_engine, "MAX_PLAN_BYTES", price_engine.MAX_PLAN_BYTES - 1)
    with pytest.raises(InputError, match="an entry of the ledger does not hold them"):
        price_engine.offer("lazybb", text, public)


@pytest.mark.parametrize("frame", [True, False], ids=["a frame", "an array"])
def test_an_estimator_takes_x_as_declared_and_reads_those_alone(frame):
    table = people().select(["age", "a, b", "ill"])
    schema = parse_schema(b"""
target: {name: ill, classes: [well, sick]}
records: 1000
features: {age: {type: numeric, range: [0, 80], bins: 8}, "a, b": {type: numeric, range: [0, 1], bins: 4}}
""")
    features = table.drop_columns(["ill"])
    X = features if frame else np.column_stack([column.to_numpy() for column in features.columns])
    found = LazyBB(schema=schema, epsilon=4, features=["age"]).fit(X, table["ill"])
    assert [feature.name for feature in found.ensemble_.features] == ["age"]
    assert found.n_features_in_ == 2
    assert 0.65 < np.mean(found.predict(X) == np.array(table["ill"].to_pylist())) < 0.85
    with pytest.raises(InputError, match="'agee' is no feature"):
        LazyBB(schema=schema, features=["agee"]).fit(X, table["ill"])


def test_rest_takes_lists_and_long_texts_and_refuses_what_is_neither(home):
    operator = access_of(home.ledger, "cli:test", operator=True)

    def asked(**parameters):
        return plan_job.function(Caller(home, operator), JobRequest("d", "lazybb", "0.5", parameters=parameters))

    for given in (["a, b", "age", "answer"], '["age",   "a, b",   "answer"]' + 30 * " "):
        assert asked(features=given)["learner"] == "lazybb"
    wrong = {
        "a list must be of texts": [["age"]],
        "must be a text, a list": {"age": 1},
        f"more than {MAX_CHARACTERS} characters": ["x" * 900] * 19,
        "at most 40 digits": "1" * 41,
        "no feature": ["x" * 1000],
    }
    for says, given in wrong.items():
        with pytest.raises(InputError, match=says) as refused:
            asked(features=given)
        assert len(refused.value.message) < 300
    for name in ("rounds", "cuts", "threshold"):
        with pytest.raises(InputError, match=name) as refused:
            asked(**{name: "x" * 5000})
        assert len(refused.value.message) < 300
        with pytest.raises(InputError, match=name):
            asked(**{name: ["5"]})


def test_names_with_commas_in_the_form_are_no_grid():
    typed = [("dataset", "d"), ("learner", "lazybb"), ("p.without", "answer,colour"), ("p.rounds", "5,10")]
    form = Form.of([*typed, ("several", "on")])
    assert form.body["parameters"] == {"without": "answer,colour"}
    assert form.body["tuning"]["grid"] == {"rounds": ["5", "10"]}


def test_a_comma_in_a_number_of_the_form_is_refused_unless_several_are_tried():
    """1,500 rounds are no two settings to try, and 0,5 is no rate of 0 or 5."""
    for name, text in (("rounds", "1,500"), ("rate", "0,5")):
        typed = Form.of([("dataset", "d"), ("learner", "lazybb"), ("epsilon", "1"), (f"p.{name}", text)])
        with pytest.raises(InputError, match=f"{name}={text}: a comma .*try several values"):
            _ = typed.body


def test_the_commands_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    files, found = write_files(tmp_path), Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    register(found, "adult", files / "rows.parquet", files / "schema.yaml", TOTAL, Relation.ADD_REMOVE, "record")
    (block,) = re.findall(r"^```sh\n((?:.*\n)*?)```$", (ROOT / "docs" / "learners.md").read_text("utf-8"), re.M)
    for line in block.splitlines():
        assert run(shlex.split(line)[1:]) == 0, capsys.readouterr()
    read = [
        [each.name for each in load_verified(found.models / "adult" / at, found.trust).ensemble.features] for at in "12"
    ]
    assert len(read[0]) == 12
    assert not {"race", "sex"} & set(read[0])
    assert read[1] == ["age", "education_num", "hours_per_week"]

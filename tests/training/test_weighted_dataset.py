"""A dataset with weights from its schema to what is signed of it: what rows weigh is counted, entries and certificates
say so, and what was priced without the weights is refused by who verifies.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import ledgers
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import yaml
from following import Known, follow
from pages_in_process import pages_at, words

from accountant.audit.audit import audit_home
from accountant.certificates.answer import ANSWER
from accountant.certificates.profile import PROFILE
from accountant.certificates.worth import WORTH
from accountant.errors import DataError, SchemaError
from accountant.home import Home
from dpserve.types import Dataset
from dpserve_verify.certificates.certificate import recompute
from dpserve_verify.errors import CertificateInvalid, InputError, LedgerInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.weights import PARTS
from models.profile.stated import check as check_profile
from models.worth.stated import check
from serving.cli.app import run
from training.datasets.datasets import register
from training.jobs import job
from training.measuring.answers import answers
from training.measuring.profile.synthetic_rows import from_profile
from training.requests import EvaluationRequest, JobRequest, ProfileRequest, QueryRequest, TuningRequest
from training.rows.schema.schema import parse_schema
from training.rows.tables.file_check import find_problems

ROWS, MOST = 3000, 8
SCHEMA = """target: {name: y, classes: ["no", "yes"]}
records: 3000
features:
  x: {type: numeric, range: [-4, 4], bins: 16}
  c: {type: categorical, values: [a, b]}
weight: {column: w, most: 8}
"""
SELECT = "select c, count(*), avg(x) from d group by c"


def table(rows: int = ROWS) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    x, c = random.normal(size=rows), random.choice(["a", "b"], rows)
    w = np.minimum(random.gamma(2.0, 1.5, rows), MOST) * np.where(c == "a", 1.0, 0.25)
    return {"x": x, "c": c, "w": w, "y": np.where(x + (c == "a") + random.normal(size=rows) > 0.5, "yes", "no")}


def write(folder: Path, columns, schema: str = SCHEMA) -> tuple[Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.csv.write_csv(pa.table(columns), folder / "d.csv")
    (folder / "schema.yaml").write_text(schema)
    return folder / "d.csv", folder / "schema.yaml"


def entered(folder: Path, files: tuple[Path, Path], relation=Relation.ADD_REMOVE) -> Home:
    home = Home.init(ledgers.place(folder))
    register(home, "d", *files, Budget.of("20", "0.000001"), relation, "record")
    return home


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("weighted")
    home = entered(folder / "home", write(folder / "files", table()))
    home.ledger.log.database.close()
    return home.path


@pytest.fixture
def home(path, tmp_path) -> Home:
    return Home.open(ledgers.place(ledgers.copy(path, tmp_path / "home")))


def test_a_query_counts_what_rows_weigh_and_the_statement_says_so(home):
    number = job.measure(home, QueryRequest("d", SELECT, "2"), by="test")["job"]
    _, _, stated, body = answers.answer_of(home, number, SELECT)
    columns = table()
    for row in body["rows"][:2]:
        own = columns["c"] == row["group"][0]
        weighed = float(columns["w"][own].sum())
        assert abs(float(row["count"][0]) - weighed) < 0.02 * weighed + 60  # rounding to 120ths, and noise
        mean = float(np.average(columns["x"][own], weights=columns["w"][own]))
        assert abs(float(row["avg x"][0]) - mean) < 0.2
    assert stated.form.rows.weight.to_json() == {"column": "w", "most": "8", "parts": PARTS}
    entry = home.ledger.log.entry(home.ledger.dataset("d").seq).value
    assert entry["weight"] == {"column": "w", "most": "8"}
    line = home.ledger.log.entry(number).value["plan"][0]
    assert int(line["sensitivity"]) % PARTS == 0
    assert answers.plan(home, QueryRequest("d", "select count(*) from d where c = 'a'")).known == number  # follows
    ANSWER.open(home, number)
    report = audit_home(home)
    assert report.ok, report.problems


@pytest.mark.slow
def test_a_model_is_learnt_and_measured_by_weight_and_both_say_so(home):
    """Most of the weight is of `a`, whose rows say yes more often: counted alike the share would be lower."""
    job.train(home, JobRequest("d", "ebm", "4", parameters={"epochs": 4}), by="test")
    told = job.measure(home, EvaluationRequest("d", "d", "8", part="training"), by="test")
    columns = table()
    weighed = float(np.average(columns["y"] == "yes", weights=columns["w"]))
    figures = {each["metric"]: each for each in told["worth"]["metrics"]}
    alike = float(np.mean(columns["y"] == "yes"))
    assert float(figures["prevalence"]["low"]) - 0.02 <= weighed <= float(figures["prevalence"]["high"]) + 0.02
    assert abs(float(figures["prevalence"]["value"]) - weighed) < abs(weighed - alike) / 2
    assert abs(float(figures["records"]["value"]) - columns["w"].sum() / MOST) < 30
    stated = WORTH.open(home, told["job"])[2]
    assert stated.form.rows.weight is not None
    check(stated)
    report = audit_home(home, ledgers.bundles(home.path))
    assert report.ok, report.problems


def test_a_plan_in_which_the_weight_was_forgotten_is_refused_by_ledger_and_verifier(home, monkeypatch):
    """Where the reach forgets the weight, nothing is entered, and no statement of such a plan verifies."""
    number = job.measure(home, QueryRequest("d", SELECT, "1"), by="test")["job"]
    form = ANSWER.open(home, number)[2].form
    recompute(form.claim, form.mechanisms, form.rows.weight)
    forgot = [replace(line, sensitivity=str(int(line.sensitivity) // PARTS)) for line in form.mechanisms]
    with pytest.raises(CertificateInvalid, match="is not of rows that are weighed"):
        recompute(form.claim, forgot, form.rows.weight)
    with pytest.raises(CertificateInvalid, match="parts=64"):
        recompute(form.claim, form.mechanisms, replace(form.rows.weight, parts=64))
    size = home.ledger.log.size
    monkeypatch.setattr(
        "training.session.session.sensitivity_of",
        lambda query, public: public.contributions * query.sensitivity(public.relation),
    )
    with pytest.raises((InputError, LedgerInvalid), match="is not of rows that are weighed"):
        job.measure(home, QueryRequest("d", "select count(*) from d", "1"), by="test")
    assert home.ledger.log.size == size


def test_what_has_no_proof_with_weights_is_refused_and_nothing_is_charged(home):
    size = home.ledger.log.size
    projected = JobRequest("d", "lazybb-tree", "1", parameters={"reweighting": "projected"})
    tuned = JobRequest("d", "lazybb", "1", tuning=TuningRequest({"rounds": [4, 8]}))
    for asked in (JobRequest("d", "bdpe", "1"), projected, tuned):
        with pytest.raises(InputError, match="the rows have weights, and .* has no proof with them; learners with"):
            job.train(home, asked, by="test")
    assert home.ledger.log.size == size


@pytest.mark.parametrize(
    ("cell", "found"),
    [("", "nothing where a weight must stand"), ("nan", "nothing where"), ("-0.5", "a weight below 0"),
     ("8.001", "a weight above the most, 8"), ("inf", "a weight above the most"), ("many", "text")],
)  # fmt: skip
def test_what_is_no_weight_is_refused_at_every_door_with_its_row(tmp_path, cell, found):
    columns = {name: [str(value) for value in values] for name, values in table(400).items()}
    columns["w"][7] = cell
    files = write(tmp_path / "files", columns, SCHEMA.replace("3000", "400"))
    with pytest.raises(DataError, match=f"(?s)row 9 as a spreadsheet counts.*{found}"):
        entered(tmp_path / "home", files)
    problem = find_problems(parse_schema(files[1].read_bytes()), files[0]).problems[0]
    assert (problem.column, problem.rows, problem.count) == ("w", [9], 1)
    assert found in problem.found


def test_more_than_the_most_is_clipped_where_that_is_declared(tmp_path):
    columns = table(400)
    columns["w"][:] = 100.0
    clips = SCHEMA.replace("3000", "400").replace("most: 8", "most: 8, above: clip")
    home = entered(tmp_path / "home", write(tmp_path / "files", columns, clips))
    number = job.measure(home, QueryRequest("d", "select count(*) from d", "10"), by="test")["job"]
    [row] = answers.answer_of(home, number)[3]["rows"]
    assert abs(float(row["count"][0]) - 400 * MOST) < 40


@pytest.mark.parametrize(
    ("text", "why"),
    [("most: 8", "most: 0"), ("most: 8", "most: .inf"), ("column: w", "column: x"), ("column: w", "column: y")],
)
def test_a_bad_weight_is_refused_by_the_schema(text, why):
    with pytest.raises(SchemaError, match="weight"):
        parse_schema(SCHEMA.replace(text, why).encode())


def test_replace_one_is_refused_before_a_row_is_read(tmp_path):
    with pytest.raises(InputError, match="weight: needs add-remove"):
        entered(tmp_path / "home", write(tmp_path / "files", table()), Relation.REPLACE_ONE)


def test_rows_that_all_weigh_the_most_are_as_rows_without_weights(tmp_path):
    """Counts of the same rows, without noise: `above: clip` of weights that are all larger."""
    from training.rows.partitions.rows import Rows
    from training.rows.tables.data import rows_of

    columns, plain = table(500), SCHEMA.replace("3000", "500").replace("weight: {column: w, most: 8}\n", "")
    columns["w"][:] = MOST
    weighed = rows_of(parse_schema(SCHEMA.replace("3000", "500").encode()), columns, columns["y"], Relation.ADD_REMOVE)
    alike: Rows = rows_of(parse_schema(plain.encode()), columns, columns["y"], Relation.ADD_REMOVE)
    for feature in (0, 1):
        assert np.array_equal(weighed.class_counts(feature), PARTS * alike.class_counts(feature))


def test_synthetic_rows_are_spread_as_the_weights_are(home, tmp_path):
    """Of the profile's own counts, whose statement says by what rows weigh."""
    told = job.measure(home, ProfileRequest("d", "8", around="y"), by="test")
    stated = PROFILE.open(home, told["job"])[2]
    check_profile(stated)
    assert stated.form.rows.weight.column == "w"
    out = tmp_path / "d.synthetic.parquet"
    from_profile(home, told["job"], out, 4000, 0, "d")
    made, columns = pyarrow.parquet.read_table(out).to_pydict(), table()
    for name, value in (("c", "a"), ("y", "yes")):
        weighed = float(np.average(columns[name] == value, weights=columns["w"]))
        assert abs(np.mean(np.array(made[name]) == value) - weighed) < 0.06
    assert abs(np.mean(columns["c"] == "a") - np.average(columns["c"] == "a", weights=columns["w"])) > 0.2


def test_the_remedy_of_a_weight_above_the_most_is_a_step_that_is_read(tmp_path):
    columns = table(400)
    columns["w"][3] = 8.5
    data, schema = write(tmp_path / "files", columns, SCHEMA.replace("3000", "400"))
    body = yaml.safe_load(schema.read_text())
    followed = follow(data, body, Known({}))
    assert followed.end == "admitted"
    assert followed.body["weight"] == {"column": "w", "most": 8.0, "above": "clip"}


def test_a_dataset_is_shown_with_what_its_rows_count_by(home, monkeypatch, capsys):
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    assert run(["dataset", "show", "d"]) == 0
    assert "a row counts by w, 8 at most" in capsys.readouterr().out
    assert run(["dataset", "show", "d", "--json"]) == 0
    assert Dataset.of(json.loads(capsys.readouterr().out)).weight == {"column": "w", "most": "8"}
    with pages_at(home.path) as pages:
        assert "Weight a row counts by w, 8 at most" in words(pages.page("/ui/datasets/d"))

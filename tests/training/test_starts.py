"""Jobs that begin from a public model: by a file or by a model of the home, certified with its digest, and refused
where it is none.
"""

from __future__ import annotations

import json
import re

import ledgers
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pages import part
from small_home import dpserve

from accountant.audit.audit import audit_home
from accountant.errors import DataError, UnknownName
from accountant.home import Home
from accountant.ledger.families.records import request_from_entry
from dpserve_verify.errors import DpserveError, InputError, ModelInvalid
from models.forms.additive import AdditiveEnsemble
from models.store.loading import load_of_home
from serving.cli.app import run
from training.jobs import job
from training.jobs.schedule import add, make_schedule, submit_due
from training.measuring.worth.public_rows import learn_start
from training.planning import starts
from training.planning.other_noise import OtherNoise
from training.planning.plans import plan
from training.requests import JobRequest
from training.rows.schema.schema import schema_of
from training.rows.tables.data import columns_of

pytestmark = pytest.mark.home("prepared")
OTHERS = slice(2000, 3500)  # rows of Adult that the home does not have


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    path = tmp_path_factory.mktemp("public") / "public.parquet"
    pq.write_table(pq.read_table(ledgers.EXAMPLES / "adult_train.parquet")[OTHERS], path)
    return path


def learn(home: Home, path) -> str:
    return learn_start(home, JobRequest("adult", epsilon="0.1"), path, "test")


def loaded(home: Home, name: str, version: int = 1):
    return load_of_home(home, home.models / name / str(version), name)


def test_the_page_s_commands_begin_from_a_file_and_from_a_model_and_what_comes_of_it_is_certified(home, public):
    page = part("docs/reference/training.md", "A public start")
    from_file, from_model = re.findall(r"^dpserve (train .*?) +#", page, re.M)
    trained = dpserve(home.path, *from_file.replace("public.parquet", str(public)).split())
    assert trained.returncode == 0, trained.stderr
    verified = loaded(home, "adult")
    parameters = verified.certificate.form.public.hyperparameters
    (kept,) = (path for path in (home.path / starts.FOLDER).iterdir() if not path.name.endswith(starts.SOURCES))
    assert parameters["start"] == kept.stem == learn(home, public)
    assert "begins from a public model, whose sha256" in verified.certificate.form.preprocessing
    start, ensemble = starts._read(home, kept.stem), verified.ensemble
    assert isinstance(ensemble, AdditiveEnsemble)
    steps = [np.concatenate([np.diff(term) for term in each.terms]) for each in (start, ensemble)]
    assert np.corrcoef(*steps)[0, 1] > 0.9  # what is served is the sum of both, in one graph
    assert dpserve(home.path, "verify", str(home.models / "adult" / "1")).returncode == 0

    again = dpserve(home.path, "plan", *from_model.replace("other@2", "adult@1").split()[1:], "--model", "again")
    assert again.returncode == 0, again.stderr
    assert "ebm on adult" in again.stdout
    assert "from a public score, sha256" in again.stdout
    wrong = dpserve(home.path, "train", "adult", "--epsilon", "0.1", "--public", "nope.csv")
    assert wrong.returncode == 2
    assert [*audit_home(Home.open(ledgers.place(home.path))).problems] == []


def test_what_is_no_start_is_refused_while_nothing_is_spent(home, public, tmp_path):
    digest = learn(home, public)
    asked = {"dataset": "adult", "epsilon": "0.1", "public": digest}
    planned = plan(home, JobRequest.of(asked))
    assert planned.request.parameters["start"] == digest
    assert planned.request.learner == "ebm"
    assert planned.to_json()["start"] == digest
    assert planned.to_json()["chosen_by_auto"] == starts.WHY
    assert "chosen_by_auto" not in plan(home, JobRequest.of(asked | {"learner": "ebm"})).to_json()
    spent = home.ledger.log.size()
    for changes, problem in (
        ({"learner": "lazybb"}, "only ebm begins"),
        ({"public": "0" * 64}, "no start of this digest"),
        ({"parameters": {"engine": "convex"}}, "engine: boosting begins"),
        ({"public": "../x"}, "must match"),
    ):
        with pytest.raises(InputError, match=problem):
            plan(home, JobRequest.of(asked | changes))
    with pytest.raises(UnknownName):
        plan(home, JobRequest.of(asked | {"public": "adult@7"}))
    few = tmp_path / "few.parquet"
    pq.write_table(pq.read_table(public).slice(0, 20), few)
    with pytest.raises(InputError, match="20 rows; a start needs 50"):
        learn(home, few)
    behind = home.path / starts.FOLDER / f"{digest}{starts.SOURCES}"
    assert behind.read_text() == "[]"
    behind.unlink()
    with pytest.raises(InputError, match="what this start was made from is not kept here"):
        plan(home, JobRequest.of(asked))
    behind.write_text("[]")
    (home.path / starts.FOLDER / f"{digest}.json").write_bytes(b"{}")
    with pytest.raises(ModelInvalid, match="says something else"):
        plan(home, JobRequest.of(asked))
    assert home.ledger.log.size() == spent


CHANGES = {
    "a column is missing": (lambda rows: rows.drop(["age"]), DataError, "age"),
    "renamed": (lambda rows: rows.rename_columns({"age": "years"}), DataError, "age"),
    "no answers": (lambda rows: rows.drop(["income"]), DataError, "income"),
    "other answers": (
        lambda rows: rows.drop(["income"]).append_column("income", pa.array(["much"] * len(rows))),
        DataError,
        "income",
    ),
    "one row": (lambda rows: rows.slice(0, 1), InputError, "1 rows; a start needs 50"),
    "none": (lambda rows: rows.slice(0, 0), DataError, "no rows"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_public_rows_that_does_not_fit_is_refused_in_words(home, public, tmp_path, change):
    path, (make, error, problem) = tmp_path / "other.parquet", CHANGES[change]
    pq.write_table(make(pq.read_table(public)), path)
    with pytest.raises(error, match=problem):
        learn(home, path)


def test_odd_files_are_read_as_rows_are_and_the_dataset_s_own_are_refused(home, public, tmp_path):
    path, rows = tmp_path / "other.parquet", pq.read_table(public)
    one_class = rows.filter(pc.equal(rows["income"], rows["income"][0]))
    nothing = rows.set_column(rows.column_names.index("age"), "age", pa.array([None] * len(rows), pa.float64()))
    for odd in (one_class, nothing):  # a start of one class, and of a column that says nothing, are starts
        pq.write_table(odd, path)
        ensemble = starts._read(home, learn(home, path))
        assert all(np.isfinite(term).all() for term in map(np.array, ensemble.terms))
    pq.write_table(pq.read_table(ledgers.EXAMPLES / "adult_train.parquet").slice(0, 1200), path)
    with pytest.raises(InputError, match="its rows stand in the dataset adult, and are private: begin from a released"):
        learn(home, path)
    for name, raw in (("other.onnx", b"\x08\x07\x12\x04"), ("other.txt", b"hello")):
        (tmp_path / name).write_bytes(raw)
        with pytest.raises((InputError, DataError)):
            learn(home, tmp_path / name)


def test_a_model_of_the_same_dataset_is_a_start_a_schedule_s_a_tuned_job_s_and_an_interval_is_told_of_it(home, public):
    asked = {"dataset": "adult", "epsilon": "1", "public": learn(home, public)}
    tuned = plan(home, JobRequest.of(asked | {"tuning": {"grid": {"epochs": [5, 6]}}}))
    assert tuned.request.parameters["start"] == asked["public"]
    assert [setting["epochs"] for setting in tuned.tuning["settings"]] == [5, 6]
    job.train(home, JobRequest.of(asked | {"parameters": {"epochs": 4}}), by="test")
    rule = make_schedule(home, "weekly", "week", asked | {"public": "adult@1"}, "cli:test", token=None)
    assert rule.asked["public"] == starts.resolve_start(home, "adult@1")  # as it is now, whatever comes of the name
    add(home, rule)
    (seq,) = submit_due(home, lambda: rule.since + 1.0)
    entry = home.ledger.reservation(seq).value
    assert request_from_entry(entry).parameters["start"] == rule.asked["public"]
    verified = loaded(home, "adult")
    noise = OtherNoise.of(home, verified.ensemble, verified.certificate)
    columns = columns_of(schema_of(home, home.ledger.dataset("adult")), pq.read_table(public).slice(0, 5))
    low, high = noise.interval(columns, 0.9).T
    assert ((low <= high) & (low >= 0) & (high <= 1)).all()
    (home.path / starts.FOLDER / f"{asked['public']}.json").unlink()
    with pytest.raises(InputError, match="no start of this digest is kept here.*without an interval"):
        OtherNoise.of(home, verified.ensemble, verified.certificate)
    body = home.models / "adult" / "1" / "ensemble.json"
    body.write_bytes(body.read_bytes().replace(b'"constant":', b'"constant":1'))
    with pytest.raises(DpserveError):  # it does not verify any more
        plan(home, JobRequest.of(asked | {"public": "adult@1"}))


def test_a_schedule_begins_from_a_file_at_the_command_line(home, public, monkeypatch, capsys):
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    words = ["schedule", "add", "weekly", "--dataset", "adult", "--epsilon", "0.1", "--public", str(public), "--json"]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["public"] == learn(home, public)


def test_a_model_that_is_no_sum_is_no_start(home):
    job.train(home, JobRequest("adult", "lazybb-tree", "0.5", parameters={"rounds": 4}), by="test")
    with pytest.raises(InputError, match="must be a sum over features"):
        starts.resolve_start(home, "adult@1")

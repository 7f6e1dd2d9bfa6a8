"""Datasets, plans and jobs on real rows: what is registered, what is charged, what is refused, what comes out."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from decimal import Decimal
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from small_home import until

from accountant.errors import DataError, IdempotencyConflict, JobFailed, NameTaken, SchemaError, UnknownName, WrongState
from accountant.home import Home
from dpserve_verify.errors import BudgetRefused, InputError, LedgerUnavailable, ModelInvalid
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.budget import Budget, Relation
from models.store.loading import load_verified
from training.datasets.datasets import register
from training.jobs import job, queue
from training.learners import LEARNERS
from training.planning import plans, price_engine
from training.planning.job_views import dataset_to_json, job_to_json
from training.requests import JobRequest
from training.rows.schema.schema import schema_of
from training.rows.tables.data import columns_of
from training.session.session import Session

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "data"
ROWS = 3000
TOTAL = Budget.of("3", "1e-6")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    table = pq.read_table(EXAMPLES / "adult_train.parquet").slice(0, ROWS)
    pq.write_table(table, folder / "rows.parquet")
    pa.csv.write_csv(table, folder / "rows.csv")
    text = (EXAMPLES / "adult.schema.yaml").read_text()
    (folder / "schema.yaml").write_text(text.replace("records: 32561", f"records: {ROWS}"))
    return folder


@pytest.fixture
def adult(home, files) -> Home:
    register(home, "adult", files / "rows.parquet", files / "schema.yaml", TOTAL, Relation.ADD_REMOVE, None)
    return home


def asked(**changes) -> JobRequest:
    return JobRequest(
        **{"dataset": "adult", "learner": "lazybb", "epsilon": "0.5", "parameters": {"rounds": 10}, **changes}
    )


def lines(home: Home) -> int:
    return home.ledger.log.size()


def register_rows(home: Home, files: Path, rows: pa.Table, name: str = "d", **how):
    path = files / f"{hashlib.sha256(os.urandom(8)).hexdigest()}.parquet"
    pq.write_table(rows, path)
    relation = how.get("relation", Relation.ADD_REMOVE)
    return register(home, name, path, files / "schema.yaml", how.get("budget", TOTAL), relation, how.get("unit"))


def table(files: Path) -> pa.Table:
    return pq.read_table(files / "rows.parquet")


def test_a_job_from_rows_to_a_verified_model(adult):
    planned = plans.plan(adult, asked())
    before = lines(adult)
    answer = job.train(adult, asked(), by="test")
    assert [e.value["type"] for e in adult.ledger.log.entries(before)] == ["reserved", "started", "committed", "issued"]
    assert answer["state"] == "issued"
    assert answer["left"]["epsilon"] == planned.to_json()["left"]["epsilon"]
    found = load_verified(adult.models / "adult" / "1", adult.trust)
    assert found.certificate.epsilon == Decimal(answer["epsilon"]) <= Decimal("0.5")
    assert found.certificate.epsilon > Decimal("0.49")
    assert (adult.ledger.dataset("adult").most_used.used,) == planned.costs
    assert not list(adult.jobs.glob("[0-9]*"))


def test_the_onnx_file_answers_as_the_ensemble_does_on_every_row_of_adults_test_file(adult):
    job.train(adult, asked(parameters={"rounds": 60}), by="test")
    found = load_verified(adult.models / "adult" / "1", adult.trust)
    columns = columns_of(
        schema_of(adult, adult.ledger.dataset("adult")), pq.read_table(EXAMPLES / "adult_test.parquet")
    )
    session = onnxruntime.InferenceSession(found.bundle.onnx)
    feed = {
        i.name: np.asarray(columns[i.name], object if i.type == "tensor(string)" else np.float64).reshape(-1, 1)
        for i in session.get_inputs()
    }
    labels, probabilities = session.run(["label", "probabilities"], feed)
    assert labels.shape == (16281,)
    assert (labels == found.ensemble.predict(columns)).all()
    assert np.abs(probabilities - found.ensemble.probabilities(columns)).max() <= 1e-6


def test_a_plan_spends_nothing(adult):
    before = lines(adult)
    plans.plan(adult, asked())
    assert lines(adult) == before
    assert adult.ledger.dataset("adult").most_used.used == adult.ledger.dataset("adult").most_used.filter.nothing()


def test_a_job_beyond_the_budget_is_refused_with_what_would_fit(adult):
    before = lines(adult)
    with pytest.raises(BudgetRefused) as refused:
        job.train(adult, asked(epsilon="20"), by="test")
    details = refused.value.details
    assert {"asked", "spent", "left", "would_fit"} <= details.keys()
    assert refused.value.exit_code == 3
    assert lines(adult) == before
    fits = details["would_fit"]["epsilon"]
    plans.plan(adult, asked(epsilon=fits))
    with pytest.raises(BudgetRefused):
        plans.plan(adult, asked(epsilon=str(Decimal(fits) + Decimal("0.002"))))


def test_far_too_much_is_refused_in_the_same_words_as_after_the_whole_search(adult, monkeypatch):
    searched, said = [], []
    monkeypatch.setattr(plans, "offer", lambda *asked: (searched.append(asked), price_engine.offer(*asked))[1])
    for far, searches in ((plans.MAX_TIMES_LEFT, 0), (10**9, 1)):
        monkeypatch.setattr(plans, "MAX_TIMES_LEFT", far)
        with pytest.raises(BudgetRefused) as refused:
            plans.plan(adult, asked(epsilon="20"))
        said.append((str(refused.value), refused.value.details["would_fit"]))
        assert len(searched) == searches
    assert said[0] == said[1]
    plans.plan(adult, asked(epsilon=said[0][1]["epsilon"]))
    assert len(searched) == 2


def test_a_list_that_has_no_time_tells_the_prices_that_are_known(adult):
    dataset = adult.ledger.dataset("adult")
    hasty = dataset_to_json(adult, dataset, detail=False, works_out=False)["budget"]
    assert (hasty["jobs_left"], hasty["priced"]) == ({}, False)
    told = dataset_to_json(adult, dataset, detail=False)["budget"]
    assert dataset_to_json(adult, dataset, detail=False, works_out=False)["budget"] == told
    assert hasty == {**told, "jobs_left": {}, "priced": False}
    assert told["jobs_left"]["lazybb"] > 10


@pytest.mark.slow
def test_jobs_left_is_what_is_admitted(adult):
    tenth = asked(epsilon="0.3", parameters=None)
    left = plans.jobs_left(adult, adult.ledger.dataset("adult"))["lazybb"]
    assert left > 10
    for _ in range(left):
        job.submit(adult, tenth, by="test")
    with pytest.raises(BudgetRefused):
        job.submit(adult, tenth, by="test")
    assert dataset_to_json(adult, adult.ledger.dataset("adult"))["budget"]["jobs_left"]["lazybb"] == 0


def test_one_idempotency_key_spends_once(adult):
    first = job.train(adult, asked(), by="test", key="k")
    spent = adult.ledger.dataset("adult").most_used.used
    assert job.train(adult, asked(), by="test", key="k") == first
    assert adult.ledger.dataset("adult").most_used.used == spent
    with pytest.raises(IdempotencyConflict):
        job.train(adult, asked(epsilon="0.4"), by="test", key="k")
    adult.ledger.release(job.submit(adult, asked(), by="test", key="given back").seq)
    with pytest.raises(WrongState, match="is released; nothing was spent, and another key asks once more"):
        job.train(adult, asked(), by="test", key="given back")


def test_the_queue_runs_what_was_submitted(adult):
    queued = job.submit(adult, asked(), by="test")
    assert queued.state == "reserved"
    assert queue.work_once(adult) == queued.seq
    assert queue.work_once(adult) is None
    assert job_to_json(adult, adult.ledger.job(queued.seq))["state"] == "issued"


def test_a_failure_after_the_start_burns_and_says_nothing_of_the_rows(adult, monkeypatch):
    learn = LEARNERS["lazybb"].learn

    def broken(self, session):
        if isinstance(session, Session):
            raise ValueError("secret 4711")
        return learn(self, session)

    queued = job.submit(adult, asked(), by="test", queued=False)
    monkeypatch.setattr(LEARNERS["lazybb"], "learn", broken)
    with pytest.raises(JobFailed) as failed:
        job.run(adult, queued.seq)
    assert "4711" not in json.dumps(failed.value.to_json())
    assert adult.ledger.job(queued.seq).state == "burned"
    assert adult.ledger.dataset("adult").most_used.used.rdp[0] > 0


def test_rows_that_were_changed_after_registration_are_not_used(adult):
    (bins,) = adult.datasets.glob("*/bins.npy")
    raw = bytearray(bins.read_bytes())
    raw[-1] ^= 1
    bins.write_bytes(bytes(raw))
    before = lines(adult)
    with pytest.raises(LedgerUnavailable, match="not in this home as they were registered"):
        job.train(adult, asked(), by="test")
    assert lines(adult) == before  # and nothing was spent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"epsilon": "0"}, "epsilon=0"),
        ({"epsilon": "-1"}, "epsilon=-1"),
        ({"epsilon": "nan"}, "epsilon=nan"),
        ({"epsilon": "1e9"}, "at most 100"),
        ({"epsilon": "abc"}, "decimal number"),
        ({"delta": "0.001"}, "1/records"),
        ({"delta": "1e-5"}, "has 0.000001 in all"),
        ({"dataset": "no"}, "no such dataset"),
        ({"learner": "no"}, "no such learner"),
        ({"parameters": {"depth": 3}}, "lazybb takes"),
        ({"parameters": {"rounds": 0}}, "rounds=0"),
        ({"parameters": {"rounds": "many"}}, "rounds"),
        ({"parameters": {"rate": -1}}, "rate=-1"),
        ({"parameters": {"density": 2}}, "density=2"),
        ({"parameters": {"reweighting": "other"}}, "reweighting"),
        ({"parameters": {"schema": "x"}}, "lazybb takes"),
        ({"model": "../../etc"}, "model="),
        ({"epsilon": "0.000001", "parameters": {"rounds": 5000}}, "can carry at most"),
    ],
)
def test_bad_requests_change_nothing(adult, changes, problem):
    before = lines(adult)
    with pytest.raises(InputError, match=problem):
        job.train(adult, asked(**changes), by="test")
    assert lines(adult) == before


def test_csv_and_parquet_register_the_same_rows(home, files):
    register(home, "a", files / "rows.parquet", files / "schema.yaml", TOTAL, Relation.ADD_REMOVE, None)
    with pytest.raises(NameTaken, match="registered already, as a"):
        register(home, "b", files / "rows.csv", files / "schema.yaml", TOTAL, Relation.ADD_REMOVE, None)


def test_a_name_is_registered_once(adult, files):
    with pytest.raises(NameTaken):
        register_rows(adult, files, table(files).slice(10), name="adult")


def test_bad_files_are_refused_and_leave_nothing(home, files):
    good, before = table(files), lines(home)
    income = good["income"].to_pylist()
    cases = {
        "no rows": good.slice(0, 0),
        "in the schema but not in the data": good.drop_columns(["age"]),
        "in the data but not in the schema": good.append_column("extra", good["age"]),
        "row 7 .*: missing, or not one of the classes": good.set_column(
            14, "income", pa.array([*income[:5], "500K", *income[6:]])
        ),
        "row 9 .*: missing": good.set_column(14, "income", pa.array([*income[:7], None, *income[8:]])),
        "age: row 2, .*: text": good.set_column(0, "age", good["sex"]),
        "no listed value is a number": good.set_column(1, "workclass", pa.array(np.arange(ROWS) / 2)),
    }
    for problem, rows in cases.items():
        with pytest.raises(DataError, match=problem) as refused:
            register_rows(home, files, rows)
        assert "500K" not in refused.value.message
    (files / "empty.csv").write_text("")
    for name, problem in (
        ("empty.csv", "empty"),
        ("none.parquet", "no such file"),
        ("schema.yaml", "in the first line"),
    ):
        with pytest.raises(DataError, match=problem):
            register(home, "d", files / name, files / "schema.yaml", TOTAL, Relation.ADD_REMOVE, None)
    with pytest.raises(SchemaError, match="cannot be read"):
        register(home, "d", files / "rows.csv", files / "no.yaml", TOTAL, Relation.ADD_REMOVE, None)
    with pytest.raises(InputError, match="1/records"):
        register_rows(home, files, good, budget=Budget.of("1", "0.001"))
    assert lines(home) == before
    assert not list(home.datasets.iterdir())


def test_replace_one_wants_the_public_count_to_be_exact(home, files):
    with pytest.raises(DataError, match="records=3000"):
        register_rows(home, files, table(files).slice(1), relation=Relation.REPLACE_ONE)
    dataset = register_rows(home, files, table(files), relation=Relation.REPLACE_ONE)
    assert dataset_to_json(home, dataset)["records"] == ROWS


def test_add_remove_never_tells_the_count(adult):
    shown = json.dumps(dataset_to_json(adult, adult.ledger.dataset("adult")))
    assert "records" not in shown
    job.train(adult, asked(), by="test")
    envelope = (adult.models / "adult" / "1" / "model.onnx.dsse.json").read_bytes()
    assert b'"records":' not in dsse.parse(envelope).payload


def test_a_person_counts_once_whatever_the_number_of_their_rows(home, files):
    persons = pa.array(np.arange(ROWS) // 3)
    rows = table(files).append_column("person", persons)
    dataset = register_rows(home, files, rows, unit="person")
    labels = np.load(home.datasets / dataset.registration.commitment / "labels.npy")
    expected = [text == ">50K" for text in table(files)["income"].to_pylist()[::3]]
    assert labels.tolist() == [int(value) for value in expected]
    with pytest.raises(DataError, match="unit of privacy is missing") as refused:
        register_rows(home, files, rows.set_column(15, "person", pa.nulls(ROWS, pa.int64())), name="e", unit="person")
    assert "does not speak of" not in refused.value.message  # it is named by --unit


def test_a_pure_dataset_takes_permute_and_flip_and_sums_epsilon(home, files):
    register_rows(home, files, table(files), name="adult", budget=Budget.of("1", "0"))
    answer = job.train(home, asked(epsilon="0.5"), by="test")
    assert answer["epsilon"] == "0.5"
    plan = home.ledger.reservation(answer["job"]).value["plan"]
    assert {run["mechanism"] for run in plan} == {"permute-and-flip", "discrete-laplace"}  # rounds, and counts by score
    job.train(home, asked(epsilon="0.5", model="second"), by="test")
    with pytest.raises(BudgetRefused):
        job.train(home, asked(epsilon="0.001"), by="test")


def test_jobs_of_no_such_number(adult):
    with pytest.raises(UnknownName):
        adult.ledger.job(999)
    with pytest.raises(UnknownName):
        adult.ledger.reservation(0)


def test_two_models_of_one_name_are_two_versions(adult):
    job.train(adult, asked(epsilon="0.1"), by="test")
    job.train(adult, asked(epsilon="0.2"), by="test")
    claims = [load_verified(adult.models / "adult" / v, adult.trust).certificate.epsilon for v in ("1", "2")]
    assert claims[0] <= Decimal("0.1") < claims[1] <= Decimal("0.2")


def test_released_numbers_that_were_altered_are_found_without_the_ledger(adult):
    job.train(adult, asked(), by="test")
    path = adult.models / "adult" / "1" / "ensemble.json"
    body = json.loads(path.read_text())
    body["votes"][0][3] *= 2
    path.write_text(json.dumps(body, sort_keys=True, separators=(",", ":")) + "\n")
    with pytest.raises(ModelInvalid, match="released numbers"):
        load_verified(path.parent, adult.trust)


@pytest.mark.parametrize("huge", ["1e99999999", "1e-99999999", "9" * 60])
def test_numbers_of_absurd_length_are_refused_at_once(adult, huge):
    with pytest.raises(InputError, match="digits"):
        plans.plan(adult, asked(parameters={"rounds": huge}))
    with pytest.raises(InputError, match="digits"):
        plans.plan(adult, asked(epsilon=huge))


def test_a_job_that_cannot_be_settled_does_not_stop_the_queue(adult):
    damaged = job.submit(adult, asked(), by="test", queued=False)
    adult.ledger.start(damaged.seq, "gone:1:0", 0)
    adult.ledger.commit(damaged.seq, "0" * 64)
    (adult.jobs / str(damaged.seq)).mkdir()
    (adult.jobs / str(damaged.seq) / "ensemble.json").write_text("{}")
    assert job.recover(adult)["stuck"] == [damaged.seq]
    queued = job.submit(adult, asked(), by="test")
    stop = threading.Event()
    worker = threading.Thread(target=queue.work, args=(adult, stop))
    worker.start()
    until(lambda: adult.ledger.job(queued.seq).issued is not None, "the job after it")
    stop.set()
    worker.join()

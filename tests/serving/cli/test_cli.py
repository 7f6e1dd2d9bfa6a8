"""The command line: what it prints, where, and with which exit code. Mostly in this process, some in one of its own."""

from __future__ import annotations

import csv
import inspect
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from decimal import Decimal
from hashlib import sha256

import onnxruntime
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import typer
import yaml
from small_home import DATA, ROOT, dpserve, environment, write_files

from accountant.home import Home
from dpserve_verify.certificates.bundle import FILES
from models.store.loading import load_verified
from serving.cli import terminal
from serving.cli.app import CORE, OWNERS, PEOPLE, TREE, app, run
from serving.cli.requests import key_values
from serving.cli.tree import Branch
from serving.process.tokens import digest, rights
from training.jobs.job import submit
from training.kinds import job_steps
from training.planning.price_engine import ENGINE
from training.requests import LADDER, JobRequest
from training.session.session import Rehearsal

pytestmark = [pytest.mark.slow, pytest.mark.home("made", folder=True)]

TRAIN = ("train", "adult", "--learner", "lazybb", "--set", "rounds=5")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def made(tmp_path_factory, files):
    """A home with a dataset and a model, made by the command line alone."""
    path = tmp_path_factory.mktemp("made") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(path))
        assert run(["init"]) == 0
        assert run(registering(files)) == 0
        assert run([*TRAIN, "--epsilon", "0.5"]) == 0
    return path


@pytest.fixture
def said(capsys):
    """Run a command: (exit code, stdout as JSON, stderr)."""

    def call(*arguments):
        capsys.readouterr()
        code = run([*arguments, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out), err

    return call


def registering(files, name="adult", **changes):
    options = {
        "data": files / "rows.parquet",
        "schema": files / "schema.yaml",
        "epsilon": "3",
        "delta": "1e-5",
        **changes,
    }
    return ["dataset", "register", name, *(str(word) for key, value in options.items() for word in (f"--{key}", value))]


def size(home):
    return Home.open({"DPSERVE_HOME": str(home)}).ledger.log.size()


# The home


def test_init_puts_one_admin_token_into_a_file_and_prints_none(tmp_path, monkeypatch, said):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    code, body, err = said("init")
    assert code == 0
    file = tmp_path / "home" / "first-token"
    secret = file.read_text().strip()
    assert re.fullmatch(r"dps_[\w-]{43}", secret)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert str(file) in err
    assert "dps_" not in json.dumps(body) + err
    assert rights(Home.open()).bearers.keys() == {digest(secret)}
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
    code, tokens, _ = said("token", "list")
    assert [(t["name"], t["scopes"]) for t in tokens["tokens"]] == [("admin", ["admin"])]
    code, body, _ = said("init")
    assert (code, body["error"]["code"]) == (4, "key_invalid")
    before = size(tmp_path / "home")
    assert said("init", "--if-absent")[0] == 0
    assert size(tmp_path / "home") == before


def test_without_a_home_the_next_step_is_named(tmp_path, monkeypatch, said):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "nowhere"))
    code, body, err = said("dataset", "list")
    assert (code, body["error"]["code"]) == (2, "bad_input")
    assert "dpserve init" in err
    assert err.count("\n") == 1


def test_config_says_where_a_setting_came_from(home, monkeypatch, said):
    monkeypatch.setenv("DPSERVE_PORT", "4000")
    monkeypatch.setenv("DPSERVE_KEY_PASSPHRASE", "hush")
    _, body, _ = said("config")
    assert body["DPSERVE_HOME"] == {"value": str(home), "source": "environment"}
    assert body["DPSERVE_PORT"] == {"value": "4000", "source": "environment"}
    assert body["DPSERVE_ENGINE"] == {"value": "local", "source": "default"}
    assert "hush" not in json.dumps(body)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://me:hush@db:5432/ledger", "postgresql+psycopg://me:***@db:5432/ledger"),
        (
            "postgresql+psycopg://me:hu%40sh@db/l?sslpassword=hush",
            "postgresql+psycopg://me:***@db/l?sslpassword=%2A%2A%2A",
        ),
        ("postgresql+psycopg:///l?host=db&password=hush", "postgresql+psycopg:///l?host=%2A%2A%2A&password=%2A%2A%2A"),
        ("hush", "***"),
        ("sqlite:////home/me/ledger.db", "sqlite:////home/me/ledger.db"),
    ],
)
def test_config_shows_no_password_of_the_ledger(home, monkeypatch, said, capsys, url, shown):
    monkeypatch.setenv("DPSERVE_LEDGER_URL", url)
    monkeypatch.setenv("DPSERVE_ISSUER_KEY", "hsm:2?token=hush&pin-value=hush;PIN=hush&label=x")
    _, body, _ = said("config")
    assert body["DPSERVE_LEDGER_URL"] == {"value": shown, "source": "environment"}
    assert body["DPSERVE_ISSUER_KEY"]["value"].endswith("&label=x")
    assert run(["config"]) == 0
    assert "hush" not in json.dumps(body) + capsys.readouterr().out


# Datasets and schemas


def test_a_charge_from_a_file_that_is_not_there_says_so_once(home, tmp_path, capsys):
    path = tmp_path / "none.json"
    for option in ("--from", "--renyi", "--document"):
        assert run(["charge", "adult", option, str(path), "--mechanism", "x", "--why", "x"]) == 2
        error = "".join(capsys.readouterr().err.split())
        assert f"{path}:isnofile" in error
        assert error.count("none.json") == 1


def test_dataset_show_has_the_keys_programs_rely_on(home, said):
    code, body, _ = said("dataset", "show", "adult")
    assert code == 0
    assert {"name", "relation", "epsilon", "delta", "budget"} <= body.keys()
    assert body["budget"].keys() == {
        "total",
        "largest",
        "reserved",
        "spent",
        "account",
        "left",
        "closed_by",
        "jobs_left",
    }
    assert body["budget"]["jobs_left"]["lazybb"] > 0
    assert {line["quota"] for line in body.pop("quotas")} <= {None}
    assert body.pop("archived") is False
    assert body.pop("forecast").keys() == {"share_per_day", "days_left", "used_up_on"}
    assert body.pop("charges")["count"] == 0  # of one dataset alone, as quotas are
    assert [each["role"] for each in body.pop("columns")].count("target") == 1
    assert said("dataset", "list")[1] == {"datasets": [body], "next": None}
    ENGINE.forget()
    assert said("dataset", "list")[1] == {"datasets": [body], "next": None}  # worked out again, for programs


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"epsilon": "0"}, "bad_input"),
        ({"epsilon": "nan"}, "bad_input"),
        ({"epsilon": "1000"}, "bad_input"),
        ({"delta": "0.1"}, "bad_input"),
        ({"relation": "both"}, "bad_input"),
        ({"data": "nowhere.parquet"}, "data_invalid"),
        ({"data": ""}, "bad_input"),
        ({"data": "rows.xlsx"}, "data_invalid"),
        ({"schema": "nowhere.yaml"}, "schema_invalid"),
        ({"unit": "person"}, "data_invalid"),
    ],
)
def test_what_cannot_be_registered(home, files, said, changes, error):
    before = size(home)
    code, body, err = said(*registering(files, "other", **changes))
    assert (code, body["error"]["code"]) == (2, error)
    assert err.startswith("dpserve: ")
    assert err.count("\n") == 1
    assert size(home) == before


def test_how_many_rows_a_block_has_is_asked_and_never_the_schema_s(home, files, said):
    before = size(home)
    code, body, err = said("dataset", "append", "adult", "--data", str(files / "rows.parquet"))
    assert (code, body["error"]["code"]) == (2, "answer_missing")
    assert body["error"]["details"]["answers"] == ["--records N"]
    assert "about how many rows does the block have" in err
    assert size(home) == before


@pytest.mark.parametrize("blank", ["--dated", "--since", "--until"])
def test_a_block_whose_days_are_blank_is_not_undated(home, files, said, blank):
    """A variable of a script that was not set takes no check away."""
    days = {"--dated": "age", "--since": "2026-01-05", "--until": "2026-01-11", blank: ""}
    words = (
        "--records",
        "300",
        "--data",
        str(files / "rows.parquet"),
        *(word for pair in days.items() for word in pair),
    )
    before = size(home)
    code, body, _ = said("dataset", "append", "adult", *words)
    assert (code, body["error"]["message"].partition("=")[0]) == (2, blank.removeprefix("--"))
    assert size(home) == before


def test_dataset_name_is_given_once(home, files, said):
    code, body, _ = said(*registering(files))
    assert (code, body["error"]["code"]) == (2, "name_taken")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_draft_knows_names_and_types_and_no_value(files, tmp_path, said, kind):
    table = pq.read_table(files / "rows.parquet").slice(0, 50)
    path = tmp_path / f"rows.{kind}"
    (pq.write_table if kind == "parquet" else pa.csv.write_csv)(table, path)
    code, body, err = said("schema", "draft", str(path))
    assert code == 0
    assert "FILL-IN" in err
    found = yaml.safe_load(body["schema"])
    assert list(found["features"]) == table.column_names
    values = {str(value) for name in ("workclass", "education", "fnlwgt") for value in table[name].to_pylist()}
    assert [value for value in values if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", body["schema"])] == []
    if kind == "parquet":
        assert found["features"]["age"]["type"] == "numeric"
        assert found["features"]["sex"]["type"] == "categorical"


@pytest.mark.parametrize(
    "line",
    ["39, State-gov, Bachelors", "Anna,Berlin,2020-01-31", "Anna,,Berlin", "Anna,-1.5e-7", "x,NA"],
)
def test_a_draft_of_a_csv_without_a_header_prints_nothing_of_its_first_line(tmp_path, said, line):
    (tmp_path / "rows.csv").write_text(f"{line}\n{line}\n")
    code, body, err = said("schema", "draft", str(tmp_path / "rows.csv"))
    assert (code, body["error"]["code"]) == (2, "data_invalid")
    assert "must be a header" in body["error"]["message"]
    values = [value.strip() for value in line.split(",") if len(value.strip()) > 2]
    assert [value for value in values if value in json.dumps(body) + err] == []


def test_draft_is_not_accepted_as_it_is(home, files, tmp_path, said):
    _, body, _ = said("schema", "draft", str(files / "rows.parquet"))
    (tmp_path / "draft.yaml").write_text(body["schema"])
    code, body, _ = said(*registering(files, "other", schema=tmp_path / "draft.yaml"))
    assert (code, body["error"]["code"]) == (2, "schema_invalid")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", ""),
        ("x.parquet", "no"),
        ("x.doc", "%PDF-1.7"),
        ("x.html", " <!DOCTYPE HTML>"),
        ("none.csv", None),
    ],
)
def test_draft_of_what_is_no_table(tmp_path, said, name, content):
    if content is not None:
        (tmp_path / name).write_text(content)
    code, body, _ = said("schema", "draft", str(tmp_path / name))
    assert (code, body["error"]["code"]) == (2, "data_invalid")


# Jobs


def test_plan_has_its_keys_and_spends_nothing(home, said):
    before = size(home)
    code, body, _ = said("plan", "adult", "--learner", "lazybb", "--epsilon", "0.5")
    assert code == 0
    assert {"dataset", "learner", "epsilon", "delta", "rounds", "left", "model", "certificate"} <= body.keys()
    assert size(home) == before


def test_a_curve_is_of_plans_up_to_the_largest_that_fits(home, said, capsys):
    before = size(home)
    asked = ("plan", "adult", "--learner", "lazybb", "--epsilon", "0.3")
    code, body, _ = said(*asked, "--curve")
    assert code == 0
    sizes = [Decimal(each["epsilon"]) for each in body["curve"]]
    assert sizes == sorted({Decimal("0.3"), *[step for step in map(Decimal, LADDER) if step <= sizes[-1]]})
    assert said(*asked)[1] == body["curve"][sizes.index(Decimal("0.3"))]
    (refused,) = [step for step in map(Decimal, LADDER) if step > sizes[-1]][:1]
    assert said(*asked[:-1], str(refused))[0] == 3
    assert run([*asked, "--curve"]) == 0
    assert capsys.readouterr().out.count("AUROC") + 1 >= len(sizes)
    assert said(*asked[:-1], "50", "--curve")[0] == 3
    assert size(home) == before


def test_refusal_is_exit_code_3(home, said):
    before = size(home)
    for command in ("plan", "train"):
        code, body, err = said(command, "adult", "--learner", "lazybb", "--epsilon", "50")
        assert (code, body["error"]["code"]) == (3, "budget_refused")
        assert {"asked", "spent", "left", "would_fit"} <= body["error"]["details"].keys()
        assert "would fit" in err
        fits = body["error"]["details"]["would_fit"]["epsilon"]
        assert f"--epsilon {fits}" in err
        assert said("plan", "adult", "--learner", "lazybb", "--epsilon", fits)[0] == 0
    assert size(home) == before


def test_train_spends_once_per_key(home, said):
    asked = (*TRAIN, "--epsilon", "0.3", "--model", "second", "--idempotency-key", "k")
    code, body, _ = said(*asked)
    assert code == 0
    assert {"dataset", "learner", "epsilon", "delta", "rounds", "left", "model", "certificate"} <= body.keys()
    assert body["certificate"]["statement"]
    before = size(home)
    assert said(*asked)[1] == body
    assert size(home) == before
    code, answer, _ = said(*asked, "--delta", "0")
    assert (code, answer["error"]["code"]) == (2, "idempotency_conflict")
    assert said("verify", str(home / "models" / "second" / "1"))[1]["ok"] is True


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nope", "--learner", "lazybb", "--epsilon", "1"), "unknown_name"),
        (("adult", "--learner", "nope", "--epsilon", "1"), "unknown_name"),
        (("adult", "--learner", "lazybb", "--epsilon", "-1"), "bad_input"),
        (("adult", "--learner", "lazybb", "--epsilon", "x"), "bad_input"),
        (("adult", "--learner", "lazybb", "--epsilon", "1", "--delta", "0.5"), "bad_input"),
        (("adult", "--learner", "lazybb", "--epsilon", "1", "--set", "rounds"), "bad_input"),
        (("adult", "--learner", "lazybb", "--epsilon", "1", "--set", "nope=1"), "bad_input"),
        (("adult", "--learner", "lazybb", "--epsilon", "1", "--set", "rounds=many"), "bad_input"),
        (("adult", "--learner", "lazybb", "--epsilon", "1", "--model", "A/B"), "bad_input"),
        (("adult", "--learner", "lazybb", "--epsilon", "1", "--model", ""), "bad_input"),
        (("adult", "--learner", "lazybb"), "usage"),
        (("--nope",), "usage"),
    ],
)
def test_bad_jobs(home, said, words, error):
    before = size(home)
    for command in ("plan", "train"):
        code, body, _ = said(command, *words)
        assert (code, body["error"]["code"]) == (2, error)
    assert size(home) == before


def test_parameters_are_key_and_value():
    assert key_values("--set", ["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    assert key_values("--set", []) == {}


def test_rows_that_are_not_what_was_registered_are_refused_before_a_job_costs(home, said):
    (labels,) = (home / "datasets").rglob("labels.npy")
    labels.write_bytes(labels.read_bytes()[:-1] + b"\x07")
    before = Home.open({"DPSERVE_HOME": str(home)}).ledger.log.size()
    code, body, _ = said(*TRAIN, "--epsilon", "0.1")
    assert (code, body["error"]["code"]) == (1, "rows_unavailable")
    assert Home.open({"DPSERVE_HOME": str(home)}).ledger.log.size() == before


def test_job_that_fails_after_its_start_is_exit_code_5(home, said, monkeypatch):
    """The rows turn out to be others between the look at them and their reading."""

    def gone(*_arguments):
        raise ValueError("others")

    monkeypatch.setattr(job_steps, "open_rows", gone)
    code, body, err = said(*TRAIN, "--epsilon", "0.1")
    assert (code, body["error"]["code"]) == (5, "job_failed")
    assert "spent" in err
    assert Home.open({"DPSERVE_HOME": str(home)}).ledger.jobs()[-1].state == "burned"


def test_worker_runs_what_is_queued(home, capsys):
    opened = Home.open({"DPSERVE_HOME": str(home)})
    seq = submit(opened, JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 5}), by="test").seq
    done = dpserve(home, "worker", "--once")
    assert done.returncode == 0, done.stderr
    assert opened.ledger.job(seq).issued is not None
    nothing = dpserve(home, "worker", "--once", "--json")
    assert "no job was queued" in nothing.stderr
    assert json.loads(nothing.stdout) == {"job": None, "state": None, "submitted": []}


# Models


def test_model_list_show_explain(home, tmp_path, said, capsys):
    _, body, _ = said("model", "list")
    assert [(line["model"], line["state"], line["champion"]) for line in body["models"]] == [
        ("adult@1", "champion", True)
    ]
    _, body, _ = said("model", "show", "adult@champion")
    assert body["certificate"]["epsilon"] == "0.5"
    assert len(body["features"]) == 14
    out = tmp_path / "votes.html"
    _, body, _ = said("model", "explain", "adult", "--out", str(out))
    assert body["votes"]
    assert "<svg" in out.read_text()
    assert run(["model", "explain", "adult"]) == 0
    assert body["votes"][0]["test"] in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nope", "adult@7"])
def test_unknown_model(home, said, name):
    code, body, _ = said("model", "show", name)
    assert (code, body["error"]["code"]) == (2, "unknown_name")


def test_export_travels_and_verifies_without_a_home(home, tmp_path, said, monkeypatch):
    out = tmp_path / "exported"
    assert said("model", "export", "adult", "--out", str(out), "--portable")[0] == 0
    assert {path.name for path in out.iterdir()} == {*FILES, "portable.onnx", "portable.json"}
    assert (
        json.loads((out / "portable.json").read_text())["portable_of"]
        == sha256((out / "model.onnx").read_bytes()).hexdigest()
    )
    onnxruntime.InferenceSession(out / "portable.onnx")
    code, body, _ = said("model", "export", "adult", "--out", str(out))
    assert (code, body["error"]["code"]) == (2, "name_taken")
    trust = tmp_path / "trust.json"
    shutil.copy(home / "trust.json", trust)
    shutil.rmtree(home)
    for path in (out, out / "model.onnx"):
        code, body, _ = said("verify", str(path), "--trust", str(trust))
        assert code == 0
        assert {"ok", "model", "epsilon", "delta", "relation", "problems"} <= body.keys()
        assert (body["ok"], body["model"], body["epsilon"], body["problems"]) == (True, "adult", "0.5", [])
    code, body, _ = said("verify", str(out))
    assert (code, body["error"]["code"]) == (2, "bad_input")
    assert said("verify", str(out), "--trust", str(trust), "--max-epsilon", "0.4")[0] == 4


def test_verify_says_what_it_does_not_vouch_for(home, said, capsys):
    """A card may say anything; what follows from the certificate is vouched for, and nothing else."""
    folder = home / "models" / "adult" / "1"
    assert said("verify", str(folder), "--strict")[1]["unverified"] == []
    card = (folder / "card.md").read_bytes()
    for place in range(0, len(card), len(card) // 40):
        (folder / "card.md").write_bytes(card[:place] + bytes([card[place] ^ 1]) + card[place + 1 :])
        code, body, _ = said("verify", str(folder))
        assert (code, body["ok"], body["unverified"]) == (0, True, ["card.md"])
    (folder / "card.md").write_bytes(card)
    (folder / "notes\n.txt").write_text("(0.01, 0)-differential privacy")
    (folder / ".hidden").mkdir()
    code, body, _ = said("verify", str(folder))
    assert (code, body["unverified"]) == (0, [".hidden", "notes\n.txt"])
    assert run(["verify", str(folder)]) == 0
    said_of = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert said_of == ["verified", "not vouched for", "not vouched for"]
    code, body, _ = said("verify", str(folder), "--strict")
    assert (code, body["ok"]) == (4, False)
    assert ".hidden" in body["problems"][0]


@pytest.mark.parametrize("file", [name for name in FILES if name not in ("card.md", "model.onnx.sigstore.json")])
def test_tampered_bundle_is_exit_code_4(home, said, file, tmp_path, files):
    path = home / "models" / "adult" / "1" / file
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))
    code, body, _ = said("verify", str(path.parent))
    assert (code, body["ok"]) == (4, False)
    assert len(body["problems"]) == 1
    asked = ("predict", "adult", "--data", str(files / "rows.parquet"), "--out", str(tmp_path / "out.csv"))
    assert said(*asked)[0] == 4
    assert not (tmp_path / "out.csv").exists()


def test_another_ledgers_keys_do_not_verify(home, tmp_path, said, monkeypatch):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "stranger"))
    assert run(["init"]) == 0
    assert said("verify", str(home / "models" / "adult" / "1"))[0] == 4


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_predict_answers_every_row_in_order(home, tmp_path, said, kind):
    table = pq.read_table(DATA / "adult_test.parquet").slice(0, 700)
    data, out = tmp_path / f"data.{kind}", tmp_path / f"out.{kind}"
    (pq.write_table if kind == "parquet" else pa.csv.write_csv)(table, data)
    code, body, _ = said("predict", "adult", "--data", str(data), "--out", str(out))
    assert (code, body["records"]) == (0, 700)
    found = pq.read_table(out) if kind == "parquet" else pa.csv.read_csv(out)
    assert found.column_names == ["label", "p_<=50K", "p_>50K"]
    model = load_verified(home / "models" / "adult" / "1", Home.open({"DPSERVE_HOME": str(home)}).trust)
    columns = {name: table[name].to_pylist() for name in table.column_names}
    assert found["label"].to_pylist() == model.ensemble.predict(columns).tolist()
    assert abs(found["p_>50K"].to_numpy() - model.ensemble.probabilities(columns)[:, 1]).max() < 1e-6


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("written", ["parquet", "csv"])
def test_a_key_goes_with_its_predictions(home, tmp_path, said, kind, written):
    table = pq.read_table(DATA / "adult_test.parquet").slice(0, 500)
    ids = [["007", "NA", "", "=1+1", "é", None][i % 6] for i in range(500)]
    table = table.append_column("id", pa.array(ids)).append_column("row", pa.array(range(500)))
    data, out = tmp_path / f"rows.{kind}", tmp_path / f"out.{written}"
    (pq.write_table if kind == "parquet" else pyarrow.csv.write_csv)(table, data)
    code, body, _ = said("predict", "adult", "--data", str(data), "--keep", "row", "--keep", "id", "--out", str(out))
    assert (code, body["records"]) == (0, 500)
    plain = tmp_path / "plain.parquet"
    assert said("predict", "adult", "--data", str(data), "--out", str(plain))[0] == 0
    wanted = ids if kind == "parquet" else [text or "" for text in ids]  # a .csv has no null
    if written == "parquet":
        found = pq.read_table(out)
        assert found.column_names == ["row", "id", *pq.read_table(plain).column_names]
        assert found["id"].to_pylist() == wanted
        assert found.drop_columns(["row", "id"]) == pq.read_table(plain)
    else:
        with out.open(newline="") as file:
            lines = list(csv.DictReader(file))
        assert [line["id"] for line in lines] == [f"'{text}" if text == "=1+1" else text or "" for text in ids]
        assert [line["label"] for line in lines] == pq.read_table(plain)["label"].to_pylist()
        found = {"row": [line["row"] for line in lines]}
    assert list(map(int, found["row"] if written == "csv" else found["row"].to_pylist())) == list(range(500))


def test_what_cannot_be_kept_is_refused_and_nothing_is_written(home, tmp_path, said):
    table = pq.read_table(DATA / "adult_test.parquet").slice(0, 5)
    table = table.append_column("lists", pa.array([[1]] * 5)).append_column("label", pa.array(["x"] * 5))
    pq.write_table(table, tmp_path / "rows.parquet")
    for name, why in (("nobody", "no such column"), ("lists", "holds list"), ("label", "a column of the predictions")):
        command = ("predict", "adult", "--data", str(tmp_path / "rows.parquet"), "--keep", name)
        code, body, _ = said(*command, "--out", str(tmp_path / "out.csv"))
        assert code == 2
        assert why in body["error"]["message"]
        assert not (tmp_path / "out.csv").exists()


def test_predict_takes_missing_values(home, tmp_path, said):
    table = pq.read_table(DATA / "adult_test.parquet").slice(0, 3)
    blank = {name: pa.array([None, value, None]) for name, value in table.slice(1, 1).to_pylist()[0].items()}
    pq.write_table(pa.table(blank), tmp_path / "data.parquet")
    code, body, _ = said("predict", "adult", "--data", str(tmp_path / "data.parquet"), "--out", str(tmp_path / "o.csv"))
    assert (code, body["records"]) == (0, 3)


def test_predict_names_what_is_wrong_and_writes_nothing(home, tmp_path, said):
    table = pq.read_table(DATA / "adult_test.parquet").slice(0, 5)
    pq.write_table(table.drop_columns(["age"]), tmp_path / "less.parquet")
    (tmp_path / "text.csv").write_text(",".join(table.column_names) + "\n" + ",".join(["aged"] * 15) + "\n")
    out = tmp_path / "o.csv"
    for data, word in (("less.parquet", "age"), ("text.csv", "age: row 2"), ("none.csv", "none.csv")):
        code, body, err = said("predict", "adult", "--data", str(tmp_path / data), "--out", str(out))
        assert (code, body["error"]["code"]) == (2, "data_invalid")
        assert word in err
        assert "aged" not in err
    data = DATA / "adult_test.parquet"
    for bad in (tmp_path / "o.txt", tmp_path / "none" / "o.csv"):
        assert said("predict", "adult", "--data", str(data), "--out", str(bad))[0] == 2
    assert [path.name for path in tmp_path.iterdir() if "o." in path.name or "partial" in path.name] == []


# Ledger, keys, tokens


def test_ledger_show_and_checkpoint(home, said, capsys):
    _, body, _ = said("ledger", "show", "--dataset", "adult")
    kinds = [entry["type"] for entry in body["entries"]]  # the newest first
    assert kinds == ["issued", "committed", "started", "reserved", "dataset-registered"]
    _, everything, _ = said("ledger", "show")
    assert len(everything["entries"]) == size(home)
    assert said("ledger", "show", "--dataset", "nope")[0] == 2
    _, body, _ = said("ledger", "checkpoint")
    assert body["size"] == size(home)
    assert run(["ledger", "checkpoint"]) == 0
    assert capsys.readouterr().out == body["checkpoint"]


def test_audit_of_the_home_and_of_an_export(home, tmp_path, said):
    code, body, _ = said("ledger", "audit")
    assert code == 0
    assert (body["ok"], body["problems"], body["entries"]) == (True, [], size(home))
    assert said("ledger", "export", "--out", str(tmp_path / "files"))[1]["entries"] == size(home)
    trust = ("--trust", str(home / "trust.json"))
    assert said("ledger", "audit", str(tmp_path / "files"), *trust)[1] == body
    assert said("ledger", "audit", str(tmp_path / "files"))[0] == 2
    entries = tmp_path / "files" / "entries.jsonl"
    entries.write_text(entries.read_text().replace('"adult"', '"adulT"', 1))
    code, body, _ = said("ledger", "audit", str(tmp_path / "files"), *trust)
    assert (code, body["ok"]) == (4, False)
    assert body["problems"]


def test_audit_finds_a_tampered_model_and_a_rollback(home, tmp_path, said, made):
    checkpoint = tmp_path / "checkpoint.txt"
    run([*TRAIN, "--epsilon", "0.1"])
    checkpoint.write_text(said("ledger", "checkpoint")[1]["checkpoint"])
    assert said("ledger", "audit", "--seen", str(checkpoint))[0] == 0
    onnx = home / "models" / "adult" / "2" / "model.onnx"
    onnx.write_bytes(onnx.read_bytes()[:-1])
    code, body, _ = said("ledger", "audit")
    assert code == 4
    assert "adult@2" in body["problems"][0]
    for part in ("", "-wal", "-shm"):
        (home / f"ledger.db{part}").unlink(missing_ok=True)
    shutil.copy(made / "ledger.db", home / "ledger.db")
    code, body, _ = said("ledger", "audit", "--seen", str(checkpoint))
    assert (code, body["ok"]) == (4, False)
    assert said("plan", "adult", "--learner", "lazybb", "--epsilon", "0.1")[0] == 4


def test_key_list(home, said):
    _, body, _ = said("key", "list")
    assert [key["role"] for key in body["keys"]] == ["log", "issuer"]
    assert all(key["keyid"].startswith("SHA256:") for key in body["keys"])
    assert "PRIVATE" not in json.dumps(body)


def test_token_create_list_revoke(home, said):
    code, body, err = said("token", "create", "--scope", "predict", "--scope", "train", "--name", "shop")
    assert code == 0
    assert body["token"].startswith("dps_")
    assert body["token"] not in err
    assert body["scopes"] == ["predict", "train"]
    assert body["token"] not in json.dumps(said("token", "list")[1])
    assert said("token", "create", "--scope", "root", "--name", "other")[0] == 2
    assert said("token", "create", "--scope", "audit", "--name", "shop")[1]["error"]["code"] == "name_taken"
    assert said("token", "revoke", "--name", "shop")[1]["revoked"] is not None
    assert said("token", "revoke", "--name", "shop")[0] == 2


# The command itself


def commands():
    def walk(group, before):
        for name, command in sorted(group.commands.items()):
            if hasattr(command, "commands"):
                yield from walk(command, (*before, name))
            else:
                yield (*before, name), command.help

    return list(walk(typer.main.get_command(app), ()))


def test_every_command_has_help_with_an_example(capsys):
    assert len(commands()) >= 24
    for words, help in commands():
        assert f"dpserve {' '.join(words)}" in help, words
        assert run([*words, "--help"]) == 0
        assert "Usage: dpserve" in capsys.readouterr().out


def test_human_output_of_every_reading_command(home, capsys):
    for words in (
        "config",
        "dataset list",
        "dataset show adult",
        "model list",
        "model show adult",
        "ledger show",
        "key list",
    ):
        assert run(words.split()) == 0
        out, err = capsys.readouterr()
        assert out.strip()
        assert err == ""


def test_in_a_process_of_its_own(home):
    done = dpserve(home, "dataset", "show", "adult", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["name"] == "adult"
    assert done.stderr == ""
    refused = dpserve(home, "train", "adult", "--learner", "lazybb", "--epsilon", "50")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr.count("\n") == 1
    assert "\x1b" not in refused.stderr
    nothing = dpserve(home, "ledger")
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert "Commands:" in nothing.stderr


def test_bug_says_so_and_nothing_of_the_data(home, monkeypatch, capsys):
    def broken(*_, **__):
        raise ZeroDivisionError("row 7 has age 39")

    monkeypatch.setattr(Home, "open", broken)
    assert run(["dataset", "list"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "ZeroDivisionError" in err
    assert "39" not in err
    monkeypatch.setenv("DPSERVE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["dataset", "list"])


def test_light_commands_stay_light(home):
    """What a person types often must not load what trains or serves: benchmarks/results/cli.md has what each costs.
    Commands on one line run one after the other in one process, which may have loaded nothing of it in the end.
    """
    heavy = {"numba", "sklearn", "bentoml", "opendp", "pyarrow", "onnxruntime"}
    light = heavy | {"onnx"}  # no graph is written for what a look at it says will fit
    listed = heavy | {"scipy", "numpy", "onnx", "vl_convert", "pydantic_settings", "starlette", "prometheus_client"}
    nothing = listed | {"sqlalchemy", "cryptography", "pydantic", "rich"}
    for words, kept_out in (
        ("--help", nothing),
        (
            "; ".join(f"{name} --help" for name in TREE if isinstance(TREE[name], Branch)),
            nothing - {"pydantic"},
        ),  # Typer's
        ("token list; grant list; dataset list; job list", listed),
        ("ledger show; config", heavy),
        ("model list", heavy | {"scipy", "onnx", "vl_convert", "pydantic_settings", "starlette", "prometheus_client"}),
        ("model show adult; model explain adult", heavy | {"scipy", "onnx", "vl_convert", "starlette"}),
        ("ledger audit", {"sklearn", "bentoml", "pyarrow", "opendp", "numba", "scipy", "onnx"}),
        (f"verify {home / 'models' / 'adult' / '1'}", {"sklearn", "bentoml", "pyarrow", "opendp", "numba", "scipy"}),
        ("plan adult --learner lazybb --epsilon 0.2", light | {"scipy", "vl_convert", "training.jobs.job"}),
        ("; ".join(f"plan adult --learner {name} --epsilon 0.2" for name in ("lazybb-tree", "ebm", "forest")), light),
        ("dataset show adult; plan adult --learner lazybb --epsilon 50", light),
        ("learner list", {"sklearn", "bentoml"}),
    ):
        typed = [each.split() for each in words.split("; ")]
        look = f"import sys; from serving.cli.app import run; done = [run(each) for each in {typed!r}]"
        look += f"; assert set(done) <= {{0, 3}}, done; print({kept_out!r} & sys.modules.keys())"
        command = [sys.executable, "-c", look]
        done = subprocess.run(command, cwd=ROOT, env=environment(home), capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == "set()", (words, done.stdout[-200:], done.stderr)


def test_a_list_is_of_whole_sentences_by_the_person_who_needs_them(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert sorted(name for names in PEOPLE.values() for name in names) == sorted(CORE)
    for words in ([], *([name] for name in TREE if isinstance(TREE[name], Branch))):
        assert run([*words, "--help"]) == 0
        shown = capsys.readouterr().out.partition("\n")[2]  # below "Usage"
        assert not [line for line in shown.splitlines() if len(line) > 80 or line.endswith("...")]
        if not words:
            titles = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
            assert titles == ["Options:", *(f"{title}:" for title in (*PEOPLE, OWNERS))]


def test_a_list_says_of_a_command_what_its_help_says():
    """It reads the docstring in the file, where the help has it from the function."""
    leaves = [leaf for node in TREE.values() for leaf in (node.leaves.values() if isinstance(node, Branch) else [node])]
    assert len(leaves) > 70
    said = {leaf.place: inspect.cleandoc(leaf.function().__doc__).partition("\n\n")[0] for leaf in leaves}
    assert {leaf.place: leaf.summary for leaf in leaves} == said


def test_a_spinner_comes_after_half_a_second_and_on_a_terminal_alone(monkeypatch):
    """Real threads and a real pseudo-terminal; what is quick shows nothing."""
    monkeypatch.setenv("TERM", "xterm")
    for patience, shown in ((0.05, True), (30.0, False)):
        monkeypatch.setattr(terminal, "PATIENCE", patience)
        master, slave = os.openpty()
        with open(slave, "w") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            with terminal.show_busy("pricing"):
                time.sleep(0.3 if shown else 0.01)
            stream.write("over")
            stream.flush()
            text = ""
            while not text.endswith("over"):
                text += os.read(master, 1 << 16).decode()
        os.close(master)
        assert ("pricing" in text) is shown


@pytest.mark.parametrize("words", ["plan --help", "train --help"])
def test_commands_that_compute_nothing_load_no_compiler_and_no_learner(home, words):
    heavy = {"numba", "sklearn", "bentoml", "onnxruntime", "training.learners.base.private_learner"}
    look = f"import sys; from serving.cli.app import run; run({words.split()!r}); print({heavy!r} & sys.modules.keys())"
    command = [sys.executable, "-c", look]
    done = subprocess.run(command, cwd=ROOT, env=environment(home), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()"


def test_a_price_is_worked_out_once_in_a_process(home, said, monkeypatch):
    """And nothing of it outlives the process: the next one says the same, and leaves no file in the home."""
    rehearsed = []
    monkeypatch.setattr(Rehearsal, "__init__", lambda self, *given: rehearsed.append(given) or BLANK(self, *given))
    plan = ("plan", "adult", "--learner", "lazybb", "--set", "rounds=7", "--epsilon")
    for words, most in (((*plan, "0.21"), 2), ((*plan, "50"), 12), (("dataset", "show", "adult"), 40)):
        ENGINE.forget()
        rehearsed.clear()
        _, first, _ = said(*words)
        assert 0 < len(rehearsed) <= most
        rehearsed.clear()
        assert said(*words)[1] == first
        assert not rehearsed
        ENGINE.forget()
        assert said(*words)[1] == first
        assert rehearsed
    assert not (home / "prices").exists()


BLANK = Rehearsal.__init__


@pytest.mark.parametrize(
    ("file", "of", "by", "problem"),
    [
        ("ensemble.json", b'"votes"', b'"Votes"', "not the released numbers"),
        ("model.onnx", b"dpserve", b"dpServe", "its model is not the certificate's"),
        ("model.onnx.dsse.json", b'"sig":"', b'"sig":"AAAA', "ignature"),
        ("model.onnx.tlog-proof", b"tlog-proof@v1", b"tlog-proof@v9", "first line"),
        ("card.md", None, None, "card.md"),
    ],
)
def test_a_list_holds_every_file_against_the_ledger(home, said, file, of, by, problem):
    folder = home / "models" / "adult"
    shutil.copytree(folder / "1", folder / "2")
    spoilt = folder / "2" / file
    if of is None:
        spoilt.unlink()
    else:
        assert of in spoilt.read_bytes()
        spoilt.write_bytes(spoilt.read_bytes().replace(of, by, 1))
    code, body, _ = said("model", "list")
    good, bad = body["models"]
    assert (code, good["verified"], good["problem"], good["target"]) == (0, True, None, "income")
    assert (bad["verified"], bad["certificate"]) == (False, None)
    assert problem in bad["problem"]
    (folder / "1.retired").touch()
    assert said("model", "list")[1]["models"][0]["verified"] is None

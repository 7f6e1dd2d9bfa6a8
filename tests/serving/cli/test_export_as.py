"""`dpserve model export --as` on a model of Adult: the commands of the page, and the same answers as `dpserve predict`
gives.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sqlite3
import subprocess

import duckdb
import pyarrow.parquet as pq
import pytest
import warm
import yaml
from ledgers import ROOT
from pages import blocks
from small_home import write_files

from accountant.home import Home
from serving.cli.app import run

pytestmark = [pytest.mark.slow, pytest.mark.home("made", folder=True)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def made(tmp_path_factory, files):
    path = tmp_path_factory.mktemp("made") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(path))
        assert run(["init"]) == 0
        given = f"--data {files}/rows.parquet --schema {files}/schema.yaml --epsilon 3 --delta 1e-5"
        assert run(["dataset", "register", "adult", *given.split()]) == 0
        assert run(["train", "adult", "--learner", "ebm", "--epsilon", "1"]) == 0
    return path


@pytest.fixture
def said(capsys):
    def call(*arguments):
        capsys.readouterr()
        code = run([*arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def predicted(files, tmp_path, home, said):
    """What `dpserve predict` says of the rows: labels, and the probability of the second class."""
    assert said("predict", "adult", "--data", str(files / "rows.parquet"), "--out", str(tmp_path / "p.parquet"))[0] == 0
    table = pq.read_table(tmp_path / "p.parquet")
    return table["label"].to_pylist(), table["p_>50K"].to_pylist()


def same(labels, shares, predicted):
    assert list(labels) == predicted[0]
    assert shares == pytest.approx(predicted[1], rel=0, abs=1e-6)


@pytest.mark.system("gcc")
def test_the_commands_of_the_page(home, files, tmp_path, predicted):
    """Every command under the heading, in one shell; and each answers every row as `dpserve predict` does."""
    script = "set -e\n" + "".join(blocks("docs/reference/serving.md", "sh", "As SQL, Python or C"))
    environment = {**os.environ, "DPSERVE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    shell = f'dpserve() {{ {shlex.join(warm.python())} -m serving.cli "$@"; }}\n{script}'
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = pq.read_table(files / "rows.parquet")

    spec = importlib.util.spec_from_file_location("adult", tmp_path / "adult.py")
    adult = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(adult)
    answers = [adult.predict(row) for row in rows.drop_columns(["income"]).to_pylist()]
    same([label for label, _ in answers], [shares[">50K"] for _, shares in answers], predicted)

    query = (tmp_path / "adult.sql").read_text()
    numbered = rows.append_column("id", [list(range(len(rows)))])
    with duckdb.connect(":memory:") as database:
        database.register("adult", numbered)
        found = sorted(database.execute(query).fetchall())
    same([label for _, label, *_ in found], [share for *_, share in found], predicted)
    with sqlite3.connect(":memory:") as database:
        names = ", ".join(f'"{name}"' for name in numbered.column_names)
        database.execute(f"CREATE TABLE adult ({names})")
        places = ", ".join("?" * numbered.num_columns)
        database.executemany(f"INSERT INTO adult VALUES ({places})", zip(*numbered.to_pydict().values(), strict=True))
        found = sorted(database.execute(query).fetchall())
    same([label for _, label, *_ in found], [share for *_, share in found], predicted)


@pytest.mark.parametrize("form", ["sql", "python", "c"])
def test_the_head_names_the_certificate(home, said, tmp_path, form):
    code, body = said("model", "export", "adult", "--as", form, "--out", str(tmp_path / "new" / "model"))
    assert (code, body["files"]) == (0, ["model"])
    head = "\n".join((tmp_path / "new" / "model").read_text().splitlines()[:4])
    code, body = said("model", "export", "adult", "--out", str(tmp_path / "bundle"))
    (entry,) = [e for e in Home.open({"DPSERVE_HOME": str(home)}).ledger.log.entries() if e.value["type"] == "issued"]
    assert "adult@1" in head
    for name in ("model", "statement"):
        assert entry.value[name] in head
    assert "(1, 1e-5)-differential privacy" in head
    code, body = said("model", "export", "adult", "--as", form, "--out", str(tmp_path / "new" / "model"))
    assert (code, body["error"]["code"]) == (2, "name_taken")


@pytest.mark.parametrize(
    "more", ["--as sql --portable", "--as c --witnessed", "--as c --keep id", "--keep id", "--as fortran"]
)
def test_what_does_not_go_together(home, said, tmp_path, more):
    code, _ = said("model", "export", "adult", "--out", str(tmp_path / "x"), *more.split())
    assert code == 2
    assert not (tmp_path / "x").exists()


def test_the_folder_of_mlflow_verifies(home, said, tmp_path):
    (command,) = "".join(blocks("docs/reference/serving.md", "sh", "In MLflow")).splitlines()
    *words, out = shlex.split(command)[1:]
    code, body = said(*words, str(tmp_path / out))
    assert code == 0
    written = {path.relative_to(tmp_path / out).as_posix() for path in (tmp_path / out).rglob("*") if path.is_file()}
    assert written == set(body["files"])
    assert said("verify", str(tmp_path / out / "dpserve"))[1]["ok"] is True
    code, body = said(*words, str(tmp_path / out))
    assert (code, body["error"]["code"]) == (2, "name_taken")


def test_the_commands_for_catalogues(home, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in "".join(blocks("docs/reference/serving.md", "sh", "In catalogues")).splitlines():
        assert said(*shlex.split(command)[1:])[0] == 0
    _, head, card = (tmp_path / "adult-hub" / "README.md").read_text().split("---\n", 2)
    head = yaml.safe_load(head)
    assert (head["pipeline_tag"], head["dpserve"]["model"]) == ("tabular-classification", "adult@1")
    assert head["dpserve"]["promise"].startswith("(1, 1e-5)-differential privacy")
    assert card.strip() == (tmp_path / "adult-hub" / "card.md").read_text().strip()
    assert said("verify", "adult-hub")[1]["ok"] is True
    told = json.loads((tmp_path / "adult.croissant.json").read_text())
    fields = {each["name"]: each["description"] for each in told["recordSet"][0]["field"]}
    assert len(fields) == 15
    assert fields["income"] == "target; one of: <=50K, >50K"
    assert fields["age"] == "feature; from 17 to 90"
    assert said("dataset", "show", "adult", "--croissant", "x.txt")[0] == 2

"""A home that version 0.3.0 made opens: all of it is listed, verified, asked, trained on, and audited sound."""

from __future__ import annotations

import csv
import json
import shutil

import baseline
import pytest

from accountant.audit.audit import audit_home
from accountant.home import Home
from serving.cli.app import run
from training.jobs import job

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The home and the rows beside it, as they were packed."""
    return baseline.unpack(tmp_path_factory.mktemp("baseline")).parent


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy that a test may use and spoil, as the home that commands speak of."""
    copied = tmp_path / "copy"
    shutil.copytree(made, copied)
    monkeypatch.setenv("DPSERVE_HOME", str(copied / "home"))
    return copied


@pytest.fixture
def said(capsys):
    """Run a command, which must succeed, and read the document that it prints."""

    def say(*arguments):
        code = run([*map(str, arguments), "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        return json.loads(out)

    return say


def test_the_packed_home_is_small():
    assert baseline.PACKED.stat().st_size < 200_000


def test_everything_in_it_is_listed(folder, said):
    assert {each["name"] for each in said("dataset", "list")["datasets"]} >= {"people", "again", "fixed", "visits"}
    for name in ("people", "again", "fixed", "visits", "folk"):
        assert said("dataset", "show", name)["name"] == name
    versions = {(each["name"], each["version"]) for each in said("model", "list")["models"]}
    assert {name for name, _ in versions} == set(baseline.MODELS)
    for name, version in versions:
        if name != "bdpe":
            said("model", "show", f"{name}@{version}")
    states = [each["state"] for each in said("job", "list")["jobs"]]
    assert {"issued", "released", "burned", "reserved"} <= {*states}
    assert {each["name"]: each["principal"] for each in said("token", "list")["tokens"]}["book"] == "team-a"
    assert {each["principal"] for each in said("grant", "list")["grants"]} == {"token:shop", "team-a", "team-b"}
    assert [each["name"] for each in said("schedule", "list")["schedules"]] == ["weekly"]
    assert len(said("key", "list")["keys"]) == 4
    assert said("campaign", "show", "survey")["state"] == "issued"
    assert said("campaign", "show", "open")["state"] == "open"
    assert len(said("ledger", "show")["entries"]) >= 50


def test_its_bundles_verify_from_outside_and_the_one_that_was_revoked_does_not(folder, said, capsys):
    trust = folder / "home" / "trust.json"
    for bundle in sorted((folder / "home" / "models").glob("*/[0-9]")):
        code = run(["verify", str(bundle), "--trust", str(trust)])
        assert code == (4 if bundle.parent.name == "bdpe" else 0), capsys.readouterr()
    for statement in (*(folder / "home").glob("evaluations/*"), *(folder / "home").glob("profiles/*")):
        (envelope,) = statement.glob("*.dsse.json")
        assert run(["verify", str(envelope), "--trust", str(trust)]) == 0, capsys.readouterr()


# Of each model, to how many of its 300 rows it says yes, and what the probabilities of yes come to.
ANSWERS = {
    "ebm": (0, 121.485),
    "fixed": (75, 138.478),
    "lazybb": (165, 148.724),
    "lazybb-tree": (204, 163.592),
    "tuned": (152, 163.783),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_its_models_answer_as_they_did(folder, name):
    out = folder / "answers.csv"
    rows = folder / ("fixed.csv" if name == "fixed" else "people.csv")
    assert run(["predict", name, "--data", str(rows), "--out", str(out)]) == 0
    with out.open(newline="") as file:
        answers = list(csv.DictReader(file))
    assert len(answers) == 300
    yes, chances = ANSWERS[name]
    assert sum(each["label"] == "yes" for each in answers) == yes
    assert sum(float(each["p_yes"]) for each in answers) == pytest.approx(chances, abs=0.01)


def test_it_is_trained_on_and_stays_sound(folder, said):
    home = Home.open({"DPSERVE_HOME": str(folder / "home")})
    assert audit_home(home).problems == ()
    job.run(home, baseline.QUEUED)
    said("train", "people", "--learner", "lazybb", "--epsilon", "0.5", "--set", "rounds=2", "--evaluate", "0.25")
    said("train", "fixed", "--epsilon", "0.5", "--learner", "forest", "--set", "trees=2", "--model", "trees")
    said("profile", "again", "--epsilon", "0.2")
    rows = "".join(f"n{age},{age},north,{age}\n" for age in range(100))
    (folder / "more.csv").write_text(f"person,age,town,cost\n{rows}")
    said("dataset", "append", "visits", "--records", "120", "--data", folder / "more.csv")
    said("train", "visits", "--epsilon", "0.3", "--learner", "ebm", "--set", "epochs=2", "--blocks", "last:2")
    said("model", "restore", "forest", "--why", "few trees are enough")
    said("key", "rotate", "--role", "log", "--reason", "once more")
    report = audit_home(home)
    assert report.problems == ()
    home.ledger.log.database.close()


def test_the_same_people_are_known_again(folder, capsys):
    arguments = ("--data", str(folder / "again.csv"), "--schema", str(folder / "people.yaml"), "--unit", "person")
    assert run(["dataset", "register", "copy", *arguments, "--epsilon", "1", "--delta", "1e-6"]) == 2
    assert "are in the dataset again already" in capsys.readouterr().err
    assert run(["dataset", "append", "visits", "--records", "120", "--data", str(folder / "visits-3.csv")]) != 0

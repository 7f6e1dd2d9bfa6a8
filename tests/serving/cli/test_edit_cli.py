"""`dpserve model edit`, and the page about it: each of its commands is run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import ledgers
import pyarrow.parquet as pq
import pytest
from pages import part
from pyarrow import csv

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.audit.audit import audit_place
from accountant.home import Home
from accountant.ledger.families.records import Why
from accountant.ledger.model_names import owner_of
from models.store.bundle import ModelStore
from serving.cli.app import run
from serving.cli.backends.user import this_user

PAGE, EXPLANATIONS = (part("docs/reference/explanations.md", name) for name in ("Editing", "Explanations"))
COLLEGE = ("--feature", "education", "--set", "Bachelors, Masters=0.5")
WHY = ("--why", "a review")


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    path = ledgers.copy(ledgers.trained(), tmp_path / "home")
    monkeypatch.setenv("DPSERVE_HOME", str(path))
    monkeypatch.chdir(tmp_path)
    return path


def said(capsys, *arguments: str, code: int = 0) -> str:
    assert run(["model", "edit", *arguments]) == code
    found = capsys.readouterr()
    return found.out if code == 0 else found.err


def versions(home: Path) -> list[int]:
    return ModelStore(home / "models").versions("adult")


def test_an_edit_makes_a_version_that_is_champion_and_verifies(home, capsys):
    text = said(capsys, "adult@1", *COLLEGE, *WHY, "--by", "ann", "--promote")
    assert "costs no privacy: the numbers were released already" in text
    assert "adult@1 -> adult@3 (champion now)" in text
    assert re.search(r"education +Bachelors +\S+ +\+0\.5000", text)
    assert ModelStore(home / "models").champion("adult") == 3
    assert run(["verify", str(home / "models" / "adult" / "3")]) == 0
    assert audit_place(ledgers.place(home), bundles=ledgers.bundles(home)).ok


def test_json(home, capsys):
    body = json.loads(said(capsys, "adult", *COLLEGE, *WHY, "--by", "ann", "--json"))
    assert (body["base"], body["model"], body["champion"], body["epsilon_spent"]) == ("adult@1", "adult@3", False, "0")
    assert [row["values"] for row in body["changed"]] == ["Bachelors", "Masters"]
    assert all(row["after"] == pytest.approx(0.5, abs=1e-4) != row["before"] for row in body["changed"])
    (edit,) = body["edits"]
    assert (edit["by"], edit["why"], edit["feature"]) == ("ann", "a review", "education")
    assert ModelStore(home / "models").champion("adult") == 1


def test_who_edits_is_the_user_when_nobody_is_named(home, capsys):
    body = json.loads(said(capsys, "adult", *COLLEGE, *WHY, "--json"))
    assert body["edits"][0]["by"].startswith("cli:")


def test_a_dry_run_writes_nothing(home, capsys):
    before = ledgers.bodies(home)
    text = said(capsys, "adult", *COLLEGE, *WHY, "--dry-run")
    assert "dry run: nothing was written" in text
    assert "+0.5000" in text
    assert json.loads(said(capsys, "adult", *COLLEGE, *WHY, "--dry-run", "--json"))["model"] is None
    assert (versions(home), ledgers.bodies(home), list((home / "jobs").glob("edit-*"))) == ([1, 2], before, [])


def test_several_options_at_once_are_done_in_order_or_not_at_all(home, capsys):
    options = ("--feature", "age", "--set", "..30=-0.5", "--set", "60..=0.4", "--smooth", "20..70", "--window", "5")
    options += ("--clip", "-0.3", "0.3")
    body = json.loads(said(capsys, "adult", *options, *WHY, "--dry-run", "--json"))
    assert [json.loads(each["what"])["do"] for each in body["edits"]] == ["set", "set", "smooth", "clip"]
    assert all(-0.3001 <= row["after"] <= 0.3001 for row in body["changed"])
    error = said(capsys, "adult", *options, "--zero", "all", "--monotone", "increasing", *WHY, code=2)
    assert "edit 6: feature=age: nothing would change" in error
    assert versions(home) == [1, 2]


def test_a_monotone_shape(home, capsys):
    said(capsys, "adult", "--feature", "age", "--set", "..30=0.1", "--set", "30..50=1", "--set", "50..=0.2", *WHY)
    said(capsys, "adult@3", "--feature", "age", "--monotone", "decreasing", *WHY)
    bins = json.loads(said(capsys, "adult@4", "--feature", "age", "--show", "--json"))["bins"]
    shape = [each["adds"] for each in bins if each["values"] != "missing"]
    assert shape == sorted(shape, reverse=True)
    assert len(set(shape)) == 2  # what rose was pooled
    assert versions(home) == [1, 2, 3, 4]


def test_the_bins_are_shown(home, capsys):
    text = said(capsys, "adult", "--feature", "education", "--show")
    assert re.search(r"^BIN +VALUES +ADDS", text)
    assert "Bachelors" in text
    assert "missing" in text
    assert versions(home) == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("adult", *COLLEGE), "why: must be said"),
        (("adult", *COLLEGE, "--why", " "), "why: must be one line"),
        (("adult", *WHY), "edits: say at least one"),
        (("adult", "--zero", "all", *WHY), "feature: must be named"),
        (("adult", "--feature", "height", "--zero", "all", *WHY), "feature='height'"),
        (("adult", "--feature", "education", "--zero", "PhD", *WHY), "bins='PhD'"),
        (("adult", "--feature", "education", "--monotone", "increasing", *WHY), "no order"),
        (("adult", "--feature", "age", "--monotone", "up", *WHY), "increasing or decreasing"),
        (("adult", "--feature", "age", "--set", "0.5", *WHY), "must be BINS=VALUE"),
        (("adult", "--feature", "age", "--set", "all=x", *WHY), "must be BINS=VALUE"),
        (("adult", "--feature", "age", "--set", "all=nan", *WHY), "finite"),
        (("adult", "--feature", "age", "--set", "all=inf", *WHY), "finite"),
        (("adult", "--feature", "age", "--clip", "1", "-1", *WHY), "must not be above"),
        (("adult", "--file", "absent.yaml", *WHY), "cannot be read"),
        (("adult", *COLLEGE, "--file", "absent.yaml", *WHY), "in place of"),
        (("adult", "--show"), "feature: must be named"),
        (("other", *COLLEGE, *WHY), "no such model"),
        (("adult@9", *COLLEGE, *WHY), "no such version"),
    ],
)
def test_refused(home, capsys, arguments, problem):
    before = ledgers.bodies(home)
    assert problem in said(capsys, *arguments, code=2)
    assert (versions(home), ledgers.bodies(home)) == ([1, 2], before)


def test_a_damaged_model_is_not_edited(home, capsys):
    path = home / "models" / "adult" / "1" / "ensemble.json"
    path.write_bytes(path.read_bytes().replace(b'"link":', b'"link":1'))
    assert "not the released numbers" in said(capsys, "adult", *COLLEGE, *WHY, code=4)


def test_the_help_has_an_example(capsys):
    assert run(["model", "edit", "--help"]) == 0
    assert "dpserve model edit adult --feature age --monotone increasing" in capsys.readouterr().out


def commands(page: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path, monkeypatch, capsys):
    """On a model of `ebm`, whose shapes are noisy enough for every edit to change something."""
    home = ledgers.copy(ledgers.prepared(), tmp_path / "home")
    monkeypatch.setenv("DPSERVE_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    (name, text), *more = re.findall(r"^```yaml title=\"(\S+)\"\n(.*?)^```", PAGE, re.M | re.S)
    assert not more
    (tmp_path / name).write_text(text)
    pq.write_table(pq.read_table(ledgers.EXAMPLES / "adult_test.parquet").slice(0, 9), tmp_path / "people.parquet")
    csv.write_csv(pq.read_table(tmp_path / "people.parquet"), tmp_path / "people.csv")
    lines = [*commands(PAGE), *commands(EXPLANATIONS)]
    assert len(lines) >= 12
    for line in lines:
        program, *arguments = shlex.split(line.replace("$DPSERVE_HOME", str(home)), comments=True)
        assert program == "dpserve"
        assert run(arguments) == 0, (line, capsys.readouterr().err)
    assert all("<svg" in (tmp_path / f"{name}.html").read_text() for name in ("adult", "record", "both"))
    assert audit_place(ledgers.place(home), bundles=ledgers.bundles(home)).ok


def test_a_name_has_an_owner_who_may_edit_it_and_others_need_promote(home, capsys):
    ledger, me = Home.open(ledgers.place(home)).ledger, this_user()
    size = ledger.log.size()

    def refused(*more: str) -> None:
        assert "scope: " in said(capsys, "adult@1", *COLLEGE, *WHY, *more, code=3)
        assert versions(home) == [1, 2]

    grants.add(ledger, [Grant(me, "train", "dataset", "adult"), Grant(me, "promote", "model", "other")], "test")
    assert owner_of(ledger, "adult") != me
    refused()  # the name is another's
    refused("--promote")
    assert "dry run" in said(capsys, "adult@1", *COLLEGE, *WHY, "--dry-run")  # writes nothing, and takes nothing
    assert ledger.log.size() == size + 2
    grants.add(ledger, [Grant(me, "promote", "model", "adult")], "test")
    assert "(champion now)" in said(capsys, "adult@1", *COLLEGE, *WHY, "--promote")


def test_the_owner_of_a_name_edits_it_with_train_and_promotes_it_with_promote(home, capsys, monkeypatch):
    ledger = Home.open(ledgers.place(home)).ledger
    owner = owner_of(ledger, "adult")
    monkeypatch.setattr("serving.cli.backends.user.this_user", lambda: owner)
    grants.add(ledger, [Grant(owner, "train", "dataset", "adult")], "test")
    assert "(a candidate" in said(capsys, "adult@1", *COLLEGE, *WHY)
    assert "scope: " in said(capsys, "adult@1", *COLLEGE, *WHY, "--promote", code=3)
    grants.revoke(ledger, grants.grants(ledger)[-1].index, Why("test", "left"))
    assert "scope: " in said(capsys, "adult@1", *COLLEGE, *WHY, code=3)

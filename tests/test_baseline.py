"""A home of the baseline (commit 44b969b) opens as it is: all of it is listed, verified, trained on, audited sound."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import baseline
import pytest
from postgres import server
from sqlalchemy import inspect, text
from stores import kind, rows

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.store import migrations
from accountant.store.store import Store
from accountant.store.tables import META
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
    assert baseline.PACKED.stat().st_size < 150_000


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


def schema(database: Store) -> dict:
    """Read the tables of a database: columns, keys, unique columns, indexes; a primary key has no name of ours."""
    with database.reading() as connection:
        asked = inspect(connection)
        return {
            name: (
                [(column["name"], str(column["type"]), column["nullable"]) for column in asked.get_columns(name)],
                asked.get_pk_constraint(name)["constrained_columns"],
                sorted(map(repr, asked.get_unique_constraints(name))),
                sorted(map(repr, asked.get_indexes(name))),
            )
            for name in asked.get_table_names()
        }


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_its_tables_are_those_of_a_new_ledger_and_nothing_in_them_is_lost(folder, tmp_path, database):
    place = {"DPSERVE_HOME": str(folder / "home")}
    url, fresh = f"sqlite:///{folder / 'home' / 'ledger.db'}", f"sqlite:///{tmp_path / 'new.db'}"
    if database == "postgresql":
        url, fresh = server().fresh(), server().fresh()
        baseline.copy_into(url, folder / "home")
        place["DPSERVE_LEDGER_URL"] = url
    old = Store(url)
    before = rows(old)
    home, new = Home.open(place), Store(fresh)
    new.create()
    assert kind(old) == database
    now = rows(old)  # with columns and tables that came since, empty
    assert {
        name: [row[: len(of)] for row, of in zip(now[name], stood, strict=True)] for name, stood in before.items()
    } == before
    assert [name for name in now if name not in before and now[name]] == []
    assert {*schema(old)} == {*META.tables, "alembic_version"}
    assert schema(old) == schema(new)
    with old.reading() as connection:
        assert migrations.revision(connection) == migrations.HEAD
    assert audit_home(home).problems == ()
    job.run(home, baseline.QUEUED)
    assert audit_home(home).problems == ()
    for each in (old, new, home.ledger.log.database):
        each.close()


def say_running(url: str, until: float) -> None:
    """As a worker of the baseline that has started the job, whose lease runs out then."""
    old = Store(url)
    with old.writing() as connection:
        connection.execute(
            text("UPDATE job SET state = 'started', owner = 'host:1:1:older:word', expires = :until WHERE seq = :at"),
            {"until": until, "at": baseline.QUEUED},
        )
    old.close()


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_tables_are_brought_forward_once_and_not_under_a_job_that_runs(folder, monkeypatch, capsys, database):
    url = f"sqlite:///{folder / 'home' / 'ledger.db'}"
    if database == "postgresql":
        url = server().fresh()
        baseline.copy_into(url, folder / "home")
    monkeypatch.setenv("DPSERVE_HOME", str(folder / "home"))
    monkeypatch.setenv("DPSERVE_LEDGER_URL", url)
    say_running(url, time.time() + 60)
    assert run(["migrate"]) == 1
    assert f"job {baseline.QUEUED} runs by a version whose tables are of revision 0007" in capsys.readouterr().err
    say_running(url, time.time() - 1)
    old, others = Store(url), [Store(url) for _ in range(4)]
    with old.reading() as connection:
        assert migrations.revision(connection) == "0007"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(Store.create, others))
    assert "0007" in {each.revision for each in others} <= {"0007", migrations.HEAD}
    assert run(["migrate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"from": migrations.HEAD, "to": migrations.HEAD}
    with old.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert run(["migrate"]) == 2
    assert (
        f"revision 9999, this version knows {', '.join(migrations.KNOWN)}; use a newer dpserve"
        in capsys.readouterr().err
    )
    for each in (old, *others):
        each.close()

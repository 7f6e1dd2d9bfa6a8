"""docs/reference/failures.md, walked with the home that version 0.3.0 made: the older one, a newer one, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import baseline
import postgres
import pytest
from next_version import next_version

from accountant.audit.audit import audit_place
from accountant.home import backup
from accountant.store import migrations
from accountant.store.store import Store
from serving.cli.app import run

Say = Callable[..., dict]


@pytest.fixture(params=["sqlite", "postgresql"])
def path(request, tmp_path, monkeypatch):
    """The home, with its ledger in a database of either kind, as commands find it."""
    unpacked = baseline.unpack(tmp_path / "unpacked")
    monkeypatch.setenv("DPSERVE_HOME", str(unpacked))
    if request.param == "postgresql":
        monkeypatch.setenv("DPSERVE_LEDGER_URL", postgres.server().fresh())
        baseline.copy_into(place()["DPSERVE_LEDGER_URL"], unpacked)
    return unpacked


@pytest.fixture
def say(capsys) -> Say:
    """Run a command: what it printed as JSON, or the error, where it ends with another code than 0."""

    def one(*arguments: object, code: int = 0) -> dict:
        capsys.readouterr()
        ended = run([*map(str, arguments), "--json"])
        out, err = capsys.readouterr()
        assert ended == code, err
        return json.loads(out) if code == 0 else {"words": out + err}

    return one


def place() -> dict[str, str]:
    return {name: os.environ[name] for name in ("DPSERVE_HOME", "DPSERVE_LEDGER_URL") if name in os.environ}


def revision(url: str) -> str | None:
    database = Store(url)
    with database.reading() as connection:
        found = migrations.revision(connection)
    database.close()
    return found


def here() -> str | None:
    return revision(place().get("DPSERVE_LEDGER_URL") or f"sqlite:///{place()['DPSERVE_HOME']}/ledger.db")


def sound() -> int:
    report = audit_place(place())
    assert report.problems == ()
    return report.entries


@pytest.mark.slow
def test_an_upgrade_that_changes_tables_there_and_back(path, tmp_path, monkeypatch, say):
    entries = sound()
    with monkeypatch.context() as newer:
        next_version(newer, tmp_path)
        for command in (["dataset", "list"], ["job", "list"], ["ledger", "audit"]):
            assert "run `dpserve migrate`" in say(*command, code=2)["words"], command
        say("backup", tmp_path / "before")
        assert here() == "0001" == revision(f"sqlite:///{tmp_path / 'before' / 'ledger.db'}")
    assert sound() == entries  # the older version goes on with it, and restores that copy
    restored = {"DPSERVE_HOME": str(tmp_path / "restored")}
    assert backup.restore(tmp_path / "before", restored).entries == entries
    assert audit_place(restored).problems == ()
    with monkeypatch.context() as newer:
        next_version(newer, tmp_path)
        said = say("migrate")
        assert (said["from"], said["to"], here(), sound()) == ("0001", "0002", "0002", entries)
        assert revision(f"sqlite:///{path / 'ledger-0001.db'}") == "0001"
        assert {each["name"] for each in say("dataset", "list")["datasets"]} >= {"people", "fixed"}
    assert "use a newer dpserve" in say("dataset", "list", code=2)["words"]
    with monkeypatch.context() as newer:
        next_version(newer, tmp_path)
        assert say("migrate", "--back") == {"from": "0002", "to": "0001"}
        assert here() == "0001"
    assert sound() == entries
    assert {each["name"] for each in say("dataset", "list")["datasets"]} >= {"people", "fixed"}
    with monkeypatch.context() as newer:
        next_version(newer, tmp_path)
        ran = say("worker", "--once")  # migrates as well, and runs what waited through the upgrade
        assert (ran["job"], here()) == (baseline.QUEUED, "0002")
        assert "what was entered since would be forgotten" in say("migrate", "--back", code=2)["words"]
        assert (here(), sound() > entries) == ("0002", True)


def test_where_nothing_was_migrated_there_is_no_way_back(path, say):
    assert "has no copy of the ledger" in say("migrate", "--back", code=2)["words"]
    assert say("migrate") == {"from": "0001", "to": "0001"}

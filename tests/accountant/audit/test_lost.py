"""What was paid for and has no files any more is counted as lost, and the ledger is sound all the same."""

from __future__ import annotations

import json
import re
import shutil

import baseline
import ledgers
import pytest

from accountant.audit.audit import audit_home
from accountant.home import Home
from serving.cli.app import run
from serving.process.watch.audit_runs import audit_at, last_audit

pytestmark = pytest.mark.home("old")
# What is removed, and what the audit says then. Entries of the home: tests/data/make_home.py.
LOSSES = {
    "evaluations/40": "evaluations/40: what a model is worth, stated by entry ",
    "profiles": "profiles/{job}: a profile of {dataset}, stated by entry ",
    "models/ebm/3": "models/ebm: 1 of 3 certified versions",
    "models/cost": "models/cost: 2 of 2 certified versions",
    "models/bdpe": "",  # was revoked: nobody accepts it
    "campaigns/open/reports.db": "campaigns: what owners of ",
    "campaigns/survey": "",  # its model is there
}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return baseline.unpack(tmp_path_factory.mktemp("baseline") / "unpacked")


def test_a_home_that_is_whole_has_lost_nothing(home, capsys):
    assert (audit_home(home).problems, audit_home(home).lost) == ((), ())
    assert run(["ledger", "audit"]) == 0
    assert "result   sound\n" in capsys.readouterr().out


def test_lost_files_are_told_in_words_and_a_number_with_exit_code_0(home, capsys, monkeypatch):
    for path in LOSSES:
        (shutil.rmtree if (home.path / path).is_dir() else lambda file: file.unlink())(home.path / path)
    report = audit_home(home, ledgers.bundles(home.path))
    profiles = {"44": "people", "64": "visits"}
    wanted = [
        words.format(job=job, dataset=dataset)
        for words in LOSSES.values()
        for job, dataset in (profiles.items() if "{job}" in words else [("", "")])
        if words
    ]
    assert report.ok
    assert len(report.lost) == len(wanted) == 6
    assert all(any(line.startswith(words) for line in report.lost) for words in wanted)
    assert run(["ledger", "audit"]) == 0
    assert "result   sound, but 6 of what was paid for are lost" in (out := capsys.readouterr().out)
    assert out.count("\n  lost: ") == 6
    monkeypatch.setattr("serving.cli.ledger.LISTED", 2)
    assert run(["ledger", "audit"]) == 0
    assert re.findall(r"\n  lost: (.*)", capsys.readouterr().out)[2:] == ["4 more; --json has all"]
    assert run(["ledger", "audit", "--json"]) == 0
    assert sorted(json.loads(capsys.readouterr().out)["lost"]) == sorted(report.lost)
    assert sorted(audit_at(home.path, home.ledger.log.database.url)["lost"]) == sorted(report.lost)
    assert sorted(last_audit(home)["lost"]) == sorted(report.lost)


def test_what_is_being_put_in_its_place_is_not_lost(home):
    (home.path / "evaluations" / "40").rename(home.path / "jobs" / "40")
    assert audit_home(home).lost == ()
    assert Home.open(ledgers.place(home.path)).ledger.job(40).issued

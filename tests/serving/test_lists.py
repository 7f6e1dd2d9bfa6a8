"""Lists of a home that has grown old: each line carries its own problem, and no other line suffers from it."""

from __future__ import annotations

import json

import baseline
import ledgers
import pytest
from in_process import Site
from pages_in_process import Pages, words

from accountant.home import Home
from dpserve.types import Dataset
from serving.cli.app import run
from serving.rest import jobs, schedules
from training.jobs.schedule import add, make_schedule, submit_due

LOST = "visits"  # a dataset that grows, of three blocks, with a schedule
ASKED = {"learner": "lazybb", "epsilon": "0.01", "parameters": {"rounds": 2}}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A home with datasets in families, models, tokens, grants and schedules: `tests/data/make_home.py`."""
    return baseline.unpack(tmp_path_factory.mktemp("baseline") / "unpacked")


@pytest.fixture
def path(old, tmp_path, monkeypatch):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    return ledgers.copy(old, tmp_path / "home")


def said(capsys, *arguments: str) -> tuple[int, str]:
    code = run(arguments)
    return code, capsys.readouterr().out


def test_one_dataset_without_its_folder_fails_no_list(path, tmp_path, capsys):
    home = Home.open({"DPSERVE_HOME": str(path)})
    lost = home.datasets / home.ledger.dataset(LOST).registration.commitment
    lost.rename(tmp_path / "away")
    add(home, make_schedule(home, "sound", "day", {"dataset": "people", **ASKED}, "cli:ana", 0))
    problem = f"rows_unavailable: dataset={LOST}: its folder, datasets/{lost.name[:8]}..., is not in this home"

    site = Site(home, [*jobs.DOORS, *schedules.DOORS])
    secret = site.token("all", "admin")
    listed = {kind: site.bear(secret, "GET", f"/v1/{kind}") for kind in ("datasets", "families", "schedules")}
    assert {kind: answer.status_code for kind, answer in listed.items()} == dict.fromkeys(listed, 200)
    lines = {kind: {line["name"]: line for line in listed[kind].json()[kind]} for kind in listed}
    for kind, line in (("datasets", LOST), ("families", LOST), ("schedules", "weekly")):
        assert lines[kind][line]["problem"].startswith(problem)
        others = [each["problem"] for name, each in lines[kind].items() if name != line]
        assert others
        assert set(others) == {None}
    assert lines["datasets"]["people"]["budget"]["jobs_left"]["lazybb"] > 0
    assert lines["schedules"]["sound"]["alone"] > 0
    known = Dataset.of(site.bear(secret, "GET", f"/v1/datasets/{LOST}").json())
    assert known.problem == lines["datasets"][LOST]["problem"]
    assert known.budget.spent > 0

    pages = Pages(home)
    for place in ("/ui/datasets", f"/ui/datasets/{LOST}", f"/ui/datasets/{LOST}/fits", "/ui/schedules"):
        answer = pages.page(place)
        assert answer.status_code == 200
        assert problem in words(answer)

    for command in ("dataset list", f"dataset show {LOST}", "schedule list"):
        code, text = said(capsys, *command.split())
        assert (code, problem in text) == (0, True)
    code, text = said(capsys, "dataset", "list", "--json")
    assert (code, len(json.loads(text)["datasets"])) == (0, len(lines["datasets"]))
    code, text = said(capsys, *f"plan {LOST} --epsilon 0.1 --blocks all --json".split())
    assert (code, json.loads(text)["error"]["code"]) == (1, "rows_unavailable")
    assert "database" not in text
    assert len(submit_due(home, lambda: 86_400.0)) == 1  # of the sound one; `weekly` waits
    home.ledger.log.database.close()

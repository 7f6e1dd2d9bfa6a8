"""Schedules over REST: each principal's own, priced before it is entered, charged to who made it."""

from __future__ import annotations

from decimal import Decimal

import pytest
from in_process import Site
from ledgers import copy, place, prepared, registration

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.home import Home
from serving.operations.doors import doors
from serving.operations.schedules import OPERATIONS
from serving.process.tokens import new_token
from training.jobs import schedule

WEEKLY = {"name": "weekly", "dataset": "adult", "learner": "lazybb", "epsilon": 0.5, "parameters": {"rounds": 8}}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Ana and bob may train on adult, sue is its steward, eve trains on another."""
    home = Home.open(place(copy(prepared(), tmp_path / "home")))
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    home.ledger.register(registration("other"))
    found = Site(home, doors(*OPERATIONS))
    held = {
        "ana": ("train", "adult"),
        "bob": ("train", "adult"),
        "sue": ("steward", "adult"),
        "eve": ("train", "other"),
    }
    found.who = {name: new_token(home, name, [], principal=name)[0] for name in held}
    wanted = [Grant(name, scope, "dataset", dataset) for name, (scope, dataset) in held.items()]
    grants.add(home.ledger, wanted, "test")
    found.look()
    return found


def asked(site, who, method="GET", path="/v1/schedules", **body):
    return site.bear(site.who[who], method, path, **({"json": body} if method == "POST" else {}))


def names(site, who):
    return [each["name"] for each in asked(site, who).json()["schedules"]]


def test_a_schedule_is_its_makers_and_its_stewards(site):
    dry = asked(site, "ana", "POST", **WEEKLY, dry_run=True)
    assert dry.status_code == 200, dry.text
    assert names(site, "ana") == []
    made = asked(site, "ana", "POST", **WEEKLY, start="2099-01-05T06:00")
    assert made.status_code == 201, made.text
    body = made.json()
    assert (body["by"], body["epsilon"], body["learner"], body["last"]) == ("ana", "0.5", "lazybb", None)
    assert body["alone"] == dry.json()["alone"] > 0
    assert body["until"] > "2099-01-05"
    assert [names(site, who) for who in site.who] == [["weekly"], [], ["weekly"], []]
    assert asked(site, "bob", "POST", **WEEKLY).status_code == 409  # the name is in use
    assert asked(site, "bob", "DELETE", "/v1/schedules/weekly").status_code == 404
    assert asked(site, "sue", "DELETE", "/v1/schedules/weekly").json() == {"name": "weekly", "removed": True}
    assert asked(site, "ana", "DELETE", "/v1/schedules/weekly").status_code == 404


def test_its_runs_are_jobs_of_who_made_it_under_their_quota(site):
    """Two runs are within ana's share, and the third is refused: the schedule stops, and says why."""
    ledger = site.home.ledger
    assert asked(site, "ana", "POST", **WEEKLY, every="hour", start="2026-01-05T06:00").status_code == 201
    site.home.ledger.set_quota("adult", "ana", Decimal("0.4"), "a part of it", "test")
    begun = schedule.moment("2026-01-05T06:00")
    for hour in range(40):
        schedule.submit_due(site.home, lambda hour=hour: begun + 3600 * hour)
    (line,) = asked(site, "ana").json()["schedules"]
    assert {each.by for each in ledger.jobs()} == {"ana"}
    assert 1 <= len(ledger.jobs()) < 40
    assert "ana may use 0.4" in line["stopped"]
    assert line["alone"] == 0
    other = asked(site, "bob", "POST", **{**WEEKLY, "name": "mine", "model": "mine"}, dry_run=True)
    assert other.status_code == 200, other.text
    assert other.json()["alone"] > 0


def test_who_may_not_train_there_has_no_schedule(site):
    assert asked(site, "eve", "POST", **WEEKLY).status_code == 403
    assert asked(site, "sue", "POST", **WEEKLY).status_code == 403
    assert asked(site, "ana", "POST", **WEEKLY, start="2026-01-05T06:00").status_code == 201
    (grant,) = [each for each in grants.grants(site.home.ledger) if each.principal == "ana"]
    grants.revoke(site.home.ledger, grant.index, grants.Why("test", "left"))
    assert schedule.submit_due(site.home) == []
    assert "ana" in schedule.schedules(site.home)[0].stopped


def test_one_principal_has_a_bounded_number(site, monkeypatch):
    monkeypatch.setenv("DPSERVE_SCHEDULES_OF_ONE", "1")
    assert asked(site, "ana", "POST", **WEEKLY).status_code == 201
    again = asked(site, "ana", "POST", **{**WEEKLY, "name": "more"})
    assert (again.status_code, "remove one of them first" in again.text) == (409, True)

"""Grants over REST: made, looked at and ended by admins, each once, and each an entry of the ledger."""

from __future__ import annotations

import pytest
from in_process import code, site_at
from ledgers import registration

from accountant.audit.audit import audit_home
from serving.app import DOORS
from serving.pages.all import PAGES
from serving.process.tokens import new_token

TRAIN = {"principal": "team-a", "scope": "train", "on": {"dataset": "adult"}}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with site_at(tmp_path_factory.mktemp("grants"), (*DOORS, *PAGES)) as found:
        found.home.ledger.register(registration("adult"))
        found.admin = found.token("root", "admin")
        found.night, _ = new_token(found.home, "night", [], principal="team-a")
        found.look()
        yield found


def test_made_looked_at_and_ended_once_each(site):
    made = site.bear(site.admin, "POST", "/v1/grants", json={**TRAIN, "expires": "2099-01-31"}).json()
    size = site.home.ledger.log.size()
    assert made == {**TRAIN, "grant": size - 1, "expires": "2099-01-31T00:00:00Z", "revoked": None}
    assert site.bear(site.admin, "POST", "/v1/grants", json={**TRAIN, "expires": "2099-01-31"}).json() == made
    assert site.bear(site.admin, "GET", "/v1/grants?principal=team-a").json()["grants"][-1] == made
    assert site.bear(site.admin, "GET", "/v1/grants?principal=nobody").json() == {"grants": [], "next": None}
    site.look()
    assert site.bear(site.night, "GET", "/v1/jobs").status_code == 200
    path = f"/v1/grants/{made['grant']}"
    stops = {"tokens": ["night"], "still": None, "jobs": []}
    assert site.bear(site.admin, "GET", path).json() == {**made, "stops": stops}
    assert site.home.ledger.log.size() == size
    ended = site.bear(site.admin, "POST", f"{path}/revoke", json={"reason": "left"}).json()
    assert ended == {**made, "revoked": size}
    assert site.bear(site.admin, "POST", f"{path}/revoke", json={"reason": "again"}).json() == ended
    assert site.home.ledger.log.size() == size + 1
    entry = site.home.ledger.log.entry(size).value
    assert (entry["reason"], entry["by"]) == ("left", "token:root")
    site.look()
    assert code(site.bear(site.night, "GET", "/v1/jobs")) == (403, "forbidden")
    assert audit_home(site.home).ok


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"scope": "root"}, 400),
        ({"principal": "*"}, 400),
        ({"on": None}, 400),
        ({"on": "all"}, 400),
        ({"on": {"planet": "adult"}}, 400),
        ({"on": {"dataset": "adult", "model": "adult"}}, 400),
        ({"on": {"dataset": 3}}, 400),
        ({"on": {"dataset": "none"}}, 404),
        ({"on": {"model": "../x"}}, 400),
        ({"expires": "2020-01-01"}, 400),
        ({"why": "x"}, 400),
    ],
)
def test_what_is_no_grant_is_refused_and_changes_nothing(site, change, status):
    size = site.home.ledger.log.size()
    assert site.bear(site.admin, "POST", "/v1/grants", json={**TRAIN, **change}).status_code == status
    assert site.home.ledger.log.size() == size


def test_no_such_grant(site):
    for number in ("0", "99", "x", "-1"):
        assert site.bear(site.admin, "GET", f"/v1/grants/{number}").status_code == 404
        assert site.bear(site.admin, "POST", f"/v1/grants/{number}/revoke", json={"reason": "x"}).status_code == 404


def test_the_page_of_who_is_no_admin_shows_what_is_theirs(site):
    for whom in ("team-a", "team-b"):
        body = {"principal": whom, "scope": "predict", "on": "everything"}
        assert site.bear(site.admin, "POST", "/v1/grants", json=body).status_code == 200
    site.look()
    theirs = site.bear(site.night, "GET", "/ui/grants").text
    assert "team-a" in theirs
    assert "team-b" not in theirs
    assert 'action="/ui/grants"' not in theirs
    everybody = site.bear(site.admin, "GET", "/ui/grants").text
    assert "team-b" in everybody
    assert 'action="/ui/grants"' in everybody

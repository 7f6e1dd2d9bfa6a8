"""The doors to edits: curves, dry runs, new versions, and everything that is refused."""

from __future__ import annotations

from pathlib import Path

import ledgers
import pytest
from in_process import Site, code

from accountant.access import grants, key_life
from accountant.access.grants import Grant
from accountant.audit.audit import audit_place
from accountant.home import Home
from accountant.ledger.model_names import owner_of
from models.store.bundle import ModelStore
from serving.app import DOORS
from serving.process.tokens import new_token

COLLEGE = {"feature": "education", "set": {"bins": "Bachelors, Masters", "to": 0.5}}
BODY = {"edits": [COLLEGE], "reason": "a review"}


@pytest.fixture
def site(tmp_path, monkeypatch):
    path = ledgers.copy(ledgers.trained(), tmp_path / "home")
    monkeypatch.setenv("DPSERVE_HOME", str(path))
    found = Site(Home.open(ledgers.place(path)), DOORS)
    found.secret = found.token("boss", "promote")
    return found


def asked(site: Site, reference: str = "adult", secret: str | None = None, **body):
    return site.bear(secret or site.secret, "POST", f"/v1/models/{reference}/edits", json={**BODY, **body})


def versions(site: Site) -> list[int]:
    return ModelStore(site.home.models).versions("adult")


def test_a_curve_is_edited_tried_first_and_certified(site):
    curve = site.bear(site.secret, "GET", "/v1/models/adult/curve?feature=age").json()
    assert (curve["model"], curve["kind"], curve["unit"]) == ("adult@1", "numeric", "log odds of >50K")
    assert "education" in curve["terms"]
    assert curve["ordered"] == len(curve["bins"]) - 1
    before, path = ledgers.bodies(site.home.path), Path(site.home.path)
    runs = [{"feature": "age", "set": {"bins": [[0, 1], [3, 3]], "to": -0.25}}]
    tried = asked(site, edits=runs, dry_run=True, entry=curve["entry"]).json()
    assert tried["model"] is None
    assert [each["bin"] for each in tried["changed"]] == [0, 1, 3]
    assert [each["before"] for each in tried["changed"]] == [curve["bins"][at]["adds"] for at in (0, 1, 3)]
    assert (versions(site), ledgers.bodies(path)) == ([1, 2], before)
    made = asked(site, edits=runs, entry=curve["entry"]).json()
    assert (made["base"], made["model"], made["champion"], made["epsilon_spent"]) == ("adult@1", "adult@3", False, "0")
    assert made["changed"] == tried["changed"]
    assert (made["edits"][0]["by"], made["edits"][0]["why"]) == ("token:boss", "a review")
    entry = site.home.ledger.log.entries()[-1].value
    assert (entry["type"], entry["by"], entry["reason"]) == ("derived", "token:boss", "a review")
    assert ModelStore(site.home.models).champion("adult") == 1
    site.look()
    after = site.bear(site.secret, "GET", "/v1/models/adult@3/curve?feature=age").json()["bins"]
    assert [each["adds"] for each in after][:2] == [pytest.approx(-0.25, abs=1e-4)] * 2
    assert audit_place(ledgers.place(path), bundles=ledgers.bundles(path)).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"edits": []}, "say at least one"),
        ({"edits": ["age"]}, "must say feature"),
        ({"edits": [{"feature": "height", "zero": "all"}]}, "feature='height'"),
        ({"edits": [{"feature": "education", "monotone": "increasing"}]}, "no order"),
        ({"edits": [{"feature": "age", "set": {"bins": "all", "to": 1e300}}]}, "at most"),
        ({"edits": [{"feature": "age", "set": {"bins": "all", "to": "1"}}]}, "finite"),
        ({"edits": [{"feature": "age", "set": {"bins": [[0, 10**6]], "to": 1}}]}, "a first and a last bin"),
        ({"edits": [{"feature": "age", "set": {"bins": [[0, True]], "to": 1}}]}, "a first and a last bin"),
        ({"edits": [{"feature": "age", "set": {"bins": [], "to": 1}}]}, "one at least"),
        ({"edits": [{"feature": "age", "smooth": {"window": 4}}]}, "odd"),
        ({"reason": " "}, "one line"),
        ({"reason": "two\nlines"}, "one line"),
        ({"other": 1}, "other"),
    ],
)
def test_nonsense_is_refused_and_nothing_is_made(site, body, problem):
    answer = asked(site, **body)
    assert (*code(answer), problem in answer.text) == (400, "bad_input", True), answer.text
    assert versions(site) == [1, 2]


def test_numbers_that_are_none_are_refused(site):
    path, kind = "/v1/models/adult/edits", {"content-type": "application/json"}
    for number in ("NaN", "Infinity", "1e999"):
        raw = f'{{"reason": "x", "edits": [{{"feature": "age", "set": {{"bins": "all", "to": {number}}}}}]}}'
        assert code(site.bear(site.secret, "POST", path, content=raw, headers=kind)) == (400, "bad_input"), number
    missing = site.bear(site.secret, "POST", path, json={"edits": [COLLEGE]})
    assert "reason: must be said" in missing.json()["error"]["message"]
    assert versions(site) == [1, 2]


def test_twice_is_one_version_and_a_name_that_moved_on_is_not_edited(site):
    entry = site.bear(site.secret, "GET", "/v1/models/adult/curve").json()["entry"]
    assert asked(site).json()["model"] == "adult@3"
    again = asked(site)
    assert (*code(again), again.json()["error"]["details"]["model"]) == (409, "wrong_state", "adult@3")
    assert asked(site, reason="another").json()["model"] == "adult@4"  # which is another decision
    site.bear(site.secret, "POST", "/v1/models/adult/champion", json={"version": 3, "reason": "x"})
    site.look()
    late = asked(site, reason="late", entry=entry)
    assert (*code(late), late.json()["error"]["details"]["model"]) == (409, "wrong_state", "adult@3")
    assert asked(site, "adult@1", reason="late", entry=entry).json()["model"] == "adult@5"


def test_a_revoked_model_and_one_that_is_not_there(site):
    issued = site.bear(site.secret, "GET", "/v1/models/adult/curve").json()["entry"]
    assert asked(site, "adult@9").status_code == 404
    assert asked(site, "other").status_code == 404
    key_life.revoke(site.home, issued, "test", "a mistake")
    late = asked(site, "adult@1")  # before the server has looked again
    assert code(late) == (409, "wrong_state")
    site.look()
    assert asked(site, "adult@1").status_code == 503
    assert versions(site) == [1, 2]


def test_whose_name_it_is_edits_it_with_train_and_others_need_promote(site):
    ledger = site.home.ledger
    owner = owner_of(ledger, "adult")
    stranger, predicts = site.token("stranger", "train"), site.token("asks", "predict")
    for secret in (stranger, predicts):
        assert code(asked(site, secret=secret)) == (403, "forbidden")
    assert asked(site, secret=stranger, dry_run=True).status_code == 200  # what it shows is public to who may see it
    assert code(asked(site, secret=predicts, dry_run=True)) == (403, "forbidden")
    own, _ = new_token(site.home, "own", [], principal=owner)
    grants.add(ledger, [Grant(owner, "train", "dataset", "adult")], "test")
    site.look()
    assert code(asked(site, secret=own, promote=True)) == (403, "forbidden")
    assert asked(site, secret=own).json()["model"] == "adult@3"
    site.look()
    assert code(asked(site, "adult@3", secret=stranger, reason="mine now")) == (403, "forbidden")
    assert asked(site, "adult@1", promote=True, reason="at once").json()["champion"] is True
    assert ModelStore(site.home.models).champion("adult") == 4

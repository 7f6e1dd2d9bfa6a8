"""Learners of others over REST: listed, shown, admitted after a check beside the server, and removed, by who may."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import ledgers
import pytest
from in_process import Site, code

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.access.tokens import NO_LIMITS
from accountant.errors import WrongState
from accountant.ledger.families.records import Why
from dpserve_platform.doors import learners
from dpserve_platform.replay import admission_checks, subjects
from serving.app import DOORS
from serving.process.tokens import new_token
from training.session.session import Source

pytestmark = pytest.mark.home("prepared")
TEXT = (ledgers.ROOT / "examples" / "naive_bayes.py").read_text()
BAYES = {"name": "bayes", "text": TEXT, "class": "NaiveBayes", "author": "ana", "reason": "was read", "neighbours": 2}


def checked(site: Site, token: str) -> list[dict]:
    """The checks, once none is under way."""
    while any(each["state"] == "checking" for each in site.bear(token, "GET", "/v1/learners").json()["checks"]):
        time.sleep(0.1)
    return site.bear(token, "GET", "/v1/learners").json()["checks"]


def test_a_steward_admits_what_its_check_does_not_refuse(home):
    site = Site(home, DOORS)
    steward, analyst, auditor = (site.token(name, name) for name in ("steward", "train", "audit"))
    assert code(site.bear(analyst, "POST", "/v1/learners", json=BAYES))[0] == 403
    for wrong, status in (
        ({"text": ""}, 400),
        ({"text": "x" * ((1 << 18) + 1)}, 400),
        ({"name": "Ana's"}, 400),
        ({"class": "a\nb"}, 400),
        ({"reason": ""}, 400),
        ({"neighbours": 0}, 400),
        ({"neighbours": 10**6}, 400),
        ({"only": True}, 400),
        ({"datasets": [1]}, 400),
        ({"datasets": ["nope"]}, 404),
        ({"nothing": 1}, 400),
    ):
        assert code(site.bear(steward, "POST", "/v1/learners", json=BAYES | wrong))[0] == status, wrong
    begun = site.bear(steward, "POST", "/v1/learners", json=BAYES | {"datasets": ["adult"], "only": True})
    assert (begun.status_code, begun.json()["state"]) == (202, "checking"), begun.text
    assert code(site.bear(steward, "POST", "/v1/learners", json=BAYES))[0] == 409
    loose = TEXT.replace("terms, totals", "self.prior += __import__('os').urandom(4)[0]\n        terms, totals", 1)
    site.bear(steward, "POST", "/v1/learners", json=BAYES | {"name": "loose", "text": loose, "neighbours": 9})
    (refused,) = checked(site, steward)
    assert (refused["name"], refused["state"], "its check refuses it" in refused["problem"]) == (
        "loose",
        "refused",
        True,
    )

    (line,) = site.bear(analyst, "GET", "/v1/learners").json()["learners"]
    entry = home.ledger.log.entry(line["entry"]).value
    assert (entry["by"], entry["author"], entry["datasets"]) == ("token:steward", "ana", ["adult"])
    assert site.bear(analyst, "GET", "/v1/learners").json()["checks"] == []
    assert code(site.bear(steward, "POST", "/v1/learners", json=BAYES))[0] == 409
    assert code(site.bear(analyst, "GET", "/v1/learners/bayes"))[0] == 403
    shown = site.bear(auditor, "GET", "/v1/learners/bayes").json()
    assert (shown["text"], shown["report"]["ok"], shown["jobs"]) == (TEXT, True, 0)
    asked = {"dataset": "adult", "learner": "outside", "epsilon": "0.5", "parameters": {"code": "bayes"}}
    planned = site.bear(analyst, "POST", "/v1/plans", json=asked)
    assert planned.status_code == 200, planned.text

    assert code(site.bear(analyst, "POST", "/v1/learners/bayes/remove", json={"reason": "x"}))[0] == 403
    gone = site.bear(steward, "POST", "/v1/learners/bayes/remove", json={"reason": "mended"})
    assert gone.json() == {"name": "bayes", "admitted": line["entry"]}
    assert code(site.bear(steward, "POST", "/v1/learners/bayes/remove", json={"reason": "mended"}))[0] == 404
    assert code(site.bear(analyst, "POST", "/v1/plans", json=asked))[0] in (400, 404)


def test_who_may_see_one_dataset_sees_what_is_admitted_for_it(home):
    site = Site(home, learners.DOORS)
    adult = home.ledger.dataset("adult").registration
    home.ledger.register(replace(adult, name="visits", commitment="0" * 64, budget=None, families=("adult",)))
    subjects.admit(home, Source(TEXT, "NaiveBayes", "ana"), "bayes", Why("steward", "x"), 2, ["adult"], True)
    for name, on, sees in (("near", ("dataset", "adult"), ["bayes"]), ("far", ("dataset", "visits"), [])):
        secret, _ = new_token(home, name, (), NO_LIMITS, f"cli:{name}")
        grants.add(home.ledger, [Grant(f"cli:{name}", "train", *on)], "steward")
        site.look()
        seen = site.bear(secret, "GET", "/v1/learners").json()["learners"]
        assert [each["name"] for each in seen] == sees


def test_a_check_whose_process_ended_is_said_to_be_cut(home, monkeypatch):
    about = admission_checks.AdmissionRequest("bayes", TEXT, "NaiveBayes", "ana", "x", 2)
    monkeypatch.setattr(admission_checks.subprocess, "Popen", lambda *_, **__: None)
    assert admission_checks.ask(home, about, "steward")["state"] == "checking"
    admission_checks._CHILDREN.clear()
    monkeypatch.setattr(admission_checks, "lives", lambda owner: False)
    (line,) = admission_checks.checks(home)
    assert (line["state"], line["problem"]) == ("refused", admission_checks.CUT)


def test_no_more_checks_begin_at_once_than_may(home, monkeypatch):
    monkeypatch.setattr(admission_checks.subprocess, "Popen", lambda *_, **__: SimpleNamespace(poll=lambda: 0))
    gate = threading.Barrier(12)

    def ask(at):
        gate.wait(60)
        about = admission_checks.AdmissionRequest(f"bayes-{at}", f"{TEXT}# {at}\n", "NaiveBayes", "ana", "x", 2)
        try:
            return admission_checks.ask(home, about, "steward")["state"]
        except WrongState:
            return "full"

    with ThreadPoolExecutor(12) as threads:
        found = Counter(threads.map(ask, range(12)))
    assert found == {"checking": admission_checks.MOST_WAITING, "full": 12 - admission_checks.MOST_WAITING}


def test_a_check_that_is_forgotten_ends(home):
    hangs = "import _thread\nclass Hangs:\n    def learn(self, session):\n        lock = _thread.allocate_lock()\n"
    hangs += "        lock.acquire()\n        lock.acquire()\n"
    about = admission_checks.AdmissionRequest("hangs", hangs, "Hangs", "ana", "x", 2)
    admission_checks.ask(home, about, "steward")
    process = admission_checks._CHILDREN[-1]
    admission_checks.forget(home, "hangs")
    assert process.wait(120) == 1
    assert admission_checks.checks(home) == []

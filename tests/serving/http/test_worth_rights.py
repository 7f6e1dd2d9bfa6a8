"""Evaluations and profiles by grants and quotas: over REST and on the command line."""

from __future__ import annotations

from decimal import Decimal

import ledgers
import pytest
from in_process import Site, code
from ledgers import place, registration

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.audit.audit import audit_home
from accountant.home import Home
from serving.app import DOORS
from serving.cli.app import run
from serving.cli.backends.user import this_user
from serving.process.tokens import new_token
from serving.process.watch.trail_lines import lines

WORTH, PROFILE = "/v1/evaluations", "/v1/profiles"


@pytest.fixture
def site(tmp_path, monkeypatch):
    home = Home.open(place(ledgers.copy(ledgers.trained(), tmp_path / "home")))
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    return Site(home, DOORS)


def bearer(site: Site, principal: str, scope: str, **on: str) -> str:
    secret, _ = new_token(site.home, principal, [], principal=principal)
    grants.add(site.home.ledger, [Grant(principal, scope, *each) for each in on.items()], "test")
    site.look()
    return secret


def worth(epsilon: str, **more: str) -> dict[str, str]:
    return {"model": "adult", "dataset": "adult", "epsilon": epsilon, "part": "training", **more}


def test_what_both_cost_together_stays_within_the_quota(site):
    ann, bob = (bearer(site, name, "evaluate", dataset="adult") for name in ("ann", "bob"))
    site.home.ledger.set_quota("adult", "ann", Decimal("0.1"), "a test", "steward")  # .3 of 3
    for path, body in ((WORTH, worth("0.4")), (PROFILE, {"dataset": "adult", "epsilon": "0.4", "delta": "0"})):
        refused = site.bear(ann, "POST", path, json=body)
        assert code(refused) == (403, "budget_refused")
        assert refused.json()["error"]["details"]["reason"] == "quota"
        line = next(lines(site.home.path))  # of the trail, which says why
        assert (line["token"], line["status"], line["code"], line["reason"]) == ("ann", 403, "budget_refused", "quota")
    assert site.bear(ann, "POST", WORTH, json=worth("0.2")).status_code == 202
    small = {"dataset": "adult", "epsilon": "0.2", "delta": "0"}
    assert code(site.bear(ann, "POST", PROFILE, json=small)) == (403, "budget_refused")
    assert site.bear(bob, "POST", PROFILE, json=small).status_code == 202
    assert audit_home(site.home, ledgers.bundles(site.home.path)).problems == ()


def test_who_may_evaluate_sees_and_cancels_what_they_asked_for_alone(site):
    ann, bob = (bearer(site, name, "evaluate", dataset="adult") for name in ("ann", "bob"))
    places = [
        site.bear(ann, "POST", path, json=body).headers["Location"]
        for path, body in ((WORTH, worth("0.1")), (PROFILE, {"dataset": "adult", "epsilon": "0.1"}))
    ]
    listed = {f"/v1/jobs/{line['job']}" for line in site.bear(ann, "GET", "/v1/jobs").json()["jobs"]}
    assert listed == set(places)
    assert site.bear(bob, "GET", "/v1/jobs").json()["jobs"] == []
    for at in places:
        assert [code(site.bear(bob, method, at)) for method in ("GET", "DELETE")] == [(403, "forbidden")] * 2
        assert site.bear(ann, "GET", at).json()["state"] == "reserved"
        assert site.bear(ann, "DELETE", at).json()["state"] == "released"
    assert code(site.bear(ann, "GET", "/v1/jobs/2")) == (403, "forbidden")  # trained by another


def test_of_a_model_that_may_not_be_seen_nothing_is_found_out(site):
    """Neither what it is worth on rows that may be read, nor whether there is one of that name."""
    site.home.ledger.register(registration("bank"))
    eva = bearer(site, "eva", "evaluate", dataset="bank")
    for body in (worth("0.1", dataset="bank"), worth("0.1", model="secret", dataset="bank")):
        refused = site.bear(eva, "POST", WORTH, json=body)
        assert code(refused) == (403, "forbidden")
        assert refused.json()["error"]["details"]["on"] == {"model": body["model"]}
    own = bearer(site, "own", "evaluate", dataset="adult")
    refused = site.bear(own, "POST", WORTH, json=worth("0.1", against="secret"))
    assert refused.json()["error"]["details"]["on"] == {"model": "secret"}
    assert site.bear(own, "POST", WORTH, json=worth("0.1", against="adult@2")).status_code == 202


def test_on_the_command_line_grants_and_quotas_hold_as_well(site, capsys):
    who, here = this_user(), ("--dataset", "adult", "--epsilon", "0.4")
    site.home.ledger.set_quota("adult", who, Decimal("0.001"), "a test", "steward")
    for command in (("evaluate", "adult", "--part", "training", *here), ("profile", "adult", *here[2:])):
        assert run([*command]) == 3
        assert f"{who} may use 0.001 of it" in capsys.readouterr().err
    grants.add(site.home.ledger, [Grant(who, "predict", "model", "adult")], "test")
    for command in (("evaluate", "adult", "--part", "training", *here), ("profile", "adult", *here[2:])):
        assert run([*command]) == 3
        assert "this takes train or evaluate or admin on dataset adult" in capsys.readouterr().err
    site.home.ledger.register(registration("bank"))
    grants.add(site.home.ledger, [Grant(who, "evaluate", "dataset", "bank")], "test")
    grants.revoke(site.home.ledger, site.home.ledger.log.size() - 3, grants.Why("test", "a test"))
    assert run(["evaluate", "adult", "--dataset", "bank", "--epsilon", "0.1"]) == 3
    assert "on dataset adult or model adult" in capsys.readouterr().err

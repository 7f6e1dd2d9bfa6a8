"""Charges from elsewhere and public starts over REST: who may, and what comes back."""

from __future__ import annotations

import ledgers
import pyarrow.parquet as pq
from in_process import code, site_at

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.access.tokens import NO_LIMITS
from dpserve_verify.privacy.budget import Relation
from serving.app import DOORS
from serving.process.tokens import new_token
from training.datasets.datasets import register
from training.jobs import job
from training.requests import JobRequest

RELEASE = {"mechanism": "a table", "why": "published", "rho": "0.001"}


def test_the_steward_charges_and_a_start_is_a_model_that_one_may_see(tmp_path):
    ledgers.prepared()  # the files
    files = ledgers.scratch() / "files"
    with site_at(tmp_path / "home", DOORS) as site:
        home = site.home
        register(home, "adult", files / "rows.parquet", files / "schema.yaml", ledgers.TOTAL, Relation.ADD_REMOVE, None)
        steward, analyst = site.token("steward", "steward"), site.token("analyst", "train")
        door = "/v1/datasets/adult/charges"
        assert code(site.bear(analyst, "POST", door, json=RELEASE))[0] == 403
        assert code(site.bear(analyst, "POST", f"{door}/plan", json=RELEASE))[0] == 403
        planned = site.bear(steward, "POST", f"{door}/plan", json=RELEASE)
        size = home.ledger.log.size()
        charged = site.bear(steward, "POST", door, json=RELEASE)
        assert charged.status_code == 200, charged.text
        body = charged.json()
        assert home.ledger.log.entry(body["entry"]).value["by"] == "token:steward"
        assert float(body["budget"]["left"]["share"]) < 1
        assert (body["entry"], planned.json()) == (size, {"dataset": "adult", "budget": body["budget"]})
        (listed,) = site.bear(analyst, "GET", "/v1/datasets/adult").json()["charges"]["listed"]
        assert (listed["entry"], listed["words"], listed["by"]) == (size, "rho 0.001", "token:steward")
        assert code(site.bear(steward, "POST", door, json=RELEASE))[0] == 409
        for wrong in ({"rho": "nan"}, {"rho": None, "epsilon": "1", "delta": "1"}, {"mu": "1"}, {"renyi": {"2": 0.1}}):
            assert code(site.bear(steward, "POST", door, json=RELEASE | wrong))[0] == 400
        refused = site.bear(steward, "POST", door, json=RELEASE | {"rho": "50"})
        assert code(refused) == (403, "budget_refused")
        assert refused.json()["error"]["details"]["would_fit"].keys() == {"rho"}

        job.train(home, JobRequest("adult", "ebm", "0.5", parameters={"epochs": 3, "pairs": 0}), by="test")
        pq.write_table(
            pq.read_table(ledgers.EXAMPLES / "adult_train.parquet").slice(900, 400), tmp_path / "more.parquet"
        )
        rows = tmp_path / "more.parquet", files / "schema.yaml"
        register(home, "second", *rows, ledgers.TOTAL, Relation.ADD_REMOVE, "record")
        narrow, _ = new_token(home, "narrow", (), NO_LIMITS, "cli:narrow")
        grants.add(home.ledger, [Grant("cli:narrow", "train", "family", "second")], "steward")
        site.look()
        asked = {"dataset": "second", "epsilon": "0.1", "public": "adult@1", "model": "mine"}
        planned = site.bear(analyst, "POST", "/v1/plans", json=asked)
        assert planned.status_code == 200, planned.text
        assert planned.json()["learner"] == "ebm"
        assert site.bear(narrow, "POST", "/v1/plans", json=asked | {"public": None}).status_code == 200
        assert code(site.bear(narrow, "POST", "/v1/plans", json=asked))[0] in (403, 404)
        rule = asked | {"name": "weekly", "dry_run": True}
        made = site.bear(analyst, "POST", "/v1/schedules", json=rule)
        assert made.json().get("public") == planned.json()["start"], made.text
        assert site.bear(narrow, "POST", "/v1/schedules", json=rule | {"public": None}).status_code == 200
        assert code(site.bear(narrow, "POST", "/v1/schedules", json=rule))[0] in (403, 404)

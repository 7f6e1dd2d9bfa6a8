"""What a model is worth, over REST: submitted, measured by a worker, shown with what verifies it, or refused."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import ledgers
import pytest
from in_process import site_at
from pages_in_process import words

from accountant.access import grants
from accountant.access.grants import access_of
from accountant.certificates.worth import WORTH
from accountant.home import Home
from dpserve_verify.errors import BudgetRefused
from dpserve_verify.privacy.budget import Budget, Relation
from models.worth.stated import check
from models.worth.words import short_figures
from serving.app import DOORS
from serving.operations import Caller
from serving.operations.jobs import plan_job
from serving.pages import comparison
from serving.pages import jobs as job_pages
from serving.pages import models as pages
from serving.pages.job_form import Form, price_of
from serving.process.tokens import new_token
from training.datasets.datasets import register
from training.jobs import job, queue
from training.requests import JobRequest


@pytest.mark.slow
def test_an_evaluation_from_the_request_to_the_statement(tmp_path):
    ledgers.prepared()  # the files
    files = ledgers.scratch() / "files"
    with site_at(tmp_path / "home", (*DOORS, *pages.DOORS, *comparison.DOORS, *job_pages.DOORS)) as site:
        home: Home = site.home
        rows = files / "rows.parquet", files / "schema.yaml"
        budget = Budget.of("2", "0.00001")
        register(home, "adult", *rows, budget, Relation.ADD_REMOVE, "record", holdout=Decimal("0.5"))
        job.train(home, JobRequest("adult", "lazybb", "1", parameters={"rounds": 8}), by="test")
        secret = site.token("analyst", "train")
        asked = {"model": "adult", "dataset": "adult", "epsilon": "1"}
        told = site.bear(secret, "POST", "/v1/evaluations", json=asked)
        assert told.status_code == 202, told.text
        number = told.json()["job"]
        assert (told.json()["part"], told.json()["learner"]) == ("holdout", "evaluation")
        assert site.bear(secret, "GET", f"/v1/evaluations/{number}").status_code == 404
        assert queue.work_once(home) == number
        assert site.bear(secret, "GET", f"/v1/jobs/{number}").json()["state"] == "issued"
        body = site.bear(secret, "GET", f"/v1/evaluations/{number}").json()
        import json

        verified = WORTH.verify(json.dumps(body["envelope"]).encode(), body["proof"], home.trust)
        check(verified)
        assert verified.form.metrics[0].value == body["metrics"][0]["value"]
        again = site.bear(secret, "POST", "/v1/evaluations", json=asked)
        assert (again.status_code, again.json()["job"]) == (202, number)
        both = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "evaluate": "0.25"}
        held = access_of(home.ledger, "cli:test", operator=True)
        who = Caller(home, held)
        plan = plan_job.function(who, JobRequest.of(both))
        assert (plan["epsilon"], plan["evaluation"]["epsilon"]) == ("0.1", "0.25")
        assert plan["evaluation"]["part"] == "holdout"
        assert plan["evaluation"]["left"]["share"] < plan["left"]["share"]  # of what is kept aside half was spent
        assert "evaluation" not in plan_job.function(who, JobRequest.of({**both, "evaluate": None}))
        with pytest.raises(BudgetRefused):
            plan_job.function(who, JobRequest.of(both | {"evaluate": "1.5"}))
        priced = asyncio.run(price_of(home, Form.of(both.items()), held))
        assert (priced["kind"], priced["plan"]["evaluation"]["epsilon"]) == ("fits", "0.25")
        refused = asyncio.run(price_of(home, Form.of((both | {"evaluate": "1.5"}).items()), held))
        assert (refused["kind"], refused["details"]["asked"]["epsilon"]) == ("refused", "1.5")
        cookie = {"Cookie": f"dpserve={secret}", "Accept": "text/html"}
        shown = site.ask("GET", "/ui/jobs/new", cookie).text
        assert 'name="evaluate"' in shown
        wrong = site.bear(secret, "POST", "/v1/evaluations", json=asked | {"scores": True})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "bad_input"), wrong.text
        wrong = site.bear(secret, "POST", "/v1/evaluations", json=asked | {"group": "race"})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "bad_input"), wrong.text
        job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 2}), by="test")
        pair = asked | {"model": "adult@1", "against": "adult@2", "epsilon": "0.5"}
        compared = site.bear(secret, "POST", "/v1/evaluations", json=pair).json()
        assert queue.work_once(home) == compared["job"]
        told = site.bear(secret, "GET", f"/v1/evaluations/{compared['job']}").json()
        assert (compared["against"], told["metrics"][0]["metric"]) == (
            told["against"]["certificate"],
            "accuracy_difference",
        )
        site.look()
        beside = words(site.ask("GET", "/ui/models/adult@2/compare?with=adult@1", cookie))
        assert "Which is better, on the same rows adult@1, measured beside adult@2:" in beside
        assert "better than adult@2, entry" in beside
        assert "nobody measured it" not in beside
        chief = site.token("chief", "promote")
        place, wants = "/v1/models/adult/promote", {"version": 2, "if_better": True}
        unshown = site.bear(chief, "POST", place, json=wants)
        assert unshown.status_code == 409, unshown.text
        assert unshown.json()["error"]["details"]["command"].startswith("dpserve evaluate adult@2 --against adult@1")
        assert site.bear(chief, "POST", place, json=wants | {"if_better": "yes"}).status_code == 400
        lines = site.bear(secret, "GET", "/v1/models").json()["models"]
        assert {line["model"]: line["better"] for line in lines} == {"adult@1": body["better"], "adult@2": None}
        counted = site.bear(site.token("watch", "audit"), "GET", "/metrics").text
        assert f'dpserve_model_better{{model="adult"}} {float(body["better"])}' in counted
        assert (
            f'dpserve_model_worth{{bound="low",metric="auroc",model="adult"}} {float(body["metrics"][0]["low"])}'
            in counted
        )
        refused = site.bear(secret, "POST", "/v1/evaluations", json=asked | {"epsilon": "1.9"})
        assert refused.status_code == 403
        assert refused.json()["error"]["details"]["would_fit"]
        for wrong in ({"part": "test"}, {"model": "nobody"}, {"epsilon": "-1"}, {"more": 1}):
            assert site.bear(secret, "POST", "/v1/evaluations", json=asked | wrong).status_code in (400, 404)
        site.look()
        shown = site.bear(secret, "GET", "/v1/models/adult").json()
        assert [each["job"] for each in shown["worth"]] == [compared["job"], number]
        page = site.ask("GET", "/ui/models/adult", {"Cookie": f"dpserve={secret}", "Accept": "text/html"})
        assert page.status_code == 200
        for figure in body["metrics"]:
            assert short_figures(figure)[1] in page.text
        listed = site.ask("GET", "/ui/models", {"Cookie": f"dpserve={secret}", "Accept": "text/html"})
        assert listed.status_code == 200
        grants.add(home.ledger, [grants.Grant("stranger", "evaluate", "model", "other")], "test")
        stranger, _ = new_token(home, "stranger", [], principal="stranger")
        site.look()
        hidden = site.bear(stranger, "GET", f"/v1/evaluations/{number}")
        assert (hidden.status_code, "adult" in hidden.text) == (403, False), hidden.text
        reader = site.token("reader", "predict")
        assert site.bear(reader, "POST", "/v1/evaluations", json=asked).status_code == 403

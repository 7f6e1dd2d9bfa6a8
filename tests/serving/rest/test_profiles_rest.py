"""Profiles and answers over REST and on their pages: submitted, counted by a worker, shown, verified, or refused."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import ledgers
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from in_process import site_at

from accountant.access import grants
from accountant.certificates.answer import ANSWER
from accountant.certificates.profile import PROFILE
from accountant.home import Home
from models.answers.stated import check_table
from models.profile.stated import check
from serving.app import DOORS
from serving.pages import datasets, measurements
from serving.pages import jobs as job_pages
from serving.pages import profiles as pages
from serving.process.tokens import new_token
from training.datasets.datasets import register
from training.jobs import queue


@pytest.mark.slow
def test_a_profile_from_the_request_to_the_statement(tmp_path):
    ledgers.prepared()  # the files
    files = ledgers.scratch() / "files"
    doors = (*DOORS, *pages.DOORS, *datasets.DOORS, *job_pages.DOORS)
    with site_at(tmp_path / "home", doors) as site:
        home: Home = site.home
        rows = files / "rows.parquet", files / "schema.yaml"
        register(home, "adult", *rows, ledgers.TOTAL, ledgers.Relation.ADD_REMOVE, "record")
        secret = site.token("analyst", "train")
        asked = {"dataset": "adult", "epsilon": "1", "columns": ["age", "sex"], "pairs": [["age", "sex"]]}
        told = site.bear(secret, "POST", "/v1/profiles", json=asked)
        assert told.status_code == 202, told.text
        number = told.json()["job"]
        assert (told.json()["profile"], told.json()["learner"], told.json()["model"]) == (True, "profile", "")
        assert site.bear(secret, "GET", f"/v1/profiles/{number}").status_code == 404
        assert "counts how the rows" not in site.bear(secret, "GET", f"/ui/jobs/{number}").text
        assert queue.work_once(home) == number
        assert site.bear(secret, "GET", f"/v1/jobs/{number}").json()["state"] == "issued"
        body = site.bear(secret, "GET", f"/v1/profiles/{number}").json()
        verified = PROFILE.verify(json.dumps(body["envelope"]).encode(), body["proof"], home.trust)
        check(verified)
        assert verified.form.columns[0].mean == body["columns"][0]["mean"]
        again = site.bear(secret, "POST", "/v1/profiles", json=asked)
        assert (again.status_code, again.json()["job"]) == (202, number)
        listed = site.bear(secret, "GET", "/v1/datasets/adult/profiles").json()["profiles"]
        assert [each["job"] for each in listed] == [number]
        refused = site.bear(secret, "POST", "/v1/profiles", json=asked | {"epsilon": "2.9"})
        assert refused.status_code == 403
        assert refused.json()["error"]["details"]["would_fit"]
        for wrong in (
            {"part": "test"}, {"dataset": "nobody"}, {"epsilon": "-1"}, {"more": 1}, {"columns": ["nobody"]},
            {"columns": [1]}, {"pairs": [["age"]]}, {"pairs": ["age,sex"]}, {"delta": "1"},
        ):  # fmt: skip
            assert site.bear(secret, "POST", "/v1/profiles", json=asked | wrong).status_code in (400, 404), wrong
        page = site.bear(secret, "GET", f"/ui/profiles/{number}").text
        assert page.count('<svg class="bars') == 3
        assert "17 to 90" in page
        assert f"/ui/profiles/{number}" in site.bear(secret, "GET", "/ui/datasets/adult").text
        assert f"/ui/profiles/{number}" in site.bear(secret, "GET", f"/ui/jobs/{number}").text
        assert f"/v1/profiles/{number}/synthetic?format=csv" in page
        synthetic = f"/v1/profiles/{number}/synthetic"
        made = site.bear(secret, "GET", f"{synthetic}?rows=50&seed=3")
        table = pq.read_table(pa.BufferReader(made.content))
        assert (table.num_rows, table.column_names) == (50, ["age", "sex"])
        assert b"dpserve.synthetic" in table.schema.metadata
        assert (
            'filename="adult.synthetic.csv"'
            in site.bear(secret, "GET", f"{synthetic}?format=csv").headers["content-disposition"]
        )
        for wrong in ("rows=-1", "rows=0", "rows=2000000", "format=xls", "seed=x", "name=a"):
            assert site.bear(secret, "GET", f"{synthetic}?{wrong}").status_code == 400, wrong
        chosen = site.bear(
            secret, "POST", "/v1/plans/profiles", json={"dataset": "adult", "epsilon": "1", "around": "auto"}
        )
        assert chosen.json()["around"] == "income"
        grants.add(home.ledger, [grants.Grant("stranger", "evaluate", "model", "other")], "test")
        stranger, _ = new_token(home, "stranger", [], principal="stranger")
        site.look()
        for path in (f"/v1/profiles/{number}", synthetic):
            hidden = site.bear(stranger, "GET", path)
            assert (hidden.status_code, "adult" in hidden.text) == (403, False), hidden.text
        reader = site.token("reader", "predict")
        assert site.bear(reader, "POST", "/v1/profiles", json=asked).status_code == 403
        assert site.bear(reader, "GET", f"/v1/profiles/{number}").status_code == 403


@pytest.mark.slow
def test_a_query_from_the_form_to_the_table(tmp_path):
    ledgers.prepared()  # the files
    files = ledgers.scratch() / "files"
    doors = (*DOORS, *pages.DOORS, *job_pages.DOORS, *measurements.DOORS)
    with site_at(tmp_path / "home", doors) as site:
        home: Home = site.home
        rows = files / "rows.parquet", files / "schema.yaml"
        register(home, "adult", *rows, ledgers.TOTAL, ledgers.Relation.ADD_REMOVE, "record")
        secret = site.token("analyst", "train")
        asked = {"dataset": "adult", "select": "select sex, income, count(*), avg(age) from adult group by sex, income"}
        form = site.bear(secret, "GET", f"/ui/answers/new?{urlencode({**asked, 'epsilon': '1'})}").text
        assert "<dt>Groups</dt><dd>8</dd>" in form.replace("\n", " ")
        assert "dpserve query adult &#39;select sex, income" in form
        nothing = site.bear(secret, "POST", "/v1/plans/answers", json=asked)
        assert (nothing.status_code, "nothing that was released" in nothing.text) == (400, True)
        told = site.bear(secret, "POST", "/v1/answers", json=asked | {"epsilon": "1"})
        assert told.status_code == 202, told.text
        number = told.json()["job"]
        assert site.bear(secret, "GET", f"/v1/answers/{number}").status_code == 404
        assert queue.work_once(home) == number
        body = site.bear(secret, "GET", f"/v1/answers/{number}").json()
        check_table(ANSWER.verify(json.dumps(body["envelope"]).encode(), body["proof"], home.trust),
                    asked["select"], body["rows"])  # fmt: skip
        coarser = "select sex, count(*) from adult where income = '>50K' group by sex"
        again = site.bear(secret, "POST", "/v1/answers", json=asked | {"select": coarser})
        assert (again.status_code, again.json()["job"]) == (202, number)
        table = site.bear(secret, "GET", f"/v1/answers/{number}?{urlencode({'select': coarser})}").json()
        assert table["question"]["where"] == ["income is >50K"]
        assert site.bear(secret, "GET", f"/v1/answers/{number}?select=x").status_code == 400
        page = site.bear(secret, "GET", f"/ui/profiles/{number}").text
        assert page.count('<svg class="bars') == 1
        assert "avg age" in page
        assert "See the answer" in site.bear(secret, "GET", f"/ui/jobs/{number}").text
        for wrong in ({"select": "select 1"}, {"select": 1}, {"select": "x" * 1001}, {"epsilon": "-1"}, {"more": 1}):
            assert site.bear(secret, "POST", "/v1/answers", json=asked | {"epsilon": "1"} | wrong).status_code == 400
        reader = site.token("reader", "predict")
        assert site.bear(reader, "POST", "/v1/answers", json=asked).status_code == 403
        assert site.bear(reader, "GET", f"/v1/answers/{number}").status_code == 403

"""Lists as files: the lines of the page, filtered and sorted as it is, for whoever may see them there."""

from __future__ import annotations

import csv
import io
import re

import pyarrow.parquet as pq
import pytest
from pages_in_process import pages_at
from small_home import write_files

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.home import Home
from accountant.ledger.families.records import NewPeople
from dpserve_verify.privacy.budget import Budget, Relation
from serving.wire import lists
from training.datasets.datasets import register
from training.jobs import job
from training.jobs.schedule import add, make_schedule
from training.requests import JobRequest

NEW = NewPeople("made for a test", "steward")
FORMULA = "=cmd|' /C calc'!A0"
LISTS = ("datasets", "jobs", "models", "ledger", "schedules", "grants", "tokens")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Two datasets, a model, three jobs, a schedule, and a grant to somebody whose name is a formula."""
    folder = tmp_path_factory.mktemp("lists")
    files, home = write_files(folder / "files"), Home.init({"DPSERVE_HOME": str(folder / "home")})
    pq.write_table(pq.read_table(files / "rows.parquet").slice(1), files / "others.parquet")
    for name, rows in (("adult", "rows"), ("other", "others")):
        data, schema, budget = files / f"{rows}.parquet", files / "schema.yaml", Budget.of("3", "0.000001")
        register(home, name, data, schema, budget, Relation.ADD_REMOVE, None, new_people=NEW)
    job.train(home, JobRequest("adult", "lazybb", "0.2", parameters={"rounds": 3}), by="cli:ann")
    for name in ("adult", "other"):
        job.submit(home, JobRequest(name, "lazybb", "0.1", parameters={"rounds": 3}), by=FORMULA)
    with pages_at(folder / "home") as found:
        asked = {"dataset": "adult", "epsilon": "0.1", "learner": "lazybb"}
        add(home, make_schedule(home, "weekly", "week", asked, "token:the-admin", token=None))
        grants.add(home.ledger, [Grant(FORMULA, "train", "dataset", "adult")], "cli:ann")
        grants.add(home.ledger, [Grant("token:the-predict", "train", "dataset", "other")], "cli:ann")
        found.look()
        yield found


def lines(site, path, form="json", scope="admin", **asked):
    """Of the file that the page's own link names."""
    shown = site.page(path, scope, params=asked).text
    links = [each.replace("&amp;", "&") for each in re.findall(r'href="([^"]*form=[^"]*)" download', shown)]
    answer = site.page(next(each for each in links if f"form={form}" in each), scope)
    assert answer.status_code == 200, answer.text
    name = re.fullmatch(r'attachment; filename="([a-z]+)\.(csv|json)"', answer.headers["Content-Disposition"])
    assert name[2] == form
    assert answer.headers["Cache-Control"] == "no-store"
    return answer.json()[name[1]] if form == "json" else [*csv.DictReader(io.StringIO(answer.text))]


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_the_same_in_either_form(site, name):
    site.look()
    found, rows = lines(site, f"/ui/{name}"), lines(site, f"/ui/{name}", "csv")
    assert len(found) == len(rows) >= 1
    assert [*found[0]] == [*rows[0]]
    for line, row in zip(found, rows, strict=True):
        assert {key: "" if value is None else str(lists.cell(value)) for key, value in line.items()} == row


def test_a_list_is_filtered_and_sorted_as_the_page_is(site):
    site.look()
    assert [each["job"] for each in lines(site, "/ui/jobs")] == sorted(
        (each["job"] for each in lines(site, "/ui/jobs")), reverse=True
    )
    assert {each["dataset"] for each in lines(site, "/ui/jobs", dataset="other")} == {"other"}
    assert [each["state"] for each in lines(site, "/ui/jobs", dataset="adult", state="issued")] == ["issued"]
    assert [each["family"] for each in lines(site, "/ui/datasets", q="oth")] == ["other"]
    reserved = lines(site, "/ui/ledger", kind="reserved", dataset="adult")
    assert [each["kind"] for each in reserved] == ["reserved", "reserved"]
    assert [each["model"] for each in lines(site, "/ui/models", sort="newest")] == ["adult@1"]


def test_a_list_that_pages_show_in_parts_is_whole_in_its_file(site, monkeypatch):
    monkeypatch.setattr("serving.pages.ledger.PAGE", 2)
    monkeypatch.setattr(lists, "PART_LINES", 2)
    site.look()
    size = Home.open({"DPSERVE_HOME": str(site.home.path)}).ledger.log.size()
    assert [each["entry"] for each in lines(site, "/ui/ledger")] == [*range(size)][::-1]
    assert len(lines(site, "/ui/jobs")) == 3
    monkeypatch.setattr(lists, "MAX_LINES", 3)
    assert len(lines(site, "/ui/ledger")) == 3
    assert "the newest 3 at most" in site.page("/ui/ledger").text


def test_nothing_in_a_file_is_taken_for_a_formula(site):
    site.look()
    assert {each["principal"] for each in lines(site, "/ui/grants")} >= {FORMULA}
    assert {each["principal"] for each in lines(site, "/ui/grants", "csv")} >= {f"'{FORMULA}"}
    assert {each["by"] for each in lines(site, "/ui/jobs", "csv")} == {"cli:ann", f"'{FORMULA}"}
    for text in ("=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "-", "+e1"):
        assert lists.cell(text) == f"'{text}"
    for value in ("-0.25", "+3", "1e-6", "-1e-6", "words = more", "", 7, -7, None):
        assert lists.cell(value) is value
    assert lists.cell(("=a", "b")) == "'=a b"


def test_a_file_holds_what_its_page_shows_whoever_asks(site):
    site.look()
    own = lines(site, "/ui/grants", scope="predict")
    assert {each["principal"] for each in own} == {"token:the-predict"}
    assert [each["family"] for each in lines(site, "/ui/datasets", scope="predict")] == ["other"]
    for name in ("tokens", "ledger", "campaigns"):
        assert site.page(f"/ui/{name}?form=csv", "predict").status_code == 403
    secrets = [*site.secrets.values()]
    assert not any(secret in site.page(f"/ui/tokens?form={form}").text for form in lists.FORMS for secret in secrets)
    assert all("digest" not in each for each in lines(site, "/ui/tokens"))


@pytest.mark.parametrize("name", [*LISTS, "campaigns"])
def test_a_list_has_no_other_form(site, name):
    site.look()
    answer = site.page(f"/ui/{name}?form=xml")
    assert answer.status_code == 400
    assert "must be one of" in answer.text

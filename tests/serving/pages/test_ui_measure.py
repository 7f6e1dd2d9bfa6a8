"""Measuring and placing from the pages: the price first, what was priced and nothing else, the same as the command, and
afterwards what came of it."""

from __future__ import annotations

import json
import re
import shlex
import threading
from decimal import Decimal

import pytest
from pages_in_process import pages_at, words
from small_home import dpserve, write_files

from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation
from serving.pages.parts.commands import job_command
from training.datasets.datasets import register
from training.jobs import job, queue
from training.requests import JobRequest


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Adult with a fifth kept aside, and two versions of a model."""
    folder = tmp_path_factory.mktemp("measure")
    files, home = write_files(folder / "files"), Home.init({"DPSERVE_HOME": str(folder / "home")})
    data, schema, budget = files / "rows.parquet", files / "schema.yaml", Budget.of("9", "0.000001")
    register(home, "adult", data, schema, budget, Relation.ADD_REMOVE, None, holdout=Decimal("0.2"))
    for _ in range(2):
        job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 6}), by="cli:ann")
    with pages_at(folder / "home") as found:
        found.look()
        yield found


def hidden(page, name):
    return re.search(rf'name="{name}" value="([^"]*)"', page.text)[1]


def command_of(page):
    return shlex.split(re.search(r"<pre[^>]*>(dpserve [^<]*)</pre>", page.text)[1].replace("&#39;", "'"))


MEASURED = {
    "/ui/evaluations/new": ({"model": "adult@1", "dataset": "adult", "epsilon": "0.5"}, "auroc", "figures"),
    "/ui/profiles/new": (
        {"dataset": "adult", "epsilon": "0.4", "columns": "age, sex, income", "around": "auto"},
        "See the profile",
        "counts",
    ),
}


@pytest.mark.parametrize("path", MEASURED)
def test_a_measurement_is_priced_sent_and_shown(site, path):
    fields, figure, noun = MEASURED[path]
    assert "what it costs shows here" in words(site.page(path, params={**fields, "epsilon": ""}))
    asked = site.page(path, params=fields)
    assert re.search("Expect (AUROC ±|counts right within|by the noise alone)", words(asked))
    verb, name, *flags = command_of(asked)[1:]
    plan = json.loads(dpserve(site.home.path, verb, name, *flags, "--plan", "--json").stdout)
    assert float(plan["epsilon"]) == pytest.approx(float(fields["epsilon"]), abs=1e-5)
    assert f"(ε {fields['epsilon']})" in words(asked)

    priced, key = hidden(asked, "priced"), hidden(asked, "idempotency_key")
    size = site.home.ledger.log.size()
    stale = site.send(path, **{**fields, "epsilon": "0.6"}, priced=priced, idempotency_key=key)
    assert (stale.status_code, site.home.ledger.log.size()) == (409, size)
    assert "not what was priced" in words(stale)
    assert site.send(path, "audit", **fields, priced=priced, idempotency_key=key).status_code == 403
    sent = site.send(path, **fields, priced=priced, idempotency_key=key)
    assert sent.status_code == 303
    address = sent.headers["location"]
    assert site.send(path, **fields, priced=priced, idempotency_key=key).headers["location"] == address
    assert "It waits for a worker" in words(site.page(address))
    queue.work_once(site.home)

    shown = words(site.page(address))
    assert f"The {noun} are released, with a signed statement" in shown
    assert "Statement signed and entered" in shown
    assert "Training" not in shown
    assert "The model is released" not in shown
    assert "What it says" in shown
    assert figure in shown
    if noun == "figures":
        assert 'href="/ui/models/adult@1"' in site.page(address).text
        assert "Budget of the part kept aside of adult now" in shown
        assert "Gaussian" not in shown.partition("Budget of the part")[2], "an evaluation's noise is pure"
    assert "known already" in words(site.page(path, params=fields))


def test_what_does_not_fit_says_what_would(site):
    refused = words(site.page("/ui/evaluations/new", params={"model": "adult@1", "dataset": "adult", "epsilon": "10"}))
    assert "does not fit" in refused
    assert re.search(r"This one fits up to ε [89]", refused)
    assert "cannot be priced" in words(site.page("/ui/profiles/new", params={"dataset": "nobody", "epsilon": "1"}))


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"dataset": "a", "learner": "ebm", "epsilon": "1", "parameters": {"pairs": "x & y"}},
         "dpserve train a --learner ebm --epsilon 1 --set 'pairs=x & y'"),
        ({"dataset": "a", "learner": "ebm", "epsilon": "1", "target": "N° 2", "evaluate": ".5", "model": ""},
         "dpserve train a --learner ebm --epsilon 1 --target 'N° 2' --evaluate .5"),
        ({"dataset": "a", "epsilon": "1", "tuning": {"grid": {"rounds": ["5", "9"]}, "runs": "4"}},
         "dpserve tune a --epsilon 1 --grid rounds=5,9 --runs 4"),
    ],
)  # fmt: skip
def test_a_job_has_its_command(body, wanted):
    assert job_command(body) == wanted


def test_the_command_of_a_job_asks_for_the_same_price(site):
    asked = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.3", "evaluate": "0.2", "p.rounds": "7"}
    shown = site.page("/ui/jobs/price", params=asked)
    _, verb, *flags = command_of(shown)
    assert verb == "train"
    plan = json.loads(dpserve(site.home.path, "plan", *flags, "--json").stdout)
    assert (plan["evaluation"]["epsilon"], plan["rounds"]) == ("0.2", 9)
    assert float(plan["epsilon"]) == pytest.approx(0.3, abs=1e-5)
    assert "Noisy answers 9" in words(shown)


def test_after_promote_the_page_is_of_that_version_and_says_what_is_true(site):
    for version, other in ((2, 1), (1, 2)):
        site.look()
        sent = site.send("/ui/models/adult/place", version=str(version), what="promote", although="yes", why="a test")
        assert sent.headers["location"].startswith(f"/ui/models/adult@{version}?placed=")
        later = threading.Timer(0.4, site.look)  # as a server looks twice a second
        later.start()
        shown = words(site.page(sent.headers["location"]))
        later.join()
        assert f"adult now means adult@{version}" in shown
        assert re.search(rf"adult@{version} champion", shown)
        assert not re.search(rf"adult@{other} champion", shown)


@pytest.mark.slow
def test_two_models_stand_side_by_side(site):
    job.train(
        site.home, JobRequest("adult", "lazybb-tree", "0.4", parameters={"rounds": 2}, model="woods"), by="cli:ann"
    )
    site.look()
    alone = site.page("/ui/models/adult@1/compare")
    assert re.findall(r"<option>([^<]+)", alone.text) == ["adult@2", "woods@1"]
    both = site.page("/ui/models/adult@1/compare?with=adult@2")
    assert "adult@1 adult@2" in words(both)
    assert re.search(r"Price ε 0.5 at δ 10⁻⁶ ε 0.5 at δ 10⁻⁶", words(both))
    assert re.search(r"Worth .*for ε 0.5 nobody measured it", words(both)), "the first was measured, the second not"
    assert both.text.count("<svg role=") == 6
    assert shlex.split(re.search(r"<pre[^>]*>(dpserve [^<]*)</pre>", both.text)[1])[2:5] == [
        "explain",
        "adult@1",
        "--compare",
    ]
    woods = site.page("/ui/models/adult@1/compare?with=woods@1")
    assert woods.status_code == 200
    assert "its trees ask features together" in words(woods)
    assert site.page("/ui/models/adult@1/compare?with=nobody").status_code == 404

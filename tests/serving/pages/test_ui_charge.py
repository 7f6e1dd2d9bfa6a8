"""Charging from the page what was released elsewhere: what it would leave, then the same, once, by the steward."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from pages_in_process import pages_at, words
from small_home import dpserve, write_files

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.home import Home
from accountant.ledger.outside import charged_entries
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import register

AT = "/ui/datasets/adult/charge"
TYPED = {"kind": "rho", "figure": "0.02", "mechanism": "census table 12", "why": "published in May"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("charge")
    files, home = write_files(folder / "files"), Home.init({"DPSERVE_HOME": str(folder / "home")})
    total = Budget.of("3", "0.000001")
    register(home, "adult", files / "rows.parquet", files / "schema.yaml", total, Relation.ADD_REMOVE, None)
    with pages_at(folder / "home") as pages:
        yield pages


def priced(page):
    return re.search(r'name="priced" value="([0-9a-f]{64})"', page.text)[1]


def test_a_charge_shows_what_it_leaves_and_enters_exactly_that_once(site):
    assert "what would be left shows here" in words(site.page(AT))
    size = site.home.ledger.log.size()
    shown = site.send(AT, **TYPED)
    assert shown.status_code == 200
    room = re.search(r"Room for one more job: up to ε [0-9.]+", words(shown))[0]
    command = shlex.split(re.search(r"<pre[^>]*>(dpserve [^<]*)</pre>", shown.text)[1].replace("&#39;", "'"))
    plan = json.loads(dpserve(site.home.path, *command[1:], "--plan", "--json").stdout)
    assert plan["budget"]["left"]["one_job"]["epsilon"] in room
    stale = site.send(AT, **TYPED | {"figure": "0.01"}, priced=priced(shown))
    assert (stale.status_code, site.home.ledger.log.size()) == (409, size)
    assert "not what was priced" in words(stale)
    sent = site.send(AT, **TYPED, priced=priced(shown))
    assert (sent.status_code, sent.headers["location"]) == (303, "/ui/datasets/adult#elsewhere")
    (entry,) = charged_entries(site.home.ledger)
    assert {name: entry.value[name] for name in ("curve", "by")} == {"curve": {"rho": "0.02"}, "by": "token:the-admin"}
    again = site.send(AT, **TYPED, priced=priced(shown))
    assert again.status_code == 409
    assert "was charged before" in words(again)
    assert site.home.ledger.log.size() == size + 1
    page = words(site.page("/ui/datasets/adult"))
    assert room in page
    assert "1 release made elsewhere: 11 % of the budget" in page


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"figure": "-1"}, "must be &gt; 0"),
        ({"figure": "nan"}, "finite"),
        ({"figure": "1e999"}, "finite"),
        ({"figure": "90"}, "does not fit"),
        ({"renyi": '{"2": 0.1}'}, "two stated"),
        ({"figure": "", "renyi": "{"}, "JSON"),
        ({"figure": "", "renyi": '{"2": "NaN"}'}, "finite"),
        ({"unit": "person"}, "protects one record"),
        ({"figure": "", "statement": '{"payload": "", "payloadType": "", "signatures": []}'}, "key: say whose"),
        ({"figure": "", "statement": '{"history": [[1, 2, 3]]}'}, "sample rate 2"),
        ({"statement": '{"history": [[1, 0.01, 3]]}'}, "rho: follows from the statement"),
        ({"contributions": "two"}, "whole number"),
        ({"document": "short"}, "sha256"),
    ],
)  # fmt: skip
def test_what_cannot_be_charged_is_refused_beside_the_form(site, changes, problem):
    size = site.home.ledger.log.size()
    shown = site.send(AT, **TYPED | changes)
    assert shown.status_code == 200
    assert problem in shown.text
    assert 'name="priced"' not in shown.text
    assert site.home.ledger.log.size() == size


def test_a_statement_s_text_is_priced_and_charged(site):
    """With a line end of a browser's own in the key."""
    typed = TYPED | {"figure": "", "statement": '{"history": [[4.0, 0.01, 30]], "mechanism": "rdp"}'}
    shown = site.send(AT, **typed)
    assert "--from FILE" in shown.text
    assert site.send(AT, **typed, priced=priced(shown)).status_code == 303
    assert charged_entries(site.home.ledger)[-1].value["curve"].keys() == {"renyi"}
    pem = site.home.trust.issuers[0].pem
    envelope = '{"payload": "e30=", "payloadType": "application/vnd.in-toto+json", "signatures": []}'
    refused = site.send(AT, **typed | {"statement": envelope, "key": pem.replace("\n", "\r\n")})
    assert "signatures" in refused.text  # and no fault of the key


def test_only_a_steward_of_this_dataset_reaches_the_form(site):
    for scope in ("train", "audit", "predict"):
        assert site.page(AT, scope).status_code == 403
        assert site.send(AT, scope, **TYPED).status_code == 403
        assert AT not in site.page("/ui/datasets/adult", scope).text
    grants.add(site.home.ledger, [Grant("token:the-train", "steward", "dataset", "adult")], "cli:root")
    site.look()
    assert site.send(AT, "train", **TYPED).status_code == 200
    assert AT in site.page("/ui/datasets/adult", "train").text
    unnamed = site.send(AT, **TYPED | {"why": "", "figure": "0.001"})
    assert 'name="priced"' not in unnamed.text
    assert "Say what released it, and why" in words(unnamed)

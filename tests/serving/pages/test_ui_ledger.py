"""The pages of the ledger: all of it, in plain words, found, and proven."""

from __future__ import annotations

import re
from html import unescape

import ledgers
import pytest
from ledgers import hexes, registration
from pages_in_process import pages_at, words

from accountant.access import grants
from accountant.access.key_life import mark_compromised, revoke, rotate
from accountant.ledger import block_appending, model_names
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families.records import NewPeople, Unit, Why
from accountant.ledger.families.windows import Period
from accountant.ledger.job_rows import resume
from dpserve_verify.entries.kinds import FORMS
from dpserve_verify.formats.canonical import encode
from dpserve_verify.formats.merkle import leaf_hash
from dpserve_verify.log.entry import read_entry
from dpserve_verify.log.proofs import parse_proof, verify_proof
from dpserve_verify.privacy.budget import Budget
from serving.pages import ledger
from serving.pages.parts.entry_text import LABELS, describe

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    home = ledgers.copy(ledgers.filled(), tmp_path_factory.mktemp("ui") / "home")
    with pages_at(home) as found:
        issued = kinds(found)["issued"]
        name = found.home.ledger.log.entry(issued).value["name"]
        model_names.record(found.home.ledger, "model-promoted", name, 1, issued, "better", "steward")
        revoke(found.home, issued, "steward", EVIL)
        found.look()
        yield found


def kinds(pages):
    return {entry.value["type"]: entry.seq for entry in pages.home.ledger.log.entries()}


def numbers(response):
    return [int(each) for each in re.findall(r'class="entry-number" href="/ui/ledger/(\d+)"', response.text)]


def test_everything_is_there_newest_first(pages):
    size = pages.home.ledger.log.size()
    assert numbers(pages.page("/ui/ledger")) == [*range(size)][::-1]
    assert f"{size} entries in all" in words(pages.page("/ui/ledger"))


def test_pages_lead_from_one_to_the_next_and_back(pages, monkeypatch):
    monkeypatch.setattr(ledger, "PAGE", 10)
    size, path, seen, newer = pages.home.ledger.log.size(), "/ui/ledger", [], []
    while path:
        response = pages.page(path)
        seen += numbers(response)
        newer += re.findall(r'href="([^"]*)" rel="prev"', response.text)
        path = unescape((re.findall(r'href="([^"]*)" rel="next"', response.text) or [""])[0])
    assert seen == [*range(size)][::-1]
    assert newer == ["/ui/ledger", *(f"/ui/ledger?before={before}" for before in range(size - 10, 10, -10))]


def test_search_keeps_what_was_asked(pages):
    response = pages.page("/ui/ledger?dataset=adult&kind=reserved&text=TEST&name=&job=")
    found = [pages.home.ledger.log.entry(number).value for number in numbers(response)]
    assert {(each["type"], each["dataset"]) for each in found} == {("reserved", "adult")}
    assert 'value="adult"' in response.text
    assert 'value="TEST"' in response.text
    assert re.search(r'value="reserved"\s+selected', response.text)


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("dataset=nobody", 404, "no such dataset"),
        ("job=x", 400, "must be a whole number"),
        ("kind=nothing", 400, "must be one of"),
        ("text=no such text", 200, "Nothing was found"),
        ("job=3&kind=genesis", 200, "Nothing was found"),
    ],
)  # fmt: skip
def test_what_finds_nothing_says_why(pages, query, status, says):
    response = pages.page(f"/ui/ledger?{query}")
    assert (response.status_code, numbers(response)) == (status, [])
    assert says in words(response)


@pytest.mark.parametrize("query", ["before=x", "colour=red", "text=a&text=b", "entry=-1"])
def test_what_is_no_question_is_refused(pages, query):
    assert pages.page(f"/ui/ledger?{query}").status_code == 400


def test_number_leads_to_its_entry(pages):
    response = pages.page("/ui/ledger?entry=3")
    assert (response.status_code, response.headers["location"]) == (303, "/ui/ledger/3")


def test_entry_holds_exact_bytes_words_and_the_story_of_its_job(pages):
    issued = kinds(pages)["issued"]
    entry = pages.home.ledger.log.entry(issued)
    response = pages.page(f"/ui/ledger/{issued}")
    exact = re.search(r'<code id="exact">(.*?)</code>', response.text, re.S)
    assert unescape(exact[1]).encode() == entry.body
    assert leaf_hash(entry.body).hex() in response.text
    said = words(response)
    assert describe(entry).words in said
    job = entry.value["reservation"]
    for words_of in ("budget reserved", "job started", "job finished", "certificate issued", "certificate revoked"):
        assert words_of in said
    assert f"The story of job {job}" in said


def test_every_entry_has_a_page(pages):
    for number in range(pages.home.ledger.log.size()):
        assert pages.page(f"/ui/ledger/{number}").status_code == 200


def test_proof_is_one_that_anybody_can_check(pages):
    response = pages.page("/ui/ledger/5/proof", "audit")
    assert response.headers["content-disposition"] == 'attachment; filename="entry-5.tlog-proof"'
    proof, log = parse_proof(response.text), pages.home.ledger.log
    assert (proof.index, proof.extra) == (5, log.entry(5).body)
    trust = pages.home.trust
    head = verify_proof(proof, log.entry(5).body, trust.origin, trust.log_key_at(log.size()))
    assert head.size == log.size()


def test_number_beyond_the_end_is_no_entry(pages):
    for path in ("/ui/ledger/9999", "/ui/ledger/9999/proof"):
        response = pages.page(path)
        assert response.status_code == 404
        assert "<h1>" in response.text


@pytest.mark.parametrize("path", ["/ui/ledger", "/ui/ledger/0", "/ui/ledger/0/proof"])
@pytest.mark.parametrize(("scope", "status"), [("predict", 403), ("train", 403), ("audit", 200), ("admin", 200)])
def test_ledger_is_for_auditors(pages, path, scope, status):
    assert pages.page(path, scope).status_code == status


def test_texts_of_people_stay_text(pages):
    revoked = kinds(pages)["revoked"]
    for path in ("/ui/ledger", f"/ui/ledger/{revoked}", f"/ui/ledger?text={EVIL}", f"/ui/ledger?name={EVIL}&job=1"):
        response = pages.page(path)
        assert EVIL not in response.text
        assert "&lt;script&gt;" in response.text


MADE_ELSEWHERE = (
    {"type": "attack-started", "reservation": 7, "coins": hexes("coins"), "by": "steward"},
    {
        "type": "attacked", "reservation": 7, "started": 8, "coins": hexes("coins"), "statement": hexes("attack"),
        "model": hexes("model"), "name": "visits", "runs": 200, "right": 120, "signed_by": hexes("key"),
    },
    {
        "type": "campaign-answered", "reservation": 7, "definition": hexes("asked"), "aggregator": 1,
        "answer": hexes("sum"),
    },
    {
        "type": "charged", "dataset": "visits", "curve": {"rho": "0.1"}, "mechanism": "census table", "unit": "record",
        "contributions": 3, "document": hexes("table"), "reason": "yearly", "by": "steward",
    },
    {
        "type": "learner-admitted", "name": "bayes", "digest": hexes("text"), "class": "NaiveBayes", "author": "ana",
        "report": hexes("report"), "neighbours": 100, "datasets": ["visits"], "reason": "yearly", "by": "steward",
    },
    {"type": "learner-removed", "name": "bayes", "admitted": 9, "reason": "yearly", "by": "steward"},
    {"type": "dataset-archived", "dataset": "visits", "reason": "yearly", "by": "steward"},
    {"type": "dataset-unarchived", "dataset": "visits", "reason": "yearly", "by": "steward"},
    {"type": "dataset-withdrawn", "dataset": "visits", "registered": 2, "reason": "yearly", "by": "steward"},
    {"type": "model-archived", "name": "visits", "reason": "yearly", "by": "steward"},
    {"type": "model-unarchived", "name": "visits", "reason": "yearly", "by": "steward"},
    {"type": "rows-compared", "door": "append", "dataset": "visits", "concerns": ["clinic"], "by": "steward"},
    {
        "type": "schedule-added", "name": "weekly", "every": "week", "since": 0, "by": "cli:ana", "token": 3,
        "asked": {"dataset": "visits", "epsilon": "0.1"},
    },
    {"type": "schedule-stopped", "schedule": 4, "reason": "yearly"},
    {"type": "schedule-removed", "schedule": 4, "by": "cli:ana"},
)  # fmt: skip


def test_every_kind_has_words_of_its_own(pages):
    assert set(LABELS) == set(FORMS)
    home = pages.home
    rotate(home, "issuer", "steward", "yearly")
    current = home.keys.key("issuer").keyid
    mark_compromised(home, current, home.ledger.log.size() - 1, "steward", "lost")
    (granted,) = grants.add(home.ledger, [grants.Grant("shop", "predict")], "steward")
    grants.revoke(home.ledger, granted.index, Why("steward", "yearly"))
    home.ledger.register(registration("grown", commitment=hexes("grown")))
    days = Period("day", "2026-01-05", "2026-01-11")
    block = NewBlock("grown", hexes("more"), 10, "steward", days, NewPeople("a test", "steward"))
    block_appending.append(home.ledger.log, block, 2)
    block_appending.drop(home.ledger.log, "grown", 1, Why("steward", "yearly"))
    each = {"unit": Unit("person", "name"), "person": Budget.of("9", "0.000001"), "commitment": hexes("persons")}
    home.ledger.register(registration("persons", **each))
    running = next(each for each in home.ledger.leases() if each.state == "started")
    resume(home.ledger.log, running, "another", 60.0)
    said = {entry.value["type"]: describe(entry).words for entry in home.ledger.log.entries()}
    for value in MADE_ELSEWHERE:  # by what needs owners, or a file that stands there already
        entry = read_entry(9, encode({**value, "time": "2026-01-01T00:00:00Z"}))
        said[entry.value["type"]] = describe(entry).words
    for words_of in said.values():
        assert words_of.endswith((".", "yearly", "lost", "better", "a test", EVIL))
    assert len(set(said.values())) == len(said)
    assert len(said) == len(FORMS) - 8  # tests/local/campaign has campaigns', tests/training/measuring that of profiles


def test_entry_of_a_newer_version_is_shown_as_it_is():
    body = b'{"colour":"red","time":"2026-01-01T00:00:00Z","type":"painted"}'
    found = describe(read_entry(7, body))
    assert (found.label, found.text) == ("of another kind", body.decode())
    assert "does not know" in found.words

"""The documentation as the server shows it: every page is there, and every link and picture of it leads somewhere."""

from __future__ import annotations

import json
import re

import pytest
from small_home import ROOT

from accountant.errors import UnknownName
from serving.pages.parts import render
from serving.pages.parts.manual_search import MOST_PAGES, search
from serving.pages.parts.ui import HELP


def anchors(name):
    return set(re.findall(r'<h\d id="([^"]+)"', render.page(name).html))


@pytest.mark.slow
def test_every_link_leads_somewhere():
    found, broken = render.manual(), []
    for name in found.pages:
        for link in re.findall(r'(?:href|src)="([^"]+)"', render.page(name).html):
            path, _, anchor = link.partition("#")
            target = path.removeprefix("/docs/") if path else name
            if re.match("[a-z]+:", link) or target in found.files:
                continue
            if target not in found.pages or (anchor and anchor not in anchors(target)):
                broken.append((name, link))
    assert not broken


@pytest.mark.slow
def test_no_page_has_a_style_of_its_own_and_the_schemas_are_served():
    """The pages' policy takes no styles inline: columns of figures stand right by a class. What pages link is there."""
    found = render.manual()
    assert [name for name in found.pages if re.search(r"<[^>]*\sstyle=", render.page(name).html)] == []
    assert render.page("results/measured").html.count('<td class="number">') > 5
    assert found.files["audit.sh"].read_text("utf-8").startswith("#!/bin/sh\n")
    for name in ("certificate.schema.json", "profile.schema.json", "answer.schema.json", "worth.schema.json"):
        assert json.loads(found.files[name].read_bytes())["$schema"]
        assert render.FILES[".json"] == "application/json"


def test_help_of_pages_is_there():
    for start, at in HELP:
        name, _, anchor = at.partition("#")
        assert not anchor or anchor in anchors(name), start
        assert name in render.manual().pages, start


def test_contents_name_every_page_of_the_site():
    pages = {path.relative_to(ROOT / "docs").as_posix().removesuffix(".md") for path in (ROOT / "docs").rglob("*.md")}
    pages |= {
        f"reference/{name}"
        for name in ("python", "commands", "rest", "learners", "errors", "settings", "metrics", "alerts", "access")
    }
    assert {name for _, listed in render.manual().contents for _, name in listed} == pages | {"changelog"}


def test_what_is_made_from_the_code_is_shown_and_found():
    assert {"clienttrain", "clientexplain"} <= anchors("reference/python")
    runbooks = re.findall(r"runbook: /docs/(\S+)#(\w+)", (ROOT / "serving" / "grafana" / "alerts.yml").read_text())
    assert runbooks
    assert [each for each in runbooks if each[1] not in anchors(each[0])] == []
    assert "An example" in render.page("reference/rest").html
    assert "reference/python#clienttrain" in [each.address for each in search("Client.train idempotency_key")]
    assert "<table>" in render.page("reference/errors").html


@pytest.mark.parametrize("name", ["../pyproject", "/etc/passwd", "reference", "no-such"])
def test_what_is_no_page(name):
    with pytest.raises(UnknownName):
        render.page(name)


@pytest.mark.parametrize(
    ("question", "address"),
    [
        ("GDPR", "delete-a-person"),
        ("erase", "delete-a-person"),
        ("delete a person", "delete-a-person"),
        ("monthly", "growing"),
        ("price of a month", "growing"),
        ("What happens when epsilon runs out?", "glossary#what-happens-at-the-end-of-the-budget"),
        ("rotate a key", "reference/home#rotation"),
        ("delta", "budget-year#"),
        ("a count's noise", "querying#what-it-costs"),
        ("how do I verify a certificate", "first-steps#check-a-certificate"),
        ("synthetic rows", "profile#synthetic-rows"),
        ("restore", "reference/failures#what-is-lost"),
        ("write a learner", "reference/others"),
        ("regression", "reference/training#learning-a-number"),
        ("federated", "reference/institutions"),
        ("k8s", "deployment"),
        ("exit code", "reference/clients#exit-codes-and-common-options"),
        ("upload a file", "tutorials/messy#in-the-browser"),
        ("what is epsilon", "glossary#questions-about-epsilon"),
        ("a year of budget", "budget-year"),
    ],
)
def test_a_question_finds_its_section_first(question, address):
    assert search(question)[0].address.startswith(address)


def test_what_a_search_shows():
    """A section of a page, once for each page, with the words that were looked for marked and nothing else of HTML."""
    matches = search("training a model with epsilon")
    names = [each.address.partition("#")[0] for each in matches]
    assert len(set(names)) == len(names) == MOST_PAGES
    assert "<mark>" in matches[0].excerpt
    assert not any("<" in re.sub("</?mark>", "", each.excerpt) for each in matches)
    for each in matches:
        name, _, anchor = each.address.partition("#")
        assert not anchor or anchor in anchors(name)


@pytest.mark.parametrize("text", ["", "-", '"', "NEAR(a b)", "a*", "a AND", "{x}: y", "'; --", "\x00", "%", "æøå" * 60])
def test_any_text_is_a_search(text):
    assert isinstance(search(text), list)

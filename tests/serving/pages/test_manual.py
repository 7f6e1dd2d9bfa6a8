"""The documentation as the server shows it: every page is there, and every link and picture of it leads somewhere."""

from __future__ import annotations

import json
import re

import pytest
from small_home import ROOT

from accountant.errors import UnknownName
from serving.pages.parts import render
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
    assert render.page("results/speed").html.count('<td class="number">') > 5
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
        for name in ("python", "commands", "rest", "learners", "errors", "settings", "metrics", "access")
    }
    assert {name for _, listed in render.manual().contents for _, name in listed} == pages | {"changelog"}


def test_what_is_made_from_the_code_is_shown_and_found():
    assert {"clienttrain", "clientexplain"} <= anchors("reference/python")
    assert "An example" in render.page("reference/rest").html
    assert "reference/python" in [each.name for each in render.search("Client.train idempotency_key")]
    assert "<table>" in render.page("reference/errors").html


@pytest.mark.parametrize("name", ["../pyproject", "/etc/passwd", "reference", "no-such"])
def test_what_is_no_page(name):
    with pytest.raises(UnknownName):
        render.page(name)

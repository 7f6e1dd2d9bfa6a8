"""Pictures and pages of additive models: everything released is in them, nothing is fetched, no name can break them."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from base64 import b64encode
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from additive_models import BARE, CLASSES, COLUMNS, NUMBER

from accountant.errors import InputError
from models.edits import Edit
from models.explain.explain import shapes, unit
from models.explain.picture import picture
from models.explain.svg import Scale, amount
from models.explain.svg_shapes import said, shape_panels

RECORD = {name: values[:1] for name, values in COLUMNS.items()}


def page_of(ensemble, folder, **more):
    picture(ensemble, "the claim", folder / "page.html", **more)
    return (folder / "page.html").read_text("utf-8")


class Texts(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.words, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words.append(data)


def read(page):
    found = Texts()
    found.feed(page)
    return found


@pytest.mark.parametrize("ensemble", [CLASSES, NUMBER, BARE])
def test_every_bin_of_every_feature_is_told(tmp_path, ensemble):
    words = set(read(page_of(ensemble, tmp_path)).words)
    for shape in shapes(ensemble):
        for each in shape.bins:
            assert said(each, unit(ensemble)) in words


def test_the_page_asks_for_nothing(tmp_path):
    page = page_of(CLASSES, tmp_path, record=RECORD)
    found = read(page)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", page.replace("http://www.w3.org/2000/svg", ""))
    assert not {"img", "link", "iframe", "object", "embed", "base", "b"} & set(found.tags)
    assert {value[0] for name, value in found.attributes if name in ("href", "src")} == {"#"}
    assert found.tags.count("script") == 1


def test_the_policy_names_the_one_script(tmp_path):
    page = page_of(CLASSES, tmp_path)
    [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_links_lead_to_the_drawings(tmp_path):
    found = read(page_of(CLASSES, tmp_path))
    marks = {f"#{value}" for name, value in found.attributes if name == "id"}
    links = [value for name, value in found.attributes if name == "href"]
    assert len(links) == 3
    assert set(links) <= marks


def test_edits_are_told(tmp_path):
    edit = Edit("2026-01-02T03:04:05+00:00", "ada", "it <falls>", "age", '{"kind":"zero"}')
    words = read(page_of(replace(CLASSES, edits=(edit,)), tmp_path)).words
    assert {"ada", "it <falls>", '{"kind":"zero"}'} <= set(words)


def test_svg_is_well_formed_and_png_is_drawn(tmp_path):
    for ensemble in (CLASSES, NUMBER, BARE):
        picture(ensemble, "a < b & c", tmp_path / "out.svg")
        root = ElementTree.fromstring((tmp_path / "out.svg").read_text("utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "a < b & c" in "".join(root.itertext())
        picture(ensemble, "claim", tmp_path / "out.png")
        assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_the_band_is_twice_the_error_and_absent_without(tmp_path):
    [age, *_] = shape_panels(CLASSES)
    [wide] = re.findall(r'<path d="M([^"]*)Z" class="wide a"/>', age.body)
    [line] = re.findall(r'<path d="M([^"]*)" class="line a"/>', age.body)
    upper, middle = (float(each.split("L")[0].split()[1]) for each in (wide, line))
    lower = float(wide.split("L")[-1].split()[1])
    assert upper < middle < lower
    assert middle - upper == pytest.approx(lower - middle, abs=0.02)
    [bare, *_] = shape_panels(BARE)
    [flat] = re.findall(r'<path d="M([^"]*)Z" class="wide a"/>', bare.body)
    places = flat.split("L")
    assert places[: len(places) // 2] == places[: len(places) // 2 - 1 : -1]


def test_one_record(tmp_path):
    for name in ("one.svg", "one.png", "one.html"):
        picture(CLASSES, "claim", tmp_path / name, RECORD)
    words = "".join(ElementTree.fromstring((tmp_path / "one.svg").read_text("utf-8")).itertext())
    share = CLASSES.probabilities(RECORD)[0, 1]
    assert f"income >50K: {share:.1%}" in words
    assert "age = 30" in words
    assert "work <b> = Private" in words


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"\.png, \.svg or \.html"):
        picture(CLASSES, "claim", tmp_path / "out.pdf")
    with pytest.raises(InputError, match="cannot be written"):
        picture(CLASSES, "claim", tmp_path / "nowhere" / "out.svg")


def test_scales_and_numbers():
    assert Scale(-1, 1, 0, 100)(5) == 100
    assert Scale(0, 10, 0, 1).ticks() == [0, 2, 4, 6, 8, 10]
    assert Scale(3, 3, 0, 1)(3) == 0
    assert [amount(each) for each in (0.0, 79967.4, -0.04125, 12.0)] == ["0", "+79,967", "−0.0413", "+12"]


@pytest.mark.system("chromium")
def test_a_browser_runs_the_script_under_the_policy(tmp_path):
    page_of(CLASSES, tmp_path)
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"]
    where = [f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "page.html").as_uri()]
    done = subprocess.run(
        [shutil.which("chromium"), *quiet, *where], capture_output=True, text=True, timeout=120, check=True
    )
    assert 'data-says="up to 18: ' in done.stdout
    assert 'tabindex="0"' in done.stdout

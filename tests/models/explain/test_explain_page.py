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

from dpserve_verify.errors import InputError
from models.explain.explain import shapes, unit
from models.explain.picture import picture
from models.explain.shapes import shape_panels
from models.explain.vega_files import write_drawing
from models.explain.vega_panels import LIGHT, words_of
from models.explain.vega_parts import amount
from models.parts.edits import Edit

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


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", [CLASSES, NUMBER, BARE])
def test_every_bin_of_every_feature_is_told(tmp_path, ensemble):
    words = {value for name, value in read(page_of(ensemble, tmp_path)).attributes if name == "aria-label"}
    for shape in shapes(ensemble):
        for each in shape.bins:
            assert words_of(each, unit(ensemble)) in words


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


@pytest.mark.slow
def test_svg_is_well_formed_and_png_is_drawn(tmp_path):
    for ensemble in (CLASSES, NUMBER, BARE):
        picture(ensemble, "a < b & c", tmp_path / "out.svg")
        root = ElementTree.fromstring((tmp_path / "out.svg").read_text("utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "a < b & c" in "".join(root.itertext())
        picture(ensemble, "claim", tmp_path / "out.png")
        assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def layers(panel, kind):
    return [layer for layer in panel.spec["layer"] if layer["mark"]["type"] == kind]


def test_the_band_is_twice_the_error_and_absent_without():
    [age, *_] = shape_panels(CLASSES, LIGHT)
    wide, close = layers(age, "area")
    for times, band in ((2, wide), (1, close)):
        ends = [
            (row[band["encoding"]["y"]["field"]], row[band["encoding"]["y2"]["field"]])
            for row in band["data"]["values"]
        ]
        bins = [each for each in shapes(CLASSES)[0].bins if each.low is not None for _ in "ab"]
        assert ends == [(each.votes - times * each.error, each.votes + times * each.error) for each in bins]
    [line] = layers(age, "line")
    assert [row["value"] for row in line["data"]["values"]] == [each.votes for each in bins]
    [bare, *_] = shape_panels(BARE, LIGHT)
    assert all(row["low2"] == row["high2"] == row["value"] for row in layers(bare, "area")[0]["data"]["values"])


def test_bars_have_their_whiskers_and_counts():
    _, work, _ = shape_panels(CLASSES, LIGHT)
    rows = layers(work, "rect")[1]["data"]["values"]
    bins = sorted(shapes(CLASSES)[1].bins, key=lambda each: -each.votes)
    assert [row["value"] for row in rows] == [each.votes for each in bins]
    assert [row["high"] - row["value"] for row in rows] == pytest.approx([2 * each.error for each in bins])
    long = [row["count"] - min(row["count"] for row in rows) for row in rows]
    assert long == pytest.approx([48 * (max(each.count, 0) / 60) ** 0.5 for each in bins])


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


def test_what_is_beyond_a_scale_ends_at_its_edge():
    found = [
        where["scale"]
        for panel in shape_panels(CLASSES, LIGHT)
        for layer in panel.spec["layer"]
        for where in layer["encoding"].values()
        if where and where.get("scale")
    ]
    assert found
    assert all(scale["clamp"] and scale["domain"][0] < scale["domain"][1] for scale in found)


def test_numbers():
    assert [amount(each) for each in (0.0, 79967.4, -0.04125, 12.0)] == ["0", "+79,967", "−0.0413", "+12"]


@pytest.mark.slow
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


def test_a_picture_whose_letters_no_font_here_has_is_refused_and_a_page_is_written(tmp_path):
    """Pixels need the fonts of this machine: it would be a row of empty boxes."""
    letter = "\U00012f90"  # of Cypro-Minoan, which next to no font has
    drawn = f'<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40"><text y="30">Größe {letter}</text></svg>'
    with pytest.raises(InputError, match=f"no font of this machine has {letter}; name an .svg or .html"):
        write_drawing(tmp_path / "out.png", lambda: drawn, lambda: drawn)
    assert not (tmp_path / "out.png").exists()
    write_drawing(tmp_path / "out.html", lambda: drawn, lambda: drawn)
    write_drawing(tmp_path / "out.png", lambda: drawn.replace(letter, "für"), lambda: drawn)
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")

"""Drawings of pages stand beside those of the library that draws the files: the same marks, at the same places."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from additive_models import CLASSES, COLUMNS, NUMBER

from models.explain.heat import heat_panels
from models.explain.record import record_panels
from models.explain.shapes import shape_panels
from models.explain.svg import letters_width, ticks, to_page_svg
from models.explain.vega import to_svg
from models.explain.vega_panels import LIGHT, key_panel
from models.explain.vega_parts import CONFIG
from models.features.features import DateFeature, NumericFeature
from models.parts.pairs import PairTerm

RECORD = {name: values[:1] for name, values in COLUMNS.items()}
DAYS = replace(CLASSES, features=(DateFeature("day", (19000.0, 19040.5, 19100.5)), *CLASSES.features[1:]))
EVIL = replace(CLASSES, features=(NumericFeature('<b>"&', (1.0, 10.0, 2e6)), *CLASSES.features[1:]))
ROWS, WIDE = (range(feature.bins) for feature in CLASSES.features[:2])
CELLS = tuple(tuple((row - 1) * (at - 1) for at in WIDE) for row in ROWS)
PAIR = PairTerm((0, 1), (tuple(ROWS), tuple(WIDE)), CELLS, CELLS, ((0.5,) * len(WIDE),) * len(ROWS))
PLACE = re.compile(r"translate\(([-\d.]+), ?([-\d.]+)\)")


def panels():
    yield from shape_panels(CLASSES, LIGHT)
    yield from shape_panels(NUMBER, LIGHT)
    yield shape_panels(DAYS, LIGHT)[0]
    yield shape_panels(EVIL, LIGHT)[0]
    yield from heat_panels(replace(CLASSES, pairs=(PAIR,)), LIGHT)
    yield from record_panels(CLASSES, RECORD, LIGHT)
    yield key_panel("classes", ("a", "a" * 60), ("#112233", "#445566"), LIGHT)


def marks(svg):
    """Words, and the boxes of what is pointed at, with their places in the drawing."""
    texts, boxes = [], []

    def walk(node, x, y):
        for a, b in PLACE.findall(node.get("transform", "")):
            x, y = x + float(a), y + float(b)
        tag = node.tag.rpartition("}")[2]
        if tag == "text" and node.text:
            texts.append((node.text, x + float(node.get("x", 0)), y + float(node.get("y", 0))))
        if tag == "path" and node.get("aria-label"):
            boxes.append((node.get("aria-label"), x, y, node.get("d")))
        for child in node:
            walk(child, x, y)

    walk(ElementTree.fromstring(svg), 0.0, 0.0)
    return texts, boxes


def corner(box):
    """The upper left corner of a rectangle, and its size."""
    _, x, y, d = box
    at, edges = [float(each) for each in re.match(r"M([-\d.]+),([-\d.]+)", d).groups()], {"H": 0.0, "V": 0.0}
    for kind, end in re.findall(r"([hHvV])([-\d.]+)", d)[:2]:
        along = kind.upper()
        edges[along] = float(end) if kind.islower() else float(end) - at[along == "V"]
    return x + at[0], y + at[1], edges["H"], edges["V"]


@pytest.mark.parametrize("panel", list(panels()), ids=lambda panel: panel.name)
def test_a_page_draws_what_a_file_draws(panel):
    ours, theirs = to_page_svg(panel), to_svg({"config": CONFIG, "padding": 0, **panel.spec})
    (texts, boxes), (their_texts, their_boxes) = marks(ours), marks(theirs)
    assert len(boxes) == len(their_boxes) >= len(panel.labels)
    for box, their in zip(boxes, their_boxes, strict=True):
        assert (box[0], corner(box)) == (their[0], pytest.approx(corner(their), abs=0.05))
    for text, x, y in texts:
        near = [each for each in their_texts if abs(each[1] - x) < 1.5 and abs(each[2] - y) < 1.5]
        assert near, (text, x, y)
        assert any(each[0] == text or each[0][:4] == text[:4] for each in near), (text, near)
    fewer = 2 if panel.name == "day" else 0  # days that would stand on one another, as they do in the file
    assert len(texts) == len(their_texts) - fewer
    assert len(ours) < len(theirs)


@pytest.mark.parametrize(
    ("low", "high", "count", "numbers", "places"),
    [
        (0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1], 1),
        (-2.6, 1.4, 4, [-2, -1, 0, 1], 0),
        (0, 0.0042, 4, [0, 0.001, 0.002, 0.003, 0.004], 3),
        (1e6, 9e6, 4, [2e6, 4e6, 6e6, 8e6], 0),
        (3, 3, 4, [3], 0),
    ],
)
def test_ticks_are_round_numbers(low, high, count, numbers, places):
    assert ticks(low, high, count) == (pytest.approx(numbers), places)


def test_words_are_cut_to_their_room_and_cannot_break_out():
    """A name of letters of any width is cut where it would leave its room, and is never markup."""
    long = replace(EVIL, features=(NumericFeature("Wm漢<i" * 20, (1.0, 10.0, 2e6)), *EVIL.features[1:]))
    for panel in shape_panels(long, LIGHT)[:1] + shape_panels(EVIL, LIGHT)[:1]:
        drawn = to_page_svg(panel)
        (name, _, _), *_ = [each for each in marks(drawn)[0] if each[2] == 14.0]
        assert letters_width(name, 14) <= 340
        assert panel.name.startswith(name.rstrip("…"))
        assert not {"<i", "<b"} & {drawn[at : at + 2] for at in range(len(drawn))}

"""Explanations add up to the score, and the picture and the card say no more than what was released."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from dpserve_verify.errors import InputError
from models.explain.card import model_card
from models.explain.explain import Row, contributions, shapes
from models.explain.picture import picture
from models.explain.vega_panels import LIGHT
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.forms.voting import VotingEnsemble
from models.parts.votes import Vote

FEATURES = (
    NumericFeature("age", (18.0, 27.5, 65.0)),
    CategoricalFeature("work", ("Private", "State", "Self|emp")),
    BooleanFeature("owner"),
    CategoricalFeature("race", ("A", "B")),
)
VOTES = (
    Vote("above", 0, 1, 1),
    Vote("is", 1, 0, 3),
    Vote("above", 0, 1, 1),
    Vote("is", 1, 4, 1),
    Vote("always", 0, 0, -1),
    Vote("above", 0, 2, -1),
    Vote("is", 2, 1, 1),
    Vote("is", 2, 1, -1),
    Vote("always", 2, 1, -1),
)
ENSEMBLE = VotingEnsemble(FEATURES, "income", ("<=50K", ">50K"), VOTES, 0.4)
COLUMNS = {
    "age": [20, 27.5, 40, 80, nan, inf],
    "work": ["Private", "State", None, "x", "Self|emp", ""],
    "owner": [0, 1, nan, 1, 0, 0],
    "race": ["A", "B", "C", None, "A", "B"],
}
CLAIM = {"epsilon": "0.5", "delta": "0.000001", "relation": "add-remove", "unit": "one record"}


def test_vote_table_merges_sorts_and_drops_what_cancels():
    assert ENSEMBLE.vote_table() == [
        Row(3, "work", "work is Private", ">50K"),
        Row(-2, "", "always", ">50K"),
        Row(2, "age", "age > 27.5", ">50K"),
        Row(-1, "age", "age > 65", ">50K"),
        Row(1, "work", "work is missing", ">50K"),
    ]


def test_shapes_by_importance_with_words():
    work, age = shapes(ENSEMBLE)
    assert (work.feature, work.importance, work.label) == ("work", 3, ">50K")
    assert ENSEMBLE.importances() == {"work": 3, "age": 2}
    assert {each.label: each.votes for each in work.bins} == {
        "Private": 3,
        "State": -3,
        "Self|emp": -3,
        "other": -3,
        "missing": -1,
    }
    assert [(each.label, each.votes, each.low, each.high) for each in age.bins] == [
        ("up to 27.5", -2, -inf, 27.5),
        ("above 27.5, up to 65", 2, 27.5, 65),
        ("above 65", 0, 65, inf),
        ("missing", -2, None, None),
    ]


def test_contributions_add_up_to_the_score_exactly():
    found = contributions(ENSEMBLE, COLUMNS)
    assert found.features == ("age", "work", "owner", "race")
    assert (found.base + found.votes.sum(axis=1)).tolist() == ENSEMBLE.scores(COLUMNS).tolist()
    assert not found.votes[:, 2:].any()
    assert found.votes[:, 0, 0].tolist() == [-2, -2, 2, 0, -2, 0]


def test_contributions_of_random_ensembles_add_up():
    rng = np.random.default_rng(5)
    for classes in [(0, 1)] * 30 + [(0, 1, 2)] * 20:
        votes = [
            Vote("is", i, int(rng.integers(FEATURES[i].bins)), int(rng.integers(-4, 5))) for i in rng.integers(0, 4, 9)
        ]
        votes += [Vote("above", 0, int(rng.integers(3)), int(rng.integers(-4, 5))) for _ in range(4)]
        votes = [replace(vote, output=int(rng.integers(3)) if len(classes) > 2 else 0) for vote in votes]
        ensemble = VotingEnsemble(FEATURES, "t", classes, tuple(votes), 1.0)
        found = contributions(ensemble, COLUMNS)
        assert (found.base + found.votes.sum(axis=1)).tolist() == ensemble.scores(COLUMNS).tolist()
        for shape in shapes(ensemble):
            assert max(each.votes for each in shape.bins) == -min(each.votes for each in shape.bins) == shape.importance


def test_an_ensemble_without_votes_has_nothing_to_show(tmp_path):
    empty = VotingEnsemble(FEATURES, "t", (0, 1), (), 1.0)
    assert empty.vote_table() == shapes(empty) == []
    picture(empty, "claim", tmp_path / "empty.png")
    assert (tmp_path / "empty.png").read_bytes().startswith(b"\x89PNG")


def texts_of(panel):
    """The heading of a panel, and the line below it."""
    marks = [layer["mark"].get("text") for layer in panel.spec["layer"]]
    return [text for text in marks if text][:2]


def values_of(panel, *fields):
    """The rows of the first layer that has these fields."""
    rows = next(
        layer["data"]["values"] for layer in panel.spec["layer"] if set(fields) <= layer["data"]["values"][0].keys()
    )
    return [tuple(row[field] for field in fields) for row in rows]


def test_drawing_has_one_panel_per_feature_in_order():
    panels = ENSEMBLE.panels(LIGHT)
    assert [panel.name for panel in panels] == ["work", "age"]
    assert panels[0].labels == ("Private", "missing", "State", "Self|emp", "other")
    assert [value for (value,) in values_of(panels[0], "value")] == [3, -1, -3, -3, -3]
    assert values_of(panels[1], "at", "value") == [
        (18 - 47 / 16, -2),
        (27.5, -2),
        (27.5, 2),
        (65, 2),
        (65, 0),
        (65 + 47 / 16, 0),
    ]
    notes = ENSEMBLE.notes("claim")
    assert notes[0] == "claim"
    assert notes[2] == "Without a vote: owner, race."


def test_drawing_says_what_found_no_room():
    values = tuple(f"value {i}" for i in range(30))
    votes = tuple(Vote("is", 0, i, 1 + i % 2) for i in range(12, 30))
    ensemble = VotingEnsemble((CategoricalFeature("x", values),), "t", (0, 1), votes, 1.0)
    [panel] = ensemble.panels(LIGHT)
    assert len(panel.labels) == 16
    assert texts_of(panel)[1].endswith("; 16 not shown")


# ---- K classes ----------------------------------------------------------------------------------------------------

THREE = VotingEnsemble(
    FEATURES,
    "sort",
    ("<a>", "b", "c|d"),
    (
        Vote("above", 0, 1, 2, 0),
        Vote("above", 0, 0, 1, 2),
        Vote("above", 0, 1, 1, 0),
        Vote("is", 1, 0, 2, 1),
        Vote("is", 1, 0, -2, 0),
        Vote("always", 0, 0, 1, 1),
    ),
    0.4,
)


def test_votes_of_three_classes_name_theirs():
    assert THREE.vote_table() == [
        Row(3, "age", "age > 27.5", "<a>"),
        Row(-2, "work", "work is Private", "<a>"),
        Row(2, "work", "work is Private", "b"),
        Row(1, "", "always", "b"),
        Row(1, "age", "age > 18", "c|d"),
    ]


def test_shapes_of_three_classes_one_per_class_that_moves():
    found = shapes(THREE)
    assert [(shape.feature, shape.label, shape.importance) for shape in found] == [
        ("age", "<a>", 3),
        ("age", "c|d", 1),
        ("work", "<a>", 2),
        ("work", "b", 2),
    ]
    assert THREE.importances() == {"age": 3, "work": 2}


def test_drawing_of_three_classes_has_a_curve_each():
    key, age, work = THREE.panels(LIGHT)
    assert key.labels == ("<a>", "b", "c|d")
    colours = dict(zip(key.labels, [colour for (colour,) in values_of(key, "colour")], strict=True))
    assert len(set(colours.values())) == 3
    assert texts_of(age) == ["age", "missing: <a> −3, c|d −1"]
    curves = {
        layer["mark"]["color"]: [(row["at"], row["value"]) for row in layer["data"]["values"]]
        for layer in age.spec["layer"]
        if layer["mark"]["type"] == "line"
    }
    ends = [18 - 47 / 16, 18, 18, 27.5, 27.5, 65 + 47 / 16]  # the cut points that either class has
    assert curves.keys() == {colours["<a>"], colours["c|d"]}  # b is not moved
    assert curves[colours["<a>"]] == list(zip(ends, [-3, -3, -3, -3, 3, 3], strict=True))
    assert curves[colours["c|d"]] == list(zip(ends, [-1, -1, 1, 1, 1, 1], strict=True))
    a, b = colours["<a>"], colours["b"]
    assert work.labels == ("Private", "State", "Self|emp", "other", "missing")
    assert values_of(work, "colour", "value") == [(a, -2), (b, 2), *[(a, 2), (b, -2)] * 4]


def test_page_and_picture_of_three_classes(tmp_path):
    for name in ("three.png", "three.html"):
        picture(THREE, "claim", tmp_path / name)
    assert (tmp_path / "three.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "three.html").read_text("utf-8")
    assert "<td>−2</td><td>&lt;a&gt;</td><td>work is Private</td>" in page
    assert not re.search(r"<(img|a)\b", page)


def test_many_classes_are_drawn(tmp_path):
    votes = tuple(Vote("above", 0, k % 3, 1 + k, k) for k in range(30))
    picture(VotingEnsemble(FEATURES, "t", tuple(range(30)), votes, 1.0), "claim", tmp_path / "many.png")
    assert (tmp_path / "many.png").read_bytes().startswith(b"\x89PNG")


def test_card_of_three_classes():
    card = model_card(THREE, CLAIM)
    assert 'answers whether sort is "&lt;a&gt;", "b" or "c\\|d", with a probability for each' in card
    assert "| +2 | b | work is Private |" in card
    assert "| +1 | c\\|d | age &gt; 18 |" in card


def test_card_counts_what_it_leaves_out():
    features = (NumericFeature("x", tuple(map(float, range(1100)))),)
    votes = tuple(Vote("above", 0, code, 1) for code in range(1100))
    card = model_card(VotingEnsemble(features, "t", (0, 1), votes, 1.0), CLAIM)
    assert card.count("| +1 |") == 1000
    assert "and 100 more, which stand in ensemble.json" in card


def test_png(tmp_path):
    picture(ENSEMBLE, "claim", tmp_path / "shapes.png")
    content = (tmp_path / "shapes.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    assert width > 1000
    assert height > 300


def test_html_is_complete_and_asks_for_nothing(tmp_path):
    odd = (CategoricalFeature("<script>alert(1)</script>", ("<b>", "&amp;")),)
    ensemble = VotingEnsemble(odd, "a<b", ("<no>", "yes&"), (Vote("is", 0, 0, 2),), 1.0)
    picture(ensemble, "<i>claim</i>", tmp_path / "shapes.html")
    page = (tmp_path / "shapes.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "<svg" in page
    assert page.count("<script>") == 1
    assert not re.search(r"<(img|image|iframe|link|object|embed|i|b)\b", page)
    assert not re.search(r"(src|href)\s*=|url\(\s*['\"]?[a-z]+:|@import", page)
    addresses = set(re.findall(r"https?://[^\"' <>]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names of XML, not fetched
    assert "&lt;script&gt;alert(1)&lt;/script&gt; is &lt;b&gt;" in page


@pytest.mark.parametrize("name", ["shapes.pdf", "shapes", "shapes.PNG.exe"])
def test_picture_refuses_other_endings(tmp_path, name):
    with pytest.raises(InputError, match=r"\.png, \.svg or \.html"):
        picture(ENSEMBLE, "claim", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_card_says_the_claim_the_votes_and_the_inputs():
    card = model_card(ENSEMBLE, {**CLAIM, "dataset": "adult", "learner": "lazybb"})
    assert "**(0.5, 0.000001)-differential privacy**, neighbours by add-remove, unit of privacy: one record." in card
    assert "whether or not one record is in the data" in card
    assert "e^0.5, but for a probability of at most 0.000001" in card
    assert "| +3 | work is Private |" in card
    assert "| -2 | always |" in card
    assert "| work | categorical | Private, State, Self\\|emp |" in card
    assert "| age | numeric | numbers, told apart at 3 cut points from 18 to 65 |" in card
    assert "What is not promised" in card


def test_card_of_a_pure_replace_one_claim():
    card = model_card(ENSEMBLE, {**CLAIM, "delta": "0", "relation": "replace-one", "unit": "one person"})
    assert "whatever one person says (how many there are is public)" in card
    assert "probability of at most" not in card


def test_card_reads_nothing_else():
    leaky = {**CLAIM, "accuracy": "0.8765", "records": "32561", "seconds": "1.7", "seed": "42"}
    assert model_card(ENSEMBLE, leaky) == model_card(ENSEMBLE, CLAIM)


def test_card_cannot_be_broken_by_names():
    features = (CategoricalFeature("x", ("a|b", "<script>", "[link](http://x)", "`code`")),)
    card = model_card(VotingEnsemble(features, "t|u", ("a", "b"), (Vote("is", 0, 1, 1),), 1.0), CLAIM)
    assert "<script>" not in card
    assert "[link](" not in card.replace("\\[link\\](", "")
    table = [line for line in card.splitlines() if line.startswith("| x |")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in table] == [4]


@pytest.mark.parametrize("key", sorted(CLAIM))
def test_card_needs_the_claim(key):
    with pytest.raises(InputError, match=key):
        model_card(ENSEMBLE, {name: value for name, value in CLAIM.items() if name != key})


def test_card_refuses_a_relation_it_cannot_explain():
    with pytest.raises(InputError, match="relation"):
        model_card(ENSEMBLE, {**CLAIM, "relation": "bounded"})

"""The models that a learner of others may return: each is trained, verified and predicts by the command line, from what
it asks for; and what is no model is refused."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_home import dpserve

from dpserve_platform.outside import forms
from dpserve_platform.outside.forms import read_model
from dpserve_platform.outside.process import OutsideFailed
from dpserve_verify.privacy.budget import Budget, Relation
from models.onnx import export
from models.store.loading import load_of_home
from training.datasets.datasets import register
from training.rows.schema.schema import parse_schema
from training.session.session import Public

SCHEMA = """
target: {{name: y, {target}}}
records: 600
features:
  x: {{type: numeric, range: [0, 10], bins: 5}}
  c: {{type: categorical, values: [p, q, r]}}
"""
TARGETS = {"two": "classes: [no, yes]", "three": "classes: [low, middle, high]", "number": "range: [0, 100]"}

# A learner of each form: the target it is for, what it learns, and the words of its account.
SUMS = """
        rows = np.maximum(session.histogram([0, 1], by_class=True), 0) + 1  # classes, bins of x, of c
        odds = np.rint(1000 * np.log(rows / rows.sum(axis=0))).astype(int)
"""
LEARNERS = {
    "two": SUMS + """
        cells = (odds[1] - odds[0]).tolist()
        pair = {"features": [0, 1], "groups": [list(range(len(cells))), list(range(len(cells[0])))], "terms": cells}
        return {"terms": [[0] * f.bins for f in session.public.features], "pairs": [pair], "constant": 0, "link": .001}
""",
    "three": SUMS + """
        cells = odds.transpose(1, 2, 0).tolist()
        pair = {"features": [0, 1], "groups": [list(range(len(cells))), list(range(len(cells[0])))], "terms": cells}
        none = [[[0] * 3] * f.bins for f in session.public.features]
        return {"terms": none, "pairs": [pair], "constant": [0] * 3, "link": .001}
""",
    "number": """
        rows = np.maximum(session.histogram([0], share="0.5"), 1)
        means = session.histogram([0], total=True, share="0.5") / rows
        least = [0] * session.public.features[1].bins
        terms = np.clip(np.rint(means), -1 << 20, 1 << 20).astype(int).tolist()
        return {"terms": [terms, least], "constant": 0, "link": session.public.step}
""",
    "trees": """
        def tree(code, leaf):
            return ["is", 1, code, ["above", 0, 1, leaf[0], leaf[1]], ["above", 0, 3, leaf[2], leaf[3]]]

        trees = [tree(code, range(4)) for code in (1, 2, 3)]
        counts = session.leaves(trees, by_class=True, noise="gaussian")
        odds = [np.log(np.maximum(rows[1], 1) / np.maximum(rows[0], 1)) for rows in counts]
        leaves = [np.rint(1000 * each).astype(int).tolist() for each in odds]
        return {"trees": [tree(code, each) for code, each in zip((1, 2, 3), leaves)], "constant": 0, "link": .0005}
""",
}  # fmt: skip
ACCOUNTS = {"two": "x &amp; c", "three": "x &amp; c", "number": "middle", "trees": "The trees"}


def table(target: str) -> pa.Table:
    """Rows whose answer follows from x and c, but for one in ten."""
    random = np.random.default_rng(3)
    x, c, odd = random.uniform(0, 10, 600), random.integers(0, 3, 600), random.random(600) < 0.1
    place = np.where(odd, 2 - c, np.where(x > 4 + 2 * c, c, (c + 1) % 3))
    labels = {"two": np.array(["no", "yes", "yes"]), "three": np.array(["low", "middle", "high"])}
    y = 10 * x if target == "number" else labels[target][place]
    return pa.table({"x": x, "c": np.array(["p", "q", "r"])[c], "y": y})


@pytest.mark.parametrize("name", LEARNERS)
def test_a_model_of_each_form_is_trained_verified_and_predicts(name, home, tmp_path):
    target = name if name in TARGETS else "two"
    rows, schema, text = (tmp_path / each for each in ("rows.parquet", "schema.yaml", "own.py"))
    pq.write_table(table(target), rows)
    schema.write_text(SCHEMA.format(target=TARGETS[target]))
    register(home, "small", rows, schema, Budget.of("8", "1e-6"), Relation.ADD_REMOVE, None)
    text.write_text(f"import numpy as np\n\nclass Own:\n    def learn(self, session):{LEARNERS[name]}")
    model, out = home.models / "small" / "1", tmp_path / "out.csv"
    for line in (
        f"learner admit {text}:Own --name own --reason read --dataset small --only --neighbours 4",
        "train small --learner outside --set code=own --epsilon 4",
        f"verify {model}",
        f"predict small --data {rows} --out {out}",
    ):
        done = dpserve(home.path, *line.split())
        assert done.returncode == 0, (line, done.stderr)
    ensemble = load_of_home(home, model, "small").ensemble
    answers = [line["value" if target == "number" else "label"] for line in csv.DictReader(out.open())]
    truth = table(target)["y"].to_pylist()
    if target == "number":
        assert np.mean([abs(float(one) - each) for one, each in zip(answers, truth, strict=True)]) < 8
    else:
        assert np.mean([one == each for one, each in zip(answers, truth, strict=True)]) > 0.8
    assert ACCOUNTS[name] in ensemble.page("") + ensemble.card_section()


def public_of(target: str) -> Public:
    schema = parse_schema(SCHEMA.format(target=TARGETS[target]).encode()).question(None)
    return Public.of(schema, Relation.ADD_REMOVE, Budget.of("1", "0.000001"), False)


def good(target: str, **changes):
    bins = [feature.bins for feature in public_of(target).features]
    one = [0] * 3 if target == "three" else 0
    body = {"terms": [[one] * width for width in bins], "constant": one, "link": 0.5}
    return {**body, **changes}


def pair(features=(0, 1), cell=0, **changes):
    bins = [public_of("two").features[at].bins for at in (0, 1)]
    groups = [list(range(width)) for width in bins]
    return {"features": [*features], "groups": groups, "terms": [[cell] * bins[1]] * bins[0], **changes}


def forest(tree, **changes):
    return {"trees": [tree], "constant": 0, "link": 0.5, **changes}


def deep(depth: int, leaf=1):
    tree = leaf
    for _ in range(depth):
        tree = ["above", 0, 0, 1, tree]
    return tree


GOOD = {
    "sums": ("two", good("two")),
    "no pairs": ("two", good("two", pairs=[])),
    "pairs": ("two", good("two", pairs=[pair()])),
    "three classes": ("three", good("three", pairs=[pair(cell=[1, 2, 3])])),
    "a number": ("number", good("number", pairs=[pair(cell=7)])),
    "no trees": ("two", {"trees": [], "constant": 1, "link": 0.5}),
    "a leaf": ("two", forest(5)),
    "deep trees": ("two", forest(deep(32))),
}
BAD = {
    "nothing": ("two", None, "a model has"),
    "a list": ("two", [1], "a model has"),
    "no link": ("two", {"terms": [], "constant": 0}, "a model has"),
    "an unknown key": ("two", good("two", edits=[]), "a model has"),
    "terms and trees": ("two", {**good("two"), "trees": []}, "a model has"),
    "few terms": ("two", good("two", terms=[[1]]), "one number per code"),
    "no terms": ("two", good("two", terms=[]), "one row per feature"),
    "terms that are a number": ("two", good("two", terms=3), "list of lists"),
    "terms by class": ("two", good("two", terms=good("three")["terms"]), "must be an integer"),
    "terms of no class": ("three", good("three", terms=good("two")["terms"]), "must be lists"),
    "terms of two classes": ("three", good("three", constant=[0, 0]), "one integer for each class"),
    "a fraction": ("two", good("two", constant=0.5), "0.5 must be a whole number"),
    "a truth value": ("two", good("two", constant=True), "True must be a whole number"),
    "not a number": ("two", good("two", constant=float("nan")), "nan must be a whole number"),
    "a huge number": ("two", good("two", constant=1 << 33), "must be a whole number"),
    "an endless link": ("two", good("two", link=float("inf")), "link must"),
    "a link that is none": ("two", good("two", link=float("nan")), "link must"),
    "a link below 0": ("two", good("two", link=-1.0), "link must"),
    "a score that is rounded": ("three", good("three", constant=[1 << 24, 0, 0]), "may reach|must be one integer"),
    "a pair with counts": ("two", good("two", pairs=[pair(counts=[[1]])]), "a pair has"),
    "a pair that is none": ("two", good("two", pairs=[3]), "must hold"),
    "pairs that are none": ("two", good("two", pairs=3), "not empty"),
    "a pair twice": ("two", good("two", pairs=[pair(), pair()]), "each once"),
    "a pair of one": ("two", good("two", pairs=[pair((1, 1))]), "ascending"),
    "a pair out of range": ("two", good("two", pairs=[pair((0, 2))]), "below 2"),
    "a pair with a gap": ("two", good("two", pairs=[pair(groups=[[0, 1, 2, 3, 9, 5, 6], [0] * 5])]), "without gaps"),
    "a pair of few cells": ("two", good("two", pairs=[pair(terms=[[1]])]), "numbers each"),
    "trees of three classes": ("three", forest(1), "two classes apart"),
    "trees of a number": ("number", forest(1), "two classes apart"),
    "trees that are none": ("two", {"trees": 3, "constant": 0, "link": 0.5}, "must be a list"),
    "a tree too deep": ("two", forest(deep(33)), "32 deep"),
    "a tree far too deep": ("two", forest(deep(900)), "32 deep"),
    "a tree of a text": ("two", forest("leaf"), "weight='leaf'"),
    "a half split": ("two", forest(["above", 0, 0, 1]), "a split is"),
    "a feature out of range": ("two", forest(["above", 2, 0, 1, 0]), "one of 2 features"),
    "a feature below 0": ("two", forest(["above", -1, 0, 1, 0]), "one of 2 features"),
    "a code out of range": ("two", forest(["above", 0, 99, 1, 0]), "has no such test"),
    "a test that is none": ("two", forest(["below", 0, 0, 1, 0]), "has no such test"),
    "a test that is a list": ("two", forest([["is"], 0, 0, 1, 0]), "learner: its model"),
    "a bin of a number alone": ("two", forest(["is", 0, 1, 1, 0]), "has no such test"),
    "trees that are rounded": ("two", forest(1 << 23, constant=1 << 23), "add up to"),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_a_model_is_read_and_exported(name):
    target, said = GOOD[name]
    ensemble = read_model(said, public_of(target))
    assert export.to_onnx(ensemble, {})
    assert ensemble.classes == (public_of(target).classes or ())


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_model_is_refused(name):
    target, said, words = BAD[name]
    with pytest.raises(OutsideFailed, match=words):
        read_model(said, public_of(target))


@pytest.mark.parametrize("said", [good("two", pairs=[pair()]), forest(deep(9))], ids=["pairs", "trees"])
def test_a_model_of_more_numbers_than_are_allowed_is_refused(said, monkeypatch):
    def numbers(value) -> int:
        if isinstance(value, list | dict):
            return sum(map(numbers, value.values() if isinstance(value, dict) else value))
        return not isinstance(value, str)

    many = numbers(said) - 1  # link is none of them
    monkeypatch.setattr(forms, "MOST_NUMBERS", many)
    read_model(said, public_of("two"))
    monkeypatch.setattr(forms, "MOST_NUMBERS", many - 1)
    with pytest.raises(OutsideFailed, match=f"has {many} numbers; at most {many - 1}"):
        read_model(said, public_of("two"))

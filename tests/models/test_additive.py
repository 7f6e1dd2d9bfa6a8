"""Additive ensembles: scores and values by hand, JSON both ways, what is refused, and the card."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, inf, nan

import numpy as np
import pytest

from dpserve_verify.errors import InputError, ModelInvalid
from models.edit.curves import same_but_for_terms
from models.edit.editing import EditNote, set_value
from models.explain.card import model_card
from models.explain.explain import contributions, unit
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.forms.additive import MAX_INTEGER, AdditiveEnsemble
from models.forms.registry import ensemble_bytes, ensemble_from_bytes, ensemble_from_json
from models.forms.voting import VotingEnsemble
from models.parts.answers import middle
from models.parts.edits import Edit
from models.parts.votes import Vote

FEATURES = (
    NumericFeature("age", (18.0, 65.0)),
    CategoricalFeature("work", ("Private", "State")),
    BooleanFeature("owner"),
)
TERMS = ((-7, 2, 30, 5), (4, -3, 1, -2), (0, 6, 9))  # age: up to 18, up to 65, above, missing; work: .., other, missing
EDIT = Edit("2026-01-02T03:04:05Z", "ann", "a fairness | review", "work", '{"code":2,"from":5,"to":1}')
TWO = AdditiveEnsemble(FEATURES, "income", ("no", "yes"), None, 0.25, -1, TERMS)
NUMBER = AdditiveEnsemble(FEATURES, "rent", (), (0.0, 100.0), 2.5, -1, TERMS)
FULL = replace(NUMBER, counts=((5, -1, 0, 2), *TERMS[1:]), errors=((0.5, 1.0, 0.0, 2.0),) * 2 + ((1.0,) * 3,))
FULL = replace(FULL, edits=(EDIT,))
BENT = replace(TWO, bends=((-9, 0.05), (-1, 0.1), (2, 0.5)))
CLAIM = {"epsilon": "0.5", "delta": "0.000001", "relation": "add-remove", "unit": "one record"}


@pytest.mark.parametrize(
    ("age", "work", "owner", "score"),
    [
        (18, "Private", False, -7 + 4 + 0 - 1),
        (18.001, "State", True, 2 - 3 + 6 - 1),
        (inf, "elsewhere", nan, 30 + 1 + 9 - 1),
        (-inf, "", True, -7 - 2 + 6 - 1),
        (nan, None, False, 5 - 2 + 0 - 1),
    ],
)
def test_scores_by_hand(age, work, owner, score):
    columns = {"age": [age], "work": [work], "owner": [owner]}
    for ensemble in (TWO, NUMBER):
        assert ensemble.scores(columns).tolist() == [[score]]
        assert ensemble.scores(columns).dtype == np.int64
    assert TWO.predict(columns).tolist() == ["yes" if score > 0 else "no"]
    assert TWO.probabilities(columns)[0] == pytest.approx([1 / (1 + exp(s * 0.25 * score)) for s in (1, -1)], abs=1e-15)
    wanted = min(max(50 + 2.5 * score, 0), 100)
    assert NUMBER.predict(columns).tolist() == NUMBER.values(columns).tolist() == [wanted]


def test_tables_are_the_terms():
    tables, constant = TWO.tables()
    assert [table.tolist() for table in tables] == [[[value] for value in term] for term in TERMS]
    assert constant.tolist() == [-1]
    assert (TWO.outputs, TWO.largest) == (1, 1 + 30 + 4 + 9)


def test_it_is_the_same_as_its_votes():
    voting = VotingEnsemble(FEATURES, "t", ("no", "yes"), (Vote("above", 0, 0, 3), Vote("is", 1, 1, 2)), 0.5)
    tables, constant = voting.tables()
    terms = tuple(tuple(table[:, 0].tolist()) for table in tables)
    ours = AdditiveEnsemble(FEATURES, "t", ("no", "yes"), None, 0.5, int(constant[0]), terms)
    columns = {"age": [10, 20, nan], "work": ["State", None, "x"], "owner": [0, 1, nan]}
    assert ours.scores(columns).tolist() == voting.scores(columns).tolist()
    assert ours.probabilities(columns).tolist() == voting.probabilities(columns).tolist()


def test_each_kind_refuses_the_other_kinds_answers():
    columns = {"age": [1], "work": ["x"], "owner": [0]}
    with pytest.raises(InputError, match="answers a number"):
        NUMBER.probabilities(columns)
    with pytest.raises(InputError, match="not a number"):
        TWO.values(columns)
    assert (NUMBER.target_range, TWO.target_range) == ((0.0, 100.0), None)


def test_the_middle_of_a_great_range_is_finite():
    assert middle((1.7e308, 1.79e308)) == pytest.approx(1.745e308)
    assert middle((-3.0, 5.0)) == 1.0


@pytest.mark.parametrize(
    "ensemble", [TWO, NUMBER, FULL, BENT, replace(TWO, classes=(3, -1)), replace(TWO, edits=(EDIT,))]
)
def test_json_and_back(ensemble):
    body = json.loads(json.dumps(ensemble.to_json()))
    assert ensemble_from_json(body) == ensemble
    assert ensemble_from_bytes(ensemble_bytes(ensemble)) == ensemble
    assert body["type"] == "additive"
    assert ("classes" in body, "target_range" in body) == (bool(ensemble.classes), not ensemble.classes)
    assert {"counts", "errors", "edits", "bends"} & body.keys() == {
        name for name in ("counts", "errors", "edits", "bends") if getattr(ensemble, name)
    }


@pytest.mark.parametrize("name", ["target", "link", "features", "constant", "terms", "target_range"])
def test_every_key_is_needed(name):
    with pytest.raises(ModelInvalid):
        ensemble_from_json({key: value for key, value in FULL.to_json().items() if key != name})


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["no", "yes"]},
        {"more": 1},
        {"terms": []},
        {"terms": {}},
        {"terms": [5, 5, 5]},
        {"counts": []},
        {"errors": None},
        {"edits": []},
        {"edits": [{"at": EDIT.at, "by": "x", "why": "y", "feature": "age"}]},
        {"edits": [{**EDIT.to_json(), "cost": 0}]},
        {"edits": ["x"]},
        {"target_range": [0.0]},
        {"target_range": [0.0, 1.0, 2.0]},
        {"target_range": ["a", "b"]},
        {"constant": 1.0},
        {"constant": True},
        {"link": 0},
        {"link": "x"},
        {"bends": []},
        {"bends": [[0, 0.5]]},
        {"bends": [[1, 0.5]]},  # of a number
    ],
)
def test_refused_json(change):
    with pytest.raises(ModelInvalid):
        ensemble_from_json({**FULL.to_json(), **change})


def test_one_spelling_alone_is_read():
    for old, new in [
        (b'"link":2.5', b'"link":2.50'),
        (b"[0.0,100.0]", b"[0,100]"),
        (b'"constant":-1', b'"constant": -1'),
    ]:
        raw = ensemble_bytes(FULL)
        assert old in raw
        with pytest.raises(ModelInvalid):
            ensemble_from_bytes(raw.replace(old, new))


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ("a", "b")},
        {"target_range": None},
        {"target_range": (1.0, 1.0)},
        {"target_range": (2.0, 1.0)},
        {"target_range": (0.0, inf)},
        {"target_range": (nan, 1.0)},
        {"target_range": (0, 1)},
        {"link": 0.0},
        {"link": -1.0},
        {"link": inf},
        {"link": nan},
        {"features": ()},
        {"features": FEATURES[:2]},
        {"terms": TERMS[:2]},
        {"terms": (*TERMS[:2], (0, 6))},
        {"terms": (*TERMS[:2], (0, 6, 9, 1))},
        {"terms": (*TERMS[:2], (0, 6, 9.0))},
        {"terms": (*TERMS[:2], (0, 6, np.int64(9)))},
        {"terms": (*TERMS[:2], (0, 6, MAX_INTEGER + 1))},
        {"terms": (*TERMS[:2], (0, 6, MAX_INTEGER))},  # with the others, a score above it
        {"constant": MAX_INTEGER},
        {"constant": 0.5},
        {"counts": (TERMS[0],)},
        {"counts": (*TERMS[:2], (0, 6, True))},
        {"errors": ((1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0), (1.0, -1.0, 0.0))},
        {"errors": ((1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0), (1.0, inf, 0.0))},
        {"errors": ((1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0), (1.0, nan, 0.0))},
        {"errors": ((1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0), (1.0, 1, 0.0))},
        {"edits": (replace(EDIT, feature="elsewhere"),)},
        {"bends": ((1, 0.5),)},  # of a number
    ],
)
def test_refused_ensembles(change):
    with pytest.raises(ModelInvalid):
        replace(FULL, **change)


def test_more_than_two_classes_are_refused():
    with pytest.raises(ModelInvalid, match="two classes"):
        replace(TWO, classes=("a", "b", "c"))


def test_the_largest_score_is_admitted_exactly():
    largest = MAX_INTEGER - 1 - 30 - 4
    terms = (*TERMS[:2], (largest, 0, -largest))
    ensemble = replace(TWO, terms=terms)
    assert ensemble.largest == MAX_INTEGER
    assert ensemble.scores({"age": [70], "work": ["Private"], "owner": [0]}).tolist() == [[largest + 33]]


@pytest.mark.parametrize(
    "change",
    [
        {"at": ""},
        {"at": "yesterday"},
        {"at": "2026-01-02T03:04:05"},  # no zone
        {"at": 5},
        {"by": ""},
        {"why": ""},
        {"why": None},
        {"what": "no json"},
        {"what": "[1]"},
        {"what": '{"b":1,"a":2}'},
        {"what": '{"a": 1}'},
        {"what": '{"a":1.5}'},
        {"what": "\ud800"},
    ],
)
def test_refused_edits(change):
    with pytest.raises(ModelInvalid):
        replace(EDIT, **change)


def test_card_of_two_classes():
    page = model_card(TWO, CLAIM)
    assert 'answers whether income is "no" or "yes", with a probability for each' in page
    assert "exp(-0.25 × score)" in page
    assert "starts at -1" in page
    assert "| log odds | feature |\n|---:|---|\n| 4.625 | age |" in page
    assert "changed" not in page.split("## How it decides")[1]
    assert "standard error" not in page


def test_log_odds_bend_and_what_features_add_does_not():
    """Chances by hand; labels, ranks and contributions are those without bends, and are said to be."""
    columns = {"age": [10, 30, 70, 70], "work": ["x", "State", "State", "Private"], "owner": [0, 0, 1, 1]}
    assert BENT.scores(columns)[:, 0].tolist() == [-7, -2, 32, 39]
    odds = [-0.25 - 6 * 0.1, -0.25 - 0.1, 2 * 0.25 + 30 * 0.5, 2 * 0.25 + 37 * 0.5]
    chances = [1 / (1 + exp(-each)) for each in odds]
    assert BENT.probabilities(columns)[:, 1] == pytest.approx(chances, rel=1e-12)
    assert BENT.predict(columns).tolist() == TWO.predict(columns).tolist()
    found, straight = contributions(BENT, columns), contributions(TWO, columns)
    np.testing.assert_allclose(found.base + found.votes.sum(axis=1), 0.25 * BENT.scores(columns))
    assert found.votes.tolist() == straight.votes.tolist()
    assert (unit(BENT), unit(TWO)) == ("score of yes", "log odds of yes")
    page = model_card(BENT, CLAIM)
    assert 'adds to the log odds of "yes" before calibration' in page
    assert "a point of score counts otherwise far from zero: 0.05 beyond -9, 0.1 beyond -1, 0.5 beyond 2" in page
    assert "bend" not in model_card(TWO, CLAIM)


def test_an_edit_keeps_the_bends():
    edited = set_value(BENT, "age", "..18", -0.5, EditNote("ann", "too few"))
    assert edited.bends == BENT.bends
    assert same_but_for_terms(BENT, edited)
    assert not same_but_for_terms(BENT, replace(edited, bends=()))


def test_card_of_a_number():
    page = model_card(FULL, {**CLAIM, "dataset": "flats", "learner": "ebm"})
    assert "An additive model by the learner ebm that answers how much rent is, a number from 0 to 100" in page
    assert "targets outside this public range were taken for its nearer end, and no answer\nleaves the range" in page
    assert "50 + 2.5 × score" in page
    assert "standard error" in page
    assert "noisy counts of records" in page
    assert "probability for each" not in page


def test_card_lists_edits():
    page = model_card(FULL, CLAIM)
    [line] = [line for line in page.splitlines() if EDIT.at in line]
    what = '{"code":2,"from":5,"to":1}'
    assert line == f"| {EDIT.at} | ann | work | {what} | a fairness \\| review |"
    assert "costs no\nprivacy" in page
    assert "What people changed" not in model_card(replace(FULL, edits=()), CLAIM)

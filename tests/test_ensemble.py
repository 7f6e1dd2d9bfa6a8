"""The released ensemble: scores by hand, ties, JSON, and what is not an ensemble."""

from __future__ import annotations

import json
from math import exp, inf, nan

import numpy as np
import pytest

from accountant.errors import ModelInvalid
from models.ensemble import Vote, VotingEnsemble, describe, ensemble_from_json
from models.features import BooleanFeature, CategoricalFeature, NumericFeature

FEATURES = (
    NumericFeature("age", (18.0, 27.5, 1438692.25)),
    CategoricalFeature("work", ("Private", "State")),
    BooleanFeature("owner"),
)
VOTES = (
    Vote("above", 0, 1, 2),  # age > 27.5
    Vote("is", 0, 4, -1),  # age is missing
    Vote("is", 1, 0, 3),  # work is Private
    Vote("is", 1, 2, 1),  # work is other
    Vote("is", 2, 1, -2),  # owner is true
    Vote("always", 0, 0, 1),
)
ENSEMBLE = VotingEnsemble(FEATURES, "income", ("<=50K", ">50K"), VOTES, 0.4)


@pytest.mark.parametrize(
    ("age", "work", "owner", "score"),
    [
        (40, "Private", False, 2 + 1 + 3 - 1 + 2 + 1),
        (27.5, "Private", True, -2 + 1 + 3 - 1 - 2 + 1),
        (nan, "elsewhere", nan, -2 - 1 - 3 + 1 + 2 + 1),
        (inf, None, True, 2 + 1 - 3 - 1 - 2 + 1),
        (18, "State", True, -2 + 1 - 3 - 1 - 2 + 1),
    ],
)
def test_scores_by_hand(age, work, owner, score):
    columns = {"age": [age], "work": [work], "owner": [owner]}
    assert ENSEMBLE.scores(columns).tolist() == [score]
    assert ENSEMBLE.predict(columns).tolist() == [">50K" if score > 0 else "<=50K"]
    [[first, second]] = ENSEMBLE.probabilities(columns)
    assert second == pytest.approx(1 / (1 + exp(-0.4 * score)), abs=1e-15)
    assert first + second == 1


def test_a_tie_is_class_0():
    columns = {"age": [27.5], "work": ["Private"], "owner": [True]}
    assert ENSEMBLE.scores(columns).tolist() == [0]
    assert ENSEMBLE.predict(columns).tolist() == ["<=50K"]
    assert ENSEMBLE.probabilities(columns).tolist() == [[0.5, 0.5]]


def test_tables_and_constant_are_the_votes():
    tables, constant = ENSEMBLE.tables()
    assert constant == 1
    assert [table.tolist() for table in tables] == [[-1, -1, 3, 3, -3], [2, -4, -2, -4], [2, -2, 2]]


@pytest.mark.filterwarnings("error")
def test_great_scores_do_not_overflow():
    big = VotingEnsemble(FEATURES, "t", (0, 1), (Vote("is", 2, 1, 10_000),), 3.0)
    columns = {"age": [0, 0], "work": ["", ""], "owner": [True, False]}
    assert big.probabilities(columns).tolist() == [[0, 1], [1, 0]]
    assert big.predict(columns).tolist() == [1, 0]


def test_json_and_back():
    assert ensemble_from_json(json.loads(json.dumps(ENSEMBLE.to_json()))) == ENSEMBLE


def test_words():
    words = [describe(vote, FEATURES) for vote in (*VOTES, Vote("above", 0, 2, 1))]
    assert words == [
        "age > 27.5",
        "age is missing",
        "work is Private",
        "work is other",
        "owner is true",
        "always",
        "age > 1438692",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"type": "forest"},
        {"link": 0},
        {"link": -1},
        {"link": nan},
        {"link": inf},
        {"link": "wide"},
        {"classes": ["a"]},
        {"classes": ["a", "a"]},
        {"classes": ["a", 1]},
        {"classes": [False, True]},
        {"classes": [0, 1 << 63]},
        {"classes": ["a", "\ud800"]},
        {"features": []},
        {"features": [{"name": "x", "type": "boolean"}] * 2},
        {"votes": [["above", 0, 3, 1]]},
        {"votes": [["above", 1, 0, 1]]},
        {"votes": [["above", 2, 0, 1]]},
        {"votes": [["is", 1, 4, 1]]},
        {"votes": [["is", 1, -1, 1]]},
        {"votes": [["is", 3, 0, 1]]},
        {"votes": [["is", -1, 0, 1]]},
        {"votes": [["below", 0, 0, 1]]},
        {"votes": [["is", 1, 0, 0.5]]},
        {"votes": [["is", 1, 0, True]]},
        {"votes": [["is", 1, 0]]},
        {"votes": None},
    ],
)
def test_refused_ensembles(change):
    with pytest.raises(ModelInvalid):
        ensemble_from_json({**ENSEMBLE.to_json(), **change})


@pytest.mark.parametrize("key", sorted(ENSEMBLE.to_json()))
def test_every_key_is_needed(key):
    body = ENSEMBLE.to_json()
    del body[key]
    with pytest.raises(ModelInvalid):
        ensemble_from_json(body)


def test_missing_is_never_above():
    table = Vote("above", 0, 0, 5).table(4)
    assert table.tolist() == [-5, 5, 5, -5]
    assert np.issubdtype(table.dtype, np.int64)

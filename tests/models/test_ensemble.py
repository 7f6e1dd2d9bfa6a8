"""The released ensemble: scores by hand, ties, JSON, and what is not an ensemble."""

from __future__ import annotations

import json
from math import exp, inf, nan

import numpy as np
import pytest

from dpserve_verify.errors import ModelInvalid
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.forms.registry import ensemble_from_json
from models.forms.voting import VotingEnsemble
from models.parts.votes import Vote, describe

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
    assert ENSEMBLE.scores(columns).tolist() == [[score]]
    assert ENSEMBLE.predict(columns).tolist() == [">50K" if score > 0 else "<=50K"]
    [[first, second]] = ENSEMBLE.probabilities(columns)
    assert second == pytest.approx(1 / (1 + exp(-0.4 * score)), abs=1e-15)
    assert first + second == 1


def test_a_tie_is_class_0():
    columns = {"age": [27.5], "work": ["Private"], "owner": [True]}
    assert ENSEMBLE.scores(columns).tolist() == [[0]]
    assert ENSEMBLE.predict(columns).tolist() == ["<=50K"]
    assert ENSEMBLE.probabilities(columns).tolist() == [[0.5, 0.5]]


def test_tables_and_constant_are_the_votes():
    tables, constant = ENSEMBLE.tables()
    assert constant.tolist() == [1]
    assert [table[:, 0].tolist() for table in tables] == [[-1, -1, 3, 3, -3], [2, -4, -2, -4], [2, -2, 2]]


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
        {"type": "trees"},
        {"type": ["voting"]},
        {"more": 1},
        {"target": 3},
        {"link": 0},
        {"link": -1},
        {"link": nan},
        {"link": inf},
        {"link": "wide"},
        {"classes": ["a"]},
        {"classes": ["a", "a"]},
        {"classes": "ab"},
        {"classes": []},
        {"classes": [["a"], ["b"]]},
        {"classes": ["a", "b", "c"]},
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
        {"votes": [["is", 1, 0, 1, 0]]},
        {"votes": ["abcd"]},
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


# ---- K classes ----------------------------------------------------------------------------------------------------

THREE = VotingEnsemble(
    FEATURES,
    "sort",
    ("a", "b", "c"),
    (Vote("above", 0, 1, 2, 0), Vote("is", 1, 0, 3, 1), Vote("always", 0, 0, 1, 2), Vote("is", 2, 1, 1, 2)),
    0.5,
)


@pytest.mark.parametrize(
    ("age", "work", "owner", "scores", "label"),
    [
        (40, "Private", True, [2, 3, 2], "b"),
        (40, "State", True, [2, -3, 2], "a"),  # a tie: the class that stands first
        (nan, None, False, [-2, -3, 0], "c"),
        (27.5, "Private", nan, [-2, 3, 0], "b"),
    ],
)
def test_scores_of_three_classes_by_hand(age, work, owner, scores, label):
    columns = {"age": [age], "work": [work], "owner": [owner]}
    assert THREE.outputs == 3
    assert THREE.scores(columns).tolist() == [scores]
    assert THREE.predict(columns).tolist() == [label]
    powers = [exp(0.5 * score) for score in scores]
    assert THREE.probabilities(columns)[0] == pytest.approx([each / sum(powers) for each in powers], abs=1e-15)


def test_a_vote_moves_its_output_alone():
    for output in range(3):
        one = VotingEnsemble(FEATURES, "t", (1, 2, 3), (Vote("is", 2, 1, 4, output),), 1.0)
        columns = {"age": [1], "work": ["x"], "owner": [True]}
        assert one.scores(columns).tolist() == [[4 * (k == output) for k in range(3)]]


@pytest.mark.filterwarnings("error")
def test_great_scores_of_three_classes_do_not_overflow():
    big = VotingEnsemble(FEATURES, "t", (0, 1, 2), (Vote("is", 2, 1, 10_000, 2), Vote("always", 0, 0, -9_999, 1)), 3.0)
    columns = {"age": [0, 0], "work": ["", ""], "owner": [True, False]}
    assert big.probabilities(columns).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert big.predict(columns).tolist() == [2, 0]


def test_output_stands_in_json_where_there_are_several():
    assert THREE.to_json()["votes"] == [
        ["above", 0, 1, 2, 0],
        ["is", 1, 0, 3, 1],
        ["always", 0, 0, 1, 2],
        ["is", 2, 1, 1, 2],
    ]
    assert all(len(vote) == 4 for vote in ENSEMBLE.to_json()["votes"])
    assert ensemble_from_json(json.loads(json.dumps(THREE.to_json()))) == THREE


OLD = """{"classes":["a","b"],"features":[{"edges":[18.0,20.3],"name":"age","type":"numeric"},{"name":"work","type":\
"categorical","values":["b"]}],"link":0.25,"target":"income","type":"voting","votes":[["above",0,1,2],["is",1,0,-1],\
["always",0,0,3]]}"""


def test_files_of_the_first_version_are_read_and_written_alike():
    found = ensemble_from_json(json.loads(OLD))
    assert [vote.output for vote in found.votes] == [0, 0, 0]
    assert found.scores({"age": [21.0], "work": ["b"]}).tolist() == [[2 - 1 + 3]]
    assert json.dumps(found.to_json(), sort_keys=True, separators=(",", ":")) == OLD


@pytest.mark.parametrize(
    "vote",
    [["is", 1, 0, 1], ["is", 1, 0, 1, 3], ["is", 1, 0, 1, -1], ["is", 1, 0, 1, True], ["is", 1, 0, 1, 0.0], []],
)
def test_refused_outputs(vote):
    with pytest.raises(ModelInvalid):
        ensemble_from_json({**THREE.to_json(), "votes": [vote]})


@pytest.mark.parametrize("classes", [("a",), ("a", "b", "a"), (1, 2, "c"), (0, 1, True), tuple(range(256))])
def test_refused_classes(classes):
    with pytest.raises(ModelInvalid, match="classes"):
        VotingEnsemble(FEATURES, "t", classes, (), 1.0)


def test_an_output_that_is_not_there_is_refused():
    with pytest.raises(ModelInvalid, match="output"):
        VotingEnsemble(FEATURES, "t", ("a", "b"), (Vote("always", 0, 0, 1, 1),), 1.0)


def test_missing_is_never_above():
    table = Vote("above", 0, 0, 5).table(4)
    assert table.tolist() == [-5, 5, 5, -5]
    assert np.issubdtype(table.dtype, np.int64)

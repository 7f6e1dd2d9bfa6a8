"""Raw values to codes: every edge of the encoding, and what a feature may not be."""

from __future__ import annotations

import json
from math import inf, nan, nextafter

import numpy as np
import pytest

from dpserve_verify.errors import InputError, ModelInvalid
from models.features.features import (
    BooleanFeature,
    CategoricalFeature,
    NumericFeature,
    encode_columns,
    feature_from_json,
    number_text,
)

AGE = NumericFeature("age", (18.0, 30.0, 65.0))
WORK = CategoricalFeature("work", ("Private", "State"))
OWNER = BooleanFeature("owner")


def test_numbers_count_the_edges_below_them():
    values = [-inf, 17.9, 18.0, nextafter(18.0, inf), 30.0, 30.5, 65.0, 65.1, 1e300, inf, nan]
    assert AGE.encode(values).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 4]


def test_code_above_j_is_value_above_edge_j():
    values = np.array([17, 18, 18.5, 30, 31, 65, 66, -0.0])
    for j, edge in enumerate(AGE.edges):
        assert ((AGE.encode(values) > j) == (values > edge)).all()


def test_numbers_without_edges_have_one_bin_and_a_missing_one():
    plain = NumericFeature("x", ())
    assert plain.bins == 2
    assert plain.encode([-1, 1e9, nan]).tolist() == [0, 0, 1]


def test_texts_are_listed_other_or_missing():
    values = ["Private", "State", "state", "Private ", "", None, nan, 7]
    assert WORK.encode(values).tolist() == [0, 1, 2, 2, 3, 3, 3, 2]


def test_integers_match_categories_by_their_text():
    assert CategoricalFeature("zip", ("7", "8")).encode([7, 8, 9]).tolist() == [0, 1, 2]


def test_booleans():
    assert OWNER.encode([0, 1, nan]).tolist() == [0, 1, 2]
    assert OWNER.encode([True, False]).tolist() == [1, 0]
    assert OWNER.encode([True, None]).tolist() == [1, 2]


@pytest.mark.parametrize("feature", [AGE, WORK, OWNER], ids=lambda feature: feature.kind)
def test_json_and_back(feature):
    assert feature_from_json(json.loads(json.dumps(feature.to_json()))) == feature
    assert all(0 <= code < feature.bins for code in (*feature.single_codes, feature.missing))
    assert len({feature.label(code) for code in range(feature.bins)}) == feature.bins


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "x", "type": "text"},
        {"name": "x", "type": "numeric"},
        {"name": "x", "type": "numeric", "edges": ["a"]},
        {"name": "x", "type": "numeric", "edges": [2, 1]},
        {"name": "x", "type": "numeric", "edges": [1, 1]},
        {"name": "x", "type": "numeric", "edges": [1, nan]},
        {"name": "x", "type": "numeric", "edges": [1, inf]},
        {"name": "x", "type": "numeric", "edges": [1], "rows": 5},
        {"name": "x", "type": "numeric", "edges": list(range(70_000))},
        {"name": "x", "type": "categorical", "values": ["a", "a"]},
        {"name": "x", "type": "categorical", "values": ["a", ""]},
        {"name": "x", "type": "categorical", "values": ["\ud800"]},
        {"name": "", "type": "boolean"},
        {"name": "/input/label", "type": "boolean"},
        {"name": "/score", "type": "boolean"},
        {"name": "line\nbreak", "type": "boolean"},
    ],
)
def test_refused_features(body):
    with pytest.raises(ModelInvalid):
        feature_from_json(body)


def test_absent_columns_are_named():
    with pytest.raises(InputError, match=r"\['work'\]"):
        encode_columns([AGE, WORK], {"age": [1]})


@pytest.mark.parametrize(
    ("number", "text"),
    [(27.5, "27.5"), (0.1 + 0.2, "0.3"), (1438692.0, "1438692"), (-2e6, "-2000000"), (1e-7, "1e-07"), (1e20, "1e+20")],
)
def test_numbers_for_people(number, text):
    assert number_text(number) == text


@pytest.mark.parametrize(("edges", "texts"), [
    ((18.0, 2004.991, 2004.994), ["18", "2004.991", "2004.994"]),
    ((1e6, 1e6 + 0.25), ["1000000", "1000000.2"]),
    ((7665.94371, 7690.35), ["7665.94", "7690.35"]),
    ((1.0, nextafter(1.0, 2)), ["1", "1.0000000000000002"]),
])  # fmt: skip
def test_cut_points_have_the_digits_that_tell_them_apart(edges, texts):
    """So that a bin of one value has words of its own, in pictures and in edits."""
    assert [NumericFeature("x", edges).text(edge) for edge in edges] == texts


def test_no_two_codes_have_one_label_whatever_values_are_called():
    """Pictures and clicks find a bin by its label."""
    for values in (("a",), ("other", "missing"), ("missing", "any other value", "other"), ("no value", "missing")):
        feature = CategoricalFeature("x", values)
        labels = [feature.label(code) for code in range(feature.bins)]
        assert labels[: len(values)] == [*values]
        assert len(set(labels)) == feature.bins
    assert [CategoricalFeature("x", ("a",)).label(code) for code in (1, 2)] == ["other", "missing"]
    assert [CategoricalFeature("x", ("other", "missing")).label(code) for code in (2, 3)] == [
        "any other value",
        "no value",
    ]

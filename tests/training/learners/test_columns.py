"""Rules that make a schema from the names of columns: like a schema file, refused like one, never read from rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone

from accountant.errors import SchemaError
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.privacy.budget import Relation
from training.learners import LEARNERS
from training.notebook import Columns, draft, uniform_schema
from training.rows.schema.schema import parse_schema

EVERY = pytest.mark.parametrize("kind", LEARNERS.values(), ids=LEARNERS)


def test_a_rule_is_a_schema_file_for_columns_it_has_not_seen():
    rule = Columns(0, 10, ["a", "b"], 50, 4, {"sex": {"type": "categorical", "values": ["F", "M"]}}, "ill")
    schema = rule.schema(["age", "sex"])
    assert schema == parse_schema(rule.text(["age", "sex"]).encode())
    assert [feature.to_json() for feature in schema.features] == [
        {"name": "age", "type": "numeric", "edges": [0, 2.5, 5, 7.5]},
        {"name": "sex", "type": "categorical", "values": ["F", "M"]},
    ]
    assert (schema.target, schema.classes, schema.records) == ("ill", ("a", "b"), 50)
    assert clone(rule, safe=False) == rule


def test_a_uniform_schema_names_the_columns_or_counts_them():
    named, counted = (uniform_schema(each, 0, 1, [0, 1], 9, 5) for each in (["x0", "x1"], 2))
    assert named == counted
    assert named == Columns(0, 1, [0, 1], 9, 5).schema(["x0", "x1"])
    assert uniform_schema(2, np.int8(0), np.int64(1), np.array([0, 1]), 9, 5) == named


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"low": 1, "high": 1}, "low must be below high"),
        ({"low": float("nan")}, "finite"),
        ({"high": float("inf")}, "finite"),
        ({"low": "x"}, "valid number"),
        ({"low": False}, "neither true nor false"),
        ({"classes": [0]}, "classes"),
        ({"classes": [0, 0]}, "classes: each must stand there once"),
        ({"classes": [0.5, 1]}, "classes"),
        ({"classes": [False, 1]}, "classes"),
        ({"classes": "no"}, "classes"),
        ({"bins": 1}, "bins"),
        ({"bins": True}, "bins"),
        ({"records": 0}, "records"),
        ({"records": 2.5}, "records"),
        ({"columns": {"z": {"type": "boolean"}}}, "no such columns"),
        ({"columns": {"a": {"type": "date"}}}, "range"),
        ({"columns": {"a": {"type": "numeric"}}}, "public knowledge"),
        ({"target": "a"}, "the target cannot be a feature"),
    ],
    ids=repr,
)
def test_a_wrong_rule_is_refused_like_a_wrong_file(bad, said):
    with pytest.raises(SchemaError, match=said):
        Columns(**{"low": 0, "high": 1, "classes": [0, 1], **bad}).schema(["a", "b"])


def test_a_rule_has_no_schema_before_it_sees_columns():
    kind = next(iter(LEARNERS.values()))
    with pytest.raises(InputError, match="rule.schema"):
        kind(schema=Columns(0, 1, [0, 1])).public_facts()


@pytest.mark.slow
@EVERY
def test_the_number_of_rows_is_public_under_replace_one_alone(kind):
    X, y = np.linspace(0, 1, 300)[:, None], [0, 1] * 150
    for relation, records in ((Relation.REPLACE_ONE, 300), (Relation.ADD_REMOVE, 1000)):
        model = kind(schema=Columns(0, 1, [0, 1]), relation=str(relation)).fit(X, y)
        assert model.schema_.records == records


def test_a_draft_comes_from_names_and_types_and_is_no_schema_yet():
    table = pa.table({"age": [41.5], "here": [True], "town": ["Ulm"], "code": [7]})
    text = draft(table)
    assert "41.5" not in text
    assert "Ulm" not in text
    assert '"age": {type: numeric, range: [FILL-IN, FILL-IN], bins: 32}' in text
    assert '"here": {type: boolean}' in text
    with pytest.raises(DpserveError):
        parse_schema(text.encode())

"""The public schema: what parses, where cut points lie, and every way a file is refused before any row is read."""

from __future__ import annotations

import hashlib
from math import log1p
from pathlib import Path

import pytest

from accountant.errors import SchemaError
from models.features import BooleanFeature, CategoricalFeature, NumericFeature
from training.schema import MAX_BYTES, parse_schema

SHIPPED = Path(__file__).parent.parent / "examples" / "data" / "adult.schema.yaml"
TARGET = "target: {name: y, classes: [a, b]}"
AGE = "{type: numeric, range: [0, 10]}"


def text(features: str = f"age: {AGE}", target: str = TARGET, rest: str = "records: 9") -> str:
    return f"{target}\n{rest}\nfeatures: {{{features}}}\n"


def only_feature(body: str):
    (feature,) = parse_schema(text(f"age: {body}").encode()).features
    return feature


def test_the_shipped_schema_of_adult():
    raw = SHIPPED.read_bytes()
    schema = parse_schema(raw)
    kinds = [feature.kind for feature in schema.features]
    assert (len(kinds), kinds.count("numeric"), kinds.count("categorical")) == (14, 6, 8)
    assert (schema.target, schema.classes, schema.target_range) == ("income", ("<=50K", ">50K"), None)
    assert schema.records == 32561
    assert schema.digest == hashlib.sha256(raw).hexdigest()


def test_the_digest_is_of_the_bytes_and_not_of_their_meaning():
    plain, spaced = text().encode(), text().encode() + b"# the same\n"
    one, other = parse_schema(plain), parse_schema(spaced)
    assert one.features == other.features
    assert one.digest == hashlib.sha256(plain).hexdigest()
    assert one.digest != other.digest


def test_linear_cut_points_start_at_the_low_end_and_stay_below_the_high_end():
    assert only_feature("{type: numeric, range: [-2, 6], bins: 4}") == NumericFeature("age", (-2.0, 0.0, 2.0, 4.0))
    assert len(only_feature(AGE).edges) == 32


def test_log_cut_points_are_the_linear_ones_and_a_quarter_as_many_evenly_spaced_in_the_log():
    edges = set(only_feature("{type: numeric, range: [5, 1005], bins: 16, scale: log}").edges)
    linear = {5 + 1000 * j / 16 for j in range(16)}
    logs = sorted(log1p(edge - 5) for edge in (edges - linear) | {5.0})
    assert linear < edges
    assert logs == pytest.approx([log1p(1000) * j / 4 for j in range(4)])


def test_edges_are_taken_as_they_stand():
    assert only_feature("{type: numeric, edges: [-1, 0.5, 3]}") == NumericFeature("age", (-1.0, 0.5, 3.0))


def test_categories_become_texts_in_their_order_and_booleans_are_booleans():
    assert only_feature("{type: categorical, values: [z, 3, a]}") == CategoricalFeature("age", ("z", "3", "a"))
    assert only_feature("{type: boolean}") == BooleanFeature("age")


def test_a_public_range_makes_a_regression_target():
    schema = parse_schema(text(target="target: {name: y, range: [0, 5]}").encode())
    assert (schema.classes, schema.target_range) == (None, (0.0, 5.0))


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (text("age: {type: numeric}"), "features.age"),
        (text("age: {type: categorical}"), "features.age.values"),
        (text(target="target: {name: y}"), "target"),
        (text(target="target: {classes: [a, b]}"), "target.name"),
        (text(rest=""), "records"),
        (f"{TARGET}\nrecords: 9\n", "features"),
        (f"records: 9\nfeatures: {{age: {AGE}}}\n", "target"),
    ],
    ids=["numeric", "categorical", "classes", "target name", "records", "features", "target"],
)
def test_what_is_left_out_is_named_and_said_to_be_public_knowledge(body, place):
    with pytest.raises(SchemaError, match="it is public knowledge") as refused:
        parse_schema(body.encode())
    assert f"schema: {place}: " in refused.value.message


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("{type: numeric, range: [0, 1], edges: [0]}", "features.age: needs either"),
        ("{type: numeric, range: [3, 1]}", "features.age: range=[3.0, 1.0]: low must be below high"),
        ("{type: numeric, range: [1, 1]}", "low must be below high"),
        ("{type: numeric, range: [1]}", "features.age.range"),
        ("{type: numeric, range: [.nan, 1]}", "features.age.range.0: Input should be a finite number"),
        ("{type: numeric, range: [0, .inf]}", "features.age.range.1: Input should be a finite number"),
        ("{type: numeric, range: [-1.0e+308, 1.0e+308]}", "age.edges: finite"),
        ("{type: numeric, edges: []}", "features.age: edges: at least one, ascending"),
        ("{type: numeric, edges: [2, 1]}", "ascending, without repeats"),
        ("{type: numeric, edges: [1, 1]}", "ascending, without repeats"),
        ("{type: numeric, edges: [1, .nan]}", "features.age.edges.1: Input should be a finite number"),
        ("{type: numeric, edges: [-.inf, 1]}", "features.age.edges.0: Input should be a finite number"),
        ("{type: numeric, range: [0, 1], bins: 1}", "features.age.bins"),
        ("{type: numeric, range: [0, 1], bins: 4097}", "features.age.bins"),
        ("{type: numeric, range: [0, 1], bins: 8.0}", "features.age.bins"),
        ("{type: numeric, range: [0, 1], scale: sqrt}", "features.age.scale"),
        ("{type: numeric, range: [0, 1], bin: 8}", "features.age.bin: Extra inputs are not permitted"),
        ("{type: categorical, values: []}", "features.age.values"),
        ("{type: categorical, values: [u, v, u]}", "values: ['u'] stand there twice"),
        ("{type: categorical, values: [1, '1']}", "values: ['1'] stand there twice"),
        ("{type: categorical, values: [u, '']}", "age.values: Unicode texts; the empty text means missing"),
        ("{type: categorical, values: [u, 1.5]}", "features.age.values.1"),
        ("{type: categorical, values: [u, null]}", "features.age.values.1"),
        ("{type: categorical, values: [u], other: v}", "features.age.other: Extra inputs are not permitted"),
        ("{type: boolean, values: [u]}", "features.age.values: Extra inputs are not permitted"),
        ("{type: text}", "features.age"),
        ("{range: [0, 1]}", "features.age"),
        ("numeric", "features.age"),
    ],
)
def test_refused_features(body, problem):
    with pytest.raises(SchemaError) as refused:
        only_feature(body)
    assert problem in refused.value.message


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "true", "False"])
@pytest.mark.parametrize("place", ["values", "classes"])
def test_words_that_yaml_reads_as_booleans_are_refused_with_the_way_out(place, word):
    values = text(f"age: {{type: categorical, values: [{word}, u]}}")
    body = values if place == "values" else text(target=f"target: {{name: y, classes: [{word}, u]}}")
    with pytest.raises(SchemaError, match="put quotes around it"):
        parse_schema(body.encode())
    assert parse_schema(body.replace(word, f"'{word}'").encode())


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (text(f"y: {AGE}"), "features.y: the target cannot be a feature"),
        (text(f"label: {AGE}"), "feature='label'"),
        (text(f"probabilities: {AGE}"), "feature='probabilities'"),
        (text(f"value: {AGE}"), "feature='value'"),
        (text(f"/age: {AGE}"), "feature='/age'"),
        (text(f"'': {AGE}"), "1 to 200 printable characters"),
        (text(f'"a\\nb": {AGE}'), "1 to 200 printable characters"),
        (text(f"? {'n' * 201}\n: {AGE}"), "1 to 200 printable characters"),
        (text(target="target: {name: '', classes: [a, b]}"), "1 to 200 printable characters"),
        (text(f"7: {AGE}"), "features.7"),
        (text(""), "features"),
        (text(target="target: {name: y, classes: [a]}"), "target.classes"),
        (text(target="target: {name: y, classes: [a, a]}"), "target: classes: each must stand there once"),
        (text(target="target: {name: y, classes: [1, '1']}"), "target: classes: each must stand there once"),
        (text(target="target: {name: y, classes: [a, b], range: [0, 1]}"), "target: needs `classes"),
        (text(target="target: {name: y, range: [1, 0]}"), "target: range=[1.0, 0.0]: low must be below high"),
        (text(target="target: {name: y, range: [0, .inf]}"), "target.range.1"),
        (text(target="target: {name: y, classes: [a, b], kind: c}"), "target.kind: Extra inputs are not permitted"),
        (text(rest="records: 0"), "records"),
        (text(rest="records: 9.0"), "records"),
        (text(rest="records: '9'"), "records"),
        (text(rest="records: true"), "records"),
        (text(rest="records: 9\nseed: 1"), "seed: Extra inputs are not permitted"),
        (text(rest="records: 9\nmissing: drop"), "missing"),
        (text(rest="records: 9\nrecords: 9"), "['records'] stand twice in one mapping (line 1)"),
        (text(f"age: {AGE}, age: {AGE}"), "['age'] stand twice in one mapping (line 3)"),
        (text("age: {type: numeric, range: [0, 1], range: [0, 2]}"), "['range'] stand twice"),
        ("", "file: "),
        ("- a\n- b\n", "file: "),
        ("{a: [", "not YAML"),
        ("? [a]\n: b\n", "not YAML"),
        ("!!python/object/apply:os.getcwd []", "not YAML"),
        ("[" * 5000, "not YAML"),
    ],
)
def test_refused_files(body, problem):
    with pytest.raises(SchemaError) as refused:
        parse_schema(body.encode())
    assert refused.value.message.startswith("schema: ")
    assert problem in refused.value.message


def test_bytes_that_are_not_utf_8_are_refused():
    with pytest.raises(SchemaError, match="not YAML"):
        parse_schema(text("caf\u00e9: {type: boolean}").encode("latin-1"))


@pytest.mark.xfail(raises=ValueError, reason="parse_schema lets the ValueError of PyYAML's constructors through")
@pytest.mark.parametrize("scalar", ["2020-13-45", "!!int abc", "0b_", "9" * 5000])
def test_scalars_that_yaml_promises_but_python_cannot_hold_are_refused(scalar):
    with pytest.raises(SchemaError):
        parse_schema(text(rest=f"records: {scalar}").encode())


def test_a_file_may_have_a_mebibyte_and_no_byte_more():
    raw = text().encode()
    assert parse_schema(raw + b"#" * (MAX_BYTES - len(raw)))
    with pytest.raises(SchemaError, match=f"{MAX_BYTES + 1} bytes; at most {MAX_BYTES}"):
        parse_schema(raw + b"#" * (MAX_BYTES - len(raw) + 1))

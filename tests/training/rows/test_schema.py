"""The public schema: what is wrong, double or incomplete is refused with its place, and nothing is ever completed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from confined_work import run_confined
from hypothesis import given
from hypothesis import strategies as st

from accountant.errors import SchemaError
from accountant.system.confined import Bounds
from dpserve_verify.errors import InputError
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from training.rows.schema.schema import MAX_BYTES, MAX_FEATURES, MAX_LABEL, parse_schema, schema_from

ADULT = Path(__file__).resolve().parents[3] / "examples" / "data" / "adult.schema.yaml"
TARGET = "target: {name: y, classes: [a, b]}\n"
AGE = "  age: {type: numeric, range: [0, 10], bins: 5}\n"
GOOD = f"{TARGET}records: 100\nfeatures:\n{AGE}"


def parse(text: str):
    return parse_schema(text.encode())


def with_features(lines: str) -> str:
    return f"{TARGET}records: 100\nfeatures:\n{lines}"


def test_a_whole_schema():
    schema = parse(
        TARGET
        + "records: 100\nignore: [id]\nmissing: own-bin\nfeatures:\n"
        + AGE
        + "  cut: {type: numeric, edges: [1, 2.5]}\n"
        + "  colour: {type: categorical, values: [red, 7]}\n"
        + "  here: {type: boolean}\n"
    )
    assert schema.features == (
        NumericFeature("age", (0.0, 2.0, 4.0, 6.0, 8.0)),
        NumericFeature("cut", (1.0, 2.5)),
        CategoricalFeature("colour", ("red", "7")),
        BooleanFeature("here"),
    )
    assert (schema.target, schema.classes, schema.records, schema.ignore) == ("y", ("a", "b"), 100, ("id",))
    assert schema.target_range is None


def test_groups_are_a_features_own_bins_or_others_and_stand_in_no_model():
    text = (
        b"target: {name: y, classes: [n, p]}\nrecords: 9\nfeatures: {a: {type: boolean}, "
        b"b: {type: numeric, range: [0, 9], bins: 9}}\n"
    )
    schema = parse_schema(
        text + b"groups: {a: {}, b: {type: numeric, edges: [3]}, c: {type: categorical, values: [u]}}"
    )
    assert [each.name for each in schema.features] == ["a", "b"]
    assert [each.bins for each in schema.groups] == [3, 3, 3]
    assert [each.name for each in schema.stored] == ["a", "b", "a", "b", "c"]
    assert schema.ends["b"] == (0, 9)
    assert schema.question("y").features == schema.features
    for groups, said in (
        (b"{c: {}}", "must be a feature, or have a type of its own"),
        (b"{y: {type: boolean}}", "be no target"),
        (b"{b: {type: boolean}}", "the feature is numeric"),
        (b"{c: {type: numeric, range: [0, 1], bins: 64}}", "66 bins; at most 64"),
        (b"{c: {type: boolean}}\nignore: [c]", "is used as a feature, a group"),
    ):
        with pytest.raises(SchemaError, match=said):
            parse_schema(text + b"groups: " + groups)


def test_log_cut_points_are_added_to_the_uniform_ones():
    (feature,) = parse(with_features("  gain: {type: numeric, range: [0, 99999], bins: 32, scale: log}\n")).features
    assert set(parse(with_features("  gain: {type: numeric, range: [0, 99999], bins: 32}\n")).features[0].edges) < set(
        feature.edges
    )
    assert 32 < len(feature.edges) <= 40


def test_the_digest_is_of_the_bytes():
    assert parse(GOOD).digest != parse(GOOD + "# a remark\n").digest
    assert parse(GOOD).digest == parse(GOOD).digest


def test_regression_targets_are_read():
    schema = parse(GOOD.replace("classes: [a, b]", "range: [0, 5.5]"))
    assert schema.classes is None
    assert schema.target_range == (0.0, 5.5)


def test_adult_has_every_feature_of_the_publisher():
    schema = parse_schema(ADULT.read_bytes())
    assert len(schema.features) == 14
    assert schema.records == 32561


REFUSED = {
    "nothing": ("", "an empty file; must have target"),
    "a list": ("- a\n", "a file without keys; must have target"),
    "not YAML": ("target: {name: y\n", "not YAML"),
    "an unknown key": (GOOD + "extra: 1\n", "extra"),
    "an unknown key of a feature": (
        with_features("  age: {type: numeric, range: [0, 1], bin: 5}\n"),
        "features.age.bin",
    ),
    "an unknown type": (with_features("  age: {type: date}\n"), "features.age"),
    "no type": (with_features("  age: {range: [0, 1]}\n"), "features.age"),
    "no features": (f"{TARGET}records: 100\nfeatures: {{}}\n", "features"),
    "an unknown missing policy": (GOOD + "missing: mean\n", "missing"),
    "range and edges": (with_features("  age: {type: numeric, range: [0, 1], edges: [1]}\n"), "features.age"),
    "a range upside down": (with_features("  age: {type: numeric, range: [1, 0]}\n"), "low must be below high"),
    "an empty range": (with_features("  age: {type: numeric, range: [1, 1]}\n"), "low must be below high"),
    "an infinite range": (with_features("  age: {type: numeric, range: [0, .inf]}\n"), "features.age.range"),
    "a range with NaN": (with_features("  age: {type: numeric, range: [0, .nan]}\n"), "features.age.range"),
    "one end only": (with_features("  age: {type: numeric, range: [0]}\n"), "features.age.range"),
    "a date for a number": (with_features("  age: {type: numeric, range: [2020-01-01, 2021-01-01]}\n"), "features.age"),
    "edges out of order": (with_features("  age: {type: numeric, edges: [2, 1]}\n"), "ascending"),
    "edges twice": (with_features("  age: {type: numeric, edges: [1, 1]}\n"), "ascending"),
    "no edges": (with_features("  age: {type: numeric, edges: []}\n"), "at least one"),
    "one bin": (with_features("  age: {type: numeric, range: [0, 1], bins: 1}\n"), "features.age.bins"),
    "too many bins": (with_features("  age: {type: numeric, range: [0, 1], bins: 5000}\n"), "features.age.bins"),
    "half a bin": (with_features("  age: {type: numeric, range: [0, 1], bins: 2.5}\n"), "features.age.bins"),
    "no categories": (with_features("  c: {type: categorical, values: []}\n"), "features.c.values"),
    "a category twice": (with_features("  c: {type: categorical, values: [x, x]}\n"), "twice"),
    "a number and its text": (with_features('  c: {type: categorical, values: [1, "1"]}\n'), "twice"),
    "one class": (GOOD.replace("[a, b]", "[a]"), "target.classes"),
    "a class twice": (GOOD.replace("[a, b]", "[a, a]"), "target"),
    "classes and range": (GOOD.replace("classes: [a, b]", "classes: [a, b], range: [0, 1]"), "target"),
    "records of zero": (GOOD.replace("records: 100", "records: 0"), "records"),
    "records of minus one": (GOOD.replace("records: 100", "records: -1"), "records"),
    "records as text": (GOOD.replace("records: 100", 'records: "100"'), "records"),
    "records as a fraction": (GOOD.replace("records: 100", "records: 100.5"), "records"),
    "the target as a feature": (with_features("  y: {type: boolean}\n"), "the target cannot be a feature"),
    "an empty name": (with_features('  "": {type: boolean}\n'), "column name"),
    "a name that does not print": (with_features('  "a\\u0007": {type: boolean}\n'), "column name"),
    "a name without end": (with_features(f"  {'a' * 201}: {{type: boolean}}\n"), "column name"),
    "a name of what a graph works out": (with_features("  /label: {type: boolean}\n"), "/label"),
    "a mark that is a list": (GOOD + "format: {delimiter: [semicolon]}\n", "format.delimiter"),
    "an empty category": (with_features('  c: {type: categorical, values: [""]}\n'), "c.values"),
}


@pytest.mark.parametrize(("text", "place"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_with_its_place(text, place):
    with pytest.raises(SchemaError, match="schema") as caught:
        parse(text)
    assert place in caught.value.message
    assert caught.value.exit_code == 2


INCOMPLETE = {
    "no range": with_features("  age: {type: numeric}\n"),
    "no categories": with_features("  c: {type: categorical}\n"),
    "no classes": GOOD.replace("{name: y, classes: [a, b]}", "{name: y}"),
    "no records": GOOD.replace("records: 100\n", ""),
    "no target": GOOD.replace(TARGET, ""),
    "no features": f"{TARGET}records: 100\n",
}


@pytest.mark.parametrize("text", INCOMPLETE.values(), ids=INCOMPLETE)
def test_what_only_rows_could_complete_names_the_rule_of_public_knowledge(text):
    with pytest.raises(SchemaError, match="public knowledge"):
        parse(text)


TWICE = {
    "feature": with_features(AGE + AGE),
    "key": GOOD + "records: 5\n",
    "key of a feature": with_features("  age: {type: numeric, range: [0, 1], bins: 5, bins: 6}\n"),
}


@pytest.mark.parametrize("text", TWICE.values(), ids=TWICE)
def test_a_key_twice_is_refused(text):
    with pytest.raises(SchemaError, match="stand twice"):
        parse(text)


WORDS = ["yes, no", "on, off", "true, False", "NO, n", "1.5, x", "2024-01-01, x", "99999999999999999999, x", "~, null"]


@pytest.mark.parametrize("words", WORDS)
def test_words_mean_what_stands_there_whether_in_quotes_or_not(words):
    quoted = ", ".join(f'"{word}"' for word in words.split(", "))
    for form in (GOOD.replace("a, b", "{}"), with_features("  c: {{type: categorical, values: [{}]}}\n")):
        plain, safe = (
            parse(form.replace("{}", text).replace("{{", "{").replace("}}", "}")) for text in (words, quoted)
        )
        assert (plain.targets, plain.features) == (safe.targets, safe.features)
    assert parse(GOOD.replace("a, b", words)).classes == tuple(words.split(", "))


@pytest.mark.parametrize("number", ["010", "0x10", "1_0", "1:30", "+1", "0b1"])
def test_a_number_that_yaml_reads_otherwise_is_refused_but_where_it_was_registered(number):
    for text in (
        GOOD.replace("a, b", f"{number}, 7"),
        with_features(f"  c: {{type: categorical, values: [{number}]}}\n"),
    ):
        with pytest.raises(SchemaError, match="put quotes around it: '"):
            parse(text)
        assert parse_schema(text.encode(), registered=True)  # as YAML reads it: 8, 16, 10, 90 ..
    assert parse(GOOD.replace("a, b", f'"{number}", "7"')).classes == (number, "7")


def test_classes_that_no_model_could_have_are_refused():
    with pytest.raises(SchemaError, match="classes"):
        parse(GOOD.replace("a, b", '"", yes'))


@pytest.mark.slow
@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xfe",
        b"x" * (MAX_BYTES + 1),
        b"a: &a [*a]",
        b"!!python/object/apply:os.system [ls]",
        b"? [1, 2]\n: 3\n",
        b"a: 1\n---\nb: 2\n",
        b"[" * 5000,
        b"<<: 5",
        b"{1: 2, [a]: 3, {b: c}: 4}",
        b"\x00",
    ],
)
def test_hostile_bytes_are_refused(raw):
    with pytest.raises(SchemaError):
        parse_schema(raw)


MANY = ", ".join(f"v{number}" for number in range(20_000))
TOO_MUCH = {  # a few seconds of a processor and some hundred MB are more than any of them takes; they took minutes
    "unknown keys": GOOD + "".join(f"{number:x}: 1\n" for number in range(110_000)),
    "equal keys": GOOD + "a: 1\n" * 200_000,
    "a list repeated": GOOD + f"z: &z [{MANY}]\n" + "".join(f"g{number}: *z\n" for number in range(20_000)),
    "a feature repeated": with_features(
        f"  f: &f {{type: categorical, values: [{MANY}]}}\n" + "".join(f"  g{n}: *f\n" for n in range(3000))
    ),
    "a list of lists of lists": "a0: &a0 [x]\n"
    + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9)),
    "a mapping merged": GOOD + "m: &m {a: 1}\nn: {<<: [" + ", ".join(["*m"] * 150_000) + "]}\n",
    "numbers": GOOD + "z: [" + "1," * 490_000 + "]",
    "blanks": "a: [" + "FILL-IN, " * 110_000 + "]",
    "bins": with_features(
        "".join(f"  n{number}: {{type: numeric, range: [0,1], bins: 4096}}\n" for number in range(16_000))
    ),
    "classes": GOOD.replace("a, b", "{a: b}, " * 80_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TOO_MUCH)
def test_no_schema_takes_more_than_its_bytes_are_worth(name, tmp_path):
    raw, place = TOO_MUCH[name].encode(), tmp_path / "refusal"
    assert len(raw) <= MAX_BYTES

    def parse_it():
        try:
            parse_schema(raw)
        except SchemaError as error:
            place.write_text(error.message)

    assert run_confined(Bounds(400 << 20, 6), 120.0, parse_it)
    assert 0 < len(place.read_text()) < 20_000


def test_a_part_may_be_repeated():
    """As long as what it stands for is counted: files of before have aliases."""
    parts = "x: {type: categorical, values: &words [a, b]}, y2: {type: categorical, values: *words}"
    found = parse(TARGET + f"records: 9\nfeatures: {{{parts}}}\n")
    assert [feature.values for feature in found.features] == [("a", "b")] * 2


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(raw):
    try:
        parse_schema(raw)
    except SchemaError:
        return
    raise AssertionError("no random bytes make a schema")


@given(st.integers(0, len(GOOD) - 1), st.text(max_size=3))
def test_any_small_damage_is_read_or_refused(place, noise):
    text = GOOD[:place] + noise + GOOD[place + 1 :]
    with suppress(InputError):  # and nothing else, whatever was damaged
        parse_schema(text.encode(errors="replace"))


@pytest.mark.slow
def test_what_could_not_be_exported_or_certified_is_refused_before_anything_is_spent():
    many = {f"f{index}": {"type": "boolean"} for index in range(MAX_FEATURES + 1)}
    body = {**yaml.safe_load(GOOD), "features": many}  # checked as it is read; to read so many takes YAML seconds
    with pytest.raises(SchemaError, match="at most 16384"):
        schema_from(body, b"")
    del many["f0"]
    assert len(schema_from(body, b"").features) == MAX_FEATURES
    assert parse(GOOD.replace("[a, b]", f"[a, {'b' * MAX_LABEL}]")).classes == ("a", "b" * MAX_LABEL)
    with pytest.raises(SchemaError, match="at most 200 characters"):
        parse(GOOD.replace("[a, b]", f"[a, {'b' * (MAX_LABEL + 1)}]"))

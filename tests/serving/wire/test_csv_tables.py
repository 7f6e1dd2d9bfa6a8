"""Records as CSV over REST: read as `dpserve predict` reads the same bytes of a file, refused by record and field."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accountant.errors import RecordError
from dpserve_verify.errors import DpserveError, InputError
from models.features.column_law import Misfit, read_numbers
from models.features.features import BooleanFeature, CategoricalFeature, DateFeature, NumericFeature, TimeFeature
from models.features.table_format import USUAL_FORMAT, TableFormat, format_from_json
from models.features.written import Form, Written
from serving.wire.csv_tables import csv_of, table_of
from serving.wire.errors import TooLarge
from training.rows.tables.row_files import read_columns, write_predictions

FEATURES = (
    NumericFeature("age", (18.0, 65.0)),
    CategoricalFeature("job", ("clerk", "cook, or so")),
    BooleanFeature("employed"),
)
READS = {"age", "job", "employed"}
GOOD = """employed,age,job
true,39,clerk
NO,1e2,"cook, or so"

1,,""
,NA,"two
lines"
0,-0.5, clerk
"""


def read_raw(raw, features=FEATURES, limit=10, written=USUAL_FORMAT, passes=False):
    return table_of(raw, features, limit, written, passes).read(features, {feature.name for feature in features})


def read(text, limit=10):
    return read_raw(text.encode(), limit=limit)


@pytest.mark.parametrize("text", [GOOD, GOOD.replace("\n", "\r\n"), "\ufeff" + GOOD])
def test_a_body_is_read_as_a_file_is(tmp_path, text):
    (tmp_path / "rows.csv").write_bytes(text.encode())
    (filed,) = read_columns(tmp_path / "rows.csv", FEATURES)
    found = read(text)
    assert found.keys() == READS
    for name in ("age", "employed"):
        np.testing.assert_array_equal(found[name], filed[name])
    assert [each.replace("\r", "") for each in found["job"]] == [each.replace("\r", "") for each in filed["job"]]
    assert list(found["employed"][:3]) == [1, 0, 1]
    assert np.isnan(found["age"][2:4]).all()


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("", RecordError, "is missing"),
        ("age,job\n1,clerk\n", RecordError, "employed: is missing"),
        ("age,job,employed,ssn\n", RecordError, "'ssn': is not a field"),
        ("age,age,job,employed\n", RecordError, "twice"),
        ("age,job,employed\n1,clerk\n", RecordError, r"records\[0\]: has 2 cells"),
        ("age,job,employed\n1,clerk,true\nx,clerk,true\n", RecordError, r"records\[1\].age: not a number"),
        ("age,job,employed\n1_0,clerk,true\n", RecordError, "not a number"),
        ("age,job,employed\n1,clerk,maybe\n", RecordError, "neither true nor false"),
        ('age,job,employed\n1,"clerk,true\n', InputError, "line 2: a quote opens"),
        ("age,job,employed\n" + "1,clerk,true\n" * 11, TooLarge, "more than 10"),
        ("," * (1 << 24), TooLarge, "cells"),
    ],
)
def test_what_does_not_fit_is_named(text, kind, said):
    with pytest.raises(kind, match=said) as refused:
        read(text)
    assert isinstance(refused.value, DpserveError)
    assert "clerk" not in refused.value.message


def test_dates_are_iso():
    features = (DateFeature("born", (0.0,)), TimeFeature("at", (60.0,)))
    found = read_raw(b"at,born\n00:01:00,1970-01-02\n,NA\n", features)
    np.testing.assert_array_equal(found["born"], [1, np.nan])
    np.testing.assert_array_equal(found["at"], [60, np.nan])
    with pytest.raises(RecordError, match=r"records\[0\].born: not a date written YYYY-MM-DD"):
        read_raw(b"at,born\n00:01:00,1.2.1970\n", features)


def test_bytes_that_are_no_text():
    with pytest.raises(InputError, match="UTF-8"):
        read_raw(b"age,job,employed\n1,\xff,true\n")


def test_a_long_text_is_another_one():
    found = read("age,job,employed\n1," + "x" * 5000 + ",true\n")
    assert len(found["job"][0]) < 10
    assert found["job"][0] not in FEATURES[1].values


def test_no_label_is_a_formula_and_each_is_read_back(tmp_path):
    """In a body and in a file alike; Parquet holds them as they are. One apostrophe in front is left out again."""
    classes = ("=no", "'=no", "''@x", "-1", "+1 or more", "\tx", "it's", "'yes", "=cmd|' /C calc'!A0")
    label, chances = np.array(classes, object), np.eye(len(classes), dtype=np.float32)
    files = [tmp_path / "a.csv", tmp_path / "a.parquet"]
    for file in files:
        write_predictions(file, classes, [(label, chances, None, None)])
    for raw in (csv_of(classes, label, chances).decode(), files[0].read_bytes().decode()):
        head, *lines = csv.reader(io.StringIO(raw, newline=""))
        told = [line[0] for line in lines]
        assert not any(text.startswith(("=", "@", "\t", "+")) for text in [*head, *told])
        assert head == ["label", *(f"p_{name}" for name in classes)]
        assert tuple(text[1:] if re.match("'+[=+@\t\r-]", text) else text for text in told) == classes
        assert told[3] == "-1"
    assert tuple(pq.read_table(files[1])["label"].to_pylist()) == classes


def test_answers_keep_every_digit():
    chances = np.array([[0.1, 0.9], [1 / 3, 2 / 3]], np.float32)
    lines = list(csv.reader(io.StringIO(csv_of(("a,b", "c"), np.array(["a,b", "c"]), chances).decode())))
    assert lines[0] == ["label", "p_a,b", "p_c"]
    assert (np.array([line[1:] for line in lines[1:]], np.float32) == chances).all()
    values = np.array([0.1, -1e300])
    told = csv_of((), values, np.empty((2, 0))).decode().split()
    assert told[0] == "value"
    assert [float(each) for each in told[1:]] == values.tolist()


def test_a_file_that_is_sent_as_it_is_is_read_as_it_is_written():
    """As `format` of a model says it: cut otherwise, numbers with marks, words for nothing, and columns of others."""
    written = {
        "age": Written(decimal=",", thousands=".", missing=("?",), missing_numbers=(-9.0,)),
        "job": Written(missing=("keiner",)),
        "employed": Written(true=("ja",), false=("nein",)),
    }
    text = "Größe; age;job;employed\n1;1.234,5;clerk;ja\n2;-9;keiner;nein\n3;?;cook, or so;\n4;12345;x;ja\n"
    file = TableFormat(Form(";", "cp1252"), written)
    found = read_raw(text.encode("cp1252"), written=file, passes=True)
    np.testing.assert_array_equal(found["age"], [1234.5, np.nan, np.nan, 12345])
    np.testing.assert_array_equal(found["employed"], [1, 0, np.nan, 1])
    assert found["job"].tolist() == ["clerk", "", "cook, or so", "x"]
    for wrong, said in (("1.23,5", "not a number"), ("1.2345", "not a number"), ("1,234.5", "not a number")):
        with pytest.raises(RecordError, match=said):
            read_raw(f"age;job;employed\n{wrong};clerk;ja\n".encode("cp1252"), written=file, passes=True)
    with pytest.raises(RecordError, match=r"records\[0\]: has 4 cells"):
        read_raw(b"age;job;employed\n1;2;3;4\n", written=file, passes=True)


@pytest.mark.parametrize(
    ("thousands", "decimal", "text"),
    [
        (",", ".", "1,234.5"),
        (".", ",", "1.234,5"),
        (" ", ",", "1\u202f234,5"),
        (" ", ".", "1\u00a0234.5"),
        ("'", ".", "1’234.5"),
    ],
)
def test_marks_between_thousands(thousands, decimal, text):
    written = Written(decimal=decimal, thousands=thousands)
    assert read_numbers(pa.array([text, "7", "-1", "0"]), written).tolist() == [1234.5, 7, -1, 0]
    with pytest.raises(Misfit):
        read_numbers(pa.array([text.replace("234", "23")]), written)
    assert Written(decimal="either", thousands=thousands).problem()


@pytest.mark.parametrize("written", [{"decimal": ",", "thousands": ","}, {"true": ["no"]}])
def test_a_format_that_can_be_read_in_two_ways_is_refused(written):
    with pytest.raises(InputError, match="format: age: "):
        format_from_json({"form": {"delimiter": ";", "encoding": "utf-8"}, "columns": {"age": written}})

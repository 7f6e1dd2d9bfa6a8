"""Targets as people have them: truth values, floats, codes in two types, `NA`, codes and texts in one column. The same
labels are read from every type and at every door, or are refused before anything is registered.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from accountant.errors import DataError
from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import register
from training.datasets.file_check import check_file
from training.jobs import job
from training.learners import DPEBMRegressor, LazyBB
from training.measuring.worth.evaluate import open_model
from training.measuring.worth.public_rows import evaluate_rows
from training.requests import JobRequest
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import NO_CLASS, encode_labels

YES = np.arange(300) % 3 == 0
FEATURE = "records: 300\nfeatures:\n  x: {type: numeric, range: [0, 1]}\n"


def texts(no, yes):
    return pa.array(np.where(YES, yes, no))


TYPES = {
    "bool": pa.array(YES),
    "int8": pa.array(YES.astype("int8")),
    "uint64": pa.array(YES.astype("uint64")),
    "double": pa.array(YES.astype(float)),
    "decimal": pa.array(YES.astype(int)).cast(pa.decimal128(30, 2)),
    "codes": texts("0", "1"),
    "codes as floats": texts("0.0", "1.0"),
    "codes with blanks": texts(" 0", "1 "),
    "a view": texts("0", "1").cast(pa.string_view()),
    "a dictionary": texts("0", "1").dictionary_encode(),
    "a dictionary of ints": pa.array(YES.astype(int)).dictionary_encode(),
    "pandas' words": texts("False", "True"),
    "small words": texts("false", "true"),
}
CLASSES = ["[0, 1]", "['0', '1']", "[no, yes]", "[False, True]"]
SAME = [(kind, classes) for kind in TYPES for classes in CLASSES]


def schema_of(classes, more=""):
    return parse_schema(f"target: {{name: y, classes: {classes}{more}}}\n{FEATURE}".encode())


@pytest.mark.parametrize(("kind", "classes"), SAME, ids=[f"{kind} as {classes}" for kind, classes in SAME])
def test_every_type_of_a_target_is_read_as_the_class_that_it_means_at_every_door(kind, classes, tmp_path):
    schema, column = schema_of(classes), TYPES[kind]
    assert encode_labels(schema, column).tolist() == YES.tolist()
    for name in ("rows.parquet", "rows.csv"):
        table, path = pa.table({"x": YES.astype(float), "y": column}), tmp_path / name
        if name.endswith("csv"):
            plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            table = table.set_column(1, "y", plain.cast(pa.string()))
        (pq.write_table if name.endswith("parquet") else pyarrow.csv.write_csv)(table, path)
        assert check_file(schema, path).problems == []
    learner = LazyBB(schema=schema, epsilon=50, rounds=1).fit({"x": YES.astype(float)}, column)
    assert learner.score({"x": YES.astype(float)}, column) == 1.0


def test_what_means_no_class_is_refused_everywhere(tmp_path):
    for classes, cells in (("[0, 1]", ["0", "2.0"]), ("[no, yes]", ["no", "maybe"]), ("[DE, NA]", ["DE", "FR"])):
        schema, path = schema_of(classes), tmp_path / "rows.csv"
        path.write_text("x,y\n" + "".join(f"0.5,{cell}\n" for cell in cells * 20))
        assert [problem.found for problem in check_file(schema, path).problems] == ["no class"]
        with pytest.raises(DataError, match="not one of the classes"):
            encode_labels(schema, pa.array(cells))


def test_na_is_a_class_where_it_is_listed_and_missing_where_it_is_not():
    cells = pa.array(["DE", "NA", None])
    assert encode_labels(schema_of("[DE, NA]", ", missing: leave-out"), cells).tolist() == [0, 1, NO_CLASS]
    assert encode_labels(schema_of("[DE, FR]", ", missing: leave-out"), cells).tolist() == [0, NO_CLASS, NO_CLASS]


@pytest.mark.parametrize("classes", ["[1, 2, 3+]", "[1, 2, '3+']"])
def test_codes_and_texts_in_one_column_are_texts(classes):
    schema, cells = schema_of(classes), np.array([1, 2, "3+"] * 100, object)
    assert schema.classes == ("1", "2", "3+")
    learner = LazyBB(schema=schema, epsilon=50, rounds=1).fit({"x": np.linspace(0, 1, 300)}, cells)
    assert 0 < learner.score({"x": np.linspace(0, 1, 300)}, cells) <= 1


def test_a_score_leaves_out_the_rows_that_a_fit_leaves_out():
    answers = [None if i % 4 == 1 else bool(yes) for i, yes in enumerate(YES)]
    floats = np.array([np.nan if each is None else float(each) for each in answers])
    rows = {"x": YES.astype(float)}
    for column in (pa.array(answers), np.array(answers, object), floats):
        learner = LazyBB(schema=schema_of("[no, yes]", ", missing: leave-out"), epsilon=50, rounds=1).fit(rows, column)
        assert learner.score(rows, column) == 1.0
        with pytest.raises(ValueError, match="y: holds NaN|not one of the classes"):
            LazyBB(schema=schema_of("[no, yes]"), epsilon=50, rounds=1).fit(rows, column)
    text = f"target: {{name: y, range: [0, 1], missing: leave-out}}\n{FEATURE}".encode()
    learner = DPEBMRegressor(schema=text, epsilon=50).fit(rows, floats)
    assert learner.score(rows, floats) == pytest.approx(
        learner.score({"x": YES.astype(float)[~np.isnan(floats)]}, floats[~np.isnan(floats)])
    )


def test_rows_without_an_answer_are_left_out_at_evaluation_as_at_training(tmp_path):
    home = Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    schema, rows = tmp_path / "schema.yaml", tmp_path / "rows.parquet"
    numbers = np.linspace(0, 1, 600)
    answers = [None if i % 4 == 1 else bool(x > 0.5) for i, x in enumerate(numbers)]
    schema.write_text(
        "targets: {y: {classes: [0, 1], missing: leave-out}, z: {range: [0, 1], missing: leave-out},\n"
        f"  c: {{classes: [DE, NA]}}}}\n{FEATURE}".replace("300", "600")
    )
    country = ["NA" if x > 0.5 else "DE" for x in numbers]
    pq.write_table(pa.table({"x": numbers, "y": answers, "z": answers, "c": country}).cast(
        pa.schema({"x": pa.float64(), "y": pa.bool_(), "z": pa.float64(), "c": pa.string()})
    ), rows)  # fmt: skip
    register(home, "made", rows, schema, Budget.of(9, "1e-6"), Relation.ADD_REMOVE, "record")
    other = tmp_path / "other.csv"  # as pandas writes truth values with a gap
    cells = zip(numbers[:400] + 0.0001, answers, country, strict=False)
    other.write_text(
        "x,y,z,c\n" + "".join(f"{x},{'' if y is None else y},{'' if y is None else y + 0.0},{c}\n" for x, y, c in cells)
    )
    for target, count in (("y", 300), ("z", 300), ("c", 400)):
        job.train(home, JobRequest("made", "auto", "2", target=target, model=f"made-{target}"), by="test")
        report = evaluate_rows(home, open_model(home, f"made-{target}"), "made", other, "a tester", is_public=True)
        assert report.body["data"]["records"] == count
        left_out = "100 more have no answer, and are left out as at training"
        assert (left_out in report.facts[0]) is (count == 300)
    other.write_text("x,y,z,c\n0.5,,,DE\n")
    with pytest.raises(DataError, match="no rows with an answer"):
        evaluate_rows(home, open_model(home, "made-y"), "made", other, "a tester", is_public=True)
    other.write_text("x,y,z,c\n0.5,2,,DE\n")
    with pytest.raises(DataError, match="no answer of the model's"):
        evaluate_rows(home, open_model(home, "made-y"), "made", other, "a tester", is_public=True)

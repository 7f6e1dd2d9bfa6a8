"""Files into packed bins: Parquet and CSV alike, and what does not fit is refused without a word of the data."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accountant.errors import DataError
from accountant.ledger.families.records import Unit
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Relation
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature, encode_columns
from training.datasets import packing
from training.datasets.datasets import pack
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import bin_dtype, columns_of, encode_column, encode_labels, read_batches, rows_of
from training.rows.tables.data import read_batches as real_batches

SCHEMA_TEXT = b"""
target: {name: y, classes: ["no", "yes"]}
records: 4
ignore: [id]
features:
  age: {type: numeric, range: [0, 100], bins: 4}
  colour: {type: categorical, values: [red, "7"]}
  member: {type: boolean}
"""
SCHEMA = parse_schema(SCHEMA_TEXT)
SECRET = "s3cret"
GOOD = {
    "age": [10.0, 90.0, None, 50.0],
    "colour": ["red", "7", None, "blue"],
    "member": [True, False, None, True],
    "y": ["no", "yes", "yes", "no"],
}
CODES = {"age": [1, 4, 5, 2], "colour": [0, 1, 3, 2], "member": [1, 0, 2, 1]}


def parquet(folder, columns, name="data.parquet"):
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def csv(folder, text: str, name="data.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_parquet_becomes_codes(tmp_path):
    packed = pack(parquet(tmp_path, GOOD), SCHEMA)
    assert packed.bins.dtype == np.uint8
    assert packed.bins.tolist() == list(CODES.values())
    assert packed.labels.tolist() == [0, 1, 1, 0]


def test_csv_becomes_the_same_codes(tmp_path):
    path = csv(tmp_path, "age,colour,member,y\n10,red,true,no\n90.0,7,0,yes\n,,,yes\n5e1,blue,YES,no\n")
    packed = pack(path, SCHEMA)
    assert packed.bins.tolist() == list(CODES.values())
    assert packed.labels.tolist() == [0, 1, 1, 0]


ROWS = st.lists(
    st.tuples(
        st.none() | st.floats(allow_nan=False, width=32) | st.integers(-5, 105).map(float),
        st.none() | st.sampled_from(["red", "7", "blue", " red", "NA", "null", 'a"b', "a,b", "é", "a\nb"]),
        st.none() | st.booleans(),
        st.sampled_from(["no", "yes"]),
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.slow
@given(ROWS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_csv_and_parquet_give_identical_bins(tmp_path, rows):
    types = [pa.float64(), pa.string(), pa.bool_(), pa.string()]
    table = pa.table(
        {name: pa.array(column, kind) for name, column, kind in zip(GOOD, zip(*rows, strict=True), types, strict=True)}
    )
    pq.write_table(table, tmp_path / "data.parquet")
    pa.csv.write_csv(table, tmp_path / "data.csv")
    one, other = pack(tmp_path / "data.parquet", SCHEMA), pack(tmp_path / "data.csv", SCHEMA)
    assert one.bins.tolist() == other.bins.tolist()
    assert one.labels.tolist() == other.labels.tolist()
    memory = rows_of(SCHEMA, table, table["y"], Relation.ADD_REMOVE)
    assert memory.bins.tolist() == one.bins.tolist()
    released = encode_columns(SCHEMA.features, columns_of(SCHEMA, table))
    assert [codes.tolist() for codes in released] == one.bins.tolist()


def test_columns_may_stand_in_any_order_and_ignored_ones_are_left_out(tmp_path):
    table = {"id": [1, 2, 3, 4], **dict(reversed(GOOD.items()))}
    assert pack(parquet(tmp_path, table), SCHEMA).bins.tolist() == list(CODES.values())


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
)
def test_texts_of_every_kind(tmp_path, kind):
    table = {**GOOD, "colour": pa.array(GOOD["colour"]).cast(kind), "y": pa.array(GOOD["y"]).cast(kind)}
    packed = pack(parquet(tmp_path, table), SCHEMA)
    assert packed.bins[1].tolist() == CODES["colour"]
    assert packed.labels.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint16()])
def test_whole_numbers_as_categories(kind):
    feature = CategoricalFeature("c", ("7", "8"))
    column = pa.array([8, 7, 9, None], kind)
    for spelling in (column, column.dictionary_encode()):
        assert encode_column(feature, spelling).tolist() == [1, 0, 2, 3]


def test_whole_numbers_as_classes():
    schema = parse_schema(b"target: {name: y, classes: [0, 1]}\nrecords: 9\nfeatures:\n  a: {type: boolean}\n")
    assert encode_labels(schema, pa.array([1, 0, 1])).tolist() == [1, 0, 1]
    assert encode_labels(schema, pa.array(["1", "0", "1"])).tolist() == [1, 0, 1]
    with pytest.raises(DataError, match="row 4"):
        encode_labels(schema, pa.array([0, 1, 2]))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([10, 90, None], pa.int16()),
        pa.array([10, 90, None], pa.float32()),
        pa.array([Decimal("10"), Decimal("90"), None], pa.decimal128(5, 2)),
    ],
)
def test_numbers_of_every_kind(column):
    assert encode_column(NumericFeature("age", (0.0, 25.0, 50.0, 75.0)), column).tolist() == [1, 4, 5]


def test_values_outside_the_range_are_clipped_and_nan_has_its_own_bin():
    feature = NumericFeature("age", (0.0, 25.0, 50.0, 75.0))
    column = pa.array([-1e300, float("-inf"), 0.0, 1e300, float("inf"), float("nan"), None])
    assert encode_column(feature, column).tolist() == [0, 0, 0, 4, 4, 5, 5]


@pytest.mark.parametrize("feature", [NumericFeature("a", (0.0,)), CategoricalFeature("a", ("x",)), BooleanFeature("a")])
def test_a_column_of_nothing_is_missing(feature):
    assert encode_column(feature, pa.nulls(3)).tolist() == [feature.missing] * 3


def test_an_unused_dictionary_entry_changes_nothing():
    column = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int8()), pa.array([SECRET, "red"]))
    assert encode_column(SCHEMA.features[1], column).tolist() == [0, 0]


@pytest.mark.parametrize(
    "values", [["True", "no", "1", "", None], [1, 0, 1, None, None], [1.0, 0.0, 1.0, float("nan"), None]]
)
def test_flags_of_every_kind(values):
    assert encode_column(BooleanFeature("a"), pa.array(values)).tolist() == [1, 0, 1, 2, 2]


def test_few_bins_are_bytes_and_many_are_two():
    assert bin_dtype([CategoricalFeature("a", tuple(map(str, range(254))))]) is np.uint8
    assert bin_dtype([CategoricalFeature("a", tuple(map(str, range(255))))]) is np.uint16


# ---- refusals --------------------------------------------------------------------------------------------------------


def replaced(**columns):
    return {**GOOD, **columns}


BAD_TABLES = {
    "a column is missing": ({key: GOOD[key] for key in ("age", "colour", "y")}, "member"),
    "the target is missing": ({key: GOOD[key] for key in ("age", "colour", "member")}, "'y'"),
    "a column is unknown": (replaced(extra=[1, 2, 3, 4]), "extra"),
    "texts for numbers": (replaced(age=["1", "2", SECRET, "4"]), "age, row 4"),
    "flags for numbers": (replaced(age=[True, False, True, None]), "age"),
    "fractions for categories": (replaced(colour=[1.5, 2.5, 3.5, 4.5]), "colour"),
    "flags for categories": (replaced(colour=[True, False, True, None]), "colour"),
    "lists for categories": (replaced(colour=[[SECRET], [], [], []]), "colour"),
    "words that are no flags": (replaced(member=["yes", SECRET, "no", "no"]), "member, row 3"),
    "numbers that are no flags": (replaced(member=[0, 1, 2, 1]), "member, row 4"),
    "a label that is no class": (replaced(y=["no", "yes", "no", SECRET]), "y, row 5"),
    "a label is missing": (replaced(y=["no", None, "no", "yes"]), "y, row 3"),
    "an empty label": (replaced(y=["no", "", "no", "yes"]), "y, row 3"),
    "labels of another type": (replaced(y=[0.5, 1.5, 1.5, 1.5]), "y"),
    "dates for labels": (replaced(y=[date(2024, 3, 1)] * 4), "y, row 2"),
}


@pytest.mark.parametrize(("columns", "place"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_a_table_that_does_not_fit_is_refused_with_its_place(tmp_path, columns, place):
    with pytest.raises(DataError) as caught:
        pack(parquet(tmp_path, columns), SCHEMA)
    assert place in caught.value.message
    assert SECRET not in str(caught.value.to_json())


BAD_CSV = {
    "nothing": "",
    "a blank line": "\n",
    "blanks": "   \n",
    "only a header": "age,colour,member,y\n",
    "a column twice": "age,age,colour,member,y\n1,2,red,1,no\n",
    "no header": f"1,red,{SECRET},no\n",
    "a text for a number": f"age,colour,member,y\n{SECRET},red,1,no\n",
    "a cell too many": f"age,colour,member,y\n1,red,1,no,{SECRET}\n",
    "a cell too few": f"age,colour,member,y\n1,{SECRET},1\n",
    "a flag that is none": f"age,colour,member,y\n1,red,{SECRET},no\n",
    "a label that is none": f"age,colour,member,y\n1,red,1,{SECRET}\n",
    "a label is missing": "age,colour,member,y\n1,red,1,\n",
    "another separator": f"age;colour;member;y\n1;red;1;{SECRET}\n",
}


@pytest.mark.parametrize("text", BAD_CSV.values(), ids=BAD_CSV)
def test_a_csv_that_does_not_fit_is_refused_without_its_values(tmp_path, text):
    with pytest.raises(DataError) as caught:
        pack(csv(tmp_path, text), SCHEMA)
    message = str(caught.value.to_json())
    assert SECRET not in message
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["data.parquet", "data.csv"])
@pytest.mark.parametrize(
    "raw", [b"\xff\xfe\x00\x01" * 9, b"PAR1" + b"\x00" * 40, b"age,colour,member,y\n1,\xff\xfe,1,no\n"]
)
def test_bytes_that_are_no_file_of_the_kind_are_refused(tmp_path, name, raw):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(DataError):
        pack(tmp_path / name, SCHEMA)


def test_a_csv_with_a_byte_order_mark_is_read(tmp_path):
    path = csv(tmp_path, "\ufeffage,colour,member,y\n10,red,1,no\n")
    assert pack(path, SCHEMA).bins.tolist() == [[1], [0], [1]]


def test_no_rows_are_refused(tmp_path):
    empty = pa.table(GOOD).slice(0, 0)
    pq.write_table(empty, tmp_path / "data.parquet")
    with pytest.raises(DataError, match="no rows"):
        pack(tmp_path / "data.parquet", SCHEMA)
    with pytest.raises(DataError):
        rows_of(SCHEMA, empty, [], Relation.ADD_REMOVE)


@pytest.mark.parametrize("name", ["data.doc", "data", "data.parquet.gz", "none.csv", "none.parquet"])
def test_other_files_are_refused(tmp_path, name):
    if not name.startswith("none"):
        (tmp_path / name).write_bytes(bytes(range(9)))
    with pytest.raises(DataError, match="data="):
        list(read_batches(tmp_path / name, SCHEMA))


def test_a_folder_is_refused(tmp_path):
    for name in ("data.csv", "data.parquet"):
        (tmp_path / name).mkdir()
        with pytest.raises(DataError):
            pack(tmp_path / name, SCHEMA)


def test_rows_after_the_first_batch_are_named_by_their_place_in_the_file(tmp_path):
    count = 70_000
    columns = {"age": np.zeros(count), "colour": ["red"] * count, "member": [True] * count, "y": ["no"] * count}
    columns["y"][-1] = SECRET
    with pytest.raises(DataError, match="row 70001"):
        pack(parquet(tmp_path, columns), SCHEMA)


# ---- tables in memory ------------------------------------------------------------------------------------------------


def test_labels_may_be_a_list_an_array_or_an_arrow_column():
    X = {key: GOOD[key] for key in ("age", "colour", "member")}
    for y in (GOOD["y"], np.array(GOOD["y"]), pa.array(GOOD["y"]), pa.chunked_array([GOOD["y"][:1], GOOD["y"][1:]])):
        assert rows_of(SCHEMA, X, y, Relation.REPLACE_ONE).labels.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(("count", "relation"), [(3, Relation.REPLACE_ONE), (5, Relation.REPLACE_ONE)])
def test_the_public_count_is_exact_under_replace_one_and_the_message_keeps_the_true_one(count, relation):
    X = {key: (GOOD[key] * 2)[:count] for key in ("age", "colour", "member")}
    with pytest.raises(DataError, match="records=4") as caught:
        rows_of(SCHEMA, X, (GOOD["y"] * 2)[:count], relation)
    assert str(count) not in caught.value.message
    rows_of(SCHEMA, X, (GOOD["y"] * 2)[:count], Relation.ADD_REMOVE)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1, 2, 3]], ["no"]),
        (np.zeros((4, 3)), GOOD["y"]),
        (None, GOOD["y"]),
        ({"age": [1.0]}, ["no"]),
        ({key: GOOD[key] for key in ("age", "colour", "member")}, GOOD["y"][:3]),
        ({key: GOOD[key] for key in ("age", "colour", "member")}, ["no", "yes", "maybe", "no"]),
        ({key: GOOD[key] for key in ("age", "colour", "member")}, None),
        ({key: GOOD[key] for key in ("age", "colour", "member")}, 5),
        ({"age": [1.0], "colour": ["red", "red"], "member": [True]}, ["no"]),
    ],
)
def test_tables_that_do_not_fit_are_refused(X, y):
    with pytest.raises(InputError):
        rows_of(SCHEMA, X, y, Relation.ADD_REMOVE)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("rows_per_batch", [1, 3, 100])
def test_of_every_person_the_first_rows_are_kept(tmp_path, monkeypatch, most, rows_per_batch):
    """In file order, over any cut into batches; who else is in the file changes nothing."""
    people = [1, 2, 1, 1, 3, 2, 1, 2, 3, 3, 1]
    table = {name: [values[0]] * len(people) for name, values in GOOD.items()}
    table["age"] = [float(age) for age in range(20, 20 + len(people))]
    table["person"] = people
    path = parquet(tmp_path, table)
    schema = parse_schema(SCHEMA_TEXT.replace(b"ignore: [id]", b"ignore: [id, person]"))
    monkeypatch.setattr(packing, "read_batches", lambda *a: _cut(real_batches(*a), rows_per_batch))
    packed = pack(path, schema, Unit("person", "person", most))
    seen, kept = Counter(), []
    for person, age in zip(people, table["age"], strict=True):
        seen[person] += 1
        kept += [age] if seen[person] <= most else []
    index = [feature.name for feature in schema.features].index("age")
    expected = encode_column(schema.features[index], pa.array(kept))
    assert packed.bins[index].tolist() == expected.tolist()


def _cut(batches, rows):
    for batch in batches:
        for start in range(0, len(batch), rows):
            yield batch.slice(start, rows)


def test_a_frame_is_read_as_its_schema_says_that_it_is_written(tmp_path):
    """As the same cells in a file: words for yes, numbers and words that stand for nothing, marks, days, the target."""
    schema = parse_schema(b"""
target: {name: y, range: [0, 2000], decimal: ",", thousands: "."}
records: 3
features:
  b: {type: boolean, true_words: [ja], false_words: [nein]}
  s: {type: numeric, range: [0, 9], missing_values: [9999]}
  c: {type: categorical, values: [Ulm], missing_words: [k.A.]}
  d: {type: date, range: [2020-01-01, 2029-12-31], written: [DD.MM.YYYY]}
format: {delimiter: semicolon}
""")
    cells = {"b": ["ja", "Nein", None], "s": [1.0, 9999.0, 3.0], "c": ["Ulm", "k.A.", "Bonn"]}
    cells |= {"d": ["31.12.2024", "1.1.2020", ""], "y": ["1.234,5", "7", "0,25"]}
    frame = pa.table(cells)
    rows = rows_of(schema, frame.drop_columns(["y"]), frame["y"], Relation.ADD_REMOVE)
    lines = zip(*cells.values(), strict=True)
    body = [";".join("" if cell is None else str(cell) for cell in line) for line in lines]
    text = "\n".join([";".join(cells), *body, ""])
    (tmp_path / "rows.csv").write_text(text)
    packed = pack(tmp_path / "rows.csv", schema)
    assert rows.bins.tolist() == packed.bins.tolist()
    assert rows.targets.tolist() == packed.labels.tolist()
    with pytest.raises(DataError, match="d, row 2"):
        columns_of(schema, frame.set_column(3, "d", pa.array(["2024-12-31", "", ""])))

"""Rows into bins: CSV, Parquet, batches and the released model's own encoder agree, and errors never quote a value."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from accountant.budget import Relation
from accountant.errors import DataError
from models.features import encode_columns
from training import data
from training.data import bin_dtype, columns_of, encode_column, rows_of
from training.datasets import pack
from training.schema import parse_schema

EXAMPLES = Path(__file__).parent.parent / "examples" / "data"
SECRET = "Zaphod-4711"
SCHEMA = parse_schema(
    b"""
target: {name: y, classes: [0, 1]}
records: 8
ignore: [note]
features:
  age: {type: numeric, edges: [0, 10, 20]}
  work: {type: categorical, values: [Private, State]}
  ward: {type: categorical, values: [1, 2, 30]}
  owner: {type: boolean}
"""
)
INF, NAN = float("inf"), float("nan")
AGE, AGE_BINS = [-INF, 0.0, 10.5, INF, NAN, None, -1e300, 20.0], [0, 0, 2, 3, 4, 4, 0, 2]
WORK, WORK_BINS = ["Private", "State", "", "private", None, "NA", "State ", "State"], [0, 1, 3, 2, 3, 2, 2, 1]
WARD, WARD_BINS = [1, 2, 30, 3, None, -1, 10**18, 1], [0, 1, 2, 3, 4, 3, 3, 0]
OWNER, OWNER_BINS = [True, False, None, True, False, None, True, False], [1, 0, 2, 1, 0, 2, 1, 0]
LABELS = [0, 1, 1, 0, 0, 1, 0, 1]
BINS = np.array([AGE_BINS, WORK_BINS, WARD_BINS, OWNER_BINS])


def plain() -> dict[str, pa.Array]:
    return {
        "age": pa.array(AGE, pa.float64()),
        "work": pa.array(WORK),
        "ward": pa.array(WARD, pa.int64()),
        "owner": pa.array(OWNER),
        "y": pa.array(LABELS),
    }


def parquet(folder: Path, **columns: pa.Array) -> Path:
    pq.write_table(pa.table({**plain(), **columns}), folder / "rows.parquet")
    return folder / "rows.parquet"


def csv(folder: Path, text: str) -> Path:
    (folder / "rows.csv").write_text(text)
    return folder / "rows.csv"


def csv_of(folder: Path) -> Path:
    pa.csv.write_csv(pa.table(plain()), folder / "rows.csv")
    return folder / "rows.csv"


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"age": pa.array(AGE, pa.float32())},
        {"work": pa.array(WORK).dictionary_encode()},
        {"work": pa.array(WORK, pa.large_string())},
        {"ward": pa.array(WARD).dictionary_encode()},
        {"ward": pa.array([None if ward is None else str(ward) for ward in WARD])},
        {"owner": pa.array([None if owner is None else int(owner) for owner in OWNER])},
        {"owner": pa.array([None if owner is None else float(owner) for owner in OWNER])},
        {"owner": pa.array(["yes", "No", "", "TRUE", "0", None, "1", "false"])},
        {"y": pa.array([str(label) for label in LABELS]).dictionary_encode()},
        {"note": pa.array([SECRET] * 8)},
    ],
    ids=lambda columns: " ".join(f"{name} {column.type}" for name, column in columns.items()) or "plain",
)
def test_every_type_a_column_may_have_gives_the_same_bins(tmp_path, columns):
    packed = pack(parquet(tmp_path, **columns), SCHEMA)
    assert packed.bins.tolist() == BINS.tolist()
    assert packed.labels.tolist() == LABELS


def test_csv_gives_the_same_bins_as_parquet(tmp_path):
    packed = pack(csv_of(tmp_path), SCHEMA)
    assert packed.bins.tolist() == BINS.tolist()
    assert packed.labels.tolist() == LABELS


def test_a_column_of_nothing_but_nulls_is_missing_everywhere(tmp_path):
    nulls = {name: pa.nulls(8) for name in ("age", "work", "ward", "owner")}
    packed = pack(parquet(tmp_path, **nulls), SCHEMA)
    assert packed.bins.tolist() == [[feature.missing] * 8 for feature in SCHEMA.features]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float32(), pa.decimal128(21, 2)])
def test_numbers_outside_the_range_fall_in_the_outer_bins(kind):
    numbers = pa.array([-100, -1, 0, 1, 20, 21, 100]).cast(kind)
    assert encode_column(SCHEMA.features[0], numbers).tolist() == [0, 0, 0, 1, 2, 3, 3]


@pytest.mark.parametrize("batch", [1, 3, 7, 100])
def test_batches_change_nothing(tmp_path, monkeypatch, batch):
    table = pq.read_table(EXAMPLES / "adult_train.parquet").slice(0, 100)
    schema = parse_schema((EXAMPLES / "adult.schema.yaml").read_bytes())
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=40)
    whole = pack(tmp_path / "rows.parquet", schema)
    monkeypatch.setattr(data, "BATCH_ROWS", batch)
    assert len(list(data.read_batches(tmp_path / "rows.parquet", schema))) >= 100 // batch
    parts = pack(tmp_path / "rows.parquet", schema)
    assert (parts.bins == whole.bins).all()
    assert (parts.labels == whole.labels).all()


def test_blocks_of_a_csv_file_change_nothing(tmp_path, monkeypatch):
    table = pq.read_table(EXAMPLES / "adult_train.parquet").slice(0, 100)
    schema = parse_schema((EXAMPLES / "adult.schema.yaml").read_bytes())
    pa.csv.write_csv(table, tmp_path / "rows.csv")
    whole = pack(tmp_path / "rows.csv", schema)
    small = pyarrow.csv.ReadOptions(block_size=700)
    monkeypatch.setattr(pyarrow.csv, "open_csv", partial(pyarrow.csv.open_csv, read_options=small))
    assert len(list(data.read_batches(tmp_path / "rows.csv", schema))) > 10
    parts = pack(tmp_path / "rows.csv", schema)
    assert (parts.bins == whole.bins).all()
    assert (parts.labels == whole.labels).all()


def test_training_and_the_released_model_encode_500_rows_of_adult_alike():
    schema = parse_schema((EXAMPLES / "adult.schema.yaml").read_bytes())
    table = pq.read_table(EXAMPLES / "adult_train.parquet").slice(0, 500)
    python = {name: table[name].to_pylist() for name in table.column_names}
    served = encode_columns(schema.features, python)
    again = encode_columns(schema.features, columns_of(schema, table))
    for feature, one, other in zip(schema.features, served, again, strict=True):
        trained = encode_column(feature, table[feature.name].combine_chunks())
        assert trained.tolist() == one.tolist() == other.tolist(), feature.name
        assert len(set(trained.tolist())) > 1, f"{feature.name}: all rows in one bin would prove nothing"


def test_training_and_the_released_model_encode_awkward_values_alike():
    table = pa.table(plain())
    served = encode_columns(SCHEMA.features, columns_of(SCHEMA, table))
    assert [codes.tolist() for codes in served] == BINS.tolist()


def test_bins_are_packed_in_a_byte_where_a_byte_holds_them():
    def width(values: int) -> int:
        (feature,) = parse_schema(
            b"target: {name: y, classes: [0, 1]}\nrecords: 1\nfeatures: {c: {type: categorical, values: ["
            + b",".join(b"v%d" % value for value in range(values))
            + b"]}}"
        ).features
        return np.dtype(bin_dtype([feature])).itemsize

    assert (width(254), width(255)) == (1, 2)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"y": pa.array(["0", "1", SECRET, "0", "1", "0", "1", "0"])}, ["y, data row 2:", "not one of the classes"]),
        ({"y": pa.array([0, 1, 0, 1, 0, 1, 0, None])}, ["y, data row 7:", "missing"]),
        ({"owner": pa.array(["yes"] * 7 + [SECRET])}, ["owner, data row 7:", "neither true nor false"]),
        ({"owner": pa.array([0, 1, 4711, 0, 0, 0, 0, 0])}, ["owner, data row 2:", "neither true nor false"]),
        ({"age": pa.array([SECRET] * 8)}, ["'age'", "wants numbers"]),
        ({"age": pa.array([True] * 8)}, ["'age'", "wants numbers"]),
        ({"work": pa.array([4711.5] * 8)}, ["'work'", "wants texts or whole numbers"]),
        ({"owner": pa.array([[4711]] * 8)}, ["'owner'", "wants booleans"]),
    ],
)
def test_errors_name_column_and_row_across_batches_and_never_a_value(tmp_path, monkeypatch, columns, words):
    path = parquet(tmp_path, **columns)
    for batch in (1 << 16, 3):
        monkeypatch.setattr(data, "BATCH_ROWS", batch)
        with pytest.raises(DataError) as refused:
            pack(path, SCHEMA)
        assert all(word in refused.value.message for word in words)
        assert "4711" not in str(refused.value.to_json())


HEADER = "age,work,ward,owner,y\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (HEADER + f"1,u,1,yes,0\n{SECRET},u,1,yes,0\n", "column 'age': holds what is not a number"),
        (HEADER + f"1,u,1,yes,0\n1,u,1,{SECRET},0\n", "owner, data row 1"),
        (HEADER + f"1,u,1,yes,0\n1,u,1,yes,{SECRET}\n", "y, data row 1"),
        (HEADER + f"1,u,1,yes,0\n1,u,1,yes,0,{SECRET}\n", "cannot be read as csv"),
        (HEADER, "the file has no rows"),
        ("", "the file is empty"),
        ("\n", "the file is empty"),
        (HEADER.replace("work,", "") + "1,1,yes,0\n", "columns ['work']: in the schema but not in the data"),
        (HEADER.replace("age", "age,sex") + "1,1,u,1,yes,0\n", "columns ['sex']: in the data but not in the schema"),
        (HEADER.replace("age", "age,age") + "1,1,u,1,yes,0\n", "twice"),
    ],
)
def test_csv_files_that_do_not_fit_are_refused_without_their_values(tmp_path, text, word):
    with pytest.raises(DataError) as refused:
        pack(csv(tmp_path, text), SCHEMA)
    assert word in refused.value.message
    assert SECRET not in str(refused.value.to_json())


@pytest.mark.parametrize(
    "line", ["caf\u00e9,work,ward,owner,y\n", HEADER + "1,caf\u00e9,1,yes,0\n"], ids=["header", "row"]
)
def test_csv_files_that_are_not_utf_8_are_refused(tmp_path, line):
    (tmp_path / "rows.csv").write_bytes(line.encode("latin-1"))
    with pytest.raises(DataError):
        pack(tmp_path / "rows.csv", SCHEMA)


def test_a_csv_file_may_start_with_a_byte_order_mark(tmp_path):
    path = csv_of(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert pack(path, SCHEMA).bins.tolist() == BINS.tolist()


def test_parquet_files_that_are_none_are_refused(tmp_path):
    (tmp_path / "rows.parquet").write_text(SECRET * 9)
    with pytest.raises(DataError, match="cannot be read as parquet") as refused:
        pack(tmp_path / "rows.parquet", SCHEMA)
    assert SECRET not in refused.value.message


def test_tables_in_memory_are_packed_as_files_are_and_counted(tmp_path):
    table = pa.table(plain())
    rows = rows_of(SCHEMA, table, table["y"], Relation.REPLACE_ONE)
    assert rows.size == 8
    one = rows_of(SCHEMA, {name: column.slice(1) for name, column in plain().items()}, LABELS[1:], Relation.ADD_REMOVE)
    assert one.size == 7
    for X, y, relation, word in [
        (table, LABELS[1:], Relation.ADD_REMOVE, "7 labels for 8 rows"),
        (table.slice(1), LABELS[1:], Relation.REPLACE_ONE, "records=8"),
        (table.drop_columns(["ward"]), LABELS, Relation.ADD_REMOVE, "ward"),
        (SECRET, LABELS, Relation.ADD_REMOVE, "X: str"),
    ]:
        with pytest.raises(DataError, match=word) as refused:
            rows_of(SCHEMA, X, y, relation)
        assert SECRET not in refused.value.message

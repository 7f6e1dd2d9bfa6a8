"""One column through every door: files, bodies and records give the same values, or all refuse it.

The law of columns (`models.features.column_law`) says which; here each door is asked about each type that pandas,
polars, DuckDB and R write, and a door that reads one of them otherwise fails.
"""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, ipc, parquet

from accountant.errors import DataError, RecordError
from dpserve_verify.errors import InputError
from models.features.features import (
    BooleanFeature,
    CalendarFeature,
    CategoricalFeature,
    DateFeature,
    MomentFeature,
    NumericFeature,
    TimeFeature,
)
from models.features.table_format import USUAL_FORMAT
from models.onnx.runtime import columns_from_records
from serving.wire import csv_tables, file_tables, tables_in, v2_tensors, work_time
from training.rows.tables.data import encode_column
from training.rows.tables.row_files import read_columns

NAME = "column"
NUMBER = NumericFeature(NAME, (0.0, 1.0, 2.5))
TRUTH = BooleanFeature(NAME)
CODES = CategoricalFeature(NAME, ("1", "020", "3.5", "x"))
WORDS = CategoricalFeature(NAME, ("Yes", "No"))
PLACES = CategoricalFeature(NAME, ("Ulm", "Köln", "NA"))
DAY, MOMENT, CLOCK = DateFeature(NAME, (10.0,)), MomentFeature(NAME, (10.0,)), TimeFeature(NAME, (10.0,))
DAYS = [date(2024, 3, 1), None, date(1969, 12, 31)]
MOMENTS = [datetime(2024, 3, 1, 14, 30), None, datetime(1969, 12, 31, 23, 59, 59, 500000)]
FAR = "9999-12-31T23:59:59-05:00"

READ = {  # name: feature, column, what is read: numbers, texts, None where missing
    "whole numbers": (NUMBER, pa.array([1, None, -3]), [1.0, None, -3.0]),
    "small whole numbers": (NUMBER, pa.array([1, None, 3], pa.uint8()), [1.0, None, 3.0]),
    "floats with NaN": (NUMBER, pa.array([1.5, math.nan, -math.inf]), [1.5, None, -math.inf]),
    "half floats": (NUMBER, pa.array(np.array([1.5, 2], np.float16)), [1.5, 2.0]),
    "decimals": (NUMBER, pa.array([Decimal("1.50"), None]), [1.5, None]),
    "numbers as texts": (NUMBER, pa.array([" 1.5", "NA", "-1e3", "inf"]), [1.5, None, -1000.0, math.inf]),
    "numbers as views": (NUMBER, pa.array(["1.5", None]).cast(pa.string_view()), [1.5, None]),
    "numbers as a dictionary": (NUMBER, pa.array([2, None, 2]).dictionary_encode(), [2.0, None, 2.0]),
    "no numbers": (NUMBER, pa.array([None, None], pa.null()), [None, None]),
    "truth values": (TRUTH, pa.array([True, None, False]), [1.0, None, 0.0]),
    "truth values as numbers": (TRUTH, pa.array([1, None, 0], pa.int8()), [1.0, None, 0.0]),
    "truth values as floats": (TRUTH, pa.array([1.0, math.nan, 0.0]), [1.0, None, 0.0]),
    "truth values as words": (TRUTH, pa.array(["YES", "", "false", "null"]), [1.0, None, 0.0, None]),
    "categories as numbers": (CODES, pa.array([1, None, 20, 7]), ["1", None, "020", "7"]),
    "categories as floats": (CODES, pa.array([1.0, math.nan, 3.5]), ["1", None, "3.5"]),
    "categories as a dictionary of numbers": (CODES, pa.array([20, None]).dictionary_encode(), ["020", None]),
    "categories as decimals": (CODES, pa.array([Decimal("1.00"), None]), ["1", None]),
    "categories as truth values": (WORDS, pa.array([True, None, False]), ["Yes", None, "No"]),
    "texts": (PLACES, pa.array(["Ulm", "", "Köln", "NA", "Bonn"]), ["Ulm", None, "Köln", "NA", "Bonn"]),
    "large texts": (PLACES, pa.array(["Ulm", None], pa.large_string()), ["Ulm", None]),
    "views": (PLACES, pa.array(["Ulm", "Köln"]).cast(pa.string_view()), ["Ulm", "Köln"]),
    "a dictionary": (PLACES, pa.array(["Ulm", None, "Ulm"]).dictionary_encode(), ["Ulm", None, "Ulm"]),
    "a dictionary as full as its integers": (
        PLACES,
        pa.DictionaryArray.from_arrays(pa.array([255, None, 0], pa.uint8()), [*map(str, range(255)), "Ulm"]),
        ["Ulm", None, "0"],
    ),
    "dates": (DAY, pa.array(DAYS), [19783.0, None, -1.0]),
    "dates in milliseconds": (DAY, pa.array(DAYS, pa.date64()), [19783.0, None, -1.0]),
    "dates as timestamps": (DAY, pa.array(MOMENTS, pa.timestamp("ns")), [19783.0, None, -1.0]),
    "dates as texts": (DAY, pa.array(["2024-3-1", "", "2024-03-01 10:30"]), [19783.0, None, 19783.0]),
    "timestamps": (MOMENT, pa.array(MOMENTS, pa.timestamp("us")), [1709303400.0, None, -0.5]),
    "timestamps of a zone": (
        MOMENT,
        pa.array([datetime(2024, 3, 1, 14, 30, tzinfo=UTC)], pa.timestamp("ms", "Europe/Berlin")),
        [1709303400.0],
    ),
    "timestamps as texts": (MOMENT, pa.array(["2024-03-01 14:30", FAR]), [1709303400.0, 253402318799.0]),
    "dates as moments": (MOMENT, pa.array(DAYS), [1709251200.0, None, -86400.0]),
    "times": (CLOCK, pa.array([time(0, 1), None], pa.time32("s")), [60.0, None]),
    "digits of other alphabets": (
        NUMBER,
        pa.array(["١٢", "-３.５", "१", "٣٫٥", "", "7"]),
        [12.0, -3.5, 1.0, 3.5, None, 7.0],
    ),
    "days in digits of another alphabet": (DAY, pa.array(["٢٠٢٤-٠٣-٠١"]), [19783.0]),
    "a truth value in digits of another alphabet": (TRUTH, pa.array(["١", "٠"]), [1.0, 0.0]),
    "times as texts": (CLOCK, pa.array(["0:01", "00:01:30.5", ""]), [60.0, 90.5, None]),
}
REFUSED = {
    "truth values for numbers": (NUMBER, pa.array([True, False])),
    "dates for numbers": (NUMBER, pa.array(DAYS)),
    "words for numbers": (NUMBER, pa.array(["1", "one"])),
    "underscores in numbers": (NUMBER, pa.array(["1_0"])),
    "a comma": (NUMBER, pa.array(["1,5"])),
    "lists": (NUMBER, pa.array([[1], [2]])),
    "two for a truth value": (TRUTH, pa.array([0, 2])),
    "perhaps": (TRUTH, pa.array(["perhaps"])),
    "numbers where places are listed": (PLACES, pa.array([1, 2])),
    "truth values where places are listed": (PLACES, pa.array([True])),
    "fractions where whole numbers are listed": (CategoricalFeature(NAME, ("1", "2")), pa.array([1.0, 1.5])),
    "the 30th of February": (DAY, pa.array(["2024-02-30"])),
    "a German date": (DAY, pa.array(["01.03.2024"])),
    "a zone beyond a day": (MOMENT, pa.array(["2024-03-01T00:00+25:00"])),
    "times for dates": (DAY, pa.array([time(1)], pa.time64("us"))),
    "25 o'clock": (CLOCK, pa.array(["25:00"])),
}


def of_file(name):
    def read(folder, feature, column):
        table = pa.table({NAME: column, "at": range(len(column))})  # of one column, an empty line is no row
        path = folder / name
        if name.endswith(".csv"):
            csv.write_csv(table, path)
        elif name.endswith(".parquet"):
            parquet.write_table(table, path)
        else:
            path.write_bytes(stream(table))
        [columns] = read_columns(path, [feature])
        return columns[NAME]

    return read


def of_registration(folder, feature, column):
    """What is packed at registration: the codes, which the values of another door have as well."""
    return encode_column(feature, column)


def stream(table):
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def of_arrow(folder, feature, column):
    return tables_in.table_of(stream(pa.table({NAME: column})), [feature], 10).read([feature], {NAME})[NAME]


def of_csv(folder, feature, column):
    sink = io.BytesIO()
    csv.write_csv(pa.table({NAME: column, "at": range(len(column))}), sink)
    features = [feature, NumericFeature("at", ())]
    return csv_tables.table_of(sink.getvalue(), features, 10).read(features, {NAME})[NAME]


def cells_of(column):
    """As JSON has them; NaN is null there."""
    cells = [None if cell != cell else cell for cell in column.to_pylist()]
    if any(isinstance(cell, date | time | Decimal) or cell in (math.inf, -math.inf) for cell in cells):
        raise pa.ArrowNotImplementedError("JSON has no such cell")
    return json.loads(json.dumps(cells))


def of_json(folder, feature, column):
    return columns_from_records([feature], [{NAME: cell} for cell in cells_of(column)], 10)[NAME]


def of_v2(folder, feature, column):
    cells, kinds = cells_of(column), {type(cell) for cell in column.to_pylist()} - {type(None)}
    kind = {str: "BYTES", bool: "BOOL", int: "INT64", float: "FP64"}.get(*kinds) if len(kinds) == 1 else None
    if kind is None or (isinstance(feature, CalendarFeature) and kind != "BYTES"):
        raise pa.ArrowNotImplementedError("V2 has no such tensor")
    tensor = {"name": NAME, "shape": [len(cells)], "datatype": kind, "data": cells}
    return v2_tensors.table_of([tensor], b"", [feature], 10).read([feature], {NAME})[NAME]


def of_npy(folder, feature, column):
    if column.null_count or not (pa.types.is_primitive(column.type) or pa.types.is_string(column.type)):
        raise pa.ArrowNotImplementedError("NumPy has no such array")
    cells = np.array(column.to_pylist()) if pa.types.is_string(column.type) else column.to_numpy(zero_copy_only=False)
    if cells.dtype.kind not in "iufbU":
        raise pa.ArrowNotImplementedError("no dates without a unit")
    sink = io.BytesIO()
    array = np.empty(len(cells), [(NAME, cells.dtype)])
    array[NAME] = cells
    np.save(sink, array)
    return tables_in.table_of(sink.getvalue(), [feature], 10).read([feature], {NAME})[NAME]


DOORS = {
    "rows.parquet": of_file("rows.parquet"),
    "rows.arrow": of_file("rows.arrow"),
    "rows.csv": of_file("rows.csv"),
    "Arrow body": of_arrow,
    "CSV body": of_csv,
    "JSON records": of_json,
    "V2 tensors": of_v2,
    "NumPy body": of_npy,
}
CANNOT_HOLD = (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid)
# A .csv says no types: what these columns hold comes out of it as other texts, and is another question there.
ONLY_TYPED = {
    "categories as numbers", "categories as floats", "categories as decimals", "categories as truth values",
    "categories as a dictionary of numbers", "dates as timestamps", "dates as moments", "timestamps of a zone",
    "truth values for numbers", "dates for numbers", "times for dates", "lists", "numbers where places are listed",
    "truth values where places are listed", "fractions where whole numbers are listed",
}  # fmt: skip


def plain(values):
    cells = (None if cell in (None, "") or cell != cell else cell for cell in np.asarray(values).tolist())
    return [cell if isinstance(cell, str) or cell is None else float(cell) for cell in cells]


def asked(folder, name, feature, column):
    """What each door that can hold such a column says of it."""
    for door, read in DOORS.items():
        if name in ONLY_TYPED and "csv" in door.lower():
            continue
        try:
            yield door, plain(read(folder, feature, column))
        except CANNOT_HOLD:
            continue
        except (DataError, RecordError, InputError) as error:
            yield door, error


@pytest.mark.parametrize("name", READ)
def test_every_door_reads_the_same(tmp_path, name):
    feature, column, wanted = READ[name]
    answers = dict(asked(tmp_path, name, feature, column))
    assert len(answers) >= 2
    assert answers == dict.fromkeys(answers, wanted)
    codes = of_registration(tmp_path, feature, column)
    values = [np.nan if cell is None and not isinstance(feature, CategoricalFeature) else cell for cell in wanted]
    assert codes.tolist() == feature.encode(values).tolist()


@pytest.mark.parametrize("ending", ["", ".parquet"])
def test_every_type_comes_through_a_body_of_parquet(monkeypatch, ending):
    """All at once, for a program is begun for each body: those of fewer rows are missing in the others."""
    monkeypatch.setattr(work_time, "WORK_SECONDS", 120.0)
    most, columns, features = max(len(column) for _, column, _ in READ.values()), {}, []
    for name, (feature, column, _) in READ.items():
        plain_cells = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        padded = pa.concat_arrays([plain_cells, pa.nulls(most - len(column), plain_cells.type)])
        columns[name] = padded.dictionary_encode() if pa.types.is_dictionary(column.type) else padded
        features.append(replace(feature, name=name))
    sink = io.BytesIO()
    parquet.write_table(pa.table(columns), sink)
    table, _ = file_tables.table_of_file(sink.getvalue(), ending, features, USUAL_FORMAT, 10)
    found = table.read(features, columns.keys())
    for name, (_, column, wanted) in READ.items():
        assert plain(found[name]) == [*wanted, *[None] * (most - len(column))], name


@pytest.mark.parametrize("name", REFUSED)
def test_every_door_refuses_the_same(tmp_path, name):
    feature, column = REFUSED[name]
    answers = dict(asked(tmp_path, name, feature, column))
    assert len(answers) >= 2
    for door, answer in answers.items():
        assert isinstance(answer, DataError | RecordError | InputError), (door, answer)
        assert NAME in answer.message, door
    with pytest.raises(DataError, match=NAME):
        of_registration(tmp_path, feature, column)

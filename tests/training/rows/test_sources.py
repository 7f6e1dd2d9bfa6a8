"""Tables as people have them: every declared form is read, anything else is refused with row, kind and remedy."""

from __future__ import annotations

import gzip
import json
import os
from datetime import date, datetime, time

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from pyarrow import ipc

from accountant.errors import DataError, SchemaError
from dpserve_verify.errors import InputError
from models.features.calendar import number_of, text_of
from models.features.features import CALENDAR, feature_from_json
from training.datasets.datasets import pack
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.file_check import check_file
from training.datasets.made_up import is_made_up, write_made_up
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import read_batches

SCHEMA = """
target: {name: y, classes: ["no", "yes"]}
records: 3
features:
  lab: {type: numeric, range: [0, 10], bins: 10}
  smoker: {type: boolean}
  came: {type: date, range: [2020-01-01, 2020-01-11], bins: 10}
  at: {type: time, range: ["00:00", "23:59"], bins: 4}
  logged: {type: datetime, range: ["2020-01-01T00:00:00", "2020-01-01T00:01:00"], bins: 6}
  word: {type: categorical, values: [é, b]}
"""
WORLD = "\nformat: {delimiter: semicolon, encoding: ENC, decimal: either, true_words: [ja], false_words: [nein], "
WORLD += "dates: [YYYY-MM-DD, DD.MM.YYYY]}\n"
USUAL = [
    "lab,smoker,came,at,logged,word,y", "1.5,true,2020-01-03,06:30,2020-01-01T00:00:30,é,no",
    ",,,,,,yes", "9,no,2020-01-11,23:00:01,2020-01-01 00:00:59.5,b,no",
]  # fmt: skip
ODD = [
    "lab;smoker;came;at;logged;word;y", "1,5;JA;3.1.2020;6:30;01.01.2020 00:00:30;é;no",
    ";;;NA;;;yes", "9;nein;2020-01-11;23:00:01;2020-01-01 01:00:59+01:00;b;no",
]  # fmt: skip


def packed(path, schema):
    found = pack(path, parse_schema(schema.encode()))
    return found.bins.tolist(), found.labels.tolist()


@pytest.fixture
def usual(tmp_path):
    (tmp_path / "usual.csv").write_text("\n".join(USUAL) + "\n")
    return packed(tmp_path / "usual.csv", SCHEMA)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252", "latin-1"])
def test_a_declared_form_gives_the_same_rows(tmp_path, usual, encoding):
    text, schema = "\n".join(ODD) + "\n", SCHEMA + WORLD.replace("ENC", encoding)
    (tmp_path / "odd.csv").write_bytes(text.encode("utf-8-sig" if encoding == "utf-8" else encoding))
    assert packed(tmp_path / "odd.csv", schema) == usual
    assert check_file(parse_schema(schema.encode()), tmp_path / "odd.csv").problems == []
    with pytest.raises(DataError):
        packed(tmp_path / "odd.csv", SCHEMA)
    for ending, kind in ((".gz", "gzip"), (".zst", "zstd")):
        whole = (tmp_path / "odd.csv").read_bytes()
        with pa.output_stream(str(tmp_path / f"odd.csv{ending}"), compression=kind) as file:
            file.write(whole)
        assert packed(tmp_path / f"odd.csv{ending}", schema) == usual


def table():
    return pa.table(
        {
            "lab": [1.5, None, 9.0], "smoker": [True, None, False],
            "came": [date(2020, 1, 3), None, date(2020, 1, 11)], "at": [time(6, 30), None, time(23, 0, 1)],
            "logged": [datetime(2020, 1, 1, 0, 0, 30), None, datetime(2020, 1, 1, 0, 0, 59, 500000)],
            "word": ["é", None, "b"], "y": ["no", "yes", "no"],
        }
    )  # fmt: skip


def test_typed_files_and_folders_of_them_give_the_same_rows(tmp_path, usual):
    pyarrow.parquet.write_table(table(), tmp_path / "a.parquet")
    pyarrow.feather.write_feather(table(), str(tmp_path / "a.feather"))
    with ipc.new_stream(str(tmp_path / "a.arrow"), table().schema) as writer:
        writer.write_table(table())
    for name in ("a.parquet", "a.feather", "a.arrow"):
        assert packed(tmp_path / name, SCHEMA) == usual
        assert check_file(parse_schema(SCHEMA.encode()), tmp_path / name).problems == []
    for row in range(3):
        folder = (
            tmp_path / "parts" / f"word={['é', '__HIVE_DEFAULT_PARTITION__', 'b'][row]}" / f"lab={[1.5, 'NaN', 9][row]}"
        )
        folder.mkdir(parents=True)
        pyarrow.parquet.write_table(table().drop_columns(["word", "lab"]).slice(row, 1), folder / "0.parquet")
    (tmp_path / "parts" / "_SUCCESS").touch()
    order = [1, 2, 0]  # of the folders' names
    bins, labels = packed(tmp_path / "parts", SCHEMA)
    assert (np.array(bins).tolist(), labels) == (np.array(usual[0])[:, order].tolist(), [usual[1][at] for at in order])
    assert packed(tmp_path / "parts" / "**" / "*.parquet", SCHEMA)[1] == labels
    for row in range(3):
        (tmp_path / "csv").mkdir(exist_ok=True)
        (tmp_path / "csv" / f"{row}.csv.gz").write_bytes(gzip.compress("\n".join([USUAL[0], USUAL[row + 1]]).encode()))
    assert packed(tmp_path / "csv", SCHEMA) == usual


def test_line_breaks_in_quotes_end_no_row_wherever_a_file_is_cut(tmp_path):
    """Cells of some lines each, across the border of every megabyte that is read at one time."""
    random = np.random.default_rng(0)
    lab, word = random.integers(0, 10, 60_000), random.integers(0, 2, 60_000)
    texts = ["b", "two\nlines, of which\r\none has a comma"]
    schema = (
        'target: {name: y, classes: ["no", "yes"]}\nrecords: 60000\nfeatures:\n  lab: {type: numeric, range: [0, 9]}\n'
    )
    schema += f"  word: {{type: categorical, values: [b, {json.dumps(texts[1])}]}}\n"
    lines = (f'{one},"{texts[two]}",{"yes" if two else "no"}\n' for one, two in zip(lab, word, strict=True))
    (tmp_path / "rows.csv").write_bytes(("lab,word,y\n" + "".join(lines)).encode())
    bins, labels = packed(tmp_path / "rows.csv", schema)
    assert labels == word.tolist()
    assert bins[1] == word.tolist()
    columns = {"lab": lab, "word": [texts[each] for each in word], "y": np.array(["no", "yes"])[word]}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    assert packed(tmp_path / "rows.parquet", schema)[0] == bins


def test_a_file_of_a_folder_that_differs_is_named_before_any_row_is_read(tmp_path):
    schema = parse_schema(SCHEMA.encode())
    for at in range(40):
        pyarrow.parquet.write_table(table(), tmp_path / f"{at:02}.parquet")
    odd = table().set_column(0, "lab", pa.array(["1", "2", "3"]))
    pyarrow.parquet.write_table(odd, tmp_path / "39.parquet")
    with pytest.raises(DataError, match=r"39\.parquet: column 'lab' holds string, and double in the first file"):
        next(read_batches(tmp_path, schema))
    pyarrow.parquet.write_table(table().drop_columns("lab"), tmp_path / "39.parquet")
    with pytest.raises(DataError, match=r"39\.parquet: has other columns than the first file: \['lab'\]"):
        next(read_batches(tmp_path, schema))
    (tmp_path / "39.parquet").unlink()
    (tmp_path / "39.csv").write_text("lab\n1\n")
    with pytest.raises(DataError, match="several forms"):
        next(read_batches(tmp_path, schema))
    with pytest.raises(DataError, match="holds no file of rows"):
        next(read_batches(tmp_path / "*.feather", schema))


@pytest.mark.parametrize(
    ("column", "cell", "schema", "found", "remedy"),
    [
        ("lab", '"1,5"', SCHEMA, "a number with a decimal comma", "decimal"),
        ("lab", "1.5", SCHEMA + 'format: {decimal: ","}\n', "a number with a decimal point", "either"),
        ("lab", "1 mg", SCHEMA, "a number with a unit", "unit_mark: mg"),
        ("smoker", "x", SCHEMA, "a word for yes or no", "true_words"),
        ("came", "03.01.2020", SCHEMA, "a date written DD.MM.YYYY", "`written: [YYYY-MM-DD, DD.MM.YYYY]`"),
        ("came", "2020-02-30", SCHEMA, "a date that no calendar has", "write it like 2024-03-01"),
        ("at", "24:00", SCHEMA, "a time that no day has", "write it like 14:30"),
        ("logged", "2020-01-01", SCHEMA, "a date without a time of day", "type: date"),
    ],
)
def test_what_is_not_declared_is_refused_with_row_kind_and_remedy(tmp_path, column, cell, schema, found, remedy):
    names, first = USUAL[0].split(","), USUAL[2].split(",")
    first[names.index(column)] = cell
    (tmp_path / "rows.csv").write_text("\n".join([USUAL[0], USUAL[2], ",".join(first)]) + "\n")
    parsed = parse_schema(schema.encode())
    with pytest.raises(DataError) as refused:
        pack(tmp_path / "rows.csv", parsed)
    assert column in str(refused.value)
    assert cell.strip('"') not in str(refused.value)
    problems = check_file(parsed, tmp_path / "rows.csv").problems
    (problem,) = (each for each in problems if each.found != "no cell of the column holds anything")  # two rows alone
    assert (problem.column, problem.found, problem.rows) == (column, found, [3])
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ("came: {type: date, range: [2020-01-01, 2020-02-01], written: [DD/MM/YYYY, MM/DD/YYYY]}", "may be either"),
        ("came: {type: date, range: [2020-02-01, 2020-01-01]}", "ascend"),
        ("came: {type: date, range: [01.02.2020, 02.02.2020]}", "2024-03-01"),
        ("came: {type: time, range: [06:30, 14:30]}", "quotes"),
        ("came: {type: date}", "range"),
        ("came: {type: boolean, true_words: [nein], false_words: [nein]}", "yes and no"),
        ("came: {type: numeric, range: [0, 1], decimal: '·'}", "decimal"),
    ],
)
def test_a_schema_that_can_be_read_in_two_ways_is_refused(said, match):
    with pytest.raises(SchemaError, match=match):
        parse_schema(f"target: {{name: y, classes: [a, b]}}\nrecords: 1\nfeatures:\n  {said}\n".encode())


def test_dates_are_numbers_and_back():
    for kind, text, number in (
        ("date", "1970-01-02", 1), ("date", "2000-02-29", 11016), ("date", "0001-01-01", -719162),
        ("datetime", "1970-01-01T00:01:00", 60), ("datetime", "1969-12-31T23:59:59", -1), ("time", "14:30:00", 52200),
    ):  # fmt: skip
        assert (number_of(kind, text), text_of(kind, number)) == (number, text)
    assert number_of("datetime", "2024-03-01T12:00:00+02:00") == number_of("datetime", "2024-03-01 10:00")
    for kind, text in (
        ("date", "2023-02-29"),
        ("date", "today"),
        ("date", "20240101"),
        ("time", "24:00"),
        ("date", ""),
    ):
        with pytest.raises(ValueError, match=r"."):
            number_of(kind, text)
    for kind, feature in CALENDAR.items():
        made = feature("f", (1.0, 2.0))
        assert feature_from_json(made.to_json()) == made
        assert made.to_json()["type"] == kind
        assert made != CALENDAR["time" if kind == "date" else "date"]("f", (1.0, 2.0))


def test_a_draft_that_looks_proposes_how_the_file_is_written_and_no_value(tmp_path):
    (tmp_path / "odd.csv").write_bytes(("\n".join([*ODD, "1.5;nein;;;;b;no"]) + "\n").encode("utf-16"))
    draft = SchemaProposal.of_file(tmp_path / "odd.csv").to_yaml("odd.csv", looked=True)
    assert 'format: {"delimiter": ";", "encoding": "utf-16"}' in draft
    assert '"lab": {type: numeric, range: [FILL-IN, FILL-IN], bins: 32, decimal: "either"}' in draft
    assert '"smoker": {type: boolean}' in draft
    assert '"came": {type: date, range: [FILL-IN, FILL-IN], written: ["YYYY-MM-DD", "DD.MM.YYYY"]}' in draft
    assert '"at": {type: time, range: ["00:00", "23:59:59"]}' in draft
    assert '"logged": {type: datetime, range: [FILL-IN, FILL-IN], written: ["YYYY-MM-DD", "DD.MM.YYYY"]}' in draft
    assert '"word": {type: categorical, values: FILL-IN}' in draft
    (tmp_path / "two.csv").write_text("first,last\n03/04/2020,13/04/2020\n")
    draft = SchemaProposal.of_file(tmp_path / "two.csv").to_yaml("two.csv", looked=True)
    assert "written: FILL-IN} # which" in draft
    assert '"last": {type: date, range: [FILL-IN, FILL-IN], written: ["DD/MM/YYYY"]}' in draft


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_made_up_rows_are_written_as_the_schema_declares(tmp_path, encoding):
    schema = parse_schema((SCHEMA + WORLD.replace("ENC", encoding).replace("either", '","')).encode())
    for name in ("a.made-up.csv", "a.made-up.parquet"):
        write_made_up(schema, 200, tmp_path / name)
        assert check_file(schema, tmp_path / name).problems == []
        assert pack(tmp_path / name, schema).labels.size == 200
    assert is_made_up(tmp_path)
    assert is_made_up(tmp_path / "*.parquet")
    (tmp_path / "a.made-up.csv").unlink()
    (tmp_path / "a.made-up.parquet").rename(tmp_path / "b.parquet")
    assert is_made_up(tmp_path / "?.parquet")
    odd = parse_schema((SCHEMA.replace("[é, b]", "[é, č]") + "format: {encoding: cp1252}\n").encode())
    with pytest.raises(InputError, match="cannot be written in cp1252"):
        write_made_up(odd, 200, tmp_path / "c.made-up.csv")


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "rows.arrow"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="must be a file"):
        check_file(parse_schema(SCHEMA.encode()), tmp_path / name)
    with pytest.raises(DataError, match="must be a file"):
        SchemaProposal.of_file(tmp_path / name)


def test_an_arrow_file_whose_places_are_spoilt_is_refused(tmp_path):
    """They lie far outside of its texts: followed, they would end the process."""
    texts, path = pa.array(["low", "high"] * 20), tmp_path / "rows.arrow"
    places = np.frombuffer(texts.buffers()[1], np.int32).copy()
    places[7] = 2**30
    spoilt = pa.Array.from_buffers(pa.string(), 40, [None, pa.py_buffer(places), texts.buffers()[2]])
    with ipc.new_file(path, pa.schema([("c", pa.string())])) as out:
        out.write_batch(pa.record_batch([spoilt], names=["c"]))
    with pytest.raises(DataError, match="cannot be read as arrow"):
        SchemaProposal.of_file(path)

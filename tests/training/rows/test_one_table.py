"""Whatever kind of file a table comes in, the same cells are read of it; what no file of rows is says what it is."""

from __future__ import annotations

import gzip
import io
import json
import re
import sqlite3
import zipfile
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledgers import ROOT
from table_kinds import SCHEMA, write_kinds

from accountant.errors import DataError
from models.features.written import Form
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.file_check import check_file
from training.datasets.packing import pack
from training.rows.schema.schema import parse_schema
from training.rows.sources import text_bytes
from training.rows.sources.folders import open_table
from training.rows.tables.duck import run_query
from training.rows.tables.file_check import explaining
from training.rows.tables.row_files import read_columns


def read(path: Path, form: dict) -> tuple:
    """What a registration packs of a file, what a prediction reads of it, and what the check counts."""
    columns = {name: form[name] for name in ("decimal", "dates") if name in form}
    said = {**SCHEMA, "records": 40, "format": {**form, **columns}}
    if (path.parent / "answer.csv").exists():
        said["ignore"] = [*SCHEMA["ignore"], "picture"]
    schema = parse_schema(json.dumps(said).encode())
    packed, checked = pack(path, schema), check_file(schema, path)
    values = [
        {name: [None if v != v or v == "" else v for v in column] for name, column in batch.items()}
        for batch in read_columns(path, schema.features, schema)
    ]
    joined = {name: [v for batch in values for v in batch[name]] for name in SCHEMA["features"]}
    counted = [(count.name, count.cells, count.fits, count.missing) for count in checked.counts.values()]
    return packed.bins.tolist(), packed.labels.tolist(), joined, counted, checked.problems


@pytest.mark.parametrize("seed", range(5))
def test_a_table_is_the_same_in_every_kind_of_file(tmp_path, seed):
    (first, form), *others = write_kinds(seed, tmp_path)
    wanted = read(first, form)
    for path, form in others:
        assert (path.name, read(path, form)) == (path.name, wanted), form


WIDE = [f"c{at}" for at in range(30)]
PLAIN = {
    "target": {"name": "y", "classes": ["no", "yes"]}, "records": 4, "ignore": ["t", *WIDE],
    "features": {"a (EUR)": {"type": "numeric", "range": [0, 9]}},
}  # fmt: skip
TEXT = b'"a\n(EUR)",y,t\n1,no,x\n2,yes,CELL\n3,no,\n4,yes,\n'


def packed(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return out.getvalue()


def parquet(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return out.getvalue().to_pybytes()


def database(*tables: str) -> bytes:
    """A file of SQLite; a view of it holds no rows itself."""
    with closing(sqlite3.connect(":memory:")) as base:
        for name in tables:
            base.execute(f'create table "{name}" ("a (EUR)" real, y text, t blob)')
            rows = [(1, "no", b"x"), (2, "yes", None), (3, "no", 7), (4, "yes", "x")]
            base.executemany(f'insert into "{name}" values (?, ?, ?)', rows)
        base.execute("create view v as select 1")
        base.commit()
        return base.serialize()


ROWS = pa.table({"a\u00a0(EUR)": [1, 2, 3, 4], " y ": ["no", "yes"] * 2, "t": [[1]] * 4})
LINES = b'{"a\\n(EUR)": 1, "y": "no"}\n\n{"a\\n(EUR)": 2.0, "y": "yes", "t": "x"}\n' * 2
TAKEN = {  # as people bring it; each is the same four rows
    "a line break within a name": ("a.csv", TEXT),
    "a name as Excel breaks it": ("a.tsv", TEXT.replace(b"\n(", b" \n(")),
    "signs that are not printed": ("a.parquet", parquet(ROWS)),
    "an archive that is called .csv": ("a.csv", packed(**{"b.csv": TEXT})),
    "gzip that is called .csv": ("a.csv", gzip.compress(TEXT)),
    "text that is called .csv.gz, as browsers unpack it": ("a.csv.gz", TEXT),
    "an archive in an archive's usual name": ("a.zip", packed(**{"b.txt": TEXT, "__MACOSX/._b.txt": b"\0"})),
    "lines of JSON": ("a.jsonl", LINES),
    "lines of JSON in an archive": ("a.ndjson.zip", packed(**{"b.jsonl": LINES})),
    "text by another name": ("adult.test", TEXT),
    "text by no name": ("rows", TEXT),
    "text of two bytes a letter by another name": ("a.out", TEXT.decode().encode("utf-16")),
    "Parquet called .csv": ("a.csv", parquet(ROWS)),
    "Parquet by another name": ("part-0000", parquet(ROWS)),
    "SQLite": ("a.sqlite", database("visits")),
    "SQLite called .txt": ("a.txt", database("visits")),
    "SQLite with its journal ahead": ("a.sqlite3", database("visits")[:18] + b"\2\2" + database("visits")[20:]),
    "one of two tables of SQLite": ("a.db#Of this", database("visits", "of this")),
    "a long text in a column that is ignored": ("a.csv", TEXT.replace(b"CELL", b'"' + b"x" * 900_000 + b'"')),
}
SCHEMA_OF_PLAIN = parse_schema(json.dumps(PLAIN).encode())


@pytest.mark.parametrize(("name", "raw"), TAKEN.values(), ids=TAKEN)
def test_what_people_bring_is_read(tmp_path, name, raw):
    (tmp_path / name.partition("#")[0]).write_bytes(raw)
    if raw[:2] == b"\xff\xfe":
        assert SchemaProposal.of_file(tmp_path / name).format == {"encoding": "utf-16"}
        (tmp_path / name).write_bytes(raw.decode("utf-16").encode())
    assert check_file(SCHEMA_OF_PLAIN, tmp_path / name).problems == []
    packed_rows = pack(tmp_path / name, SCHEMA_OF_PLAIN)
    columns = [*read_columns(tmp_path / name, SCHEMA_OF_PLAIN.features, SCHEMA_OF_PLAIN)]
    taken = [value for batch in columns for value in batch["a (EUR)"].tolist()]
    assert (taken, packed_rows.labels.tolist()) in (([1, 2, 3, 4], [0, 1, 0, 1]), ([1, 2, 1, 2], [0, 1, 0, 1]))
    query = 'select cast("a (EUR)" as double) as a from rows'  # DuckDB is given the same table
    with run_query(f"duckdb:{tmp_path / name}", query, None, SCHEMA_OF_PLAIN.form, tmp_path / "home") as answer:
        asked = [batch["a"].to_pylist() for batch in open_table(answer).batches(["a"], {})]
    assert [cell for cells in asked for cell in cells] == taken


NESTED = pa.table({"a (EUR)": [{"x": 1}] * 2, "y": ["no", "yes"]})
LONG = TEXT.replace(b"CELL", b"x" * 3_000_000)
WIDE_ROW = ",".join(["a (EUR)", "y", *WIDE]).encode() + b"\n1,no" + (b"," + b"x" * 99_999) * 30
BROKEN = bytearray(packed(**{"b.csv": TEXT * 40}))
BROKEN[60:90] = bytes(30)
LOCKED = bytearray(packed(**{"b.csv": TEXT}))
LOCKED[6] |= 1  # as the entry says of itself, and the list at the end
LOCKED[LOCKED.index(b"PK\x01\x02") + 8] |= 1
REFUSED = {  # name, bytes, what is said of it
    "a damaged workbook called .csv": ("a.csv", packed(**{"[Content_Types].xml": b""}), "as a workbook"),
    "damaged SQLite": ("a.db", database("visits")[:2000], "cannot be read as SQLite (DatabaseError); register it as"),
    "SQLite with two tables": ("a.db", database("a", "b"), "`sheet: b` under `format`; or register it as sqlite:///FILE"),
    "SQLite with no table": ("a.db", database(), "has 0 tables of rows: name another file"),
    "a table that SQLite has not": ("a.db#c", database("a", "b"), "no table 'c': a, b; say `sheet: a` under `format`"),
    "two files in an archive": ("a.zip", packed(**{"b.csv": TEXT, "c.csv": TEXT}), "2 files; unpack it, and name one"),
    "nothing in an archive": ("a.zip", packed(), "0 files; unpack it, and name one"),
    "a picture in an archive": ("a.zip", packed(**{"b.png": TEXT}), "unpack it, and name the file within"),
    "JSON in an archive of text": ("a.csv.zip", packed(**{"b.json": LINES}), "unpack it, and name the file within"),
    "an archive with a password": ("a.zip", bytes(LOCKED), "unpack it, and name the file"),
    "a damaged archive": ("a.zip", bytes(BROKEN), "is damaged, or was cut; pack it anew, or name the unpacked file"),
    "gzip that was cut": ("a.csv.gz", gzip.compress(TEXT * 9)[:-9], "pack it anew, or name the unpacked file"),
    "a bomb": ("a.csv.gz", gzip.compress(TEXT + b"\n" * (1 << 21)), "unpacks to more than 1048576 bytes"),
    "a bomb in an archive": ("a.zip", packed(**{"b.csv": TEXT + b"\n" * (1 << 21)}), "more than 1048576 bytes"),
    "a cell of 3 MB": ("a.csv", LONG, "line 4: a cell there has more than 1048576 characters; shorten it, or leave"),
    "a cell of 3 MB in quotes": ("a.csv", TEXT.replace(b"CELL", b'"' + b"x" * 3_000_000 + b'"'), "line 4: a cell"),
    "a row of 3 MB": ("a.csv", WIDE_ROW, "row 2 as a spreadsheet counts: is longer than a mebibyte; shorten"),
    "nested Parquet": ("a.parquet", parquet(NESTED), "as `pandas.json_normalize` and `pyarrow.Table.flatten` do"),
    "nested JSON": ("a.jsonl", LINES + b'{"y": {"no": 1}}', "line 7: 'y' holds a record or a list; write each part"),
    "a field twice": ("a.jsonl", b'{"y": "no", "y": "yes"}', "line 1: names a field twice; name each once"),
    "no JSON": ("a.jsonl", LINES + b"1,2,no\n", "line 7: is no record of JSON; write one record a line"),
    "a list of no records": ("a.json", b"[[1, 2]]", "line 1: is no record of JSON; write one record a line"),
    "columns of JSON, as pandas writes them": ("a.json", b'{"y": {"0": "no"}}', "'y' holds a record or a list"),
    "JSON without an end": ("a.json", b"[" * 9999, "line 1: is no record of JSON"),
    "nothing of JSON": ("a.jsonl", b"\n\n", "holds no record; write one record a line"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "raw", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_alike_with_a_remedy(tmp_path, monkeypatch, name, raw, words):
    monkeypatch.setattr(text_bytes, "MOST_UNPACKED", 1 << 20)
    (tmp_path / name.partition("#")[0]).write_bytes(raw)
    [problem, *others] = check_file(SCHEMA_OF_PLAIN, tmp_path / name).problems
    assert words in f"{problem.found}; {problem.remedy}"
    assert others == []
    with pytest.raises(DataError) as refused, explaining(SCHEMA_OF_PLAIN, tmp_path / name):
        pack(tmp_path / name, SCHEMA_OF_PLAIN)
    assert words in refused.value.message


DRIFTS = [  # of the two files of a folder, whether one type holds both exactly, and the cells then
    ([1, 2], [2.5, None], [1, 2, 2.5, None]),
    ([1, 2**53], [0.5, 1], [1, 2**53, 0.5, 1]),
    ([1, 2**53 + 1], [0.5, 1], None),
    ([1, 2], [None, None], [1, 2, None, None]),
    ([None, None], ["3", "4"], ["3", "4"]),
    ([1, 2], ["3", "4"], None),
    ([1, 2], [True, False], None),
    ([1, 2], [Decimal("1.50"), Decimal(2)], [1, 2, 1.5, 2]),
    (pa.array([1, 2], pa.int8()), pa.array([3, 2**40], pa.uint64()), [1, 2, 3, 2**40]),
    (pa.array([1, 2], pa.int64()), pa.array([3, 2**63], pa.uint64()), None),
    (pa.array([0.5, 1], pa.float32()), pa.array([2**24 + 1, 3]), [0.5, 1, 2**24 + 1, 3]),
]


@pytest.mark.parametrize(("one", "other", "cells"), DRIFTS)
def test_parts_whose_types_drift_are_read_where_nothing_is_lost(tmp_path, one, other, cells):
    for at, column in enumerate((one, other)):
        pq.write_table(pa.table({"a": column}), tmp_path / f"{at}.parquet")
    table = open_table(tmp_path)
    if cells is None:
        with pytest.raises(DataError, match="; write all files alike"):
            [*table.batches(["a"], {})]
        return
    batches = [*table.batches(["a"], {})]
    assert {batch.schema.field("a").type for batch in batches} == {table.types()["a"]}
    read_cells = [cell for batch in batches for cell in batch["a"].to_pylist()]
    assert [cell for cell in read_cells if cell is not None] == [cell for cell in cells if cell is not None]


@pytest.mark.parametrize(
    ("name", "raw", "places"),
    [
        ("a.csv", b"a,y\n1,no\n\n2,yes\n", [2, 4]),
        ("a.csv", b"a  y\n1  no\n\n2  yes\n", [2, 4]),
        ("a.jsonl", b'{"a": 1, "y": "no"}\n\n{"a": 2, "y": "yes"}\n', [1, 3]),
        ("a.parquet", parquet(pa.table({"a": [1, 2], "y": ["no", "yes"]})), [2, 3]),
    ],
)
def test_a_table_says_where_each_of_its_rows_stands(tmp_path, name, raw, places):
    (tmp_path / name).write_bytes(raw)
    form = Form(" ") if b"  " in raw else Form()
    (part,) = open_table(tmp_path / name, form).parts
    [placed] = part.placed()
    assert [*placed.places] == places
    cells = {column: [str(cell) for cell in values.to_pylist()] for column, values in placed.columns.items()}
    assert cells == {"a": ["1", "2"], "y": ["no", "yes"]}


def test_what_kind_of_file_rows_come_from_is_asked_by_its_room_alone():
    asks = re.compile(r"\b(CsvTable|CellTable|ParquetTable|ArrowTable)\b")
    files = [file for room in ("training", "serving", "local", "models") for file in (ROOT / room).rglob("*.py")]
    others = [file for file in files if file.parent != ROOT / "training" / "rows" / "sources"]
    assert len(others) > 300
    assert [file.name for file in others if asks.search(file.read_text())] == []


@pytest.mark.parametrize(("name", "raw", "words"), [
    ("a.duckdb", bytes(8) + b"DUCK" + bytes(99), "register it as duckdb:FILE, with --table NAME"),
    ("a.exe", bytes(range(256)), "must be text, records of JSON"), ("a", b"", "must be text, records of JSON"),
])  # fmt: skip
def test_what_is_of_no_kind_is_refused_at_once(tmp_path, name, raw, words):
    (tmp_path / name).write_bytes(raw)
    for read in (SchemaProposal.of_file, lambda path: check_file(SCHEMA_OF_PLAIN, path), open_table):
        with pytest.raises(DataError, match=words):
            read(tmp_path / name)


def test_rows_that_lie_in_a_journal_beside_a_database_are_not_left_out(tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.db")) as base:
        base.execute("pragma journal_mode = wal")
        base.execute('create table visits ("a (EUR)" real, y text, t)')
        base.execute("insert into visits values (1, 'no', 2)")
        base.commit()
        with pytest.raises(DataError, match="in a journal beside it; register it as sqlite:///FILE, with --table NAME"):
            pack(tmp_path / "a.db", SCHEMA_OF_PLAIN)
    assert pack(tmp_path / "a.db", SCHEMA_OF_PLAIN).labels.tolist() == [0]


def test_parquet_whose_pages_were_damaged_is_refused(tmp_path):
    path, sink = tmp_path / "a.parquet", io.BytesIO()
    table = pa.table({"a": range(20), "y": ["no", "yes"] * 10})
    pq.write_table(table, sink, compression="none", use_dictionary=False, write_page_checksum=True)
    schema = {"features": {"a": {"type": "numeric", "range": [0, 20]}}, "records": 20}
    schema |= {"target": {"name": "y", "classes": ["no", "yes"]}}
    known = parse_schema(json.dumps(schema).encode())
    raw, at = sink.getvalue(), sink.getvalue().index((7).to_bytes(8, "little"))
    path.write_bytes(raw)
    assert check_file(known, path).problems == []
    path.write_bytes(raw[:at] + b"\x09" + raw[at + 1 :])  # 9 for 7
    assert check_file(known, path).problems[0].found.startswith("what cannot be read as parquet")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        pack(path, known)

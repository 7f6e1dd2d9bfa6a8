"""Files as people have them, whatever parts their columns: drafted, checked, registered, predicted, sent."""

from __future__ import annotations

import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from accountant.errors import DataError
from dpserve_verify.errors import InputError
from models.features.table_format import format_from_json
from serving.wire import csv_tables
from training.datasets.drafts.columns import ColumnAnswer
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.file_check import check_file
from training.datasets.packing import pack
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import encode_targets
from training.rows.tables.file_check import find_problems
from training.rows.tables.row_files import read_columns

LINES = [
    ["mpg", "car name", "y"],
    ["18.5", "chevrolet chevelle", "no"],
    ["21", "ford", "yes"],
    ["17.25", "buick", "no"],
]
FORMS = {
    "a.tsv": ("tab", lambda rows: "".join("\t".join(row) + "\n" for row in rows)),
    "a.txt": ("pipe", lambda rows: "".join("|".join(row) + "\n" for row in rows)),
    "a.csv": ("semicolon", lambda rows: "sep=;\r\n" + "".join(";".join(row) + "\r\n" for row in rows)),
    "b.csv": ("comma", lambda rows: "\ufeffsep=,\n" + "".join(",".join(row) + "\n" for row in rows)),
    "c.csv": ("comma", lambda rows: "".join(",".join(row) + "\r" for row in rows)),
    "a.data": ("blanks", lambda rows: "".join(f'{row[0]} "{row[1]}"   {row[2]} \n' for row in rows)),
    "b.data": ("blanks", lambda rows: "".join(f'{row[0]}    {row[2]}\t"{row[1]}"\n' for row in rows)),
    "a.tsv.gz": ("tab", lambda rows: "".join("\t".join(row) + "\n" for row in rows)),
}  # fmt: skip
SCHEMA = {
    "target": {"name": "y", "classes": ["no", "yes"]},
    "records": 9,
    "features": {
        "mpg": {"type": "numeric", "range": [0, 50]},
        "car name": {"type": "categorical", "values": ["chevrolet chevelle", "ford", "buick"]},
    },
}


def written(folder, name):
    raw = FORMS[name][1](LINES).encode()
    (folder / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return folder / name, raw


@pytest.mark.parametrize("name", FORMS)
def test_columns_are_parted_as_the_schema_says_at_every_door(tmp_path, name):
    path, raw = written(tmp_path, name)
    named = FORMS[name][0]
    draft = SchemaProposal.of_file(path)
    answers = [ColumnAnswer(("mpg",), public="0 .. 50"), ColumnAnswer(("y",), "target", "no, yes")]
    answers.append(ColumnAnswer(("car name",), public="chevrolet chevelle, ford, buick"))
    schema = parse_schema(yaml.safe_dump(draft.to_schema(answers, 9)).encode())
    assert schema.form == parse_schema(yaml.safe_dump({**SCHEMA, "format": {"delimiter": named}}).encode()).form
    assert check_file(schema, path).problems == []
    assert pack(path, schema).labels.tolist() == [0, 1, 0]
    [columns] = read_columns(path, schema.features, schema)
    by_name = {"mpg": [18.5, 21, 17.25], "car name": ["chevrolet chevelle", "ford", "buick"]}
    assert {feature: values.tolist() for feature, values in columns.items()} == by_name
    sent = csv_tables.table_of(raw, schema.features, 9, schema.format, True).read(schema.features, by_name)
    assert {feature: values.tolist() for feature, values in sent.items()} == by_name


@pytest.mark.parametrize("name", [name for name, (named, _) in FORMS.items() if named != "comma"])
def test_where_the_schema_says_another_mark_the_remedy_is_the_one_that_parts_them(tmp_path, name):
    path, raw = written(tmp_path, name)
    plain = parse_schema(yaml.safe_dump(SCHEMA).encode())
    with pytest.raises(DataError):
        pack(path, plain)
    problem = check_file(plain, path).problems[0]
    said = re.search(r"`delimiter: (\w+)` under `format`", problem.remedy)
    assert said, problem
    mended = parse_schema(yaml.safe_dump({**SCHEMA, "format": {"delimiter": said[1]}}).encode())
    assert check_file(mended, path).problems == []
    if raw.startswith(b"sep="):
        with pytest.raises(InputError, match="say `delimiter: semicolon`"):
            csv_tables.table_of(raw, plain.features, 9, plain.format, True).read(plain.features, ["mpg"])


def test_rows_of_blanks_are_counted_and_named_as_they_stand(tmp_path):
    (tmp_path / "a.data").write_text("mpg  y\n1 no\n\n 2   yes\n3 no 4\n? no\n")
    body = {**SCHEMA, "features": {"mpg": SCHEMA["features"]["mpg"]}, "format": {"delimiter": "blanks"}}
    problems = find_problems(parse_schema(yaml.safe_dump(body).encode()), tmp_path / "a.data").problems
    assert [(problem.found, problem.rows) for problem in problems] == [
        ("a row with more or fewer cells than the first one", [5]), ("a word for a missing value", [6]),
    ]  # fmt: skip


def test_a_folder_has_one_form(tmp_path):
    for name in ("a.tsv", "a.tsv.gz"):
        written(tmp_path, name)
    schema = parse_schema(yaml.safe_dump({**SCHEMA, "format": {"delimiter": "tab"}}).encode())
    assert len(pack(tmp_path, schema).labels) == 6
    written(tmp_path, "a.txt")
    with pytest.raises(DataError, match="several forms"):
        pack(tmp_path, schema)


def test_how_cells_are_written_goes_with_the_model_to_every_door(tmp_path):
    """As `format` of GET /v1/models/{name} says it, and as `POST /predict?format=` reads it."""
    text = """
target: {name: y, range: [0, 5000], unit_mark: EUR, thousands: " "}
records: 9
features:
  rate: {type: numeric, range: [0, 9], decimal: ",", unit_mark: "%"}
  born: {type: date, range: [1930-01-01, 2029-12-31], written: [DD-MON-YY], first_year: 1930}
  seen: {type: datetime, range: ["2024-01-01T00:00:00", "2024-12-31T00:00:00"], missing_words: ["?"]}
format: {delimiter: tab, encoding: cp1252, sheet: rows}
"""
    raw = "rate\tborn\tseen\ty\n4,31 %\t14-août-29\t2024-03-14 10:30 PM\tEUR 1 200\n5\t1-Mar-30\t?\t7\n".encode(
        "cp1252"
    )
    (tmp_path / "a.tsv").write_bytes(raw)
    schema = parse_schema(text.encode())
    names = ["rate", "born", "seen"]
    told = json.loads(json.dumps(schema.format.to_json(names)))
    again = format_from_json(told)
    assert again.form == schema.form
    assert again.columns == {name: schema.written[name] for name in names}
    (unused,) = check_file(schema, tmp_path / "a.tsv").problems  # a text has no sheets
    assert "`sheet` under `format`" in unused.found
    assert check_file(parse_schema(text.replace(", sheet: rows", "").encode()), tmp_path / "a.tsv").problems == []
    assert pack(tmp_path / "a.tsv", schema).labels.tolist() == encode_targets(schema, pa.array([1200, 7])).tolist()
    [columns] = read_columns(tmp_path / "a.tsv", schema.features, again)
    sent = csv_tables.table_of(raw, schema.features, 9, again, True).read(schema.features, names)
    _, born, seen = schema.features
    for read in (columns, sent):
        assert read["rate"].tolist() == [4.31, 5]
        assert [born.text(value) for value in read["born"]] == ["2029-08-14", "1930-03-01"]
        assert seen.text(read["seen"][0]) == "2024-03-14T22:30:00"
        assert read["seen"][1] != read["seen"][1]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_blanks_about_texts_do_not_count_where_the_schema_says_so(tmp_path, ending):
    """As databases fill up cells of one width: in a file, a draft of it, a prediction and a request."""
    rows = {"town": ["Bonn   ", " Ulm \u00a0", "       ", "New Ulm"], "y": ["no ", "yes", "no ", "yes"]}
    path = tmp_path / f"a.{ending}"
    raw = "".join(f"{town},{y}\n" for town, y in zip(["town", *rows["town"]], ["y", *rows["y"]], strict=True)).encode()
    if ending == "csv":
        path.write_bytes(raw)
    else:
        pq.write_table(pa.table(rows), path)
    answers = [ColumnAnswer(("town",), public="Bonn, Ulm, New Ulm"), ColumnAnswer(("y",), "target", "no, yes")]
    body = SchemaProposal.of_file(path).to_schema([answers[0], answers[1]], 4)
    assert body["format"] == {"trim": True}
    body["features"]["town"]["type"] = "categorical"
    schema = parse_schema(yaml.safe_dump(body).encode())
    assert check_file(schema, path).problems == []
    packed = pack(path, schema)
    assert packed.labels.tolist() == [0, 1, 0, 1]
    [columns] = read_columns(path, schema.features, schema)
    sent = csv_tables.table_of(raw, schema.features, 9, schema.format, True).read(schema.features, ["town"])
    for read in (columns, sent):
        assert [text or None for text in read["town"].tolist()] == ["Bonn", "Ulm", None, "New Ulm"]
    plain = parse_schema(yaml.safe_dump({**body, "format": {}}).encode())
    assert "`trim: true` under `format`" in check_file(plain, path).problems[0].remedy
    assert packed.bins.tolist() == [[0, 1, 4, 2]]

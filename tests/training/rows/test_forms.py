"""Files as people have them, whatever parts their columns: drafted, checked, registered, predicted, sent."""

from __future__ import annotations

import gzip
import re

import pytest
import yaml

from accountant.errors import DataError
from dpserve_verify.errors import InputError
from serving.wire import csv_tables
from training.datasets.drafts.columns import ColumnAnswer
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.file_check import check_file
from training.datasets.packing import pack
from training.rows.schema.schema import parse_schema
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
    sent = csv_tables.columns_of(raw, schema.features, by_name, 9, csv_tables.FileForm(schema.form))
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
            csv_tables.columns_of(raw, plain.features, ["mpg"], 9, csv_tables.FileForm(plain.form))


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

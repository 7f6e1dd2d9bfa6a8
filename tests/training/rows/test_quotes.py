"""Quotes are read strictly, and alike, at every door: one that is not closed is refused with its line."""

from __future__ import annotations

import csv
import io
import random
import re
from contextlib import suppress

import pyarrow as pa
import pytest

from accountant.errors import DataError
from dpserve_verify.errors import InputError
from models.features.csv_lines import CsvLines, explain_quotes
from models.features.written import Form
from serving.wire.csv_tables import table_of
from training.datasets.file_check import check_file
from training.datasets.packing import pack
from training.rows.schema.schema import parse_schema
from training.rows.sources.text_tables import CsvTable
from training.rows.tables.row_files import KeptColumns, read_columns

PIECES = ['"', '"', '""', "a", "é", 'x"', "\n", "\n", "\r\n", "\r"]
SCHEMA = """target: {name: y, classes: [no, yes]}
records: 400
features: {a: {type: numeric, range: [0, 1000]}}
ignore: [note]
format: {delimiter: comma, encoding: utf-8}
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_quotes_of_a_file_are_those_of_a_body(tmp_path, encoding):
    """The quick look at a file and `csv`, where it is strict, refuse the same texts, in the same line."""
    draw, path, refused = random.Random(encoding), tmp_path / "rows.csv", 0
    for _ in range(400):
        mark, skip = draw.choice(",;|"), draw.choice([0, 0, 2])
        cells = "".join(draw.choice([*PIECES, mark]) for _ in range(draw.randrange(12)))
        text = f'{"t" * 3}"\n' * skip + f"a{mark}b\n{cells}"
        path.write_bytes(text.encode(encoding))
        form = Form(mark, encoding.removesuffix("-sig"), skip=skip)
        try:
            rows, expected = [*CsvLines(io.StringIO(text, newline=""), form)], ""
        except csv.Error as error:
            rows, expected = [], f"data=rows.csv: {explain_quotes(io.StringIO(text, newline=''), form, error)}"
        table = CsvTable(path, form)
        if expected:
            with pytest.raises(DataError, match=f"^{re.escape(expected)}$"):
                [*table.batches(table.names[:1], {})]
            refused += 1
            continue
        with suppress(pa.ArrowInvalid):  # of rows with other numbers of cells than the first one
            [*table.batches(table.names[:1], {})]
        if {len(row) for row in rows if row} == {2}:
            read = [row for batch in table.batches(table.names[:1], {}) for row in batch.column(0).to_pylist()]
            assert [cell or "" for cell in read] == [row[0] for row in rows[1:] if row], text
    assert refused > 60


LINES = [f"{at},{'yes' if at % 2 else 'no'},all well" for at in range(400)]
# The line of the file, what takes the place of a row in it, and what is said.
BROKEN = {
    "a last cell that is not closed": ({152: '150,no,"was here before'}, 152, "is never closed"),
    "two such cells": ({102: '100,no,"urgent', 322: '320,no,"transferred'}, 102, "in line 322"),
    "two such cells of a first column": ({102: '"100,no,urgent', 322: '"320,no,transferred'}, 102, "in line 322"),
    "text after a quote": ({7: '5,"yes"s,x'}, 7, "in line 7"),
    "lines within quotes before it": ({7: '5,yes,"two\nlines"', 9: '7,yes,"'}, 10, "is never closed"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("parted", ["comma", "comma and blank", "blanks"])
def test_a_quote_that_is_not_closed_swallows_nobody(tmp_path, name, parted):
    changed, line, says = BROKEN[name]
    if parted == "blanks" and name != "text after a quote":
        changed, line, says = {152: '150 no "was'}, 152, "is never closed"
    lines = ["a,y,note", *(row.replace(" ", "_") for row in LINES)]
    lines = [changed.get(at, row) for at, row in enumerate(lines, 1)]
    if parted != "comma":
        lines = [row.replace(",", ", " if "comma" in parted else " ") for row in lines]
    path, text = tmp_path / "rows.csv", "\n".join(lines) + "\n"
    path.write_text(text)
    schema = parse_schema(SCHEMA.replace("delimiter: comma", f"delimiter: {parted}").encode())
    [problem] = [each for each in check_file(schema, path).problems if "quote" in each.found]
    assert f"line {line}: a quote opens a cell there" in problem.found
    assert says in problem.found
    features = schema.features
    doors = {
        "registration": lambda: pack(path, schema),
        "prediction": lambda: [*read_columns(path, features, schema)],
        "columns that are kept": lambda: KeptColumns(path, ["note"], schema).take(1),
        "a body": lambda: table_of(text.encode(), features, 1000, schema.format, True).read(features, {"a"}),
    }
    for door, read in doors.items():
        with pytest.raises((DataError, InputError), match=f"line {line}: a quote opens a cell there and") as refused:
            read()
        assert says in str(refused.value), door
    for _ in range(2):  # the remedy, done: each is named by its line
        if not (problems := check_file(schema, path).problems):
            break
        at = int(problems[0].found.split("line ")[1].split(":")[0]) - 1
        mended = path.read_text().split("\n")
        mended[at] = mended[at].replace('"', "") if "text after" not in name else mended[at].replace('"', "", 2)
        path.write_text("\n".join(mended).replace("yess", "yes"))
    assert pack(path, schema).size == 400

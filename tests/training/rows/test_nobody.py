"""Rows that are nobody, titles, sheets, per cents and formulas: what a refusal says is done by a program, and then all
people are read and nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from following import Known, follow
from pyarrow import ipc
from workbooks import NO_PER_CENT, OWN_PER_CENT, Formula, Styled, write_workbook

from accountant.errors import DataError
from models.features.features import NumericFeature
from models.features.table_format import TableFormat, format_from_text
from models.features.written import Form
from serving.wire.csv_tables import table_of
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.file_check import check_file
from training.datasets.packing import pack
from training.rows.schema.schema import parse_schema
from training.rows.sources.files import open_file
from training.rows.tables.row_files import read_columns

Sheet = list[list[Any]]
HEADER = ["id", "amount", "y"]
PEOPLE: Sheet = [[f"p{at}", float(at % 90) + 0.5, "yes" if at % 3 else "no"] for at in range(40)]
BODY: dict[str, Any] = {
    "target": {"name": "y", "classes": ["no", "yes"]},
    "records": 40,
    "features": {"amount": {"type": "numeric", "range": [0, 100]}},
    "ignore": ["id"],
}
NUMBER = {"type": "numeric", "range": [0, 10_000]}
# What a file has besides the people, as what is said of it first.
BAD: dict[str, tuple[Callable[[Sheet], Sheet], str]] = {
    "a total": (lambda rows: [*rows, ["Total", 1600.5, None]], "looks like a total"),
    "a German sum": (lambda rows: [*rows, ["Summe:", 1600.5, None]], "looks like a total"),
    "a sum of a middle group": (lambda rows: [*rows[:9], ["Zwischensumme A", 1, None], *rows[9:]], "like a total"),
    "an average and a total": (lambda rows: [*rows, ["Mean", 40, None], ["Total", 99, None]], "looks like a total"),
    "a total without a number": (lambda rows: [*rows, [None, "total", None]], "looks like a total"),
    "a note": (lambda rows: [*rows, ["Source: register", None, None]], "looks like a note"),
    "rows affected": (lambda rows: [*rows, ["(40 rows affected)", None, None]], "looks like a note"),
    "units": (lambda rows: [rows[0], ["kg", "EUR", "%"], *rows[1:]], "looks like a line of units"),
    "units in brackets": (lambda rows: [rows[0], [None, "[EUR]", "(%)"], *rows[1:]], "looks like a line of units"),
    "units and none": (lambda rows: [rows[0], ["[-]", "[EUR]", "[1]"], *rows[1:]], "looks like a line of units"),
    "a second header": (lambda rows: [*rows[:20], HEADER, *rows[20:]], "looks like a second header"),
    "a second header and a total": (lambda rows: [*rows[:20], HEADER, *rows[20:], ["Total", 1, None]], "looks like"),
    "an empty row": (lambda rows: [*rows[:20], [None] * 3, *rows[20:]], "in which nothing stands"),
    "an empty row and a total": (lambda rows: [*rows, [None] * 3, ["Total", 1, None]], "nothing stands"),
    "a title": (lambda rows: [["Loans 2024", None, None], *rows], "names of the columns in row 2"),
    "titles and a total": (lambda rows: [["Loans", None, None], ["of 2024", None, None], *rows, ["Total", 1, None]],
                           "names of the columns in row 3"),
}  # fmt: skip


def write(path: Path, rows: Sheet) -> Path:
    if path.suffix == ".xlsx":
        return write_workbook(path, {"s": rows})
    path.write_text("".join(",".join("" if cell is None else str(cell) for cell in row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_a_row_that_is_nobody_is_named_and_its_remedies_leave_people_alone(tmp_path, name, suffix):
    change, said = BAD[name]
    for deletes in (True, False):
        rows = change([HEADER, *PEOPLE])
        path = write(tmp_path / f"rows{suffix}", rows)
        with pytest.raises(DataError):
            pack(path, parse_schema(yaml.safe_dump(BODY).encode()))

        def delete(path: Path, places: Sequence[int], rows: Sheet = rows) -> None:
            rows[:] = [row for at, row in enumerate(rows, 1) if at not in places]
            write(path, rows)

        followed = follow(path, BODY, Known({"amount": NUMBER, "y": {}}, deletes=deletes, delete=delete))
        assert (followed.end, followed.steps != []) == ("admitted", True), followed
        assert followed.schema is not None
        assert said in followed.problems[0] + followed.problems[-1], followed.problems
        assert all(("delete" in step) == deletes for step in followed.steps if "`skip:" not in step)
        quoted = ("Total", "Summe", "register", "affected")
        assert not any(word in problem for word in quoted for problem in followed.problems)
        schema = followed.schema
        assert pack(path, schema).size == 40
        [columns] = read_columns(path, schema.features, schema)
        assert columns["amount"].tolist() == [row[1] for row in PEOPLE]
        if suffix == ".csv":  # over REST the same bytes, with the format that a certificate carries
            carried = TableFormat(schema.form, schema.written).to_text(["amount"])
            assert carried is not None
            table = table_of(path.read_bytes(), schema.features, 100, format_from_text(carried), True)
            read = table.read(schema.features, {"amount"})
            np.testing.assert_array_equal(read["amount"], columns["amount"])


def test_a_row_that_begins_as_people_do_is_deleted_and_never_passed_over(tmp_path):
    """A line of units whose first cell two people have as well: the one key that would take it away takes them."""
    rows = [HEADER, ["kg", "EUR", "%"], *PEOPLE, ["kg", 5.0, "yes"], ["kg", 6.0, "no"]]
    path = write(tmp_path / "rows.csv", rows)
    [problem] = check_file(parse_schema(yaml.safe_dump(BODY).encode()), path).problems
    assert (problem.rows, [remedy.deletes for remedy in problem.remedies]) == ([2], [True])
    write(path, [HEADER, ["g", "EUR", "%"], *rows[2:]])
    [problem] = check_file(parse_schema(yaml.safe_dump(BODY).encode()), path).problems
    assert [remedy.deletes for remedy in problem.remedies] == [True, False]


def test_rows_are_passed_over_by_their_first_text_alone():
    form = Form(skip_rows=("Total", "(*", ""))
    nobody = [["Total", "1"], ["", " Total "], ["(400 rows)"], ["", " "], []]
    assert all(map(form.is_nobody, nobody))
    with pytest.raises(ValueError, match="at most 20 texts"):
        Form(skip_rows=("a",) * 21)
    assert not any(map(form.is_nobody, [["Totals"], ["1", "Total"], ["a (b)"], ["total"]]))


@dataclass
class Book:
    """Sheets, a schema, and what is read of `amount`; `says`: what the check says instead, which ends there."""

    sheets: dict[str, Sheet]
    amount: list[float] | None
    column: dict[str, Any]
    format: dict[str, Any]
    says: str = ""


GERMAN = {**NUMBER, "decimal": ",", "thousands": "."}
BOOKS = {
    "per cents": Book({"s": [["amount", "y"], [Styled(0.0431), "no"], [Styled(0.1, OWN_PER_CENT), "yes"]]},
                      [4.31, 10], NUMBER, {}),
    "a sign that is a text": Book({"s": [["amount", "y"], [Styled(0.0431, NO_PER_CENT), "no"], [2, "yes"]]},
                                  [0.0431, 2], NUMBER, {}),
    "per cents beside texts of them": Book({"s": [["amount", "y"], [Styled(0.0431), "no"], ["5,5 %", "yes"]]},
                                           [4.31, 5.5], {**NUMBER, "decimal": ",", "unit_mark": "%"}, {}),
    "German texts beside numbers": Book({"s": [["amount", "y"], [1234.5, "no"], ["1.234,5", "yes"], [1234567.0, "no"]]},
                                        [1234.5, 1234.5, 1234567], GERMAN, {}),
    "formulas that were computed": Book({"s": [["amount", "y"], [Formula(2.5), "no"], [3, "yes"]]}, [2.5, 3],
                                        NUMBER, {}),
    "formulas that were not": Book({"s": [["amount", "y"], [Formula(), "no"], [Formula(), "yes"]]}, None, NUMBER, {},
                                   "2 cells, the first in column 'amount' of row 2, hold a formula"),
    "one that was not": Book({"s": [["amount", "y"], [1, "no"], [Formula(), "yes"]]}, None, NUMBER, {},
                             "1 cell, the first in column 'amount' of row 3"),
    "formulas of a column that nobody reads": Book({"s": [["id", "amount", "y"], [Formula(), 1, "no"], [7, 2, "yes"]]},
                                                   [1, 2], NUMBER, {}),
    "an empty column": Book({"s": [["amount", "y"], [None, "no"], [None, "yes"]]}, None, NUMBER, {},
                            "no cell of the column holds anything"),
    "from B2 on": Book({"s": [[], [None, "amount", "y"], [None, 1, "no"], [None, Styled(0.02), "yes"]]}, [1, 2], NUMBER,
                       {"skip": 1}),
    "names that are said": Book({"s": [["x", "z"], [1, "no"], [2, "yes"]]}, [1, 2], NUMBER,
                                {"skip": 1, "columns": ["amount", "y"]}),
    "no names": Book({"s": [[1, "no"], [2, "yes"]]}, [1, 2], NUMBER, {"columns": ["amount", "y"]}),
    "one of two sheets": Book({"A": [["q"], [1]], "b C": [["amount", "y"], [1, "no"], [2, "yes"]]}, [1, 2], NUMBER,
                              {"sheet": "B c"}),
}  # fmt: skip


@pytest.mark.parametrize("name", BOOKS)
def test_a_workbook_is_read_as_it_shows_or_refused(tmp_path, name):
    book = BOOKS[name]
    path = write_workbook(tmp_path / "a.xlsx", book.sheets)
    body = {**BODY, "records": 3, "features": {"amount": book.column}, "format": book.format}
    schema = parse_schema(yaml.safe_dump(body).encode())
    problems = check_file(schema, path).problems
    if book.amount is None:
        assert book.says in str(problems[0])
        if "formula" in book.says:
            with pytest.raises(DataError, match="hold a formula"):
                pack(path, schema)
        return
    assert problems == []
    assert pack(path, schema).size == len(book.amount)
    [columns] = read_columns(path, schema.features, schema)
    assert columns["amount"].tolist() == book.amount


def test_a_sheet_is_named_wherever_a_file_is(tmp_path):
    people = [["amount", "y"], [1, "no"], [2, "yes"], [3, "no"]]
    path = write_workbook(tmp_path / "a.xlsx", {"2023": people[:3], "2024": people})
    named = Path(f"{path}#2024")
    schema = parse_schema(yaml.safe_dump({**BODY, "records": 3}).encode())
    assert SchemaProposal.of_file(named).format == {"sheet": "2024"}
    assert check_file(schema, named).problems == []
    assert pack(named, schema).size == 3
    [columns] = read_columns(named, (NumericFeature("amount", (0.0,)),), schema)
    assert columns["amount"].tolist() == [1, 2, 3]
    with pytest.raises(DataError, match="no sheet '2025'.* 'a.xlsx#2023'"):
        pack(Path(f"{path}#2025"), schema)


@pytest.mark.parametrize(
    ("suffix", "form", "key"),
    [(".csv", {"sheet": "s"}, "sheet"), (".parquet", {"skip": 1}, "skip"), (".parquet", {"sheet": "s"}, "sheet"),
     (".arrow", {"skip_rows": ["Total"]}, "skip_rows"), (".jsonl", {"skip": 1}, "skip"),
     (".jsonl", {"delimiter": "semicolon"}, "delimiter"), (".xlsx", {"delimiter": "semicolon"}, "delimiter"),
     (".xlsx", {"encoding": "cp1252"}, "encoding")],
)  # fmt: skip
def test_a_key_that_a_format_does_not_use_is_refused(tmp_path, suffix, form, key):
    path, table = tmp_path / f"rows{suffix}", pa.table({"amount": [1.0, 2.0], "y": ["no", "yes"]})
    if suffix == ".csv":
        path.write_text("amount,y\n1,no\n2,yes\n")
    elif suffix == ".jsonl":
        path.write_text('{"amount": 1, "y": "no"}\n{"amount": 2, "y": "yes"}\n')
    elif suffix == ".xlsx":
        write_workbook(path, {"a": [["amount", "y"], [1, "no"], [2, "yes"]]})
    elif suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    body = {**BODY, "records": 2}
    [problem] = check_file(parse_schema(yaml.safe_dump({**body, "format": form}).encode()), path).problems
    assert f"`{key}` under `format` is of other kinds of files than {suffix}" in problem.found
    followed = follow(path, {**body, "format": form}, Known({"amount": NUMBER, "y": {}}))
    assert (followed.end, followed.steps) == ("admitted", [f": {problem.remedy}"])
    assert followed.body == {**body, "format": {}}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_columns_without_a_name_or_with_that_of_others_are_named_as_in_text(tmp_path, suffix):
    names = ["", "amount", "y", "amount", "", "note"]
    columns = [pa.array([9, 9]), pa.array([1.5, 2.5]), pa.array(["no", "yes"]), pa.array([3.5, 4.5]),
               pa.array(["a", "b"]), pa.array([1, 2], pa.duration("ns"))]  # fmt: skip
    table, path = pa.Table.from_arrays(columns, names), tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    assert [*open_file(path).types()] == ["column 1", "amount", "y", "amount (2)", "column 5", "note"]
    [batch] = open_file(path).batches(["amount (2)", "column 5", "amount"], {})
    assert batch.to_pydict() == {"amount (2)": [3.5, 4.5], "column 5": ["a", "b"], "amount": [1.5, 2.5]}
    body = {**BODY, "records": 2, "features": {"amount (2)": NUMBER}, "ignore": ["", "amount", "note"]}
    schema = parse_schema(yaml.safe_dump(body).encode())
    assert check_file(schema, path).problems == []
    assert pack(path, schema).size == 2
    [read] = read_columns(path, schema.features, schema)
    assert read["amount (2)"].tolist() == [3.5, 4.5]
    proposal = SchemaProposal.of_file(path)  # Python has no nanoseconds
    assert {"amount", "note"} <= {*proposal.features, *proposal.ignore}

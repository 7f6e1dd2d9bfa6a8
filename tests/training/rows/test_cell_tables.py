"""Workbooks and files of statistics programs are read as the same rows in a .csv are, from the draft to a prediction.

`tests/data/statistics/people.*` hold ROWS, as pyreadstat wrote them; in those of SPSS, -9 of `age` is declared missing.
`tests/data/workbooks/people.*` do as xlwt and odfpy wrote them; percent.xls has PER_CENTS.
"""

from __future__ import annotations

import random
import sys
import zipfile
from contextlib import suppress
from datetime import date, datetime, time
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from ledgers import ROOT
from workbooks import Formula, Styled, write_ods, write_workbook

from accountant.errors import DataError
from models.features.written import Form
from training.datasets.drafts.columns import ColumnAnswer
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.file_check import check_file
from training.datasets.packing import pack
from training.rows.schema.schema import parse_schema
from training.rows.sources import cell_tables
from training.rows.sources.files import open_file
from training.rows.tables.file_check import find_problems
from training.rows.tables.row_files import read_columns

NAMES = ["age", "town", "born", "seen", "sex", "ill"]
ROWS = [
    [34.0, "Bonn", date(1990, 4, 3), datetime(2024, 3, 1, 14, 30), 1.0, "no"],
    [51.0, "Köln", None, None, 2.0, "yes"],
    [None, "", date(1973, 6, 5), datetime(2024, 3, 2, 9), 1.0, "no"],
    [-9.0, "Kiel", date(2019, 2, 1), datetime(2024, 3, 3, 1, 2, 3), 2.0, "no"],
    [7.0, "Bonn", date(2001, 1, 1), datetime(2024, 3, 4), 1.0, "yes"],
]
SCHEMA = """
target: {name: ill, classes: ["no", "yes"]}
records: 5
features:
  age: {type: numeric, range: [0, 120], missing_values: [-9]}
  town: {type: categorical, values: [Bonn, Köln, Kiel]}
  born: {type: date, range: [1930-01-01, 2025-01-01]}
  seen: {type: datetime, range: ["2024-03-01T00:00:00", "2024-03-05T00:00:00"]}
  sex: {type: categorical, values: [1, 2]}
"""
STATISTICS = sorted((ROOT / "tests" / "data" / "statistics").iterdir())
WORKBOOKS = {path.name: path for path in (ROOT / "tests" / "data" / "workbooks").iterdir()}
PEOPLE = {path.name: path for path in STATISTICS} | {name: WORKBOOKS[name] for name in ("people.xls", "people.ods")}
PER_CENTS = {
    "a": [42.5, 0.5, 0.07, 100],
    "f": [None, 1200, None, 200],
}  # the first and the third of f were never computed


def read(path, schema):
    [columns] = read_columns(path, schema.features, schema)
    values = {name: [None if value != value else value for value in column] for name, column in columns.items()}
    packed = pack(path, schema)
    return values, packed.bins.tolist(), packed.labels.tolist()


@pytest.fixture(scope="module")
def as_csv(tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "people.csv"
    lines = [",".join("" if cell is None else f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in row)
             for row in [NAMES, *ROWS]]  # fmt: skip
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return read(path, parse_schema(SCHEMA.encode()))


@pytest.mark.parametrize("name", ["a.xlsx", "a.xlsm", *PEOPLE])
def test_the_same_rows_are_read_alike_in_every_form(tmp_path, as_csv, name):
    path = tmp_path / name
    if name.startswith("a."):
        write_workbook(path, {"people": [NAMES, *ROWS, [""] * 6], "notes": []})
    else:
        path.write_bytes(PEOPLE[name].read_bytes())
    assert check_file(parse_schema(SCHEMA.encode()), path).problems == []
    values, bins, labels = read(path, parse_schema(SCHEMA.encode()))
    missing = [None if cell == "" else cell for cell in as_csv[0]["town"]]
    assert values["town"] in (missing, as_csv[0]["town"])
    assert {**values, "town": None} == {**as_csv[0], "town": None}
    assert (bins, labels) == as_csv[1:]
    if name.endswith("sav"):  # the file says itself that -9 is missing
        plain = parse_schema(SCHEMA.replace(", missing_values: [-9]", "").encode())
        assert read(path, plain) == (values, bins, labels)
    draft = SchemaProposal.of_file(path)
    kinds = {name: declared["type"] for name, declared in draft.features.items()}
    assert kinds == {"age": "numeric", "town": "categorical", "born": "date", "seen": "datetime", "sex": "numeric",
                     "ill": "boolean"}  # fmt: skip


def test_cells_of_a_workbook_keep_their_types_and_others_become_texts(tmp_path):
    header = ["a", None, "a", "code", "at", "flag", "odd", 2024, "none"]
    rows = [
        [1, 2.5, 3, "007", time(14, 30), True, date(2024, 3, 1), "#N/A", None],
        ["?", 2, 3, 7, None, False, 1.5, 5, None],
        [None] * 9,
        [2.0, None, 3, 7.25, time(1, 2, 3), None, "x", 6, None],
    ]
    table = open_file(write_workbook(tmp_path / "a.xlsx", {"s": [header, *rows]}))
    assert table.types() == {
        "a": pa.string(), "column 2": pa.float64(), "a (2)": pa.float64(), "code": pa.string(), "at": pa.time64("us"),
        "flag": pa.bool_(), "odd": pa.string(), "2024": pa.float64(), "none": pa.null(),
    }  # fmt: skip
    [batch] = table.batches([*table.types()], {})
    assert batch["a"].to_pylist() == ["1", "?", None, "2"]
    assert batch["code"].to_pylist() == ["007", "7", None, "7.25"]
    assert batch["odd"].to_pylist() == ["2024-03-01", "1.5", None, "x"]
    assert batch["2024"].to_pylist() == [None, 5, None, 6]


def test_a_row_of_a_workbook_is_named_as_the_spreadsheet_names_it(tmp_path):
    path = write_workbook(tmp_path / "a.xlsx", {"s": [["age", "ill"], [1, "no"], [None, None], ["4 kg", "yes"]]})
    schema = parse_schema(
        b"target: {name: ill, classes: ['no', 'yes']}\nrecords: 3\nfeatures: {age: {type: numeric, range: [0, 9]}}\n"
    )
    problems = {(problem.column, problem.found): problem.rows for problem in find_problems(schema, path).problems}
    assert problems == {("", "a row in which nothing stands"): [3], ("age", "a number with a unit"): [4]}


def test_of_several_sheets_one_is_said(tmp_path):
    people = [["age", "ill"], [1, "no"], [2, "yes"]]
    path = write_workbook(tmp_path / "a.xlsx", {"2023": people, "2024": [*people, [3, "no"]]})
    with pytest.raises(DataError, match="2 sheets that hold cells: 2023, 2024; say `sheet: NAME` under `format`"):
        SchemaProposal.of_file(path)
    proposal = SchemaProposal.of_file(path, sheet="2024")
    answers = [ColumnAnswer(("age",), public="0 .. 9"), ColumnAnswer(("ill",), "target", "no, yes")]
    body = proposal.to_schema(answers, 3)
    assert body["format"] == {"sheet": "2024"}
    schema = parse_schema(yaml.safe_dump(body).encode())
    assert check_file(schema, path).problems == []
    assert len(pack(path, schema).labels) == 3
    body["format"]["sheet"] = "2025"
    [problem] = check_file(parse_schema(yaml.safe_dump(body).encode()), path).problems
    assert problem.found.endswith("has no sheet '2025': 2023, 2024")
    assert problem.remedy == 'say `sheet: "2023"` under `format`; or say `sheet: "2024"` under `format`'


def test_what_is_no_such_file_is_refused_with_a_remedy(tmp_path, monkeypatch):
    def refusal(path: Path) -> str:
        with pytest.raises(DataError) as refused:
            open_file(path).types()
        return refused.value.message

    (tmp_path / "a.xlsx").write_bytes(b"PK no workbook")
    assert refusal(tmp_path / "a.xlsx").endswith("save it anew as .xlsx")
    write_workbook(tmp_path / "b.xlsx", {"s": [[None], ["age"], [1]]})
    assert "row 1 has no names; say `skip` under `format`" in refusal(tmp_path / "b.xlsx")
    assert [*open_file(tmp_path / "b.xlsx", Form(skip=1)).types()] == ["age"]
    write_workbook(tmp_path / "c.xlsx", {"s": []})
    assert refusal(tmp_path / "c.xlsx").endswith("name another file")
    old = WORKBOOKS["people.xls"].read_bytes()
    wide = [name.encode("utf-16-le").ljust(64, b"\0") for name in ("Workbook", "EncryptedPackage")]
    (tmp_path / "e.xlsx").write_bytes(old.replace(wide[0] + bytes([18]), wide[1] + bytes([34])))
    (tmp_path / "e.xls").write_bytes(old.replace(b"\x42\0\2\0", b"\x2f\0\2\0", 1))
    assert refusal(tmp_path / "e.xlsx").endswith("e.xlsx: has a password; save it without one")
    assert refusal(tmp_path / "e.xls").endswith("e.xls: has a password; save it without one")
    (tmp_path / "a.sav").write_bytes(b"no such thing")
    assert refusal(tmp_path / "a.sav").endswith("save it anew, or as .csv")
    monkeypatch.setattr(cell_tables, "MOST_CELLS", 3)
    write_workbook(tmp_path / "d.xlsx", {"s": [["a", "b"], [1, 2]]})
    assert refusal(tmp_path / "d.xlsx").endswith("save it as .csv or .parquet")
    with zipfile.ZipFile(tmp_path / "d.xlsx") as archive:
        monkeypatch.setattr(cell_tables, "MOST_UNPACKED", sum(part.file_size for part in archive.infolist()) - 1)
    assert refusal(tmp_path / "d.xlsx").endswith("save it as .csv")
    monkeypatch.setitem(sys.modules, "pyreadstat", None)
    assert "pip install pyreadstat, or save it as .csv" in refusal(STATISTICS[0])


@pytest.mark.parametrize("name", ["a.xls", "a.ods", "b.xlsx"])  # what it is called does not say what it is
def test_per_cents_and_formulas_of_other_workbooks_are_told(tmp_path, name):
    path = tmp_path / name
    rows = [["a", "f"], [Styled(0.425), Formula()], [0.5, Styled(12)], [0.07, Formula()], [Styled(1), Styled(2)]]
    if name.endswith("ods"):
        write_ods(path, {"s": rows})
    else:
        path.write_bytes(WORKBOOKS["percent.xls"].read_bytes())
    table = open_file(path)
    [placed] = table.placed(["a", "f"])
    assert pa.table(placed.columns).to_pydict() == PER_CENTS
    assert placed.places == [2, 3, 4, 5]
    assert [*table.batches(["a"], {})]
    if not name.endswith("ods"):  # an old workbook has a value for each formula
        return
    with pytest.raises(
        DataError, match=r"2 cells, the first in column 'f' of row 2, hold a formula that no program has"
    ):
        [*table.batches(["f"], {})]


def test_a_row_that_is_written_once_for_many_is_bounded_before_it_is_read(tmp_path):
    path = write_ods(tmp_path / "a.ods", {"s": [["a", "b"], [1, Styled(0.5)]]}, 3)
    [batch] = open_file(path).batches(["a", "b"], {})
    assert batch.to_pydict() == {"a": [1, 1, 1], "b": [50, 50, 50]}
    with pytest.raises(DataError, match="has more than 33554432 cells; save it as .csv or .parquet"):
        open_file(write_ods(tmp_path / "b.ods", {"s": [["a", "b"], [1, Styled(0.5)]]}, 1 << 24)).types()


@pytest.mark.parametrize("name", ["people.xls", "percent.xls", "people.ods"])
def test_a_damaged_workbook_is_read_or_refused(tmp_path, name):
    """With bytes changed, left out and put in: never another error, nor an end of the program."""
    whole, draw, path, refused = WORKBOOKS[name].read_bytes(), random.Random(name), tmp_path / name, 0
    for _ in range(120):
        raw = bytearray(whole)
        for _ in range(draw.choice([1, 1, 3, 20])):
            at = draw.randrange(len(raw))
            length, piece = draw.choice(
                [(1, draw.randbytes(1)), (4, b"\xff" * 4), (4, bytes(4)), (99, b""), (0, bytes(99))]
            )
            raw[at : at + length] = piece
        path.write_bytes(raw)
        with suppress(DataError):
            refused += 1
            open_file(path).types()
            refused -= 1
    assert refused > 20

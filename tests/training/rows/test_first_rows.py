"""The first rows of a file: which one has the names, and of which sheet, as they seem; told, and never read by."""

from __future__ import annotations

import pytest
import yaml
from workbooks import write_workbook

from training.datasets.drafts.proposal import SchemaProposal, read_first_rows

NAMES, ROWS = ["age", "sum", "ill", "day"], [[at % 90, f"{at},5", "no", f"0{1 + at % 9}.03.2024"] for at in range(30)]
TITLES = {
    "none": ([], 0), "one": (["Bestand"], 1), "two, one empty": (["Bestand;30.9.", ""], 2),
    "as wide as a spreadsheet writes them": (["Bestand;;;", "Stand;30.9.;;", ";;;"], 3),
    "with commas": (["Loans, as of May, all branches, final"], 1),
}  # fmt: skip


def text_of(titles: list[str], names: list[str] = NAMES) -> str:
    return "\n".join([*titles, ";".join(names), *(";".join(map(str, row)) for row in ROWS), ""])


@pytest.mark.parametrize("titles", TITLES)
def test_titles_stand_above_the_names(tmp_path, titles):
    lines, skip = TITLES[titles]
    (tmp_path / "a.csv").write_text(text_of(lines), "cp1252")
    proposal = SchemaProposal.of_file(tmp_path / "a.csv")
    assert {"skip": 0, **proposal.format} == {"skip": skip, "delimiter": ";"}
    assert [*proposal.features] == NAMES
    assert proposal.features["sum"]["decimal"] == ","
    first = read_first_rows(tmp_path / "a.csv", {})
    assert [*first.rows[skip]] == NAMES
    sheet = [*([cell or None for cell in line.split(";")] for line in lines), NAMES, *ROWS]
    write_workbook(tmp_path / "a.xlsx", {"s": sheet, "notes": [["age", "in years"]]})
    assert SchemaProposal.of_file(tmp_path / "a.xlsx").format == {"sheet": "s"} | ({"skip": skip} if skip else {})
    assert [*SchemaProposal.of_file(tmp_path / "a.xlsx").features] == NAMES


@pytest.mark.parametrize(
    "text",
    [
        text_of([], ["", "sum", "ill", "day"]),  # a column without a name
        "a,b\n1,2\n3,4\n", "a\n1\n2\n", "", "a;b;c\n",
        "sep=;\n" + text_of([]),
        "remark,n\n" + "".join(f"a;b;c;d;e;{at},{at}\n" for at in range(20)),  # another mark within cells
        'a;"b\nb";c;d\n' + "1;2;3;4\n" * 20,
    ],
)  # fmt: skip
def test_no_row_is_left_out_that_is_no_title(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    first = read_first_rows(tmp_path / "a.csv", {})
    assert (first.form.skip, first.form.sheet) == (0, "")


def test_what_a_person_said_is_not_guessed(tmp_path):
    (tmp_path / "a.csv").write_text(text_of(["Bestand"]))
    for said in ({"skip": 0}, {"skip": 4}, {"columns": ["a", "b"]}, {"delimiter": ","}, {"encoding": "cp1252"}):
        form = read_first_rows(tmp_path / "a.csv", said).form
        assert {key: getattr(form, key) for key in said} == {
            key: tuple(value) if key == "columns" else value for key, value in said.items()
        }
    book = write_workbook(tmp_path / "a.xlsx", {"s": [NAMES, *ROWS], "t": [NAMES, *ROWS[:5]], "u": [["x"]]})
    first = read_first_rows(book, {})
    assert (first.sheets, first.rows, first.form.sheet) == (("s", "t", "u"), (), ""), "none is ten times the others"
    assert read_first_rows(book, {"sheet": "T"}).form.sheet == "t"
    assert yaml.safe_load(SchemaProposal.of_file(book, sheet="t").to_yaml("a", looked=True))["format"] == {"sheet": "t"}

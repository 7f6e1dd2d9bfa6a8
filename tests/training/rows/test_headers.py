"""The first line of a .csv as people have it: blanks, no name, a name twice, other ends of lines."""

from __future__ import annotations

import pytest

from accountant.errors import DataError
from models.features.features import NumericFeature
from serving.wire.csv_tables import table_of
from training.datasets.file_check import check_file
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import read_batches
from training.rows.tables.row_files import read_columns

SCHEMA = """target: {name: y, classes: [no, yes]}
records: 10
features:
  a: {type: numeric, range: [0, 9], missing_words: ["?"], missing_values: [-9]}
  c: {type: categorical, values: [Ulm, Bonn], missing_words: [unknown]}
ignore: ["", note]
"""
ROWS = "0,1.5,Ulm,n,m,no\n1, ? ,unknown,n,m,yes\n2,-9,Bonn,n,m,yes\n"
FILES = {
    "an index without a name, and a name twice": ",a,c,note,note,y\n" + ROWS,
    "blanks about names": ' , a ,"c ",note,note, y\n' + ROWS,
    "lines that end as on an old Macintosh": (",a,c,note,note,y\n" + ROWS).replace("\n", "\r"),
    "lines that end as on Windows, and a mark": "\ufeff" + (",a,c,note,note,y\n" + ROWS).replace("\n", "\r\n"),
    "a line break within a name": ',a,c,"note\nof",note,y\n' + ROWS,
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_the_check_and_the_registration_read_the_same(tmp_path, text):
    schema = parse_schema(SCHEMA.replace("note]", 'note, "note of"]').encode())
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode())
    assert check_file(schema, path).problems == []
    [batch] = read_batches(path, schema)
    assert batch["a"].to_pylist() == [1.5, None, None]
    assert batch["c"].to_pylist() == ["Ulm", None, "Bonn"]
    assert batch["y"].to_pylist() == ["no", "yes", "yes"]
    [columns] = read_columns(path, [NumericFeature("a", ())], schema)
    assert columns["a"].tolist()[0] == 1.5


NAMED = '["", a, c, note, "note (2)", y]'
CUT_AS_DECLARED = {  # what `format` says, and the file
    "no header": (f"{{columns: {NAMED}}}", ROWS),
    "lines before the header": ("{skip: 2}", "A title\n\n,a,c,note,note,y\n" + ROWS),
    "a header that is replaced": (f"{{skip: 1, columns: {NAMED}}}", "1,2,3,3,3,4\n" + ROWS),
    "a blank after each comma": ("{delimiter: comma and blank}", (",a,c,note,note,y\n" + ROWS).replace(",", ", ")),
    "and after each semicolon": ("{delimiter: semicolon and blank}", (",a,c,note,note,y\n" + ROWS).replace(",", ";  ")),
    "neither header nor blanks": (f"{{delimiter: blanks, columns: {NAMED}}}", ROWS.replace(" ", "").replace(",", "  ")),
}


@pytest.mark.parametrize(("form", "text"), CUT_AS_DECLARED.values(), ids=CUT_AS_DECLARED)
def test_a_file_is_cut_as_the_schema_declares(tmp_path, form, text):
    """By the registration, the check, a prediction of a file, and one that is sent."""
    schema = parse_schema((SCHEMA.replace("note]", 'note, "note (2)"]') + f"format: {form}\n").encode())
    path = tmp_path / "rows.data"
    path.write_text(text)
    assert check_file(schema, path).problems == []
    [batch] = read_batches(path, schema)
    assert batch["a"].to_pylist() == [1.5, None, None]
    assert batch["c"].to_pylist() == ["Ulm", None, "Bonn"]
    assert batch["y"].to_pylist() == ["no", "yes", "yes"]
    a = NumericFeature("a", ())
    [columns] = read_columns(path, [a], schema)
    sent = table_of(text.encode(), [a], 10, schema.format, True).read([a], {"a"})["a"]
    assert [columns["a"].tolist()[0], len(columns["a"])] == [sent.tolist()[0], len(sent)] == [1.5, 3]
    path.write_text(text.replace("-9", "no"))
    [problem] = check_file(schema, path).problems
    assert problem.rows == [text[: text.index("-9")].count("\n") + 1]  # as a spreadsheet counts


def test_a_name_that_the_schema_speaks_of_stands_once(tmp_path):
    (tmp_path / "rows.csv").write_text("a,a,c,y\n1,2,Ulm,no\n")
    with pytest.raises(DataError, match=r"columns \['a'\]: stand twice"):
        list(read_batches(tmp_path / "rows.csv", parse_schema(SCHEMA.encode())))
    assert "stands twice" in str(check_file(parse_schema(SCHEMA.encode()), tmp_path / "rows.csv").problems[0])


@pytest.mark.parametrize("word", ["?", ".", "n/a", "#DIV/0!", "None"])
def test_a_word_for_nothing_is_told_what_to_do_which_works(tmp_path, word):
    (tmp_path / "rows.csv").write_text(f"a,c,y\n1,Ulm,no\n{word},Ulm,yes\n")
    schema = SCHEMA.replace('["?"]', "[]")
    [problem] = check_file(parse_schema(schema.encode()), tmp_path / "rows.csv").problems
    assert "missing_words" in problem.remedy
    mended = parse_schema(SCHEMA.replace('["?"]', f'["{word}"]').encode())
    assert check_file(mended, tmp_path / "rows.csv").problems == []
    [batch] = read_batches(tmp_path / "rows.csv", mended)
    assert batch["a"].to_pylist() == [1.0, None]


@pytest.mark.parametrize(
    ("marks", "cells"),
    [
        ("thousands: ',', decimal: '.'", ["1,234.5", "7", "-1,000,000"]),
        ("thousands: '.', decimal: ','", ["1.234,5", "7", "-1.000.000"]),
        ("thousands: ' ', decimal: ','", ["1 234,5", "7", "-1\u00a0000\u202f000"]),
    ],
)
def test_marks_between_thousands_are_checked_as_they_are_read(tmp_path, marks, cells):
    lines = "".join(f'"{cell}";no\n' for cell in [*cells, "+.5".replace(".", marks[-2]), "1e3"])
    (tmp_path / "rows.csv").write_text(f"a;y\n{lines}2;yes\n", "utf-8")
    text = "target: {name: y, classes: [no, yes]}\nrecords: 6\nfeatures:\n  a: {type: numeric, range: [0, 9], MARKS}\n"
    text += "format: {delimiter: semicolon}\n"
    schema = parse_schema(text.replace("MARKS", marks).encode())
    assert check_file(schema, tmp_path / "rows.csv").problems == []
    [batch] = read_batches(tmp_path / "rows.csv", schema)
    assert batch["a"].to_pylist() == [1234.5, 7, -1e6, 0.5, 1000, 2]
    plain = parse_schema(text.replace(", MARKS", "").encode())
    problems = {each.found: each.remedy for each in check_file(plain, tmp_path / "rows.csv").problems}
    assert any("thousands" in remedy for found, remedy in problems.items() if "thousands" in found or "three" in found)


@pytest.mark.parametrize(("cell", "said"), [("1,234", ""), ("1.234", ", decimal: ','")])
def test_a_mark_before_three_digits_is_asked_about(tmp_path, cell, said):
    (tmp_path / "rows.csv").write_text(f'a,y\n"{cell}",no\n2,yes\n')
    text = "target: {name: y, classes: [no, yes]}\nrecords: 6\nfeatures:\n  a: {type: numeric, range: [0, 9]MORE}\n"
    [problem] = check_file(parse_schema(text.replace("MORE", said).encode()), tmp_path / "rows.csv").problems
    assert all(f"where 1{cell[1]}234 is {value}" in problem.remedy for value in ("1234", "1.234"))
    values = []
    for mark in ("thousands", "decimal"):  # either as it says
        other = {",": ".", ".": ","}[cell[1]] if mark == "thousands" else cell[1]
        more = f", decimal: '{other}'" + (f", thousands: '{cell[1]}'" if mark == "thousands" else "")
        schema = parse_schema(text.replace("MORE", more).encode())
        assert check_file(schema, tmp_path / "rows.csv").problems == []
        [batch] = read_batches(tmp_path / "rows.csv", schema)
        values.append(batch["a"][0].as_py())
    assert values == [1234, 1.234]

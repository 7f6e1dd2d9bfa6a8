"""The check of a file and its registration give one answer, and what becomes of each column's cells is shown."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accountant.errors import DataError
from accountant.home import Home
from accountant.ledger.families.records import NewPeople
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.column_law import Misfit, read_numbers
from training.datasets.copy_guard import Asker
from training.datasets.datasets import register
from training.datasets.file_check import check_file
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import raw_values, read_batches
from training.rows.tables.file_check import find_problems

SCHEMA = """target: {{name: y, {target}}}
records: 100
features:
  a: {{{a}}}
  b: {{type: boolean}}
format: {{delimiter: semicolon}}
ignore: [note]
"""
CLASSES = "classes: [no, yes]"
NUMBER, PLACE, DAY = "type: numeric, range: [0, 100]", "type: categorical, values: [Ulm, Bonn]", "type: date, range: "
DAY += "[2020-01-01, 2021-01-01]"
# How the column `a` is declared, the cells that it has (each ten times), the part of its cells (fits, clipped, other,
# missing) in tenths, what is found or None, and what mends the declaration.
CELLS = {
    "numbers": (NUMBER, ["1", "2.5", "-3", "1e9", ""], (4, 4, 0, 2), None, ""),
    "one in ten in the range": (NUMBER, ["1"] + ["1000"] * 9, (1, 9, 0, 0), None, ""),
    "fewer than one in ten": (NUMBER, ["1"] + ["1000"] * 10, None, "91% of the cells lie", ", outside: expected"),
    "nothing in the range": (NUMBER, ["1000", ""], (0, 5, 0, 5), "outside of the range", ", outside: expected"),
    "a wrong unit": ("type: numeric, range: [0, 1]", ["30", "40"], None, "outside of the range", ", outside: expected"),
    "cut points have no outside": ("type: numeric, edges: [0, 1]", ["30", "40"], (10, 0, 0, 0), None, ""),
    "only missing": (NUMBER, ["", "NA"], (0, 0, 0, 10), "no cell of the column holds anything", None),
    "a decimal comma": (NUMBER, ["1,5", "2"], None, "decimal comma", ", decimal: ','"),
    "a mark before three digits": (NUMBER, ["1,234", "2"], None, "before three digits", ", thousands: ','"),
    "a word for nothing": (NUMBER, ["?", "2"], None, "missing value", ", missing_words: ['?']"),
    "a code for nothing": (NUMBER + ", missing_values: [-9]", ["-9", "2"], (5, 0, 0, 5), None, ""),
    "a date for a number": (NUMBER, ["2020-03-01", "2"], None, "a date", None),
    "a day by its month's name for a number": (NUMBER, ["3 mars 2020", "2"], None, "a date", None),
    "a day of no calendar for a number": (NUMBER, ["2020-02-30", "2"], None, "a date that no calendar has", None),
    "a unit with a digit": (NUMBER, ["5 m2", "2"], None, "a number with a unit", ", unit_mark: m2"),
    "a unit": (NUMBER, ["2", "nine"], None, "text", None),
    "infinite": (NUMBER, ["inf", "2"], (5, 5, 0, 0), None, ""),
    "places": (PLACE, ["Ulm", "Ulm", "Bonn", "Paris", ""], (6, 0, 2, 2), None, ""),
    "other places": (PLACE, ["Ulm", "Paris", "Rome"], None, "67% of the cells are not listed", ", other: expected"),
    "capitals": (PLACE, ["ULM", "BONN"], None, "other capitals", ", other: expected"),
    "blanks": (PLACE, [" Ulm", "Bonn "], None, "blanks about them", ", other: expected"),
    "days": (DAY, ["2020-03-01", "1999-01-01", "", "2020-05-05"], None, None, ""),
    "days of another year": (DAY, ["1999-01-01", "1998-01-01"], None, "outside of the range", ", outside: expected"),
    "days in another order": (DAY, ["01.03.2020", "2020-05-05"], None, "a date written DD.MM.YYYY",
                              ", written: [YYYY-MM-DD, DD.MM.YYYY]"),
    "no day": (DAY, ["2020-02-30", "2020-05-05"], None, "a date", None),
    "a clock": ("type: time, range: ['00:00', '12:00']", ["10:30", "14:30"], (5, 5, 0, 0), None, ""),
    "no clock": ("type: time, range: ['00:00', '12:00']", ["25:30", "14:30"], None, "a time", None),
    "truth": ("type: boolean", ["yes", "0", ""], None, None, ""),
    "words for truth": ("type: boolean", ["x", "non"], None, "yes or no", ", true_words: [x], false_words: [non]"),
}  # fmt: skip
ANSWERS = {
    "classes": (CLASSES, ["no", "yes"], None),
    "another class": (CLASSES, ["no", "perhaps"], "no class"),
    "no answer": (CLASSES, ["no", ""], "nothing"),
    "left out": (CLASSES + ", missing: leave-out", ["no", "", "NA"], None),
    "none at all": (CLASSES + ", missing: leave-out", ["", "NA"], "no row that is used has an answer"),
    "a number": ("range: [0, 9]", ["1", "2.5"], None),
    "a number that is clipped": ("range: [0, 9]", ["100", "250"], "outside of the range"),
    "which is expected": ("range: [0, 9], outside: expected", ["100", "250"], None),
    "no number": ("range: [0, 9]", ["1", "many"], "text"),
    "a number that lacks": ("range: [0, 9]", ["1", ""], "nothing"),
}
TEXTS = {
    "another delimiter": ("a,b,note,y\n1,yes,n,no\n", "columns parted by ','"),
    "a column more": ("a;b;note;c;y\n1;yes;n;1;no\n", "does not speak of"),
    "a column less": ("a;note;y\n1;n;no\n", "no such column"),
    "a name twice": ("a;a;b;note;y\n1;1;yes;n;no\n", "stands twice"),
    "a long row": ("a;b;note;y\n1;yes;n;no\n1;yes;n;no;1\n", "more or fewer cells"),
    "no row": ("a;b;note;y\n", "no rows"),
    "nothing fits": ("a;b;note;y\n;;n;no\n", "no cell of the column holds anything"),
    "another alphabet": ("a;b;note;y\n1;yes;n;nö\n", "not UTF-8"),
    "ends of an old Macintosh": ("a;b;note;y\r1;yes;n;no\r", None),
    "blanks about names": (" a; b ;note; y\n1;yes;n;no\n", None),
    "a line break in a cell": ('a;b;note;y\n1;yes;"n\nn";no\n', None),
}
TYPED = {
    "decimals": (NUMBER, [Decimal("1.5"), Decimal(2)], None),
    "decimals outside": (NUMBER, [Decimal(500), Decimal(200)], "outside of the range"),
    "truth for a number": (NUMBER, [True, False], "must be numbers"),
    "numbers for truth": ("type: boolean", [0, 2], "neither true nor false"),
    "codes": ("type: categorical, values: ['010', '20']", [10, 20], None),
    "fractions for codes": ("type: categorical, values: ['010', '20']", [10.5, 20.0], "no listed value is like"),
    "codes of nothing listed": ("type: categorical, values: ['010', '20']", [1, 2], "not listed"),
    "days": (DAY, [date(2020, 3, 1), None], None),
    "days outside": (DAY, [date(1999, 3, 1), None], "outside of the range"),
    "numbers for days": (DAY, [20200301, 20200302], "must be dates"),
    "texts for numbers": (NUMBER, ["1", "2"], None),
}


def schema_of(a=NUMBER, target=CLASSES):
    return SCHEMA.format(a=a, target=target)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home.init({"DPSERVE_HOME": str(tmp_path_factory.mktemp("check") / "home")})


@pytest.fixture
def asked(home, tmp_path):
    """What the check says, after the registration itself, which does the same."""

    def ask(text, path):
        seen, before = [], home.ledger.log.size()
        (tmp_path / "schema.yaml").write_text(f"{text}# {before}\n")  # else the same rows and schema are there already
        files = path, tmp_path / "schema.yaml"
        total, others = Budget.of("1", "1e-9"), NewPeople("made up", "test")
        try:
            register(
                home, f"d{before}", *files, total, Relation.ADD_REMOVE, "record", new_people=others,
                asker=Asker(look=seen.append),
            )  # fmt: skip
        except DataError:
            assert home.ledger.log.size() == before
        schema = parse_schema(text.encode())
        check, looked = check_file(schema, path), find_problems(schema, path)
        assert bool(check.problems) == (home.ledger.log.size() == before), check.problems
        if check.problems:  # the look at each cell, which only explains, would decide the same
            assert {problem.column for problem in looked.problems} <= {problem.column for problem in check.problems}
        else:
            assert looked.problems == []
            assert check.counts == looked.counts == seen[0].counts
        return check

    return ask


def found(check):
    return " | ".join(f"{problem.column}: {problem.found}" for problem in check.problems)


def write(path, cells, answers=("no", "yes")):
    lines = [f"{cell};{'yes' if row % 2 else 'no'};n;{answers[row % len(answers)]}" for row, cell in enumerate(cells)]
    path.write_text("\n".join(["a;b;note;y", *lines, ""]), "utf-8")
    return path


@pytest.mark.parametrize("name", CELLS)
def test_cells_are_checked_as_they_are_registered(tmp_path, asked, name):
    declared, cells, tenths, problem, mended = CELLS[name]
    check = asked(schema_of(declared), path := write(tmp_path / "rows.csv", cells * 10))
    assert (problem or "") in found(check) if problem else not check.problems
    assert all(each.column == "a" for each in check.problems)
    if tenths:
        count = check.counts["a"]
        assert [10 * part / count.cells for part in (count.fits, count.clipped, count.other, count.missing)] == [
            *tenths
        ]
    if problem and mended:  # as the remedy says
        assert not asked(schema_of(declared + mended), path).problems


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_checked_as_they_are_registered(tmp_path, asked, name):
    target, answers, problem = ANSWERS[name]
    check = asked(schema_of(target=target), write(tmp_path / "rows.csv", ["1"] * 12, answers))
    assert problem in found(check) if problem else not check.problems


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_checked_as_it_is_registered(tmp_path, asked, name):
    text, problem = TEXTS[name]
    (tmp_path / "rows.csv").write_bytes(text.encode("cp1252"))
    check = asked(schema_of(), tmp_path / "rows.csv")
    assert problem in found(check) if problem else not check.problems


@pytest.mark.parametrize("name", TYPED)
def test_typed_columns_are_checked_as_they_are_registered(tmp_path, asked, name):
    declared, cells, problem = TYPED[name]
    table = {"a": cells * 10, "b": [True, False] * 10, "note": ["n"] * 20, "y": ["no", "yes"] * 10}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    check = asked(schema_of(declared), tmp_path / "rows.parquet")
    assert problem in found(check) if problem else not check.problems


def test_each_cell_is_counted_once_of_a_column_that_is_feature_group_and_target(tmp_path, asked):
    text = """targets: {y: {classes: [no, yes]}, a: {range: [0, 100], also_feature: true}}
records: 9
features: {a: {type: numeric, range: [0, 100]}, b: {type: boolean}}
groups: {b: {}, note: {type: categorical, values: [nobody]}}
format: {delimiter: semicolon}
"""
    check = asked(text, write(tmp_path / "rows.csv", ["1", "500", "7"]))
    assert not check.problems
    assert {name: (count.cells, count.clipped, count.other) for name, count in check.counts.items()} == {
        "a": (3, 1, 0), "b": (3, 0, 0), "note": (3, 0, 3), "y": (3, 0, 0),
    }  # fmt: skip


def test_shares_are_exact_and_neither_all_nor_none_is_rounded_to(tmp_path, asked):
    check = asked(schema_of(), write(tmp_path / "rows.csv", ["1"] * 4999 + ["500"]))
    assert check.counts["a"].shares() == ["> 99.9 %", "< 0.1 %", "-", "-", "-"]
    assert check.to_json()["columns"][0] == {
        "column": "a", "fits": 4999 / 5000, "clipped": 1 / 5000, "other": 0, "missing": 0, "refused": 0,
        "like_listed": 0,
    }  # fmt: skip
    check = asked(schema_of(), write(tmp_path / "rows.csv", ["1", "many", "", "500"]))
    assert check.counts["a"].shares() == ["25.0 %", "25.0 %", "-", "25.0 %", "25.0 %"]


def test_a_folder_is_checked_with_the_columns_that_its_folders_are(tmp_path, asked):
    for year in (2020, 2021):
        (tmp_path / "rows" / f"a={year}").mkdir(parents=True)
        (tmp_path / "rows" / f"a={year}" / "part.csv").write_text("b;note;y\nyes;n;no\nno;n;yes\n")
    check = asked(schema_of(), tmp_path / "rows")
    assert found(check) == "a: 100% of the cells lie outside of the range"
    assert check.counts["a"].shares() == ["-", "100.0 %", "-", "-", "-"]
    assert not asked(schema_of("type: numeric, range: [2000, 2030]"), tmp_path / "rows").problems


TEXTS_OF_NUMBERS = """1 +1 -1 1. .5 -.5 +.5 1e5 1E5 1e+5 1e-400 1e400 inf -inf Infinity INF +inf nan NaN NAN -nan
nan(ind) 0x10 1_0 1,5 NA N/A null NULL None #N/A - 0001 00 1d 1f 1.5.2 --1 +-1 1e e5 1e5.5 True 1'000 n/a Null
\u0661 \uff11"""
NUMBERS = [*TEXTS_OF_NUMBERS.split(), "", " ", "  ", " 1", "1 ", "\t1", "1\u00a0", "    ", "     NA", "N/A "]


def test_a_registration_reads_the_numbers_that_the_law_reads(tmp_path):
    """A .csv is read by pyarrow where it can, and by the law where a cell is no plain number: to the same end."""
    schema, differ = parse_schema(schema_of().encode()), []
    for text in NUMBERS:
        path = write(tmp_path / "rows.csv", ["7"] * 3 + [f'"{text}"', "8"])
        try:
            meant = read_numbers(pa.array(["7", "7", "7", text, "8"])).tolist()
        except Misfit:
            meant = "refused"
        try:
            [batch] = read_batches(path, schema)
            found = raw_values(schema.features[0], batch["a"]).tolist()
        except DataError as error:
            found = "refused" if error.details == {"column": "a", "row": 3} else str(error)
        differ += [text] if str(found) != str(meant) else []
    assert differ == []


def test_a_column_that_is_no_plain_number_far_down_is_read_from_its_first_row_on_once(tmp_path):
    cells = [str(at % 90) for at in range(120_000)]
    cells[100_000] = "17\u00a0"
    path = write(tmp_path / "rows.csv", cells)
    schema = parse_schema(schema_of().encode())
    batches = [raw_values(schema.features[0], batch["a"]) for batch in read_batches(path, schema)]
    assert len(batches) > 1
    assert np.concatenate(batches).tolist() == [17 if at == 100_000 else at % 90 for at in range(120_000)]

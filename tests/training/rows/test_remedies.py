"""A remedy is right: what a refusal says is done to schema or file, and then the cells are read as meant."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from following import Known, follow

from accountant.errors import DataError
from models.features.column_law import read_numbers, read_texts
from models.features.features import CalendarFeature
from models.features.written import Written
from training.datasets.packing import pack
from training.rows.schema.schema import Schema, parse_schema
from training.rows.tables.cell_tests import CellTests
from training.rows.tables.data import raw_values, read_batches
from training.rows.tables.form_search import Cells, find_forms
from training.rows.tables.remedies import describe_remedies
from training.rows.tables.row_files import read_columns

NUMBER = {"type": "numeric", "range": [-1000, 10**7]}
DAY = {"type": "date", "range": ["1930-01-01", "2049-12-31"]}
MOMENT = {"type": "datetime", "range": ["1930-01-01T00:00:00", "2049-12-31T00:00:00"]}
TIME = {"type": "time", "range": ["00:00", "23:59:59"]}
TRUTH = {"type": "boolean"}
NAN = float("nan")


@dataclass
class Case:
    """One column's cells under a declaration that refuses them.

    meant: what is read in the end. says: what only a person can add where the remedy asks for it. writes: a cell as
    it stands, and as a person writes it where the remedy is to mend the file.
    """

    declared: dict[str, Any]
    cells: list[str]
    meant: list[Any]
    says: dict[str, Any] = field(default_factory=dict)
    writes: dict[str, str] = field(default_factory=dict)
    format: dict[str, Any] = field(default_factory=dict)
    answer: bool = False  # the column is the one to be predicted


CASES = {
    "per cent with a blank": Case(NUMBER, ["4,31 %", "5 %"], [4.31, 5], {"decimal": ","}),
    "per cent": Case(NUMBER, ["4.31%", "5%", "7"], [4.31, 5, 7]),
    "kilograms": Case(NUMBER, ["12 kg", "7.5 kg"], [12, 7.5]),
    "a sign of money before": Case(NUMBER, ["$5", "$1234.5", "-$2"], [5, 1234.5, -2]),
    "a word of money before, blanks": Case(NUMBER, ["EUR 1 200", "EUR 7"], [1200, 7], {"thousands": " "}),
    "a sign of money after, narrow blanks": Case(NUMBER, ["1\u202f200 €", "3 €"], [1200, 3], {"thousands": " "}),
    "a rare unit": Case(NUMBER, ["5 parsec", "6 parsec"], [5, 6], {"unit_mark": "parsec"}),
    "two units": Case(NUMBER, ["5 kg", "6000 g"], [5, 6], writes={"6000 g": "6 kg"}),
    "a unit of the answer": Case(NUMBER, ["5 %", "6 %"], [5, 6], answer=True),
    "thousands of the answer": Case(
        NUMBER, ["1 234,5", "6"], [1234.5, 6], {"thousands": " ", "decimal": ","}, answer=True
    ),
    "decimal comma": Case(NUMBER, ["1,5", "2,25"], [1.5, 2.25]),
    "decimal comma and point": Case(NUMBER, ["1,5", "2.5"], [1.5, 2.5]),
    "decimal comma alone": Case(NUMBER, [",5", "1,"], [0.5, 1]),
    "decimal point beside a comma": Case({**NUMBER, "decimal": ","}, ["1,5", "2.5"], [1.5, 2.5]),
    "a comma before three digits is thousands": Case(
        NUMBER, ["5,678", "2,000"], [5678, 2000], {"thousands": ",", "decimal": "."}
    ),
    "a comma before three digits is decimal": Case(NUMBER, ["5,678", "2,000"], [5.678, 2], {"decimal": ","}),
    "points between thousands": Case(
        NUMBER, ["1.234.567", "2.000"], [1234567, 2000], {"thousands": ".", "decimal": ","}
    ),
    "blanks between thousands": Case(NUMBER, ["1 234.5", "2"], [1234.5, 2], {"thousands": " "}),
    "no-break blanks": Case(NUMBER, ["2\u00a0741,66", "2"], [2741.66, 2], {"thousands": " ", "decimal": ","}),
    "apostrophes": Case(NUMBER, ["1'234", "2"], [1234, 2], {"thousands": "'"}),
    "commas and points": Case(NUMBER, ["1,234.5", "2"], [1234.5, 2], {"thousands": ","}),
    "a point among thousands": Case(
        {**NUMBER, "decimal": ",", "thousands": "."}, ["1.234,5", "2.5"], [1234.5, 2.5], writes={"2.5": "2,5"}
    ),
    "brackets for a minus": Case(NUMBER, ["(1,234.5)", "6"], [-1234.5, 6], {"thousands": ","}),
    "money in brackets": Case(NUMBER, ["($ 5.00)", "6"], [-5, 6], {"unit_mark": "$"}),
    "another minus, blanks between thousands": Case(
        NUMBER, ["\u22121\u00a0505,11", "6"], [-1505.11, 6], {"thousands": " ", "decimal": ","}
    ),
    "a minus before money": Case(NUMBER, ["\u2011$5", "$-2.5"], [-5, -2.5]),
    "less than": Case(NUMBER, ["<5", "6"], [5, 6], writes={"<5": "5"}),
    "a question mark": Case(NUMBER, ["?", "6"], [NAN, 6]),
    "a point for nothing": Case(NUMBER, [".", "6"], [NAN, 6]),
    "a dash for nothing": Case(NUMBER, ["-", "6"], [NAN, 6]),
    "an error of a spreadsheet": Case(NUMBER, ["#DIV/0!", "6"], [NAN, 6]),
    "a word for nothing": Case(NUMBER, ["unknown", "6"], [NAN, 6]),
    "a word of one's own for nothing": Case(NUMBER, ["ohne Angabe", "6"], [NAN, 6], {"missing_words": ["ohne Angabe"]}),
    "names for numbers": Case(
        NUMBER, ["red", "blue"], ["red", "blue"], {"type": "categorical", "values": ["blue", "red"]}
    ),
    "dates for numbers": Case(NUMBER, ["2014-03-14"], ["2014-03-14"], {"type": "date", "range": DAY["range"]}),
    "times for numbers": Case(NUMBER, ["10:30"], ["10:30:00"], {"type": "time", "range": TIME["range"]}),
    "yes for a number": Case(
        NUMBER, ["ja", "nein"], [1, 0], {"type": "boolean", "true_words": ["ja"], "false_words": ["nein"]}
    ),
    "a cross for yes": Case(TRUTH, ["x", "no"], [1, 0], {"true_words": ["x"]}),
    "words of one's own for yes": Case(TRUTH, ["ok", "bad"], [1, 0], {"true_words": ["ok"], "false_words": ["bad"]}),
    "codes for yes": Case(TRUTH, ["2", "1"], [2, 1], {"type": "numeric", "range": [1, 2]}),
    "nothing for yes": Case(TRUTH, ["n/a", "yes"], [NAN, 1]),
    "dates with points": Case(DAY, ["14.03.2014", "1.4.2014"], ["2014-03-14", "2014-04-01"]),
    "dates of two forms": Case(DAY, ["14.03.2014", "2014-04-01"], ["2014-03-14", "2014-04-01"]),
    "days first": Case(DAY, ["14/03/2014"], ["2014-03-14"]),
    "days first where months are said": Case({**DAY, "written": ["MM/DD/YYYY"]}, ["14/03/2014"], ["2014-03-14"]),
    "days or months first": Case(DAY, ["03/04/2014"], ["2014-04-03"], {"written": ["DD/MM/YYYY"]}),
    "months or days first": Case(
        DAY, ["03/04/2014", "05/06/2014"], ["2014-03-04", "2014-05-06"], {"written": ["MM/DD/YYYY"]}
    ),
    "one day says which is first": Case(DAY, ["03/04/2014", "14/05/2014"], ["2014-04-03", "2014-05-14"]),
    "two digits for everything": Case(DAY, ["03/04/05"], ["2005-03-04"], {"written": ["MM/DD/YY"], "first_year": 1950}),
    "years of two digits": Case(DAY, ["14/03/14", "31/12/49"], ["2014-03-14", "2049-12-31"], {"first_year": 1950}),
    "years of two digits of birth": Case(DAY, ["14.03.49"], ["1949-03-14"], {"first_year": 1920}),
    "months by name": Case(DAY, ["14-Mar-2014", "01-DEC-2014"], ["2014-03-14", "2014-12-01"]),
    "months in French": Case(DAY, ["14 mars 2014", "1 août 2014"], ["2014-03-14", "2014-08-01"]),
    "months in German": Case(DAY, ["14. März 2014", "1. Dez. 2014"], ["2014-03-14", "2014-12-01"]),
    "months first": Case(DAY, ["Mar 14, 2014", "April 1, 2014"], ["2014-03-14", "2014-04-01"]),
    "months by name, short years": Case(DAY, ["14-Mar-14"], ["2014-03-14"], {"first_year": 1950}),
    "dates of SAS": Case(DAY, ["14MAR2014"], ["2014-03-14"]),
    "dates of Japan": Case(DAY, ["2014年3月14日"], ["2014-03-14"]),
    "a day of no calendar": Case(DAY, ["2014-02-30"], ["2014-03-02"], writes={"2014-02-30": "2014-03-02"}),
    "a month alone": Case(DAY, ["2014-03"], ["2014-03-01"], writes={"2014-03": "2014-03-01"}),
    "a number of a spreadsheet's day": Case(DAY, ["41712"], ["2014-03-14"], writes={"41712": "2014-03-14"}),
    "a word for no date": Case(DAY, ["unknown", "2014-03-14"], [None, "2014-03-14"]),
    "moments with points": Case(MOMENT, ["14.03.2014 10:30 PM"], ["2014-03-14T22:30:00"]),
    "days for moments": Case(MOMENT, ["2014-03-14"], ["2014-03-14"], {"type": "date", "range": DAY["range"]}),
    "the name of a zone": Case(
        MOMENT, ["2014-03-14 10:30 CET"], ["2014-03-14T09:30:00"],
        writes={"2014-03-14 10:30 CET": "2014-03-14 10:30 +01:00"},
    ),
    "a time of no day": Case(TIME, ["25:00"], ["01:00:00"], writes={"25:00": "01:00"}),
    "a time with a point": Case(TIME, ["10.30"], ["10:30:00"], writes={"10.30": "10:30"}),
    "dates for times": Case(TIME, ["2014-03-14"], ["2014-03-14"], {"type": "date", "range": DAY["range"]}),
    "no answer": Case(NUMBER, ["", "6"], [NAN, 6], answer=True),
    "a class that is not listed": Case(
        {"classes": ["no", "yes"]}, ["no", "maybe"], ["no", "maybe"], {"classes": ["no", "yes", "maybe"]}, answer=True
    ),
    "a class with a dot": Case(
        {"classes": ["no", "yes"]}, ["no.", "yes"], ["no", "yes"], writes={"no.": "no"}, answer=True
    ),
}  # fmt: skip


def schema_of(case: Case, declared: dict[str, Any]) -> str:
    known = {"type": "categorical", "values": ["u", "v"]}
    answer = {key: value for key, value in declared.items() if key not in ("type", "bins")}
    body = {
        "target": {"name": "a", **answer} if case.answer else {"name": "other", "classes": ["u", "v"]},
        "records": 60,
        "features": {"other": known} if case.answer else {"a": declared},
        "format": {"delimiter": "semicolon", **case.format},
    }
    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)


def known_of(case: Case) -> Known:
    """What a person knows of the column: how it is meant, words for nothing, and how cells are written anew."""
    texts = [cell.strip() for cell in case.cells]
    nothing = {text for text, meant in zip(texts, case.meant, strict=True) if meant is None or meant != meant}
    own = ("type", "range", "classes") if not case.answer else ("range", "classes")
    meant = {**{key: value for key, value in case.declared.items() if key in own}, **case.says}
    if case.answer:
        meant["missing"] = "leave-out"
    written = {f'"{wrong}"': f'"{right}"' for wrong, right in case.writes.items()}
    return Known({"a": meant, "other": {}}, written, is_missing=nothing.__contains__, deletes=False)


def values_of(schema, path, case: Case) -> list[Any]:
    """The cells as registration reads them; of a feature, as prediction does, too."""
    [batch] = read_batches(path, schema)
    if case.answer:
        classes = schema.only.classes
        return (read_texts(list(map(str, classes)), batch["a"]) if classes else read_numbers(batch["a"])).tolist()
    [feature] = schema.features
    [again] = read_columns(path, schema.features, schema)
    values = raw_values(feature, batch["a"]).tolist()
    np.testing.assert_equal(again["a"].tolist(), values)
    if isinstance(feature, CalendarFeature):
        return [None if value != value else feature.text(value) for value in values]
    return values


def written_out(case: Case, declared: dict[str, Any], cells: list[str], path: Path) -> Schema:
    lines = "".join(f'"{cell}";{"uv"[at % 2]}\n' for at, cell in enumerate(cells))
    path.write_text(f"a;other\n{lines}", "utf-8")
    return parse_schema(schema_of(case, declared).encode())


@pytest.mark.parametrize("name", CASES)
def test_what_is_refused_is_read_as_meant_once_its_remedy_is_done(tmp_path, name):
    case, path = CASES[name], tmp_path / "rows.csv"
    written_out(case, case.declared, case.cells, path)
    with pytest.raises(DataError):  # the registration refuses it, too
        pack(path, parse_schema(schema_of(case, case.declared).encode()))
    followed = follow(path, yaml.safe_load(schema_of(case, case.declared)), known_of(case))
    assert followed.end == "admitted", followed
    assert followed.steps, "nothing was refused"
    for cell in (cell for cell in case.cells if len(cell) > 3):
        assert not any(cell in words.replace('"', "") for words in followed.problems), "a cell is quoted"
    pack(path, followed.schema)
    np.testing.assert_equal(values_of(followed.schema, path, case), case.meant)


def test_whatever_stands_in_a_cell_has_a_remedy():
    """Cells of every case, and pieces put together, in a column of every type."""
    marks = [
        "5",
        "%",
        "%5%",
        "5e3",
        "kg",
        "1,2.3",
        "12:30 CET",
        "14.3.",
        "Mon",
        "\u0661",
        "'",
        "()",
        "-",
        "+",
        " ",
        "x" * 300,
    ]
    cells = {cell for case in CASES.values() for cell in case.cells}
    cells |= {one + other for one in marks for other in marks}
    kinds = {"n": NUMBER, "u": {**NUMBER, "unit_mark": "%"}, "d": DAY, "m": MOMENT, "t": TIME, "b": TRUTH}
    body = {"target": {"name": "y", "range": [0, 1]}, "records": 9, "features": kinds}
    schema = parse_schema(yaml.safe_dump(body, sort_keys=False).encode())
    for column in (*schema.features, *schema.targets):
        tests = CellTests(column, schema.written_as(column.name))
        for found in {*tests.name(sorted(cells))}:
            for is_odd in (True, False):
                assert describe_remedies(tests.remedies(found, is_odd)), (column.name, found)


def test_a_long_cell_is_named_in_time_that_goes_by_its_length():
    """Where each number of it may begin a moment with a zone, it took hours."""
    body = {"target": {"name": "y", "range": [0, 1]}, "records": 9, "features": {"n": NUMBER, "d": DAY}}
    for column in parse_schema(yaml.safe_dump(body).encode()).features:
        assert CellTests(column, Written()).name(["1:00 " * 100_000, "9" * (1 << 20) + "x"]) == ["text"] * 2


@dataclass
class File:
    """A file that is refused as a whole, or by the values of a column.

    meant: what is read of `a` in the end. writes: what a person puts in place of other words of the file. says: what a
    person declares where the remedy names the key.
    """

    text: str
    declared: dict[str, Any]
    meant: list[Any]
    encoding: str = "utf-8"
    format: dict[str, Any] = field(default_factory=dict)
    writes: dict[str, str] = field(default_factory=dict)
    says: dict[str, Any] = field(default_factory=dict)


TOWNS = {"type": "categorical", "values": ["Köln", "Ulm"]}
CODES = {"type": "categorical", "values": [1, 2]}
SMALL = {"type": "numeric", "range": [0, 9]}
FILES = {
    "semicolons": File("a;other\n1;u\n2;v\n", SMALL, [1, 2]),
    "tabs": File("a\tother\n1\tu\n2\tv\n", SMALL, [1, 2]),
    "pipes": File("a|other\n1|u\n2|v\n", SMALL, [1, 2]),
    "blanks": File("a  other\n1    u\n2    v\n", SMALL, [1, 2]),
    "commas where semicolons are said": File("a,other\n1,u\n2,v\n", SMALL, [1, 2], format={"delimiter": "semicolon"}),
    "a first line of its own": File("sep=;\na;other\n1;u\n2;v\n", SMALL, [1, 2]),
    "an alphabet of Europe": File("a,other\nKöln,u\nUlm,v\n", TOWNS, ["Köln", "Ulm"], "cp1252"),
    "UTF-16": File("a,other\nKöln,u\nUlm,v\n", TOWNS, ["Köln", "Ulm"], "utf-16"),
    "UTF-8 where another is said": File("a,other\nKöln,u\n", TOWNS, ["Köln"], format={"encoding": "cp1252"}),
    "two marks of a file at once": File("a;other\nKöln;u\nUlm;v\n", TOWNS, ["Köln", "Ulm"], "cp1252"),
    "a comma in a text": File("a,other\nBad Ems, Lahn,u\nUlm,v\n", {**TOWNS, "values": ["Bad Ems, Lahn", "Ulm"]},
                              ["Bad Ems, Lahn", "Ulm"], writes={"Bad Ems, Lahn": '"Bad Ems, Lahn"'}),
    "a row that ends early": File("a,other\n1,u\n2\n", SMALL, [1, 2], writes={"2\n": "2,v\n"}),
    "a column more": File("a,other,note\n1,u,x\n2,v,y\n", SMALL, [1, 2]),
    "an unnamed column more": File(",a,other\n0,1,u\n1,2,v\n", SMALL, [1, 2]),
    "another name": File("A,other\n1,u\n2,v\n", SMALL, [1, 2], writes={"A,": "a,"}),
    "a name twice": File("a,other,a\n1,u,3\n2,v,3\n", SMALL, [1, 2], writes={"other,a": "other,b"}),
    "blanks about categories": File("a, other\n Köln,u\n Ulm,v\n", TOWNS, ["Köln", "Ulm"]),
    "blanks about classes": File("a, other\n1, u\n2, v\n", SMALL, [1, 2]),
    "capitals of categories": File("a,other\nKÖLN,u\nKÖLN,v\n", TOWNS, ["KÖLN"] * 2, says={"values": ["KÖLN"]}),
    "codes with a point": File("a,other\n1.0,u\n2.0,v\n", CODES, ["1.0", "2.0"], says={"values": ["1.0", "2.0"]}),
    "categories that nobody listed": File("a,other\nx,u\ny,v\n", TOWNS, ["x", "y"], says={"other": "expected"}),
    "a range that hardly a number falls in": File("a,other\n100,u\n200,v\n", SMALL, [100, 200],
                                                  says={"outside": "expected"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_refused_is_read_as_meant_once_its_remedy_is_done(tmp_path, name):
    case, path = FILES[name], tmp_path / "rows.csv"
    body = {"target": {"name": "other", "classes": ["u", "v"]}, "records": 60, "features": {"a": case.declared},
            "format": case.format}  # fmt: skip
    path.write_bytes(case.text.encode(case.encoding))
    followed = follow(path, body, Known({"a": {**case.declared, **case.says}, "other": {}}, case.writes))
    assert followed.end == "admitted", followed
    assert followed.steps, "nothing was refused"
    assert followed.schema is not None
    [columns] = read_columns(path, followed.schema.features, followed.schema)
    assert columns["a"].tolist() == case.meant
    assert pack(path, followed.schema).labels.tolist() == [0, 1][: len(case.meant)]


MINUS = "-\u2212\u2010\u2011\u2012\u2013\u2014\ufe63\uff0d"


@pytest.mark.parametrize("sign", MINUS)
def test_any_minus_is_a_minus_and_no_unit(sign):
    texts = pa.array([f"{sign}1", f"{sign}1 505,11", f"2e{sign}2", f"{sign}€ 7", f"7{sign}" if sign == "-" else "7"])
    numbers = read_numbers(texts.slice(0, 1), Written())
    assert numbers.tolist() == [-1]
    kroner = Written(decimal=",", thousands=" ", unit_mark="€")
    assert read_numbers(texts.slice(0, 4), kroner).tolist() == [-1, -1505.11, 0.02, -7]
    problem = Written(unit_mark=sign).problem()
    assert problem is not None
    assert "is a minus, and no unit" in problem or sign == "-"
    assert Written(unit_mark=f"{sign}kr").problem() is not None
    seen = Cells()
    seen.add(pa.array([f"{sign}1.505,11 kr", f"{sign}0,52 kr", "7.000,00 kr"]))
    written = find_forms({"a": seen})["a"].written
    assert (written.decimal, written.thousands, written.unit_mark) == (",", ".", "kr")


def test_words_for_a_minus_are_no_units_and_others_are():
    assert all(Written(unit_mark=word).problem() for word in ("minus", "Neg.", "MOINS"))
    assert not any(Written(unit_mark=word).problem() for word in ("min", "%", "kr", "m\u2011d"))
    seen = Cells()
    seen.add(pa.array(["-$1,234.56", "$0.52", "$-3"]))
    written = find_forms({"a": seen})["a"].written
    assert (written.decimal, written.thousands, written.unit_mark) == (".", ",", "$")

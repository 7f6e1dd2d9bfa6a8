"""Forms of cells: each reads what people write, exactly, and what may mean two things is refused."""

from __future__ import annotations

import calendar
import json
import random
import sys

import month_names
import numpy as np
import pyarrow as pa
import pytest

from models.features.column_forms import DATES, FIRST_YEAR, NUMBERS
from models.features.column_law import Misfit, read_column
from models.features.date_patterns import has_short_year, month_of
from models.features.features import BooleanFeature, DateFeature, MomentFeature, NumericFeature, TimeFeature
from models.features.written import NO, YES, Written
from models.onnx.runtime import columns_from_records
from serving.wire import csv_tables
from training.rows.sources.cell_kinds import sign_first
from training.rows.tables.row_files import read_columns

NUMBER, TRUTH = NumericFeature("n", (0.0,)), BooleanFeature("b")
DAY, MOMENT, CLOCK = DateFeature("d", (0.0,)), MomentFeature("m", (0.0,)), TimeFeature("t", (0.0,))
USD, INDIAN, FRENCH = Written(unit_mark="$", thousands=","), Written(thousands=","), Written(",", thousands=" ")
EUR, PERCENT, N = Written(unit_mark="EUR"), Written(unit_mark="%"), Written(unit_mark="n")
SWISS = Written(thousands="'", unit_mark="CHF")
READ = [
    (Written(), "\u22125 \u20115 \u20105 \uff0d5 -5 5- (5) 5\u2212 -\u00a05 -\u202f5 (-5", -5.0, 10),
    (Written(), "+5|+ 5|5.|5e0|05|5", 5.0, 6),
    (USD, "(1,234.5)|($ 1,234.5)|(1,234.5 $)|$ (1,234.5)|(1,234.5)$|-$1,234.5|$-1,234.5|- $ 1,234.5|$1,234.5-|"
          "1,234.5-$|1,234.5 $-|\u2212$1,234.5", -1234.5, 12),
    (USD, "$1,234.5|1,234.5 $|+$1,234.5|$+1,234.5|1234.5", 1234.5, 5),
    (EUR, "EUR 5|5 EUR|5\u202fEUR|5EUR|EUR\u00a05", 5.0, 5),
    (PERCENT, "5%|5 %|%5|5\u202f%", 5.0, 4),
    (N, "nan|NAN|-nan", np.nan, 3),
    (INDIAN, "1,23,456.00|123,456|123456", 123456.0, 3),
    (INDIAN, "12,34,56,789|123,456,789", 123456789.0, 2),
    (FRENCH, "1 234,5|1\u00a0234,5|1\u202f234,5|1\u2009234,5|1\u2007234,5", 1234.5, 5),
    (SWISS, "CHF 1'234.5|1\u2019234.5 CHF|1'234.5", 1234.5, 3),
]  # fmt: skip
REFUSED = [
    (Written(), "--5|-5-|(-5)|(5|5)|((5))|-(5)|()|-|(5)-|+5-|5 5|1,5|$5|(5) (6)|5--"),
    (USD, "$5$|$ 5 $|-$-5|(-$5)|($5|$5)|$(5|-(5)$|$|($)|5 EUR|(($5))"),
    (INDIAN, "1,2,345|123,45,678|1,23,45|12,3456|1,23"),
    (Written(thousands="'"), "1'23'456"),
    (FRENCH, "1 23 456"),
]


def read(feature, texts, written=None):
    return read_column(feature, pa.array(texts), written or Written()).tolist()


@pytest.mark.parametrize(("written", "texts", "number", "many"), READ)
def test_a_number_is_read_in_any_of_its_forms(written, texts, number, many):
    cells = texts.split("|" if "|" in texts else " ")[:many]
    assert len(cells) == many
    np.testing.assert_array_equal(read(NUMBER, cells, written), [number] * many)


@pytest.mark.parametrize(("written", "texts"), REFUSED)
def test_what_may_be_no_number_is_refused(written, texts):
    for text in texts.split("|"):
        with pytest.raises(Misfit, match="not a number"):
            read(NUMBER, ["5", text], written)


def test_the_steward_is_told_of_a_negative_number_by_what_stands_within():
    """As the law reads it; in time that goes by the length of a cell, which may be a mebibyte."""
    for cell, plain in (("($ 5.00)", "-$ 5.00"), ("5 -", "-5"), ("\u2212 5", "-5"), ("5-5", "5-5"), ("(a)", "(a)")):
        assert sign_first(cell) == plain
    for cell in ("9" * (1 << 20), "9 " * (1 << 19), "(" + "9" * (1 << 20)):
        assert sign_first(cell) == cell.strip()
        with pytest.raises(Misfit):
            read(NUMBER, [f"{cell}x"])


@pytest.mark.parametrize("unit", ["-", "\u2212", "\u2011", "\uff0d", "(", ")", "()"])
def test_no_unit_is_a_sign(unit):
    assert Written(unit_mark=unit).problem().startswith("unit_mark")


def test_every_form_reads_a_number_to_its_last_bit(tmp_path):
    """The float that is nearest to the decimal text, as Python's own reader has it: plain, in each form, and where one
    cell of a file in another form (`5-`) makes all of its column be read by the law.
    """
    draws = random.Random(5)
    plain = [
        "9007199254740993",
        "5e-324",
        "2.4703282292062328e-324",
        "1.7976931348623157e308",
        "0.1",
        "9" * 400 + "e-200",
    ]
    plain += [repr(draws.uniform(-1, 1) * 10.0 ** draws.randint(-300, 300)) for _ in range(2000)]
    plain += [f"{draws.randrange(10**30)}.{draws.randrange(10**20):020}" for _ in range(2000)]
    wanted = [float(text) for text in plain]
    assert read(NUMBER, plain) == wanted
    assert read(NUMBER, [text.replace(".", ",") for text in plain], Written(",")) == wanted
    for last in ("5", "5-"):
        (tmp_path / "rows.csv").write_text("\n".join(["n,other", *(f"{text},x" for text in plain), f"{last},x"]))
        assert [cell for part in read_columns(tmp_path / "rows.csv", [NUMBER]) for cell in part["n"]][:-1] == wanted
        raw = "\n".join(["n", *plain, last]).encode()
        assert csv_tables.table_of(raw, [NUMBER], 10_000).read([NUMBER], {"n"})["n"].tolist()[:-1] == wanted
        for cells in (plain, [json.loads(text) for text in plain]):
            records = [{"n": cell} for cell in [*cells, last]]
            assert columns_from_records([NUMBER], records, 10_000)["n"].tolist()[:-1] == wanted
    sizes, negative = [text.lstrip("-") for text in plain], [-abs(number) for number in wanted]
    for form, written in (
        ("{}-", Written()),
        ("({})", Written()),
        ("- {}", Written()),
        ("($ {})", USD),
        ("{} EUR-", EUR),
    ):
        assert read(NUMBER, [form.format(text) for text in sizes], written) == negative
    whole = [draws.randrange(10 ** draws.randint(1, 25)) for _ in range(1000)]
    assert read(NUMBER, [f"({number:,}.5)" for number in whole], INDIAN) == [-float(f"{number}.5") for number in whole]


TRUTHS = [
    "ja nein", "JA Nein", "oui NON", "Sí no", "si\u0301 no", "SI NO", "да Нет", "ДА НЕТ", "はい いいえ", "Y N", "t F",
    "1 0", "1.0 0.0", "WAHR FALSCH", "Vrai FAUX", "verdadero falso", "TRUE false", "sim NÃO", "tak nie", "evet HAYIR",
    "\uff39 \uff2e", "on off", "o n", "J n",
]  # fmt: skip


@pytest.mark.parametrize("pair", TRUTHS)
def test_yes_and_no_of_many_languages_are_read(pair):
    yes, no = pair.split()
    assert read(TRUTH, [yes, no, f" {yes} ", yes.swapcase()]) == [1.0, 0.0, 1.0, 1.0]


def test_no_word_means_yes_and_no():
    assert not YES & NO
    for word in ("x", "m", "na", "2", "maybe", "nai", "-1"):
        with pytest.raises(Misfit, match="in many languages"):
            read(TRUTH, [word])


def test_declared_words_are_read_alone():
    """f is no, and female where that is declared: then m is no, and t is nothing."""
    written = Written(true=("f",), false=("m",))
    assert written.problem() is None
    assert read(TRUTH, ["F", "m", "yes", "0.0"], written) == [1.0, 0.0, 1.0, 0.0]
    for word in ("t", "ja", "n"):
        with pytest.raises(Misfit, match="are read: 0, 1, f, false, m, no, true, yes$"):
            read(TRUTH, [word], written)


def test_the_names_of_months_are_those_of_cldr():
    assert month_names.PATH.read_text(encoding="utf-8") == month_names.text()
    assert "babel" not in sys.modules["models.features.date_patterns"].__dict__


@pytest.mark.parametrize(
    "text",
    ["3 lutego 2021", "3 LUTEGO 2021", "3. února 2021", "3 febbraio 2021", "3 de febrero de 2021", "3 fevereiro 2021",
     "3 февраля 2021 г.", "3 февр. 2021", "3 ФЕВРАЛЯ 2021", "3 лютого 2021 р.", "3 Şubat 2021", "3 Φεβρουαρίου 2021",
     "3 helmikuuta 2021", "3 févr. 2021", "3 fe\u0301vr. 2021", "3 februarie 2021", "3 feb 2021", "3 Feb. 2021"],
)  # fmt: skip
def test_months_are_read_by_name_in_twenty_languages(text):
    wanted = read(DAY, ["2021-02-03"])
    assert read(DAY, [text], Written(dates=("DD. MON YYYY" if ". " in text[:4] else "DD MON YYYY",))) == wanted


def test_every_month_is_read_within_a_day():
    names = month_names.names_of_cldr()
    assert len(set(names.values())) == 12
    texts = [f"07-{name}-2021" for name in names]
    days = [f"2021-{month:02}-07" for month in names.values()]
    assert read(DAY, texts, Written(dates=("DD-MON-YYYY",))) == read(DAY, days)
    assert [month_of(calendar.month_name[month].upper()) for month in range(1, 13)] == [*range(1, 13)]
    assert month_of("setiembre") == 9
    assert month_of("listopad") == 11
    for name in ("lipanj", "smarch", "de", "xyz"):
        with pytest.raises(Misfit):
            read(DAY, [f"07-{name}-2021"], Written(dates=("DD-MON-YYYY",)))


MOMENTS = [
    ("31-JAN-24 12.30.00.250000 PM", "DD-MON-YY", "2024-01-31T12:30:00.25"),
    ("31-JAN-24 12.30.00,250000000 AM", "DD-MON-YY", "2024-01-31T00:30:00.25"),
    ("31JAN2024:12:30:00", "DDMONYYYY", "2024-01-31T12:30:00"),
    ("31JAN2024:12:30:00.5", "DDMONYYYY", "2024-01-31T12:30:00.5"),
    ("31/Jan/2024:12:30:00 +0100", "DD/MON/YYYY", "2024-01-31T11:30:00"),
    ("1/31/2024, 12:30:00 PM", "MM/DD/YYYY", "2024-01-31T12:30:00"),
    ("31.1.2024 14.30", "DD.MM.YYYY", "2024-01-31T14:30:00"),
    ("31012024 14:30", "DDMMYYYY", "2024-01-31T14:30:00"),
]


@pytest.mark.parametrize(("text", "pattern", "wanted"), MOMENTS)
def test_moments_are_read_as_databases_write_them(text, pattern, wanted):
    first = None if "YYYY" in pattern else 1950
    written = Written(dates=(pattern,), first_year=first)
    assert written.problem() is None
    assert read(MOMENT, [text], written) == read(MOMENT, [wanted])
    assert read(DAY, [text], written) == read(DAY, [wanted.replace("T", " ")[:10]])


@pytest.mark.parametrize("text", ["12.30", "12.30.00", "12:30.25", "12.30:25"])
def test_a_time_with_points_alone_may_be_a_number(text):
    with pytest.raises(Misfit):
        read(CLOCK, [text])
    if ":" in text:
        with pytest.raises(Misfit):
            read(MOMENT, [f"2024-01-31 {text}"])


def test_every_form_of_a_search_can_be_declared_and_reads_its_own_days():
    assert all(form.problem() is None for form in NUMBERS)
    assert (len({*NUMBERS}), len({*DATES})) == (len(NUMBERS), len(DATES))
    for pattern in DATES:
        form = Written(dates=(pattern,), first_year=FIRST_YEAR if has_short_year(pattern) else None)
        assert form.problem() is None
        day = pattern.replace("MON", "Nov").replace("YYYY", "2023").replace("YY", "23").replace("MM", "11")
        assert read(DAY, [day.replace("DD", "29")], form) == read(DAY, ["2023-11-29"])

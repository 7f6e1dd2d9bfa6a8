"""What a person answers of a column is read as meant, or asked again: a range never becomes one category in silence."""

from __future__ import annotations

import pytest

from dpserve_verify.errors import InputError
from training.datasets.drafts.public_answers import parse_count, parse_public, parse_target
from training.rows.schema.schema_text import FILL_IN


def numbers(low, high):
    return {"type": "numeric", "range": [low, high]}


def values(*listed):
    return {"type": "categorical", "values": [*listed]}


READ = [
    ("numeric", "0 .. 10000", numbers(0, 10000)),
    ("numeric", "0 - 10000", numbers(0, 10000)),
    ("numeric", "0-30000", numbers(0, 30000)),
    ("numeric", "-5 – 1.5e3", numbers(-5, 1500)),
    ("numeric", "-10--5", numbers(-10, -5)),
    ("numeric", "[6, 96]", numbers(6, 96)),
    ("numeric", "1 to 5", numbers(1, 5)),
    ("numeric", "values: 6, 96", values("6", "96")),
    ("date", "1930-2010", {"range": ["1930-01-01", "2010-12-31"]}),
    ("date", "2020-01-01 to 2025-12-31", {"range": ["2020-01-01", "2025-12-31"]}),
    ("date", "2020-01-01-2025-12-31", {"range": ["2020-01-01", "2025-12-31"]}),
    ("datetime", "2020 .. 2021-06-30", {"range": ["2020-01-01T00:00:00", "2021-06-30T23:59:59"]}),
    ("time", "8:00 - 17:30", {"range": ["08:00", "17:30"]}),
    ("categorical", "north, east", values("north", "east")),
    ("categorical", "0 .. 9", numbers(0, 9)),
    ("categorical", "values: 10-19", values("10-19")),
    ("categorical", "10-19, 20-29", values("10-19", "20-29")),
    ("boolean", "O, N", values("O", "N")),
    (FILL_IN, "0 - 9", numbers(0, 9)),
    (FILL_IN, "2020-01-01 to 2025-12-31", {"type": "date", "range": ["2020-01-01", "2025-12-31"]}),
    (FILL_IN, "a, b", values("a", "b")),
]
ASKED_AGAIN = [
    ("numeric", "6, 96", "6 .. 96 for the range, or values: 6, 96"),
    ("numeric", "10000", "LOW .. HIGH"),
    ("numeric", "red, green", "values: 1, 2, 3"),
    ("numeric", "0 .. 30,000", "in digits with a point"),
    ("numeric", "9 .. 1", "9 must be below 1"),
    ("date", "2020-13-01 .. 2021-01-01", "2020-13-01"),
    ("date", "2021 .. 2020", "must be before"),
    ("date", "last year", "FIRST .. LAST"),
    ("date", "0 .. 9", "FIRST .. LAST"),
    ("time", "8 - 17", "00:00 .. 23:59"),
    ("categorical", "0 - 10000", "looks like a range"),
    ("categorical", "1930-2010", "looks like a range"),
    ("categorical", " , ", "with commas"),
    (FILL_IN, "6, 96", "or values: 6, 96"),
]


@pytest.mark.parametrize(("kind", "answer", "meant"), READ)
def test_an_answer_is_read_as_meant(kind, answer, meant):
    assert parse_public(answer, kind) == meant


@pytest.mark.parametrize(("kind", "answer", "says"), ASKED_AGAIN)
def test_what_may_be_either_or_neither_is_asked_again(kind, answer, says):
    with pytest.raises(InputError) as refused:
        parse_public(answer, kind)
    assert says in refused.value.message
    assert "literal" not in refused.value.message


def test_a_type_that_was_chosen_has_its_own_form_alone():
    for kind, answer in [("numeric", "values: 1, 2"), ("categorical", "0 .. 9"), ("numeric", "1, 2")]:
        with pytest.raises(InputError):
            parse_public(answer, kind, strict=True)
    assert parse_public("1, 2", "categorical", strict=True) == values("1", "2")


def test_a_target_and_a_number_of_rows():
    assert parse_target("0 - 30000 leave-out") == {"range": [0, 30000], "missing": "leave-out"}
    assert parse_target("values: 0, 1") == parse_target("0, 1") == {"classes": ["0", "1"]}
    assert [parse_count(text) for text in ("6120", "6,120", "6 120", "1'000'000")] == [6120, 6120, 6120, 1_000_000]
    for parse, answer in [(parse_target, "yes"), (parse_count, "about 600"), (parse_count, "0"), (parse_count, "6.5")]:
        with pytest.raises(InputError) as refused:
            parse(answer)
        assert "literal" not in refused.value.message

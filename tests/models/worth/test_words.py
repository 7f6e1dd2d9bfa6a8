"""Figures of a model's worth have as many digits as they carry, and an interval is never shown narrower than it is."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.worth.words import short_figures, short_worth, verdict


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        ("0.852600", "0.783634", "0.926525", ("0.85", "0.78 to 0.93")),
        ("0.903312", "0.893101", "0.913477", ("0.903", "0.893 to 0.914")),
        (None, "0", "1", ("no result", "0.0 to 1.0")),
        ("6424.7", "6380.1", "6468.9", ("6,425", "6,380 to 6,469")),
        ("0.5", "0.5", "0.5", ("0.5000", "0.5000 to 0.5000")),
    ],
)
def test_figures_have_the_digits_that_they_carry(value, low, high, shown):
    assert short_figures({"value": value, "low": low, "high": high}) == shown


@given(st.decimals("-9", "9", places=6), st.decimals("0", "9", places=6))
def test_ends_are_rounded_outward(low, width):
    _, shown = short_figures({"value": str(low), "low": str(low), "high": str(low + width)})
    first, last = (Decimal(text.replace(",", "")) for text in shown.split(" to "))
    assert first <= low
    assert low + width <= last


@pytest.mark.parametrize(
    ("kind", "name", "answer"),
    [
        ("cover-classes", "least_chance", "each class from least_chance_90 on"),
        ("cover-number", "half_width", "half_width_90 to either side"),
    ],
)
def test_what_was_counted_of_answers_says_what_its_figure_is_for(kind, name, answer):
    figures = [
        {"metric": f"{name}_{level}", "value": f"0.{level}", "low": "0.2", "high": "0.99"} for level in (95, 90, 80)
    ]
    body = {"histogram": {"kind": kind}, "metrics": figures, "seen": False, "outcome": "unclear"}
    assert verdict(body) == f"an answer of {answer} holds the truth in 90 of 100 cases"
    assert short_worth(body) == f"{name}_90 0.90, 0.20 to 0.99, {verdict(body)}"

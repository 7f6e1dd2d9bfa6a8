"""What all pictures of ensembles share: sizes, colours, axes, and how numbers are written."""

from __future__ import annotations

from typing import Any

from models.features.features import CalendarFeature, NumericFeature

LINE, QUIET = "#333333", "#666666"

Spec = dict[str, Any]

CONFIG: Spec = {
    "background": "white",
    "padding": 20,
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",
    "concat": {"spacing": 36},
    "title": {
        "anchor": "start",
        "fontSize": 19,
        "subtitleFontSize": 12.5,
        "subtitleColor": QUIET,
        "subtitleLineHeight": 18,
        "subtitlePadding": 6,
        "offset": 16,
    },
    "view": {"stroke": "#DDDDDD"},
    "axis": {
        "labelFontSize": 11,
        "labelColor": LINE,
        "titleColor": QUIET,
        "titleFontWeight": "normal",
        "gridColor": "#EEEEEE",
        "tickColor": "#BBBBBB",
        "domain": False,
    },
}


def ends(feature: NumericFeature) -> tuple[float, float]:
    """Return what the axis shows: all cut points, and a little beyond."""
    if not feature.edges:
        return 0.0, 1.0
    first, last = feature.edges[0], feature.edges[-1]
    margin = (last - first) / 16 or max(abs(first), 1.0)
    return first - margin, last + margin


def tick_words(feature: NumericFeature) -> str:
    """Return how Vega writes a place on the axis: a date as a date."""
    if not isinstance(feature, CalendarFeature):
        return "datum.label"
    if feature.kind == "date":
        return "utcFormat(datum.value * 86400000, '%Y-%m-%d')"
    return f"utcFormat(datum.value * 1000, '{'%H:%M' if feature.kind == 'time' else '%Y-%m-%d %H:%M'}')"


def plain_tick(number: float, written: str) -> str:
    """Return a number on an axis as it is written."""
    return written


def tick_text(feature: NumericFeature, crowded: float, number: float, written: str) -> str:
    """Return a place on the axis as `tick_words` has Vega write it; beyond `crowded` nothing."""
    if number > crowded:
        return ""
    if not isinstance(feature, CalendarFeature):
        return written
    return feature.text(number).replace("T", " ")[: 5 if feature.kind == "time" else 16]


def amount(number: float, sign: str = "+") -> str:
    """Write three digits that count, and all of a whole part."""
    form = f"{number:{sign},.0f}" if abs(number) >= 1000 else f"{number:{sign}.3g}"
    return form.replace("-", "−") if number else "0"


def signed_text(votes: float) -> str:
    """Write votes with their sign, a true minus; nothing before 0."""
    return f"{votes:+g}".replace("-", "−") if votes else "0"

"""An ensemble as a Vega-Lite specification, data included: one small panel per feature, the most important first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING

from accountant.system.lazy_import import later
from models.explain.explain import Bin, Shape
from models.explain.vega_parts import (
    BAR,
    CONFIG,
    HEIGHT,
    LINE,
    SHOWN,
    WIDTH,
    Spec,
    axis,
    ends,
    heading,
    signed_text,
    tick_words,
)
from models.features.features import Feature, NumericFeature

if TYPE_CHECKING:
    import vl_convert
else:
    vl_convert = later("vl_convert")

FOR, AGAINST = "#0072B2", "#D55E00"  # Okabe and Ito: apart for every kind of sight
COLUMNS = 3
LINE_LENGTH = 150  # characters of a subtitle
VEGA_LITE = "5.21"

STILL = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222; margin: 1.5rem auto; max-width: 1080px; padding: 0 1rem }}
svg {{ max-width: 100%; height: auto }}
table {{ border-collapse: collapse }}
th, td {{ text-align: left; padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid #ddd }}
td:first-child {{ text-align: right; font-variant-numeric: tabular-nums }}
</style>
<main>
{svg}
{account}
</main>
</html>
"""


@dataclass(frozen=True)
class Poster:
    """A whole model in one drawing: its title, what the colours mean, and its panels in order."""

    title: str
    legend: str
    panels: list[Spec]


def poster_spec(poster: Poster, claim: str, nothing: str, unused: Sequence[str]) -> Spec:
    """Return the specification. `nothing`: what is said of the features that are `unused`."""
    without = fill(f"{nothing}: {', '.join(unused)}.", width=LINE_LENGTH).split("\n") if unused else []
    empty: Spec = {"data": {"values": [{}]}, "mark": {"type": "text", "text": "No feature has a vote.", "fontSize": 13}}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",  # a name; nothing is fetched
        "title": {"text": poster.title, "subtitle": [claim, poster.legend, *without]},
        "columns": COLUMNS,
        "concat": poster.panels or [empty],
        "config": CONFIG,
    }


def to_svg(spec: Spec) -> str:
    """Drawn inside vl-convert: no browser, no address outside."""
    return str(vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE))


def still_page(title: str, svg: str, account: str) -> str:
    """Return a drawing and what stands below it, which is HTML already, in one file without a script."""
    return STILL.format(title=escape(title), svg=svg, account=account)


def votes_panel(feature: Feature, shape: Shape, most: float) -> Spec:
    """Return what one feature votes, on a scale that reaches `most` to either side."""
    if isinstance(feature, NumericFeature):
        note, body = f"missing: {signed_text(shape.bins[-1].votes)}", _stairs(feature, shape, most)
    else:
        bars, hidden = _bars(shape)
        note, body = (f"{hidden} more found no room" if hidden else " "), bar_chart(bars, most)
    return {"title": heading(shape.feature, note), "width": WIDTH, **body}


def _bars(shape: Shape) -> tuple[list[Bin], int]:
    """Return the values that stand apart, by votes; one bar for all that vote alike; and how many found no room."""
    if shape.kind == "boolean":
        return list(shape.bins), 0
    usual = Counter(bin.votes for bin in reversed(shape.bins)).most_common(1)[0][0]
    unusual = sorted((bin for bin in shape.bins if bin.votes != usual), key=lambda each: -abs(each.votes - usual))
    shown = sorted(unusual[:SHOWN], key=lambda each: -each.votes)
    return [*shown, Bin("all others", usual)], len(unusual) - len(shown)


def bar_chart(bars: Sequence[Bin], most: float, written: Callable[[float], str] = signed_text) -> Spec:
    """Draw bars: names stand on the free side of the zero line, numbers at the ends of their bars."""
    rows = [{"value": bin.label, "votes": bin.votes, "text": written(bin.votes)} for bin in bars]
    votes = {"field": "votes", "type": "quantitative", "scale": {"domain": [-most, most]}, "axis": None}
    zero = {"datum": 0, "type": "quantitative"}
    return {
        "height": {"step": BAR},
        "data": {"values": rows},
        "encoding": {"y": {"field": "value", "type": "nominal", "sort": None, "axis": None}, "x": votes},
        "layer": [
            {"mark": {"type": "bar", "height": {"band": 0.7}}, "encoding": {"color": _colour()}},
            _text("datum.votes >= 0", "left", "text", {}),
            _text("datum.votes < 0", "right", "text", {}),
            _text("datum.votes >= 0", "right", "value", {"x": zero}),
            _text("datum.votes < 0", "left", "value", {"x": zero}),
            {"mark": {"type": "rule", "color": "#888888"}, "encoding": {"x": zero, "y": None}},
        ],
    }


def _text(test: str, align: str, field: str, where: Spec) -> Spec:
    gap = 5 if align == "left" else -5
    mark = {"type": "text", "align": align, "dx": gap, "fontSize": 11.5, "color": LINE, "limit": WIDTH / 2 - 8}
    return {"transform": [{"filter": test}], "mark": mark, "encoding": {"text": {"field": field}, **where}}


def _stairs(feature: NumericFeature, shape: Shape, most: float) -> Spec:
    low, high = ends(feature)
    rows = [
        {"low": max(low, bin.low), "high": min(high, bin.high), "votes": bin.votes}
        for bin in shape.bins
        if bin.low is not None and bin.high is not None
    ]
    number = {"type": "quantitative", "scale": {"domain": [low, high], "nice": False, "zero": False}}
    votes = {"type": "quantitative", "scale": {"domain": [-most, most]}}
    line = [{"at": row[end], "votes": row["votes"]} for row in rows for end in ("low", "high")]
    across: Spec = {"title": None, "tickCount": 5, "grid": False, "labelOverlap": True, "labelFlush": True}
    across |= {"labelExpr": tick_words(feature)}
    return {
        "height": HEIGHT,
        "data": {"values": rows},
        "encoding": {"y": {"field": "votes", **votes, "axis": axis()}},
        "layer": [
            {
                "mark": {"type": "rect", "opacity": 0.45},
                "encoding": {
                    "x": {"field": "low", **number, "axis": across},
                    "x2": {"field": "high"},
                    "y2": {"datum": 0},
                    "color": _colour(),
                },
            },
            {"mark": {"type": "rule", "color": "#888888"}, "encoding": {"y": {"datum": 0}}},
            {
                "data": {"values": line},
                "mark": {"type": "line", "color": LINE, "strokeWidth": 1.6},
                "encoding": {"x": {"field": "at", **number}, "order": None},
            },
        ],
    }


def _colour() -> Spec:
    return {"condition": {"test": "datum.votes >= 0", "value": FOR}, "value": AGAINST}

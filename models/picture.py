"""The shapes of an ensemble as a picture: one small panel per feature, the most important first.

Drawn by Vega-Lite inside vl-convert: no browser, no address outside. PNG, or one HTML file that holds the same drawing
as SVG with the vote table below, and no script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from textwrap import fill
from typing import Any

import vl_convert

from accountant.errors import InputError
from models.ensemble import VotingEnsemble
from models.explain import Bin, Shape, shapes, vote_table
from models.features import NumericFeature

FOR, AGAINST, LINE, QUIET = "#0072B2", "#D55E00", "#333333", "#666666"  # Okabe and Ito: apart for every kind of sight
COLUMNS = 3
WIDTH, HEIGHT, BAR = 290, 130, 19  # pixels: of a panel, of a panel over numbers, of one bar
SHOWN = 14  # bars of one panel
LINE_LENGTH = 150  # characters of a subtitle
VEGA_LITE = "5.21"

Spec = dict[str, Any]


def picture(ensemble: VotingEnsemble, certificate_line: str, path: Path) -> None:
    """Write `path`, a .png or a self-contained .html; any other ending raises InputError."""
    if path.suffix not in (".png", ".html"):
        raise InputError(f"out={path.name}: must end in .png or .html")
    spec = drawing(ensemble, certificate_line)
    if path.suffix == ".png":
        path.write_bytes(vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=2))
    else:
        path.write_text(_page(ensemble, vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)), encoding="utf-8")


def drawing(ensemble: VotingEnsemble, certificate_line: str) -> Spec:
    """The Vega-Lite specification, data included."""
    found = shapes(ensemble)
    most = max((shape.importance for shape in found), default=1.0)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",  # a name; nothing is fetched
        "title": {"text": _title(ensemble), "subtitle": _subtitle(ensemble, found, certificate_line)},
        "columns": COLUMNS,
        "concat": [_panel(ensemble, shape, 1.25 * most) for shape in found] or [_nothing()],
        "config": _CONFIG,
    }


_CONFIG: Spec = {
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


def _title(ensemble: VotingEnsemble) -> str:
    return f"What votes for {ensemble.target} “{ensemble.classes[1]}”"


def _subtitle(ensemble: VotingEnsemble, found: Sequence[Shape], certificate_line: str) -> list[str]:
    first, second = ensemble.classes
    used = {shape.feature for shape in found}
    unused = [feature.name for feature in ensemble.features if feature.name not in used]
    legend = (
        f"Blue, above zero: votes for “{second}”. Orange, below zero: votes for “{first}”. Same scale in every panel."
    )
    without = fill(f"Without a vote: {', '.join(unused)}.", width=LINE_LENGTH).split("\n")
    return [certificate_line, legend, *(without if unused else [])]


def _panel(ensemble: VotingEnsemble, shape: Shape, most: float) -> Spec:
    feature = next(each for each in ensemble.features if each.name == shape.feature)
    if isinstance(feature, NumericFeature):
        note, body = f"missing: {_signed(shape.bins[-1].votes)}", _stairs(feature, shape, most)
    else:
        bars, hidden = _bars(shape)
        note, body = (f"{hidden} more found no room" if hidden else " "), _bar_chart(bars, most)
    title = {
        "text": shape.feature,
        "fontSize": 14,
        "offset": 6,
        "frame": "group",
        "subtitle": note,
        "subtitleFontSize": 11,
    }
    return {"title": {**title, "subtitlePadding": 2}, "width": WIDTH, **body}


def _bars(shape: Shape) -> tuple[list[Bin], int]:
    """The values that stand apart, by votes; one bar for all that vote alike; and how many found no room."""
    if shape.kind == "boolean":
        return list(shape.bins), 0
    usual = Counter(each.votes for each in reversed(shape.bins)).most_common(1)[0][0]
    apart = sorted((each for each in shape.bins if each.votes != usual), key=lambda each: -abs(each.votes - usual))
    kept = sorted(apart[:SHOWN], key=lambda each: -each.votes)
    return [*kept, Bin("all others", usual)], len(apart) - len(kept)


def _bar_chart(bars: Sequence[Bin], most: float) -> Spec:
    """Names stand on the free side of the zero line, numbers at the ends of their bars."""
    rows = [{"value": each.label, "votes": each.votes, "text": _signed(each.votes)} for each in bars]
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
    low, high = _ends(feature)
    rows = [
        {"low": max(low, each.low), "high": min(high, each.high), "votes": each.votes}
        for each in shape.bins
        if each.low is not None and each.high is not None
    ]
    number = {"type": "quantitative", "scale": {"domain": [low, high], "nice": False, "zero": False}}
    votes = {"type": "quantitative", "scale": {"domain": [-most, most]}}
    line = [{"at": row[end], "votes": row["votes"]} for row in rows for end in ("low", "high")]
    across = {"title": None, "tickCount": 5, "grid": False, "labelOverlap": True, "labelFlush": True}
    return {
        "height": HEIGHT,
        "data": {"values": rows},
        "encoding": {"y": {"field": "votes", **votes, "axis": _axis()}},
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


def _ends(feature: NumericFeature) -> tuple[float, float]:
    """What the axis shows: all cut points, and a little beyond."""
    if not feature.edges:
        return 0.0, 1.0
    first, last = feature.edges[0], feature.edges[-1]
    margin = (last - first) / 16 or max(abs(first), 1.0)
    return first - margin, last + margin


def _axis() -> Spec:
    return {"title": None, "tickCount": 5}


def _colour() -> Spec:
    return {"condition": {"test": "datum.votes >= 0", "value": FOR}, "value": AGAINST}


def _nothing() -> Spec:
    return {"data": {"values": [{}]}, "mark": {"type": "text", "text": "No feature has a vote.", "fontSize": 13}}


def _signed(votes: float) -> str:
    return f"{votes:+g}".replace("-", "−") if votes else "0"


_PAGE = """<!doctype html>
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
<h2>The votes</h2>
<p>Each line votes for {second} where its test holds, and as much against where it does not.
Above zero in all, the answer is {second}, otherwise {first}.</p>
<table>
<tr><th>votes</th><th>test</th></tr>
{rows}
</table>
</main>
</html>
"""


def _page(ensemble: VotingEnsemble, svg: str) -> str:
    first, second = (escape(str(each)) for each in ensemble.classes)
    rows = "\n".join(
        f"<tr><td>{_signed(row.votes)}</td><td>{escape(row.test)}</td></tr>" for row in vote_table(ensemble)
    )
    return _PAGE.format(title=escape(_title(ensemble)), svg=svg, first=first, second=second, rows=rows)

"""Panels of one size as Vega-Lite layers: curves with the error of their noise, and bars; and drawings made of them.

Places are pixels of the panel where `scale` is null. Colours are given: in a file they are named, in a page the page's
own style gives them, so that one drawing is right in light, in dark and on paper. What a reader may point at has its
words as the mark's description, which becomes its `aria-label`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import sqrt
from typing import Any

from models.explain.explain import Bin
from models.explain.vega_parts import CONFIG, Spec, amount, ends, plain_tick, tick_text, tick_words
from models.features.features import NumericFeature

WIDTH, GAP, COLUMNS = 340, 30, 3  # pixels: of a panel, between panels; panels of a line
TOP, FOOT, PLOT, STRIP = 40, 20, 132, 26  # above and below a panel's plot; of a curve, and of the counts below it
LEFT, REACH, SLOT = 62, 230, 256  # of a curve: its axis, how far its scale goes, and where missing values stand
ROW, NAMES, COUNTS, SHOWN = 20, 104, 48, 16  # of bars: height, room for names and for counts, most of them
LIGHT = {  # Okabe and Ito: apart for every kind of sight
    "paper": "#ffffff",
    "ink": "#222222",
    "quiet": "#5f6368",
    "faint": "#e4e6e8",
    "zero": "#8a8f94",
    "first": "#0072b2",
    "second": "#d55e00",
    "count": "#9aa0a6",
}
DARK = {
    "paper": "#15181b",
    "ink": "#e8eaed",
    "quiet": "#a8adb3",
    "faint": "#2c3237",
    "zero": "#7d848a",
    "first": "#56b4e9",
    "second": "#f0a35e",
    "count": "#6f767c",
}
PAGE = {name: f"var(--{name})" for name in LIGHT}  # colours that the page's style gives
Colours = Mapping[str, str]
Scale = tuple[float, float]
PAIR = ("first", "second")  # colours of two models
CLASSES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8B5A2B", "#F0E442")  # Okabe and Ito
KEYS = 30  # most names of a key
NARROW, THIN = 4.0, 1.0  # pixels that answer a pointer at a bin of one value; that show its count


@dataclass(frozen=True)
class Panel:
    """A drawing of WIDTH by `height` pixels, and what it is called."""

    name: str
    height: int
    spec: Spec
    labels: tuple[str, ...] = ()  # of the places to point at, in the order in which they are drawn
    tick_text: Callable[[float, str], str] = plain_tick  # of a number on the axis across, and that number as written


def reach(curves: Sequence[Sequence[Bin]]) -> Scale:
    """Return one scale for all, 0 on it: the values that stand above their noise, with some room for it. What is beyond
    ends at the edge.
    """
    bins = [bin for curve in curves for bin in curve]
    clear = [bin for bin in bins if abs(bin.votes) > 2 * (bin.error or 0)] or bins
    room = 0.3 * max((abs(bin.votes) for bin in clear), default=1.0) or 1.0
    low = min((bin.votes - min(2 * (bin.error or 0), room) for bin in clear), default=0.0)
    high = max((bin.votes + min(2 * (bin.error or 0), room) for bin in clear), default=0.0)
    return min(low, 0.0) - room / 5, max(high, 0.0) + room / 5


def words_of(each: Bin, unit: str, name: str = "") -> str:
    """Return a bin in words."""
    error = "" if each.error is None else f" ± {amount(each.error, '-')}"
    count = "" if each.count is None else f"; {each.count:,} records by the released count"
    return f"{name or each.label}: {amount(each.votes)}{error} ({unit}){count}"


def curve_panel(
    feature: NumericFeature,
    curves: Sequence[Sequence[Bin]],
    scale: Scale,
    unit: str,
    note: str,
    colours: Colours,
    names: Sequence[str] = ("",),
    palette: Sequence[str] = (),
) -> Panel:
    """Return one curve, or one for each of `names`, in the colours of `palette`; missing values as points beside it,
    the counts of the first below.
    """
    low, high = ends(feature)
    crowded = low + 0.9 * (high - low)  # from there on a number would stand on the word for missing values
    axis = {**_axis(colours, 5), "grid": False, "labelExpr": f"datum.value > {crowded} ? '' : {tick_words(feature)}"}
    x = _number("at", (low, high), axis, [0, REACH])
    y = _number("value", scale, {**_axis(colours, 4), "grid": True}, [PLOT, 0])
    layers = [layer([{}], _rule(colours["zero"]), {**_span("x", 0, WIDTH - LEFT), "y": {"datum": 0}})]
    drawn = list(zip(curves, palette or [colours[name] for name in PAIR], strict=False))
    for bins, colour in drawn:
        layers += _steps(bins, x, y, colour)
    for at, (bins, colour) in enumerate(drawn):
        shift = SLOT + (at - (len(drawn) - 1) / 2) * min(10, 24 / len(drawn))
        layers += _point(bins[-1], shift, y, colour, colours["ink"])
    if curves[0][0].count is not None:
        layers += _counts_below(curves[0], feature, x, colours["count"])
    layers.append(_text("missing", SLOT, PLOT + STRIP + 15, colours["quiet"], align="center"))
    texts = [_words_at_pointer(bins, unit, names) for bins in zip(*curves, strict=True)]
    spans = [
        (max(low, bin.low), min(high, bin.high)) for bin in curves[0] if bin.low is not None and bin.high is not None
    ]
    wide = widen(spans, NARROW * (high - low) / REACH)
    inner = [{"at": at, "to": to, "says": says} for (at, to), says in zip(wide, texts, strict=False)]
    labels = [bin.label for bin in curves[0] if bin.low is not None] + [curves[0][-1].label]
    layers.append(hits(inner, {"x": x, "x2": {"field": "to"}, **_span("y", 0, PLOT + STRIP)}, colours))
    beside_plot = {**_span("x", SLOT - 16, SLOT + 16), **_span("y", 0, PLOT + STRIP)}
    layers.append(hits([{"says": texts[-1]}], beside_plot, colours))
    framed = frame_panel(feature.name, note, PLOT + STRIP, layers, colours)
    return replace(framed, labels=tuple(labels), tick_text=partial(tick_text, feature, crowded))


def widen(spans: Sequence[Scale], least: float) -> list[Scale]:
    """Return spans that touch, ascending, with their inner ends moved so that each is at least so wide, or all alike
    where there is no room: a bin of one value can be pointed at.
    """
    ends = [spans[0][0], *(end for _, end in spans)]
    least = min(least, (ends[-1] - ends[0]) / len(spans))
    for at in range(1, len(spans)):
        ends[at] = max(ends[at], ends[at - 1] + least)
    for at in range(len(spans) - 1, 0, -1):
        ends[at] = min(ends[at], ends[at + 1] - least)
    return list(pairwise(ends))


def bar_panel(
    name: str, note: str, bars: Sequence[Bin], scale: Scale, unit: str, colours: Colours, names: int = NAMES
) -> Panel:
    """Return one bar a line, in the order given, with whiskers of two standard errors, and the counts beside. `names`:
    pixels for them.
    """
    counted = bars[0].count is not None
    start, end = names + 6 - LEFT, WIDTH - LEFT - (COUNTS + 8 if counted else 0)
    x = _number("value", scale, {**_axis(colours, 4), "grid": True}, [start, end])
    most = max((each.count or 0 for each in bars), default=0) or 1
    rows = [
        {
            **_whisker(each),
            "top": ROW * at + 4,
            "foot": ROW * (at + 1) - 4,
            "middle": ROW * (at + 0.5),
            "colour": colours["first" if each.votes >= 0 else "second"],
            "count": end + 8 + COUNTS * sqrt(max(each.count or 0, 0) / most),
        }
        for at, each in enumerate(bars)
    ]
    across, middle = {"y": pixel("top"), "y2": {"field": "foot"}}, {"y": pixel("middle")}
    bar = {"x": x, "x2": {"datum": 0}, "fill": _colour_field("colour"), **across}
    layers = [layer(rows, mark("rect", opacity=0.75), bar)]
    if bars[0].error is not None:
        cap = mark("tick", orient="vertical", size=6, thickness=1.2, color=colours["ink"])
        both = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, **middle}
        layers.append(layer(rows, _rule(colours["ink"], 1.2), both))
        layers += [layer(rows, cap, {"x": {**x, "field": side}, **middle}) for side in ("low", "high")]
    if counted:
        count_bars = {"x": {"value": end + 8}, "x2": pixel("count"), **across}
        layers.append(layer(rows, mark("rect", color=colours["count"], opacity=0.7), count_bars))
    return _lines(name, note, start, [(each.label, words_of(each, unit)) for each in bars], layers, colours)


def points_panel(
    name: str,
    note: str,
    lines: Sequence[Sequence[Bin]],
    scale: Scale,
    unit: str,
    names: Sequence[str],
    colours: Colours,
    palette: Sequence[str] = (),
) -> Panel:
    """Return one line a value, and on it a point for each of `names`, with whiskers of two standard errors."""
    start, step = NAMES + 6 - LEFT, ROW / (len(names) + 1)
    x = _number("value", scale, {**_axis(colours, 4), "grid": True}, [start, WIDTH - LEFT])
    drawn = palette or [colours[name] for name in PAIR]
    rows = [
        {**_whisker(bin), "middle": ROW * at + step * (k + 1), "colour": colour}
        for at, bins in enumerate(lines)
        for k, (bin, colour) in enumerate(zip(bins, drawn, strict=False))
    ]
    middle = {"y": pixel("middle")}
    square = mark("point", shape="square", size=36, opacity=1, strokeWidth=0)
    layers = [
        layer(rows, _rule(colours["ink"], 1.2), {"x": {**x, "field": "low"}, "x2": {"field": "high"}, **middle}),
        layer(rows, square, {"x": x, "fill": _colour_field("colour"), **middle}),
    ]
    words = [(bins[0].label, _words_at_pointer(bins, unit, names)) for bins in lines]
    return _lines(name, note, start, words, layers, colours)


def key_panel(name: str, names: Sequence[str], palette: Sequence[str], colours: Colours) -> Panel:
    """Return the colour of each of `names`, the first KEYS of them."""
    start = NAMES + 6 - LEFT
    rows = [
        {"left": start, "right": start + 24, "top": ROW * at + 5, "foot": ROW * (at + 1) - 5, "colour": colour}
        for at, colour in enumerate(palette[:KEYS])
    ]
    across = {"x": pixel("left"), "x2": {"field": "right"}, "y": pixel("top"), "y2": {"field": "foot"}}
    swatches = layer(rows, mark("rect"), {**across, "fill": _colour_field("colour")})
    note = f"the first {KEYS} of {len(names)}" if len(names) > KEYS else "the colour of each"
    return _lines(name, note, start, [(each, each) for each in names[:KEYS]], [swatches], colours, zero=False)


def class_palette(count: int) -> list[str]:
    """Return a colour for each of `count` classes: apart for every kind of sight up to eight, else around the wheel."""
    if count <= len(CLASSES):
        return list(CLASSES[:count])
    return [f"hsl({360 * at // count}, 65%, 45%)" for at in range(count)]


def gallery(title: str, notes: Sequence[str], panels: Sequence[Panel]) -> Spec:
    """Lay out panels in COLUMNS below a title, each where there is most room, as a file of its own, light."""
    columns: list[list[Spec]] = [[] for _ in range(COLUMNS)]
    tall = [0] * COLUMNS
    for panel in panels:
        column = tall.index(min(tall))
        columns[column].append(panel.spec)
        tall[column] += panel.height + GAP
    stacked = [{"vconcat": column_panels, "spacing": GAP} for column_panels in columns if column_panels]
    body: Spec = {"hconcat": stacked, "spacing": GAP} if stacked else {"mark": "point", "data": {"values": []}}
    return {"title": {"text": title, "subtitle": list(notes)}, **body, "config": CONFIG}


def _number(field: str, scale: Scale, axis: Spec, pixels: list[int]) -> Spec:
    """Return a number on pixels, held inside."""
    bounds = {"domain": list(scale), "range": pixels, "nice": False, "zero": False, "clamp": True}
    return {"field": field, "type": "quantitative", "scale": bounds, "axis": axis}


def _whisker(each: Bin) -> Spec:
    error = 2 * (each.error or 0)
    return {"value": each.votes, "low": each.votes - error, "high": each.votes + error}


def layer(rows: Sequence[Spec], drawn: Spec, encoding: Spec) -> Spec:
    """Return a Vega-Lite layer with one mark for each row."""
    return {"data": {"values": list(rows)}, "mark": drawn, "encoding": encoding}


def _axis(colours: Colours, ticks: int) -> Spec:
    return {
        "title": None,
        "tickCount": ticks,
        "ticks": False,
        "labelPadding": 5,
        "labelOverlap": True,
        "labelColor": colours["quiet"],
        "gridColor": colours["faint"],
        "domain": False,
        "aria": False,
    }


def mark(kind: str, **more: Any) -> Spec:
    """Return a mark that screen readers pass over."""
    return {"type": kind, "aria": False, **more}


def _rule(colour: str, width: float = 1.0) -> Spec:
    return mark("rule", color=colour, strokeWidth=width)


def _span(axis: str, start: float, end: float) -> Spec:
    return {axis: {"value": start}, f"{axis}2": {"value": end}}


def pixel(field: str) -> Spec:
    """Return a field as it is: a place in pixels, or an opacity."""
    return {"field": field, "type": "quantitative", "scale": None, "axis": None}


def text_field(field: str) -> Spec:
    """Return a field's text."""
    return {"field": field, "type": "nominal"}


def _colour_field(field: str) -> Spec:
    """Return a colour that the row itself names."""
    return {"field": field, "type": "nominal", "scale": None}


def _text(words: str, x: float, y: float, colour: str, **more: Any) -> Spec:
    written = mark("text", text=words, color=colour, baseline="alphabetic", **{"align": "left", "fontSize": 11, **more})
    return layer([{}], written, {"x": {"value": x}, "y": {"value": y}})


def _steps(bins: Sequence[Bin], x: Spec, y: Spec, colour: str) -> list[Spec]:
    """Draw bands of one and two standard errors, and the curve."""
    low, high = x["scale"]["domain"]
    rows = [
        {"at": min(max(at, low), high), "value": bin.votes}
        | {f"low{k}": bin.votes - k * (bin.error or 0) for k in (1, 2)}
        | {f"high{k}": bin.votes + k * (bin.error or 0) for k in (1, 2)}
        for bin in bins
        if bin.low is not None and bin.high is not None
        for at in (bin.low, bin.high)
    ]
    bands = [
        layer(
            rows,
            mark("area", color=colour, opacity=opacity),
            {"x": x, "y": {**y, "field": f"low{k}"}, "y2": {"field": f"high{k}"}, "order": None},
        )
        for k, opacity in ((2, 0.18), (1, 0.28))
    ]
    return [*bands, layer(rows, mark("line", color=colour, strokeWidth=1.8), {"x": x, "y": y, "order": None})]


def _point(each: Bin, at: float, y: Spec, colour: str, ink: str) -> list[Spec]:
    """Return a single value with a whisker of two standard errors."""
    row, where = _whisker(each), {"x": {"value": at}}
    square = mark("point", shape="square", size=49, filled=True, color=colour, opacity=1)
    both = {**where, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    return [layer([row], _rule(ink, 1.2), both), layer([row], square, {**where, "y": y})]


def _counts_below(bins: Sequence[Bin], feature: NumericFeature, x: Spec, colour: str) -> list[Spec]:
    """Return counts as areas. Square roots of the heights: a bin that holds nearly everybody would hide all others."""
    low, high = ends(feature)
    spans = [(max(low, b.low), min(high, b.high), b.count) for b in bins if b.low is not None and b.high is not None]
    pixels_per_unit = REACH / (high - low)  # pixels of one unit
    dense = [sqrt(max(count or 0, 0) / max((end - at) * pixels_per_unit, 0.5)) for at, end, count in spans]
    most = max(dense, default=0.0) or 1.0
    foot = PLOT + STRIP
    rows = [
        {"at": at, "to": max(end, at + THIN / pixels_per_unit), "top": foot - (STRIP - 4) * size / most}
        for (at, end, _), size in zip(spans, dense, strict=True)
    ]
    where = {"x": x, "x2": {"field": "to"}, "y": pixel("top"), "y2": {"value": foot}}
    return [layer(rows, mark("rect", color=colour, opacity=0.7), where)]


def _words_at_pointer(bins: Sequence[Bin], unit: str, names: Sequence[str]) -> str:
    """Return a bin in words; of two models a line each, under the bin's own."""
    if len(bins) == 1:
        return words_of(bins[0], unit)
    return "\n".join([bins[0].label, *(words_of(bin, unit, name) for bin, name in zip(bins, names, strict=True))])


def hits(rows: Sequence[Spec], where: Spec, colours: Colours) -> Spec:
    """Return what answers a pointer and a screen reader."""
    clear = {"type": "rect", "fillOpacity": 0, "color": colours["first"]}
    return layer(rows, clear, {**where, "description": {"field": "says", "type": "nominal"}})


def _lines(
    name: str,
    note: str,
    start: int,
    lines: Sequence[tuple[str, str]],
    layers: list[Spec],
    colours: Colours,
    zero: bool = True,
) -> Panel:
    """Return one line per value, its name to the left of `start`, with its words to point at; and the zero."""
    tall = ROW * len(lines)
    names = mark("text", align="right", baseline="middle", fontSize=11, limit=start + LEFT - 8, color=colours["ink"])
    rows = [
        {"name": words, "says": says, "top": ROW * at, "foot": ROW * (at + 1), "middle": ROW * (at + 0.5)}
        for at, (words, says) in enumerate(lines)
    ]
    name_marks = {"x": {"value": start - 6}, "y": pixel("middle"), "text": {"field": "name"}}
    if zero:
        layers = [*layers, layer([{}], _rule(colours["zero"]), {"x": {"datum": 0}, **_span("y", 0, tall)})]
    across = {**_span("x", -LEFT, WIDTH - LEFT), "y": pixel("top"), "y2": {"field": "foot"}}
    drawn = [layer(rows, names, name_marks), *layers, hits(rows, across, colours)]
    return replace(frame_panel(name, note, tall, drawn, colours), labels=tuple(words for words, _ in lines))


def frame_panel(name: str, note: str, tall: int, layers: list[Spec], colours: Colours, foot: int = FOOT) -> Panel:
    """Give all panels one size, whatever the width of their labels: an empty frame, and the heading."""
    around = {**_span("x", -LEFT, WIDTH - LEFT), **_span("y", -TOP, tall + foot)}
    heading = [
        _text(name, -LEFT, -TOP + 14, colours["ink"], fontSize=14, fontWeight="bold", limit=WIDTH),
        _text(note, -LEFT, -TOP + 30, colours["quiet"], limit=WIDTH),
    ]
    drawn = [layer([{}], mark("rect", opacity=0), around), *heading, *layers]
    return Panel(
        name,
        TOP + tall + foot,
        {"width": WIDTH - LEFT, "height": tall, "view": {"stroke": None}, "layer": drawn},
    )

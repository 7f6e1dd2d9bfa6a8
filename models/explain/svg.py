"""Draws panels as SVG for pages: the few marks of Vega-Lite that panels have, in some kilobytes and milliseconds, where
the library takes megabytes and seconds.

Pixels are those of a panel. What the page's own style gives is left to it: letters, and the colours that are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10, sqrt
from typing import Any

from models.explain.vega_panels import LEFT, TOP, WIDTH, Panel
from models.explain.vega_parts import Spec

Row = Mapping[str, Any]
Place = Callable[[Spec], float | None]  # a row's place, in pixels, by a channel's definition
NARROW, WIDE = frozenset("iljtfrI.,:;|'!()[] "), frozenset("mwMW@%…—")
SIZES = ((sqrt(50), 10), (sqrt(10), 5), (sqrt(2), 2))  # steps of ticks, in powers of ten, from this remainder on
BASELINES = {"middle": 0.35, "alphabetic": 0.0}  # of the letters' size, below the place
ANCHORS = {"left": "start", "center": "middle", "right": "end"}


def to_page_svg(panel: Panel) -> str:
    """Return the drawing, which is called by the panel's name, as an element for a page."""
    layers, (width, height) = panel.spec["layer"], (panel.spec["width"], panel.spec["height"])
    scales = _shared_scales(layers)
    wide = scales["x"]["scale"]["range"][1] if "x" in scales else width
    axes = "".join(_axis(channel, found, panel, wide, height) for channel, found in scales.items())
    marks = "".join(_mark(each["mark"], each["encoding"], each["data"]["values"], scales) for each in layers)
    size = f'width="{WIDTH}" height="{panel.height}" viewBox="0 0 {WIDTH} {panel.height}"'
    inside = f'<g transform="translate({LEFT},{TOP})">{axes}{marks}</g>'
    return f'<svg role="img" aria-label="{escape(panel.name)}" {size}>{inside}</svg>'


def _shared_scales(layers: Sequence[Spec]) -> dict[str, Spec]:
    """Return for `x` and `y` the first definition with a scale: all layers share it."""
    scales: dict[str, Spec] = {}
    for channel in ("x", "y"):
        definitions = (each["encoding"].get(channel, {}) for each in layers)
        scales |= next(({channel: each} for each in definitions if each.get("scale")), {})
    return scales


def _scaled(number: float, scale: Spec) -> float:
    """Return a number's place: ends hold what is beyond them."""
    (low, high), (first, last) = scale["domain"], scale["range"]
    share = (number - low) / (high - low) if high > low else 0.5
    return float(first + (last - first) * min(max(share, 0.0), 1.0))


def _place(encoding: Spec, channel: str, row: Row, scales: Mapping[str, Spec]) -> float | None:
    """Return the place of a row by a channel, in pixels; None where the channel is absent. The second of a pair goes by
    the first one's scale.
    """
    if (found := encoding.get(channel)) is None:
        return None
    if "value" in found:
        return float(found["value"])
    number = found["datum"] if "datum" in found else row[found["field"]]
    first, shared = encoding[channel[0]], scales.get(channel[0], {}).get("scale")
    scale = next((each["scale"] for each in (found, first) if "scale" in each), shared)
    return float(number) if scale is None else _scaled(float(number), scale)


def _mark(mark: Spec, encoding: Spec, rows: Sequence[Row], scales: Mapping[str, Spec]) -> str:
    """Draw one mark for each row; of a line and an area one for all of them."""

    def place(channel: str, row: Row) -> float | None:
        return _place(encoding, channel, row, scales)

    kind = mark["type"]
    if kind in ("line", "area"):
        upper = [(place("x", row), place("y", row)) for row in rows]
        lower = [(place("x", row), place("y2", row)) for row in reversed(rows)] if kind == "area" else []
        return (
            _tag("path", {"d": _path([*upper, *lower]) + ("Z" if lower else ""), **_paint(mark, {}, {})})
            if rows
            else ""
        )
    return "".join(
        _draw(mark, {name: place(name, row) for name in ("x", "y", "x2", "y2")}, encoding, row) for row in rows
    )


def _tag(name: str, attributes: Mapping[str, Any], inside: str = "") -> str:
    words = "".join(f' {key}="{_short(value)}"' for key, value in attributes.items() if value is not None)
    return f"<{name}{words}>{inside}</{name}>" if inside else f"<{name}{words}/>"


def _short(value: Any) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape(str(value))


def _path(points: Iterable[tuple[float | None, float | None]]) -> str:
    return "M" + "L".join(f"{_short(x)},{_short(y)}" for x, y in points)


def _paint(mark: Spec, encoding: Spec, row: Row) -> dict[str, Any]:
    """Return the colours: lines are stroked, all else is filled."""
    fill = row[encoding["fill"]["field"]] if "fill" in encoding else mark.get("color", "none")
    opacity = float(row[encoding["fillOpacity"]["field"]]) if "fillOpacity" in encoding else mark.get("fillOpacity")
    painted = {"opacity": mark.get("opacity"), "stroke-width": mark.get("strokeWidth")}
    if mark["type"] in ("line", "rule"):
        return {"stroke": mark["color"], "fill": "none", **painted}
    return {"fill": fill, "fill-opacity": opacity, "stroke": mark.get("stroke"), **painted}


def _draw(mark: Spec, at: Mapping[str, Any], encoding: Spec, row: Row) -> str:
    """Draw the mark of one row. What gives a panel its size alone is not drawn: the size is written already."""
    kind, x, y = mark["type"], at["x"], at["y"]
    if kind == "text":
        words = str(row[encoding["text"]["field"]] if "text" in encoding else mark["text"])
        return _words(_cut(words, mark), x, y, mark)
    if kind == "tick":
        ends = [(x, y - mark["size"] / 2), (x, y + mark["size"] / 2)]
        return _tag("path", {"d": _path(ends), "stroke": mark["color"], "stroke-width": mark["thickness"]})
    if kind == "point":  # a square, of so many pixels
        side = float(mark["size"]) ** 0.5
        box = {"x": x - side / 2, "y": y - side / 2, "width": side, "height": side}
        return _tag("rect", {**box, "fill": _paint(mark, encoding, row)["fill"]})
    if kind == "rule":  # a channel of one place holds it
        ends = [(x, y), (at["x2"] if "x2" in encoding else x, at["y2"] if "y2" in encoding else y)]
        return _tag("path", {"d": _path(ends), **_paint(mark, encoding, row)})
    if mark.get("opacity") == 0:
        return ""
    (left, right), (top, foot) = sorted((x, at["x2"])), sorted((y, at["y2"]))
    says = row[encoding["description"]["field"]] if "description" in encoding else None
    pointed = {} if says is None else {"role": "graphics-symbol", "aria-label": says}
    d = f"M{_short(left)},{_short(top)}H{_short(right)}V{_short(foot)}H{_short(left)}Z"
    return _tag("path", {**pointed, "d": d, **_paint(mark, encoding, row)})


def _words(words: str, x: float, y: float, how: Mapping[str, Any]) -> str:
    """Write words at a place; `how`: colour, size, alignment and angle, as a mark has them."""
    size = how.get("fontSize", 11)
    turned = f"rotate({how['angle']} {_short(x)} {_short(y)})" if "angle" in how else None
    down = size * BASELINES[how.get("baseline", "alphabetic")]
    place = {"x": x, "y": y + down, "text-anchor": ANCHORS[how.get("align", "left")], "transform": turned}
    return _tag(
        "text", {**place, "fill": how["color"], "font-size": size, "font-weight": how.get("fontWeight")}, escape(words)
    )


def letters_width(words: str, size: float) -> float:
    """Return about how wide words are, in pixels, in any sans serif."""
    share = {True: 0.3, False: 0.56}
    wide = sum(0.92 if each in WIDE else 1.0 if ord(each) > 0x2E7F else share[each in NARROW] for each in words)
    return wide * size


def _cut(words: str, how: Mapping[str, Any]) -> str:
    """Cut words to the width that they have."""
    limit, size = how.get("limit"), how.get("fontSize", 11) * (1.06 if "fontWeight" in how else 1.0)
    if limit is None or letters_width(words, size) <= limit:
        return words
    kept = words
    while kept and letters_width(kept + "…", size) > limit:
        kept = kept[:-1]
    return kept + "…"


def ticks(low: float, high: float, count: int) -> tuple[list[float], int]:
    """Return about `count` round numbers from `low` to `high`, and how many decimals tell them apart."""
    rough = (high - low) / count
    if not rough > 0:
        return [low], 0
    power = floor(log10(rough))
    step = next((size for least, size in SIZES if rough / 10.0**power >= least), 1)
    places = max(0, -(power + (1 if step == 10 else 0)))
    whole = step * 10.0**power
    return [round(at * whole, places) for at in range(ceil(low / whole - 1e-9), floor(high / whole + 1e-9) + 1)], places


def _axis(channel: str, found: Spec, panel: Panel, width: int, height: int) -> str:
    """Draw the lines and the numbers of a scale, as many as have room."""
    axis, scale = found["axis"], found["scale"]
    numbers, places = ticks(scale["domain"][0], scale["domain"][1], axis["tickCount"])
    at = [_scaled(number, scale) for number in numbers]
    written = [f"{number:,.{places}f}".replace("-", "−") for number in numbers]
    texts = list(map(panel.tick_text, numbers, written)) if channel == "x" else written
    lines = ""
    if axis["grid"]:
        ends = [
            ((each, 0.0), (each, float(height))) if channel == "x" else ((0.0, each), (float(width), each))
            for each in at
        ]
        lines = _tag("path", {"d": "".join(map(_path, ends)), "stroke": axis["gridColor"]}) if ends else ""
    shown = list(zip(at, texts, strict=True))
    while channel == "x" and any(
        b - a < (letters_width(s, 11) + letters_width(t, 11)) / 2 for (a, s), (b, t) in pairwise(shown)
    ):
        shown = shown[::2]
    how = {"color": axis["labelColor"], "align": "center" if channel == "x" else "right", "baseline": "middle"}
    below = height + axis["labelPadding"] + 5.5
    places_of = [(each, below) if channel == "x" else (-axis["labelPadding"], each) for each, _ in shown]
    return lines + "".join(
        _words(text, float(x), float(y), how) for (x, y), (_, text) in zip(places_of, shown, strict=True) if text
    )

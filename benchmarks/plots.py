"""Pictures of the benchmark: small SVG files by Vega-Lite inside vl-convert; no browser, no address outside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vl_convert

VEGA_LITE = "5.21"
SIZE = {"width": 300, "height": 230}
SMALL = {"width": 190, "height": 130}
# Okabe and Ito: apart for every kind of sight. Ours come first and are blue and green.
OURS = ("#0072B2", "#009E73", "#56B4E9", "#004D73", "#66C2A5", "#8DA0CB")
THEIRS = ("#D55E00", "#E69F00", "#CC79A7", "#999999", "#8B5A2B", "#F0E442")
OPEN = ("#000000", "#666666", "#BBBBBB")
Spec = dict[str, Any]
_TICKS: Spec = {"format": "~g", "grid": False, "labelOverlap": True}
Point = dict[str, Any]  # dataset, method, family, epsilon (float or None), metric, mean, low, high


def colours(methods: Sequence[tuple[str, str]]) -> Spec:
    """The colour scale of (method, family) pairs, the same in every picture."""
    pools: dict[str, list[str]] = {"ours": list(OURS), "peer": list(THEIRS), "open": list(OPEN)}
    picked = [pools[family].pop(0) if pools[family] else "#CCCCCC" for _, family in methods]
    return {"domain": [method for method, _ in methods], "range": picked}


def panel(points: Sequence[Point], metric: str, title: str, scale: Spec, size: Spec) -> Spec:
    """One metric against epsilon: a line and its spread per private learner, a dashed line per open one."""
    mine = [point for point in points if point["metric"] == metric]
    private = [point for point in mine if point["epsilon"] is not None]
    flat = [point for point in mine if point["epsilon"] is None]
    ticks = sorted({point["epsilon"] for point in private})
    x: Spec = {"field": "epsilon", "type": "quantitative", "title": "epsilon"}
    x |= {
        "scale": {"type": "log", "nice": False},
        "axis": {"values": ticks, "format": "~g", "grid": False, "labelOverlap": True},
    }
    y: Spec = {"type": "quantitative", "title": metric, "scale": {"domain": span(mine), "nice": False}}
    colour = {"field": "method", "type": "nominal", "scale": scale, "title": None}
    layers: list[Spec] = [
        {
            "data": {"values": private},
            "mark": {"type": "area", "opacity": 0.14, "clip": True},
            "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "color": colour},
        },
        {
            "data": {"values": private},
            "mark": {"type": "line", "point": {"size": 22}, "strokeWidth": 1.8, "clip": True},
            "encoding": {"x": x, "y": y | {"field": "mean"}, "color": colour},
        },
        {
            "data": {"values": flat},
            "mark": {"type": "rule", "strokeDash": [4, 3], "clip": True},
            "encoding": {"y": y | {"field": "mean"}, "color": colour},
        },
    ]
    return {"title": title, "layer": [layer for layer in layers if layer["data"]["values"]]} | size


def span(points: Sequence[Point]) -> tuple[float, float]:
    """The part of the axis where methods compete: what lies far below the best at its worst is cut off."""
    best: dict[float, float] = {}
    for point in points:
        if point["epsilon"] is not None:
            best[point["epsilon"]] = max(best.get(point["epsilon"], 0.0), point["mean"])
    high = min(1.0, max(point["high"] for point in points))
    low = min(best.values(), default=0.0)
    margin = max(0.01, (high - low) * 1.2)
    return max(min(point["low"] for point in points), low - margin), high + 0.05 * margin


def times(bars: Sequence[Point], scale: Spec) -> Spec:
    """Median processor seconds per dataset and method; bars: dataset, method, mean."""
    y: Spec = {
        "field": "method",
        "type": "nominal",
        "title": None,
        "sort": scale["domain"],
        "axis": {"labelLimit": 260},
    }
    x: Spec = {"field": "mean", "type": "quantitative", "title": "processor seconds of one fit (logarithmic)"}
    return {
        "data": {"values": list(bars)},
        "mark": {"type": "point", "filled": True, "size": 55},
        "encoding": {
            "y": y,
            "x": x | {"scale": {"type": "log"}, "axis": {"format": "~g", "tickCount": 6}},
            "color": {"field": "method", "type": "nominal", "scale": scale, "legend": None},
            "shape": {"field": "dataset", "type": "nominal", "title": None},
        },
        "width": 420,
        "height": {"step": 22},
    }


def calibration(points: Sequence[Point], title: str) -> Spec:
    """True share by what was said, beside the line where they are the same; points: method, said, true."""
    axis: Spec = {"type": "quantitative", "scale": {"domain": [0, 1]}, "axis": {"tickCount": 5, "format": "~g"}}
    scale = {"domain": list(dict.fromkeys(point["method"] for point in points)), "range": [OURS[0], THEIRS[0]]}
    colour = {"field": "method", "type": "nominal", "title": None, "scale": scale}
    x, y = axis | {"field": "said", "title": "said"}, axis | {"field": "true", "title": "true share"}
    line = [{"said": 0, "true": 0}, {"said": 1, "true": 1}]
    return {
        "title": title,
        "layer": [
            {
                "data": {"values": line},
                "mark": {"type": "line", "color": "#BBBBBB", "strokeWidth": 1},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": list(points)},
                "mark": {"type": "point", "size": 18, "filled": True, "opacity": 0.8},
                "encoding": {"x": x, "y": y, "color": colour},
            },
        ],
        "width": 230,
        "height": 230,
    }


def draw(path: Path, panels: Sequence[Spec], columns: int) -> None:
    """Write the panels side by side as one SVG."""
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",  # a name; nothing is fetched
        "columns": columns,
        "concat": list(panels),
        "config": _CONFIG,
    }
    path.write_text(to_svg(spec), encoding="utf-8")


def to_svg(spec: Spec) -> str:
    """Draw a specification; the same bytes in every process, though Vega numbers clips on from picture to picture."""
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
    numbers = {name: f"clip{at}" for at, name in enumerate(dict.fromkeys(_CLIP.findall(svg)), 1)}
    return _CLIP.sub(lambda match: numbers[match[0]], svg)


_CLIP = re.compile(r"\bclip\d+\b")
_CONFIG: Spec = {
    "background": "white",
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",
    "view": {"stroke": "#DDDDDD"},
    "title": {"fontSize": 13, "anchor": "start"},
    "axis": {"gridColor": "#EEEEEE", "domain": False, "titleFontWeight": "normal"},
    "legend": {"orient": "bottom", "columns": 3, "labelLimit": 300, "symbolOpacity": 1},
}

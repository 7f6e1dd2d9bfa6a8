"""The pictures of studies/lazybb/paper.md, as SVG through vl-convert. They are drawn from records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.plots import to_svg

COLOURS = ("#1b6ca8", "#d1495b", "#3c7a3f", "#8d6a9f", "#b8860b", "#444444")
STYLE = {"font": "sans-serif", "axis": {"grid": True, "gridColor": "#eeeeee"}, "view": {"stroke": None}}
Points = list[dict[str, Any]]


def save(file: Path, layers: list[dict[str, Any]], width: int = 460, height: int = 260) -> None:
    spec = {"width": width, "height": height, "config": STYLE, "background": "white", "layer": layers}
    file.write_text(to_svg(spec), encoding="utf-8")


def lines(points: Points, x: dict[str, Any], y: dict[str, Any], kinds: list[str], marks: bool = True) -> dict[str, Any]:
    """One line per `kind` of the points {x, y, kind}."""
    scale = {"domain": kinds, "range": list(COLOURS[: len(kinds)])}
    return {
        "data": {"values": points},
        "mark": {"type": "line", "point": {"size": 22} if marks else False, "strokeWidth": 1.6},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", **x},
            "y": {"field": "y", "type": "quantitative", **y},
            "color": {"field": "kind", "type": "nominal", "scale": scale, "legend": {"title": None, "labelLimit": 320}},
        },
    }


def bands(points: Points, kinds: list[str]) -> dict[str, Any]:
    """One standard deviation of a single fit to either side: points {x, low, high, kind}."""
    scale = {"domain": kinds, "range": list(COLOURS[: len(kinds)])}
    return {
        "data": {"values": points},
        "mark": {"type": "area", "opacity": 0.13},
        "encoding": {
            "x": {"field": "x", "type": "quantitative"},
            "y": {"field": "low", "type": "quantitative"},
            "y2": {"field": "high"},
            "color": {"field": "kind", "type": "nominal", "scale": scale},
        },
    }


def level(height: float, label: str) -> dict[str, Any]:
    """A horizontal line with its name: a non-private baseline."""
    at = {"data": {"values": [{"y": height, "label": label}]}}
    rule = {"mark": {"type": "rule", "strokeDash": [4, 4], "color": "#777777"}}
    text = {"mark": {"type": "text", "align": "right", "dy": -6, "color": "#777777", "x": "width"}}
    where = {"y": {"field": "y", "type": "quantitative"}}
    return {**at, "layer": [{**rule, "encoding": where}, {**text, "encoding": {**where, "text": {"field": "label"}}}]}


EPSILON_AXIS = {
    "title": "epsilon",
    "scale": {"type": "log", "domain": [0.045, 5.5], "nice": False},
    "axis": {"values": [0.05, 0.1, 0.2, 0.5, 1, 2, 5]},
}


def accuracy_axis(low: float, high: float) -> dict[str, Any]:
    return {"title": "accuracy", "scale": {"domain": [low, high], "zero": False, "clamp": True}}


def crosses(points: Points) -> dict[str, Any]:
    """What the paper prints as a number: points {x, y}."""
    return {
        "data": {"values": points},
        "mark": {"type": "point", "shape": "cross", "size": 90, "filled": True, "color": "black"},
        "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}},
    }

"""Reports of an evaluation: a page with its pictures, JSON, or CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.explain.html import page, paragraph, table
from models.explain.reports import write_report
from models.explain.vega import to_svg
from models.explain.vega_panels import LIGHT
from models.explain.vega_parts import CONFIG
from models.worth import thresholds
from models.worth.layout import BINS
from models.worth.metrics import name_of_figure

Floats = NDArray[np.float64]
SIDE = 300  # of a picture, in pixels
BLUE = LIGHT["first"]
HEAD = ("figure", "class", "value", "low", "high")
KEYS = ("metric", "class", "value", "low", "high")


@dataclass(frozen=True)
class Curve:
    """A line of points in the unit square, and what its axes are."""

    title: str
    x: str
    y: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Report:
    """`facts`: sentences on what was measured, how, and by whose word; `metrics`: as statements have them, `low` and
    `high` absent where a figure has no interval; `body`: all of it for programs; `thresholds`: of two classes, what
    holds at each, where the `second` is told.
    """

    title: str
    facts: tuple[str, ...]
    metrics: Sequence[dict[str, Any]]
    curves: tuple[Curve, ...]
    body: dict[str, Any]
    thresholds: Sequence[dict[str, Any]] = ()
    second: str = ""


def curves_of(counts: Floats, middles: Floats, classes: Sequence[Any]) -> tuple[Curve, ...]:
    """Draw, for two `classes`, from records by true class and bin (2, bins), the ROC curve, and how often the second is
    true in each bin beside its probability. Noise may put counts below zero: these are taken as none.
    """
    zeros, ones = np.maximum(counts, 0.0)[:, ::-1]
    if not zeros.sum() or not ones.sum():
        return ()
    false, true = (np.concatenate([[0.0], np.cumsum(part) / part.sum()]) for part in (zeros, ones))
    shown = [bin for bin in range(counts.shape[1]) if counts[:, bin].sum() >= 20 and (counts[:, bin] >= 0).all()]
    rates = tuple((float(middles[bin]), float(counts[1, bin] / counts[:, bin].sum())) for bin in shown)
    roc = tuple(zip(false.tolist(), true.tolist(), strict=True))
    first, second = (f"“{label}”" for label in classes)
    curves = (Curve("ROC curve", f"share of {first} that is told as {second}", f"share of {second} that is", roc),)
    return (
        (*curves, Curve("Calibration", f"probability of {second} that the model tells", "how often it is so", rates))
        if shown
        else curves
    )


def write(report: Report, path: Path) -> None:
    """Write the report by its suffix: .html, .json or .csv; else InputError."""
    head: tuple[str, ...] = HEAD
    rows = [tuple(str(metric.get(key) or "") for key in KEYS) for metric in report.metrics]
    if any("group" in metric for metric in report.metrics):
        groups = [metric.get("group") or ", ".join(metric.get("groups", ())) for metric in report.metrics]
        head, rows = (*HEAD, "group"), [(*row, group) for row, group in zip(rows, groups, strict=True)]
    write_report(path, report.body, lambda: _html(report, table(head, rows)), lambda: [head, *rows])


def _html(report: Report, figures: str) -> str:
    drawn = "".join(f"<figure>{_picture(curve)}</figure>" for curve in report.curves)
    words = "".join(map(paragraph, report.facts))
    whole = f"{words}<div>{drawn}</div>{by_group(report.metrics)}{figures}"
    if report.thresholds:
        whole += f"<h2>At every threshold</h2>{table(thresholds.HEAD, thresholds.table_rows(report.thresholds))}"
    return page(report.title, whole)


def by_group(metrics: Sequence[dict[str, Any]]) -> str:
    """Return each figure that groups are compared by as a picture: its interval and value in every group, one below
    another; nothing where there are no groups.
    """
    figures: dict[str, list[dict[str, Any]]] = {}
    for metric in metrics:
        if "group" in metric and metric["metric"] != "records":
            figures.setdefault(name_of_figure({key: metric[key] for key in metric if key != "group"}), []).append(
                metric
            )
    drawn = [f"<figure>{_intervals(name, of_figure)}</figure>" for name, of_figure in figures.items()]
    return f"<h2>By group</h2><div>{''.join(drawn)}</div>" if drawn else ""


def _intervals(name: str, figures: Sequence[dict[str, Any]]) -> str:
    """Draw plain SVG in the colour of the text around it."""
    top = max(1e-9, *(float(metric["high"]) for metric in figures))
    lines = []
    for at, metric in enumerate(figures):
        y, low, high = 14 + 26 * at, *(SIDE * float(metric[end]) / top for end in ("low", "high"))
        words = f"{metric['group']}: {metric['value'] or 'no result'} ({metric['low']} to {metric['high']})"
        dot = (
            ""
            if metric["value"] is None
            else f'<circle cx="{SIDE * float(metric["value"]) / top:.1f}" cy="{y}" r="4"/>'
        )
        lines.append(
            f'<g fill="{BLUE}"><title>{escape(words)}</title><rect x="{low:.1f}" y="{y - 3}" height="6" opacity=".35" '
            f'width="{max(high - low, 1):.1f}"/>{dot}</g><text x="0" y="{y + 15}" font-size="10" '
            f'fill="currentColor">{escape(words)}</text>'
        )
    label, tall = escape(f"{name} by group"), 26 * len(figures) + 20
    return (
        f'<svg role="img" aria-label="{label}" viewBox="-6 -14 {SIDE + 12} {tall}" width="{SIDE + 12}">'
        f'<text x="0" y="0" font-size="13" font-weight="600" fill="currentColor">{escape(name)}</text>'
        f"{''.join(lines)}</svg>"
    )


def _picture(curve: Curve) -> str:
    points = [{"x": x, "y": y} for x, y in curve.points]
    axes = {
        name: {"field": name, "type": "quantitative", "title": title, "scale": {"domain": [0, 1]}}
        for name, title in (("x", curve.x), ("y", curve.y))
    }
    diagonal = {
        "data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]},
        "mark": {"type": "line", "strokeDash": [4, 4]},
    }
    line = {"data": {"values": points}, "mark": {"type": "line", "point": len(points) <= BINS, "color": BLUE}}
    layers = [{**part, "encoding": axes} for part in (diagonal, line)]
    spec = {"title": curve.title, "width": SIDE, "height": SIDE, "layer": layers, "config": CONFIG}
    drawn = to_svg(spec).replace("<svg ", f'<svg role="img" aria-label="{curve.title}" ', 1)
    return re.sub(r' xmlns(:xlink)?="[^"]*"', "", drawn, count=2)  # names of XML, which HTML need not be told

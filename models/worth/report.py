"""Reports of an evaluation: a page with its pictures, JSON, or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.errors import InputError
from models.explain.html import ADDRESSES, page, paragraph, table
from models.explain.vega import FOR, to_svg
from models.explain.vega_parts import CONFIG
from models.worth import thresholds
from models.worth.layout import BINS

Floats = NDArray[np.float64]
SIDE = 300  # of a picture, in pixels
HEAD = ("figure", "class", "value", "low", "high")


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
    holds at each.
    """

    title: str
    facts: tuple[str, ...]
    metrics: Sequence[dict[str, Any]]
    curves: tuple[Curve, ...]
    body: dict[str, Any]
    thresholds: Sequence[dict[str, Any]] = ()


def curves_of(counts: Floats, middles: Floats) -> tuple[Curve, ...]:
    """Of two classes, from records by true class and bin (2, BINS): the ROC curve, and how often class 1 is true in
    each bin beside its probability. Noise may put counts below zero: these are taken as none.
    """
    zeros, ones = np.maximum(counts, 0.0)[:, ::-1]
    if not zeros.sum() or not ones.sum():
        return ()
    false, true = (np.concatenate([[0.0], np.cumsum(each) / each.sum()]) for each in (zeros, ones))
    told = [bin for bin in range(BINS) if counts[:, bin].sum() >= 20 and (counts[:, bin] >= 0).all()]
    rates = tuple((float(middles[bin]), float(counts[1, bin] / counts[:, bin].sum())) for bin in told)
    roc = tuple(zip(false.tolist(), true.tolist(), strict=True))
    found = (Curve("ROC curve", "share of class 0 that is told as class 1", "share of class 1 that is", roc),)
    return (
        (*found, Curve("Calibration", "probability that the model tells", "how often it is so", rates))
        if told
        else found
    )


def write(report: Report, path: Path) -> None:
    """By its suffix: .html, .json or .csv; else InputError."""
    keys = ("metric", "class", "value", "low", "high")
    rows = [tuple(str(each.get(key) or "") for key in keys) for each in report.metrics]
    if path.suffix == ".html":
        drawn = "".join(f"<figure>{_picture(curve)}</figure>" for curve in report.curves)
        told = "".join(paragraph(fact) for fact in report.facts)
        at_each = f"<h2>At every threshold</h2>{table(thresholds.HEAD, thresholds.table_rows(report.thresholds))}"
        whole = f"{told}<div>{drawn}</div>{table(HEAD, rows)}{at_each if report.thresholds else ''}"
        text = page(report.title, whole)
    elif path.suffix == ".json":
        text = json.dumps(report.body, indent=2, ensure_ascii=False) + "\n"
    elif path.suffix == ".csv":
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows([HEAD, *rows])
        text = lines.getvalue()
    else:
        raise InputError(f"out={path.name}: must end in .html, .json or .csv")
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"out={path}: cannot be written ({error.strerror})") from None


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
    line = {"data": {"values": points}, "mark": {"type": "line", "point": len(points) <= BINS, "color": FOR}}
    layers = [{**each, "encoding": axes} for each in (diagonal, line)]
    schema = "https://vega.github.io/schema/vega-lite/v5.json"  # a name; nothing is fetched
    spec = {"$schema": schema, "title": curve.title, "width": SIDE, "height": SIDE, "layer": layers, "config": CONFIG}
    drawn = to_svg(spec).replace("<svg ", f'<svg role="img" aria-label="{curve.title}" ', 1)
    for address in ADDRESSES:
        drawn = drawn.replace(address, "", 1)
    return drawn

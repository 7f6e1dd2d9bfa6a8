"""Panels for more than two classes: one curve per class over numbers, one point per class and value elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from models.explain.explain import Shape, shapes
from models.explain.vega_parts import (
    BAR,
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
from models.parts.released import Released

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")  # Okabe and Ito
NAMED = 4  # classes of a note
LABEL = 96  # pixels of a value's name
ZERO: Spec = {"data": {"values": [{}]}, "mark": {"type": "rule", "color": "#888888"}}


def class_panels(ensemble: Released) -> list[Spec]:
    """Return one per feature that moves a score, the most important first, all on one scale."""
    every_shape = shapes(ensemble)
    most = 1.1 * max((shape.importance for shape in every_shape), default=1.0)
    features = {feature.name: feature for feature in ensemble.features}
    classes = [str(label) for label in ensemble.classes]
    palette = {"range": list(COLOURS[: len(classes)])} if len(classes) <= len(COLOURS) else {"scheme": "tableau20"}
    scale = {"domain": classes, **palette}
    legend = {"title": ensemble.target, "symbolLimit": 40, "labelLimit": LABEL}
    colour = {"color": {"field": "class", "type": "nominal", "scale": scale, "legend": legend}}
    together = groupby(every_shape, key=lambda shape: shape.feature)
    return [_panel(features[name], list(group), most, colour) for name, group in together]


def _panel(feature: Feature, group: Sequence[Shape], most: float, colour: Spec) -> Spec:
    if isinstance(feature, NumericFeature):
        missing = {str(shape.label): shape.bins[-1].votes for shape in group}
        heavy = sorted(missing.items(), key=lambda vote: -abs(vote[1]))
        listed = ", ".join(f"{label} {signed_text(number)}" for label, number in heavy[:NAMED])
        note = f"missing: {listed}{', …' if len(heavy) > NAMED else ''}"
        body = _curves(feature, group, most, colour)
    else:
        rows, hidden = _points(group)
        note, body = (f"{hidden} more found no room" if hidden else " "), _dots(rows, most, colour)
    return {"title": heading(feature.name, note), "width": WIDTH, **body}


def _curves(feature: NumericFeature, group: Sequence[Shape], most: float, colour: Spec) -> Spec:
    low, high = ends(feature)
    rows = [
        {"class": str(shape.label), "at": at, "votes": bin.votes}
        for shape in group
        for bin in shape.bins
        if bin.low is not None and bin.high is not None
        for at in (max(low, bin.low), min(high, bin.high))
    ]
    number = {"type": "quantitative", "scale": {"domain": [low, high], "nice": False, "zero": False}}
    across: Spec = {"title": None, "tickCount": 5, "grid": False, "labelOverlap": True, "labelFlush": True}
    across |= {"labelExpr": tick_words(feature)}
    votes = {"field": "votes", "type": "quantitative", "scale": {"domain": [-most, most]}, "axis": axis()}
    return {
        "height": HEIGHT,
        "layer": [
            {**ZERO, "encoding": {"y": {"datum": 0}}},
            {
                "data": {"values": rows},
                "mark": {"type": "line", "strokeWidth": 1.8},
                "encoding": {"x": {"field": "at", **number, "axis": across}, "y": votes, "order": None, **colour},
            },
        ],
    }


Point = tuple[str, str, float]  # value, class, votes


def _points(group: Sequence[Shape]) -> tuple[list[Point], int]:
    """Return the values that stand apart for some class; one row for all that vote alike; and how many found no
    room.
    """
    labels = [str(shape.label) for shape in group]
    names = [bin.label for bin in group[0].bins]
    votes = list(zip(*([bin.votes for bin in shape.bins] for shape in group), strict=True))
    usual = Counter(reversed(votes)).most_common(1)[0][0]
    unusual = [(name, row) for name, row in zip(names, votes, strict=True) if row != usual]
    unusual.sort(key=lambda item: -max(abs(a - b) for a, b in zip(item[1], usual, strict=True)))
    shown = [*unusual[:SHOWN], ("all others", usual)]
    points = [(name, *pair) for name, row in shown for pair in zip(labels, row, strict=True)]
    return points, len(unusual[SHOWN:])


def _dots(points: Sequence[Point], most: float, colour: Spec) -> Spec:
    rows = [{"value": value, "class": label, "votes": votes} for value, label, votes in points]
    across = {"field": "votes", "type": "quantitative", "scale": {"domain": [-most, most]}, "axis": axis()}
    down = {"title": None, "labelLimit": LABEL, "grid": True, "labelColor": LINE, "ticks": False}
    return {
        "height": {"step": BAR},
        "layer": [
            {**ZERO, "encoding": {"x": {"datum": 0}}},
            {
                "data": {"values": rows},
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.85},
                "encoding": {"y": {"field": "value", "type": "nominal", "sort": None, "axis": down}, "x": across}
                | colour,
            },
        ],
    }

"""What a model's pictures and its what-if form are made of: released numbers as JSON for the scripts of its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from typing import Any

from models.explain.explain import Bin, PairShape, Shape, pair_shapes, spoken_for, unit
from models.explain.heat import heat_panels_of
from models.explain.shapes import class_key, feature_groups, group_panels, importance_panel
from models.explain.svg import to_page_svg
from models.explain.vega_panels import PAGE, Panel, bar_panel, reach
from models.features.features import CALENDAR, CalendarFeature, CategoricalFeature, Feature, NumericFeature
from models.forms.ensemble import Ensemble

FIRST, FEATURES = 8, 24  # features of the first part, and of each further one
VOTES, HEAVIEST = 200, 10  # of the table, of the drawing
IMPORTANCES = 8  # bars; the table has them all
LONG_NAMES = 190  # pixels for what a vote asks
TREES = 12
PAIRS = 24  # maps of what two features add together
STEPS = 200  # of a slider from end to end


def picture(ensemble: Ensemble, after: int = 0, own: bool = False) -> dict[str, Any]:
    """Return what the features from `after` on add, FIRST or FEATURES of them, the most important first: of each its
    drawing and its numbers, in `unit`; `next`: where the rest begins. A model that is no sum over features has
    importances and texts alone. `own`: each feature on a scale of its own.
    """
    factor = ensemble.link if ensemble.in_votes else 1.0  # of others they are in it already
    of = ensemble.score_unit or unit(ensemble)
    sizes = {name: size * factor for name, size in ensemble.importances().items()}
    common = {
        "form": ensemble.word,
        "unit": of,
        "labels": [str(label) for label in spoken_for(ensemble)],
        "importances": [{"feature": name, "size": size} for name, size in sizes.items()],
        "matters": _drawing(importance_panel("What matters most", sizes, of, PAGE, IMPORTANCES)) if sizes else None,
    }
    if not ensemble.adds_up:
        texts = ensemble.texts()
        trees = {"trees": texts[:TREES], "parts": ensemble.parts, "of": len(texts)}
        return {**common, "features": [], "next": None, **trees}
    summed = ensemble.as_sum()
    groups = feature_groups(summed, factor)
    every_scale = reach([shape.bins for group in groups for shape in group])
    end = after + FEATURES if after else FIRST
    shown = groups[after:end]
    scales = [reach([shape.bins for shape in group]) if own else every_scale for group in shown]
    panels = group_panels(summed, shown, scales, of, PAGE)
    rest = {
        "features": [_feature(group, panel) for group, panel in zip(shown, panels, strict=True)],
        "next": end if len(groups) > end else None,
        "of": len(groups),
    }
    if after:
        return {**common, **rest}
    pairs = pair_shapes(summed)[:PAIRS]
    maps = [_pair(shape, panel) for shape, panel in zip(pairs, heat_panels_of(pairs, of, PAGE), strict=True)]
    keys = [_drawing(panel) for panel in class_key(summed, PAGE)]
    return {**common, **rest, "votes": _votes(ensemble) if ensemble.in_votes else None, "pairs": maps, "keys": keys}


def _drawing(panel: Panel) -> dict[str, Any]:
    """Return a panel for a page: its drawing as SVG, and the label of each place to point at, in order."""
    return {"svg": to_page_svg(panel), "places": panel.labels}


def _pair(shape: PairShape, panel: Panel) -> dict[str, Any]:
    """Return a map of what two features add together: a row for each group of the first."""
    places = [(row, column) for row in shape.rows for column in shape.columns]
    return {
        "feature": shape.title,
        "features": shape.features,
        "drawing": _drawing(panel),
        "cells": [
            {"row": row, "column": column, "adds": bin_.votes, "error": bin_.error, "count": bin_.count}
            for (row, column), bin_ in zip(places, shape.bins, strict=True)
        ],
    }


def _feature(group: Sequence[Shape], panel: Panel) -> dict[str, Any]:
    first = group[0]
    return {
        "feature": first.feature,
        "kind": "numeric" if first.kind in CALENDAR else first.kind,
        "calendar": first.kind if first.kind in CALENDAR else None,
        "drawing": _drawing(panel),
        "shapes": [{"label": str(shape.label), "bins": [_bin(bin_) for bin_ in shape.bins]} for shape in group],
    }


def _bin(found: Bin) -> dict[str, Any]:
    """Return a bin's JSON; an open end of an interval is null."""
    low, high = (end if end is not None and isfinite(end) else None for end in (found.low, found.high))
    return {
        "label": found.label,
        "interval": found.low is not None,
        "low": low,
        "high": high,
        "adds": found.votes,
        "error": found.error,
        "count": found.count,
    }


def _votes(ensemble: Ensemble) -> dict[str, Any]:
    """Return the heaviest votes, and a drawing of the first of them."""
    table = ensemble.vote_table()
    rows = [{"votes": row.votes, "test": row.test, "label": str(row.label)} for row in table[:VOTES]]
    several = ensemble.outputs > 1
    bars = [Bin(f"{row.test} ({row.label})" if several else row.test, float(row.votes)) for row in table[:HEAVIEST]]
    name = f"The {HEAVIEST} heaviest votes" if len(table) > HEAVIEST else "The votes"
    drawn = _drawing(bar_panel(name, "(votes)", bars, reach([bars]), "votes", PAGE, LONG_NAMES)) if bars else None
    return {"name": name, "rows": rows, "drawing": drawn}


@dataclass(frozen=True)
class Input:
    """A control of the what-if form. `choices`: pairs of what is sent and what is read; of a number, none. It starts in
    the middle of what is public: nobody's record."""

    name: str
    kind: str
    start: str
    choices: tuple[tuple[str, str], ...] = ()
    low: float | None = None
    high: float | None = None
    step: float | None = None


def inputs(features: Sequence[Feature]) -> list[Input]:
    """Return a control for each feature, in the features' order."""
    return [_input(feature) for feature in features]


def _input(feature: Feature) -> Input:
    if isinstance(feature, CategoricalFeature):
        listed = tuple((f"={value}", value) for value in feature.values)
        start = listed[0][0] if listed else ""
        return Input(feature.name, feature.kind, start, (*listed, ("?", "another value"), ("", "not known")))
    if isinstance(feature, CalendarFeature):
        middle = feature.edges[len(feature.edges) // 2] if feature.edges else 0.0
        return Input(feature.name, feature.kind, feature.text(middle))
    if isinstance(feature, NumericFeature):
        return _number(feature)
    return Input(feature.name, feature.kind, "false", (("true", "true"), ("false", "false"), ("", "not known")))


def _number(feature: NumericFeature) -> Input:
    """Return a slider from below the first cut point to above the last, whose ends and steps are round."""
    if not feature.edges:
        return Input(feature.name, feature.kind, "0")
    low, high, middle = feature.edges[0], feature.edges[-1], feature.edges[len(feature.edges) // 2]
    step = _round_step((high - low) / STEPS) if high > low else None
    if step is None:
        return Input(feature.name, feature.kind, f"{middle:.10g}", (), low, high, None)
    low, high = (float(f"{ends * step:.10g}") for ends in (floor(low / step), ceil(high / step)))
    return Input(feature.name, feature.kind, f"{round(middle / step) * step:.10g}", (), low, high, step)


def _round_step(rough: float) -> float:
    """Return the largest of 1, 2, 5 times a power of ten that is not above `rough`; 1 where that would be 0.1 to 1."""
    power = 10.0 ** (len(str(int(rough))) - 1 if rough >= 1 else -_places(rough))
    step = max(digit * power for digit in (1, 2, 5) if digit * power <= rough * (1 + 1e-9))
    return 1.0 if 0.1 <= step < 1 else step


def _places(rough: float) -> int:
    return int(-(log10(rough) // 1))

"""Panels of what features add: each feature's curve or bars with the noise's own standard error, and below or beside it
the released counts; of several classes one curve or point each. Most important first, all on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from models.explain.explain import Bin, Shape, shapes, share_cuts, spoken_for, unit
from models.explain.vega_panels import (
    SHOWN,
    Colours,
    Panel,
    Scale,
    bar_panel,
    class_palette,
    curve_panel,
    key_panel,
    points_panel,
    reach,
)
from models.explain.vega_parts import amount
from models.features.features import Feature, NumericFeature
from models.parts.released import FeatureSum

BAND = (
    "Shaded, and whiskers: what the privacy noise alone does, ±1 and ±2 of its standard error. "
    "Grey: the released, noisy counts (square roots)."
)
NAMED = 4  # classes of a note


def feature_groups(ensemble: FeatureSum, factor: float = 1.0) -> list[list[Shape]]:
    """Return the shapes of each feature that moves a score, a shape for each class that it moves, times `factor`."""
    features = {feature.name: feature for feature in ensemble.features}
    by_feature = groupby(shapes(ensemble), key=lambda shape: shape.feature)
    groups = [share_cuts(features[name], list(group)) for name, group in by_feature]
    if factor == 1:
        return groups
    return [
        [replace(shape, bins=tuple(replace(bin, votes=bin.votes * factor) for bin in shape.bins)) for shape in group]
        for group in groups
    ]


def shape_panels(ensemble: FeatureSum, colours: Colours, of: str = "") -> list[Panel]:
    """Return a panel for each feature that moves a score, with numbers in `of` (the model's own unit where
    blank); with several classes, a key before them.
    """
    groups = feature_groups(ensemble)
    scale = reach([shape.bins for group in groups for shape in group])
    return [*class_key(ensemble, colours), *group_panels(ensemble, groups, [scale] * len(groups), of, colours)]


def class_key(ensemble: FeatureSum, colours: Colours) -> list[Panel]:
    """Return the panel that tells the classes' colours, where there are several."""
    names = [str(label) for label in spoken_for(ensemble)]
    return [key_panel(ensemble.target, names, class_palette(len(names)), colours)] if len(names) > 1 else []


def group_panels(
    ensemble: FeatureSum, groups: Sequence[Sequence[Shape]], scales: Sequence[Scale], of: str, colours: Colours
) -> list[Panel]:
    """Return a panel for each group, on its scale."""
    features = {feature.name: feature for feature in ensemble.features}
    labels = [str(label) for label in spoken_for(ensemble)]
    palette = dict(zip(labels, class_palette(len(labels)), strict=True))
    draw = shape_panel if len(labels) == 1 else _classes_panel
    return [
        draw(features[group[0].feature], group, scale, of or unit(ensemble), colours, palette)
        for group, scale in zip(groups, scales, strict=True)
    ]


def shape_panel(
    feature: Feature,
    group: Sequence[Shape],
    scale: Scale,
    of: str,
    colours: Colours,
    palette: dict[str, str] | None = None,
) -> Panel:
    """Return a curve of a number; else bars of the values that add most either way, in order of what they add."""
    [shape] = group
    counted = any((bin.count or 0) > 0 for bin in shape.bins)
    note = f"{'mean' if counted else 'largest'} size {amount(shape.importance, '-')} ({of})"
    if isinstance(feature, NumericFeature):
        return curve_panel(feature, [shape.bins], scale, of, note, colours)
    heaviest = sorted(shape.bins, key=lambda each: -abs(each.votes))[:SHOWN]
    hidden = len(shape.bins) - len(heaviest)
    note += f"; {hidden} not shown" if hidden else ""
    return bar_panel(shape.feature, note, sorted(heaviest, key=lambda each: -each.votes), scale, of, colours)


def _classes_panel(
    feature: Feature, group: Sequence[Shape], scale: Scale, of: str, colours: Colours, palette: dict[str, str]
) -> Panel:
    """Return a curve of a number for each class that it moves; else a line a value with a point for each class."""
    names = [str(shape.label) for shape in group]
    inks = [palette[name] for name in names]
    if isinstance(feature, NumericFeature):
        votes_of = ((shape.bins[-1].votes, name) for shape, name in zip(group, names, strict=True))
        missing = sorted(votes_of, key=lambda item: -abs(item[0]))
        listed = ", ".join(f"{name} {amount(votes)}" for votes, name in missing[:NAMED])
        note = f"missing: {listed}{', …' if len(missing) > NAMED else ''}"
        return curve_panel(feature, [shape.bins for shape in group], scale, of, note, colours, names, inks)
    lines = sorted(
        zip(*(shape.bins for shape in group), strict=True), key=lambda bins: -max(abs(bin.votes) for bin in bins)
    )
    hidden = len(lines[SHOWN:])
    note = f"({of})" + (f"; {hidden} not shown" if hidden else "")
    return points_panel(feature.name, note, lines[:SHOWN], scale, of, names, colours, inks)


def compared_panel(
    feature: Feature,
    curves: tuple[Sequence[Bin], Sequence[Bin]],
    scale: Scale,
    of: str,
    names: tuple[str, str],
    colours: Colours,
) -> Panel:
    """Return two models' curves of one feature, the first in blue and the second in orange; of values one point
    each.
    """
    if isinstance(feature, NumericFeature):
        return curve_panel(feature, curves, scale, of, f"({of})", colours, names)
    by_difference = sorted(zip(*curves, strict=True), key=lambda pair: -abs(pair[0].votes - pair[1].votes))
    hidden = len(by_difference[SHOWN:])
    note = f"({of})" + (f"; {hidden} not shown" if hidden else "")
    pairs = sorted(by_difference[:SHOWN], key=lambda pair: -pair[0].votes)
    return points_panel(feature.name, note, pairs, scale, of, names, colours)


def importance_panel(name: str, sizes: dict[str, float], of: str, colours: Colours, most: int = SHOWN) -> Panel:
    """Return a bar for each of the `most` features that move the score farthest."""
    bars = [Bin(feature, size) for feature, size in sizes.items()]
    note = f"({of})" + (f"; {len(bars) - most} not shown" if len(bars) > most else "")
    return bar_panel(name, note, bars[:most], reach([bars]), of, colours, NAMES)


NAMES = 150  # pixels for the names of features

"""Panels of what features add: each feature's curve or bars with the noise's own standard error, and below or beside it
the released counts. Most important first, all on one scale."""

from __future__ import annotations

from collections.abc import Sequence

from models.explain.explain import Bin, Shape, shapes, unit
from models.explain.vega_panels import SHOWN, Colours, Panel, Scale, bar_panel, curve_panel, pair_panel, reach
from models.explain.vega_parts import amount
from models.features.features import Feature, NumericFeature
from models.parts.released import FeatureSum

BAND = (
    "Shaded, and whiskers: what the privacy noise alone does, ±1 and ±2 of its standard error. "
    "Grey: the released, noisy counts (square roots)."
)


def shape_panels(ensemble: FeatureSum, colours: Colours) -> list[Panel]:
    """Return one per feature that moves a score."""
    drawn = shapes(ensemble)
    features = {feature.name: feature for feature in ensemble.features}
    scale = reach([shape.bins for shape in drawn])
    return [shape_panel(features[shape.feature], shape, scale, unit(ensemble), colours) for shape in drawn]


def shape_panel(feature: Feature, shape: Shape, scale: Scale, of: str, colours: Colours) -> Panel:
    """Return a curve of a number; else bars of the values that add most either way, in order of what they add."""
    counted = any((bin.count or 0) > 0 for bin in shape.bins)
    note = f"{'mean' if counted else 'largest'} size {amount(shape.importance, '-')} ({of})"
    if isinstance(feature, NumericFeature):
        return curve_panel(feature, [shape.bins], scale, of, note, colours)
    heaviest = sorted(shape.bins, key=lambda each: -abs(each.votes))[:SHOWN]
    hidden = len(shape.bins) - len(heaviest)
    note += f"; {hidden} not shown" if hidden else ""
    return bar_panel(shape.feature, note, sorted(heaviest, key=lambda each: -each.votes), scale, of, colours)


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
    return pair_panel(feature.name, note, pairs, scale, of, names, colours)

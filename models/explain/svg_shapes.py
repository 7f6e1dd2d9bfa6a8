"""Panels of an additive model: each feature's curve or bars with the noise's own standard error, and below or beside it
the released counts. Most important first, all on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from models.explain.explain import Bin, Shape, shapes, unit
from models.explain.svg import WIDTH, Panel, Scale, amount, path, plain_amount, rect, segment, shortened, text
from models.explain.vega_parts import ends
from models.features import Feature, NumericFeature, number_text
from models.released import FeatureSum

TOP, PLOT, STRIP, FOOT = 40.0, 132.0, 26.0, 20.0  # pixels: title, curve, counts, axis
LEFT, RIGHT, SLOT = 62.0, 292.0, 318.0  # of the axis, and of the point of missing values
ROW, SHOWN, NAMES, BARS, COUNTS = 20.0, 16, 104.0, 284.0, 292.0  # bars: height, most, ends of names, bars; the counts
BAND = (
    "Shaded, and whiskers: what the privacy noise alone does, ±1 and ±2 of its standard error. "
    "Grey: the released, noisy counts (square roots)."
)


def shape_panels(ensemble: FeatureSum) -> list[Panel]:
    found = shapes(ensemble)
    features = {feature.name: feature for feature in ensemble.features}
    scale = reach([shape.bins for shape in found])
    return [panel(features[shape.feature], shape, scale, unit(ensemble)) for shape in found]


def reach(curves: Sequence[Sequence[Bin]]) -> tuple[float, float]:
    """One scale for all, 0 on it: the values that stand above their noise, with some room for it. What is beyond ends
    at the edge."""
    bins = [each for curve in curves for each in curve]
    clear = [each for each in bins if abs(each.votes) > 2 * (each.error or 0)] or bins
    room = 0.3 * max((abs(each.votes) for each in clear), default=1.0) or 1.0
    low = min((each.votes - min(2 * (each.error or 0), room) for each in clear), default=0.0)
    high = max((each.votes + min(2 * (each.error or 0), room) for each in clear), default=0.0)
    return min(low, 0.0) - room / 5, max(high, 0.0) + room / 5


def panel(feature: Feature, shape: Shape, scale: tuple[float, float], of: str) -> Panel:
    if isinstance(feature, NumericFeature):
        return curve_panel(feature, [shape.bins], scale, of, sized(shape, of))
    return _bars(shape, scale, of)


def compared_panel(
    feature: Feature,
    curves: tuple[Sequence[Bin], Sequence[Bin]],
    scale: tuple[float, float],
    of: str,
    names: tuple[str, str],
) -> Panel:
    """Two curves of one feature, the first in blue and the second in orange; of values one point each."""
    if isinstance(feature, NumericFeature):
        return curve_panel(feature, curves, scale, of, f"({of})", names)
    pairs = sorted(zip(*curves, strict=True), key=lambda pair: -abs(pair[0].votes - pair[1].votes))[:SHOWN]
    hidden = len(curves[0]) - len(pairs)
    note = f"({of})" + (f"; {hidden} not shown" if hidden else "")
    x, foot = Scale(*scale, NAMES + 6, WIDTH), TOP + ROW * len(pairs)
    parts = [text(0, 14, shortened(feature.name, 40), "name"), text(0, 30, note), *_columns(x, foot)]
    for at, pair in enumerate(sorted(pairs, key=lambda pair: -pair[0].votes)):
        top = TOP + ROW * at
        parts.append(text(NAMES, top + ROW * 0.7, shortened(pair[0].label, int(NAMES / 6.6)), "right ink"))
        parts += [_point(each, x, top + 7 + 6 * k, "ab"[k]) for k, each in enumerate(pair)]
        parts.append(rect(0, top, WIDTH, ROW, "hit", _told(pair, of, names)))
    return Panel(feature.name, foot + FOOT, "".join(parts))


def _point(each: Bin, x: Scale, y: float, kind: str) -> str:
    error = 2 * (each.error or 0)
    whisker = segment(x(each.votes - error), y, x(each.votes + error), y, "whisker")
    return whisker + rect(x(each.votes) - 3, y - 3, 6, 6, kind)


def curve_panel(
    feature: NumericFeature,
    curves: Sequence[Sequence[Bin]],
    scale: tuple[float, float],
    of: str,
    note: str,
    names: Sequence[str] = ("",),
) -> Panel:
    """One curve in blue, a second in orange; the counts are of the first."""
    y, x = Scale(*scale, TOP + PLOT, TOP), Scale(*ends(feature), LEFT, RIGHT)
    parts = [text(0, 14, shortened(feature.name, 40), "name"), text(0, 30, note), *_frame(x, y)]
    for bins, kind in zip(curves, "ab", strict=False):
        parts += _curve(bins, x, y, kind)
    if curves[0][0].count is not None:
        parts += _strip(curves[0], x)
    parts += [_hit(told, x, _told(told, of, names)) for told in zip(*curves, strict=True)]
    return Panel(feature.name, TOP + PLOT + STRIP + FOOT, "".join(parts))


def _frame(x: Scale, y: Scale) -> list[str]:
    foot = TOP + PLOT
    parts = []
    for tick in y.ticks():
        parts += [
            segment(LEFT, y(tick), WIDTH, y(tick), "faint"),
            text(LEFT - 6, y(tick) + 4, plain_amount(tick), "right"),
        ]
    for tick in x.ticks():
        at, words = x(tick), number_text(tick)
        parts.append(segment(at, foot, at, foot + STRIP, "faint"))
        if at + 3 * len(words) < SLOT - 26:  # else it would stand on the word for missing values
            parts.append(text(at, foot + STRIP + 14, words, "middle"))
    parts.append(text(SLOT, foot + STRIP + 14, "missing", "middle"))
    return [*parts, segment(LEFT, y(0), WIDTH, y(0), "zero")]


def _curve(bins: Sequence[Bin], x: Scale, y: Scale, kind: str) -> list[str]:
    """Bands, steps, and the missing values as a point with its whisker."""
    held = [(x(each.low), x(each.high), each) for each in bins if each.low is not None and each.high is not None]
    parts = []
    for times, name in ((2, "wide"), (1, "close")):
        upper = [(at, y(b.votes + times * (b.error or 0))) for low, high, b in held for at in (low, high)]
        lower = [(at, y(b.votes - times * (b.error or 0))) for low, high, b in held for at in (low, high)]
        parts.append(path([*upper, *reversed(lower)], f"{name} {kind}", closed=True))
    parts.append(path([(at, y(b.votes)) for low, high, b in held for at in (low, high)], f"line {kind}"))
    away = bins[-1]
    shift = SLOT + (5 if kind == "b" else -5 if away.error is None else 0)
    error = 2 * (away.error or 0)
    parts.append(segment(shift, y(away.votes - error), shift, y(away.votes + error), "whisker"))
    parts.append(rect(shift - 3.5, y(away.votes) - 3.5, 7, 7, kind))
    return parts


def _strip(bins: Sequence[Bin], x: Scale) -> list[str]:
    """Counts as areas. Square roots of the heights: a bin that holds nearly everybody would hide all others."""
    foot = TOP + PLOT + STRIP
    held = [(x(b.low), x(b.high), max(b.count or 0, 0)) for b in bins if b.low is not None and b.high is not None]
    dense = [(low, high, sqrt(count / max(high - low, 0.5))) for low, high, count in held]
    most = max((each for _, _, each in dense), default=0.0) or 1.0
    tall = STRIP - 4
    return [rect(low, foot - tall * each / most, high - low, tall * each / most, "count") for low, high, each in dense]


def _hit(told: Sequence[Bin], x: Scale, says: str) -> str:
    """What answers the pointer over a bin: the whole height."""
    first = told[0]
    low, high = (SLOT - 16, SLOT + 16) if first.low is None or first.high is None else (x(first.low), x(first.high))
    return rect(low, TOP, high - low, PLOT + STRIP, "hit", says)


def _told(bins: Sequence[Bin], of: str, names: Sequence[str]) -> str:
    """A bin in words; of several curves a line each, under the bin's own."""
    if len(bins) == 1:
        return said(bins[0], of)
    return "\n".join([bins[0].label, *(said(each, of, name) for each, name in zip(bins, names, strict=True))])


def said(each: Bin, of: str, name: str = "") -> str:
    """A bin in words."""
    error = "" if each.error is None else f" ± {amount(each.error, '-')}"
    count = "" if each.count is None else f"; {each.count:,} records by the released count"
    return f"{name or each.label}: {amount(each.votes)}{error} ({of}){count}"


def sized(shape: Shape, of: str) -> str:
    """A feature's importance in words."""
    counted = any((each.count or 0) > 0 for each in shape.bins)
    return f"{'mean' if counted else 'largest'} size {amount(shape.importance, '-')} ({of})"


def _bars(shape: Shape, scale: tuple[float, float], of: str) -> Panel:
    """The values that add most either way, in order of what they add."""
    kept = sorted(sorted(shape.bins, key=lambda each: -abs(each.votes))[:SHOWN], key=lambda each: -each.votes)
    hidden = len(shape.bins) - len(kept)
    note = sized(shape, of) + (f"; {hidden} not shown" if hidden else "")
    return bar_panel(shape.feature, note, kept, scale, of)


def bar_panel(
    name: str, note: str, bars: Sequence[Bin], scale: tuple[float, float], of: str, names: float = NAMES
) -> Panel:
    """One bar a line, in the order given; `names`: where the names end, in pixels."""
    end = WIDTH if bars[0].count is None else BARS
    x, foot = Scale(*scale, names + 6, end), TOP + ROW * len(bars)
    parts = [text(0, 14, shortened(name, 40), "name"), text(0, 30, note)]
    parts += _columns(x, foot)
    most = max((each.count or 0 for each in bars), default=0) or 1
    for at, each in enumerate(bars):
        parts.append(text(names, TOP + ROW * (at + 0.7), shortened(each.label, int(names / 6.6)), "right ink"))
        parts += _bar(each, x, TOP + ROW * at, most)
        parts.append(rect(0, TOP + ROW * at, WIDTH, ROW, "hit", said(each, of)))
    return Panel(name, foot + FOOT, "".join([*parts, segment(x(0), TOP, x(0), foot, "zero")]))


def _columns(x: Scale, foot: float) -> list[str]:
    """The scale of bars: a faint line for each tick, and its number below."""
    lines = [segment(x(tick), TOP, x(tick), foot, "zero" if tick == 0 else "faint") for tick in x.ticks(4)]
    return [*lines, *(text(x(tick), foot + 14, plain_amount(tick), "middle") for tick in x.ticks(4))]


def _bar(each: Bin, x: Scale, top: float, most: int) -> list[str]:
    """A bar, twice its standard error either way, and how many records there are."""
    start, end = sorted((x(0), x(each.votes)))
    parts = [rect(start, top + 4, end - start, ROW - 8, "bar a" if each.votes >= 0 else "bar b")]
    if each.error is not None:
        low, high, middle = x(each.votes - 2 * each.error), x(each.votes + 2 * each.error), top + ROW / 2
        parts += [segment(low, middle, high, middle, "whisker")]
        parts += [segment(at, middle - 3, at, middle + 3, "whisker") for at in (low, high)]
    if each.count is not None:
        parts.append(rect(COUNTS, top + 5, (WIDTH - COUNTS) * sqrt(max(each.count, 0) / most), ROW - 10, "count"))
    return parts

"""Two models side by side: what each value adds in either, on bins that both can tell apart, and how far they differ in
units of their joint standard error. Arithmetic on released numbers; it costs nothing.

Of each feature both curves are moved to average 0 over the same shares of records: those of the released counts, of
both models together where both have them, or equal ones where neither has. A count is shared evenly among the pieces of
its bin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from models.explain.explain import Bin, errors, places, terms, unit, weights
from models.explain.html import KEYS, figure, grid, page, paragraph, table
from models.explain.shapes import compared_panel
from models.explain.vega import to_svg
from models.explain.vega_files import write_drawing
from models.explain.vega_panels import LIGHT, PAGE, Colours, Panel, gallery, reach
from models.explain.vega_parts import amount
from models.features.features import BooleanFeature, CategoricalFeature, Feature, NumericFeature
from models.parts.released import Released

LISTED = 30  # differences of a table
OUTSIDE = 0.0455  # of a normal deviate, beyond two standard errors


@dataclass(frozen=True)
class Difference:
    """One bin: what the second adds more than the first, and that in joint standard errors, None where unknown."""

    feature: str
    first: Bin
    second: Bin

    @property
    def more(self) -> float:
        """Return the second less the first, in the comparison's unit."""
        return self.second.votes - self.first.votes

    @property
    def error(self) -> float | None:
        """Return the standard error of the difference between two independent releases; None where one has no error."""
        if self.first.error is None or self.second.error is None:
            return None
        return hypot(self.first.error, self.second.error)

    @property
    def deviates(self) -> float | None:
        """Return `more` in joint standard errors; None where these are not known."""
        return self.more / self.error if self.error else None


@dataclass(frozen=True)
class Comparison:
    """Of two models that answer the same question: common features with both curves, and the features of one alone."""

    names: tuple[str, str]
    unit: str
    features: tuple[Feature, ...]
    curves: tuple[tuple[tuple[Bin, ...], tuple[Bin, ...]], ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]
    pairs: tuple[str, ...] = ()  # of features, in either: what they add is not compared

    @property
    def differences(self) -> list[Difference]:
        """Return every bin: the largest in joint standard errors first, then those that have no such error, by size."""
        differences = [
            Difference(feature.name, *pair)
            for feature, curves in zip(self.features, self.curves, strict=True)
            for pair in zip(*curves, strict=True)
        ]
        return sorted(differences, key=lambda each: (-abs(each.deviates or 0), -abs(each.more)))

    def summary(self) -> str:
        """Return how many values differ by more than two joint standard errors, in a sentence."""
        deviations = [abs(deviation.deviates) for deviation in self.differences if deviation.deviates is not None]
        if not deviations:
            return "No standard errors were released for both, so differences are in their own unit alone."
        beyond = sum(deviation > 2 for deviation in deviations)
        share = f"{beyond / len(deviations):.1%}"
        return (
            f"{beyond} of {len(deviations)} values differ by more than two joint standard errors, {share}; "
            f"noise alone would make {OUTSIDE:.1%} do so, had both been shrunk alike."
        )


def compare(first: Released, second: Released, names: tuple[str, str]) -> Comparison:
    """Compare two models. InputError unless both add up one score, for the same target and classes, and share a
    feature.
    """
    for ensemble, name in zip((first, second), names, strict=True):
        if ensemble.as_sum().outputs > 1:
            raise InputError(f"compare={name}: has a score for each class; one score each can be compared")
    if (first.target, first.classes) != (second.target, second.classes):
        raise InputError(f"compare={names[1]}: answers {_answers(second)}, {names[0]} {_answers(first)}")
    places_of = {feature.name: at for at, feature in enumerate(second.features)}
    pairs = [(at, places_of[f.name]) for at, f in enumerate(first.features) if f.name in places_of]
    if not pairs:
        raise InputError(f"compare={names[1]}: reads none of the features of {names[0]}")
    united = tuple(_union(first.features[a], second.features[b]) for a, b in pairs)
    curves = tuple(_both(first, a, second, b, f) for (a, b), f in zip(pairs, united, strict=True))
    common = {feature.name for feature in united}
    only = tuple(tuple(f.name for f in model.features if f.name not in common) for model in (first, second))
    together = tuple(dict.fromkeys(pair.name(e.features) for e in (first, second) for pair in e.as_sum().pairs))
    return Comparison(names, unit(first), united, curves, (only[0], only[1]), together)


def _answers(ensemble: Released) -> str:
    return f"{ensemble.target}: {' or '.join(map(str, ensemble.classes)) or 'a number'}"


def _union(first: Feature, second: Feature) -> Feature:
    """Return a feature whose bins tell apart all that either does."""
    match first, second:
        case NumericFeature(), NumericFeature() if first.kind == second.kind:
            return type(first)(first.name, tuple(sorted({*first.edges, *second.edges})))
        case CategoricalFeature(), CategoricalFeature():
            return CategoricalFeature(first.name, tuple(dict.fromkeys((*first.values, *second.values))))
        case BooleanFeature(), BooleanFeature():
            return first
    raise InputError(f"compare: {first.name} is {first.kind} in one and {second.kind} in the other")


def _codes(feature: Feature, united: Feature) -> NDArray[np.intp]:
    """Return the code of `feature` that each code of `united` falls into."""
    if isinstance(feature, NumericFeature) and isinstance(united, NumericFeature):
        inside = feature.encode(np.array([*united.edges, np.inf]))
    elif isinstance(feature, CategoricalFeature) and isinstance(united, CategoricalFeature):
        inside = np.array([*feature.encode(np.array(united.values, dtype=object)), feature.other])
    else:
        return np.arange(united.bins)
    return np.array([*inside, feature.missing], np.intp)


def _both(
    first: Released, a: int, second: Released, b: int, united: Feature
) -> tuple[tuple[Bin, ...], tuple[Bin, ...]]:
    sides = [(e, at, _codes(e.features[at], united)) for e, at in ((first, a), (second, b))]
    weights_of_sides = [_spread(weights(e, at), codes) for e, at, codes in sides]
    spreads = [weights_of_side for weights_of_side in weights_of_sides if weights_of_side is not None]
    shares = np.mean(spreads, axis=0) if spreads else np.full(united.bins, 1 / united.bins)
    first_curve, second_curve = (_curve(e, at, codes, shares, united) for e, at, codes in sides)
    return first_curve, second_curve


def _spread(shares: NDArray[np.float64] | None, codes: NDArray[np.intp]) -> NDArray[np.float64] | None:
    if shares is None:
        return None
    pieces = (shares / np.maximum(np.bincount(codes, minlength=len(shares)), 1))[codes]
    spread: NDArray[np.float64] = pieces / pieces.sum() if pieces.sum() > 0 else np.full(len(codes), 1 / len(codes))
    return spread


def _curve(
    ensemble: Released, at: int, codes: NDArray[np.intp], shares: NDArray[np.float64], united: Feature
) -> tuple[Bin, ...]:
    adds = terms(ensemble)[at][codes, 0]
    adds = adds - shares @ adds
    noise = errors(ensemble)
    bins = [Bin(label, float(bin), low, high) for (label, low, high), bin in zip(places(united), adds, strict=True)]
    if noise is None:
        return tuple(bins)
    return tuple(replace(bin, error=float(e)) for bin, e in zip(bins, noise[at][codes], strict=True))


def comparison_picture(found: Comparison, path: Path, claims: tuple[str, str]) -> None:
    """Write `path`, a .png, .svg or self-contained .html; InputError else."""
    title = f"{found.names[0]} and {found.names[1]}"
    lines = [
        f"{colour}: {name}, {claim}"
        for colour, name, claim in zip(("Blue", "Orange"), found.names, claims, strict=True)
    ]
    write_drawing(
        path,
        lambda: to_svg(gallery(title, [*lines, found.summary()], panels(found, LIGHT))),
        lambda: _page(found, title, lines),
    )


def panels(found: Comparison, colours: Colours) -> list[Panel]:
    """Return a panel for each common feature, the most different first."""
    scale = reach([bins for pair in found.curves for bins in pair])
    order = sorted(zip(found.features, found.curves, strict=True), key=lambda item: _apart(item[0].name, item[1]))
    return [compared_panel(feature, curves, scale, found.unit, found.names, colours) for feature, curves in order]


def _apart(name: str, curves: tuple[tuple[Bin, ...], tuple[Bin, ...]]) -> tuple[float, float]:
    """Return a key that sorts the most different first: by the mean square in standard errors, else by the mean
    size.
    """
    differences = [Difference(name, *pair) for pair in zip(*curves, strict=True)]
    square = np.mean([(difference.deviates or 0) ** 2 for difference in differences])
    return -float(square), -float(np.mean([abs(difference.more) for difference in differences]))


def _page(comparison: Comparison, title: str, lines: list[str]) -> str:
    rows = [
        (
            difference.feature,
            difference.first.label,
            amount(difference.first.votes),
            amount(difference.second.votes),
            amount(difference.more),
            "" if difference.error is None else amount(difference.error, "-"),
            "" if difference.deviates is None else f"{difference.deviates:+.1f}".replace("-", "−"),
        )
        for difference in comparison.differences[:LISTED]
    ]
    head = ("feature", "value", *comparison.names, "difference", "joint standard error", "in standard errors")
    only_lines = [
        f"Only in {name}: {', '.join(only)}."
        for name, only in zip(comparison.names, comparison.only, strict=True)
        if only
    ]
    only_lines += (
        [f"Not compared, what two features add together: {', '.join(comparison.pairs)}."] if comparison.pairs else []
    )
    body = [
        *(paragraph(line, "quiet") for line in lines),
        KEYS,
        paragraph(comparison.summary()),
        *map(paragraph, only_lines),
    ]
    body += [paragraph(HOW), "<h2>The curves</h2>", grid(map(figure, panels(comparison, PAGE)))]
    return page(title, "\n".join([*body, "<h2>The largest differences</h2>", table(head, rows)]))


HOW = (
    "All values are on one scale, each curve moved to average 0 over the same shares of records. Bands: ±1 and ±2 "
    "standard errors of each model's own privacy noise. The joint standard error holds for two models released "
    "independently: an edited model shares the noise of the one it was made from, and every difference is the edit."
)

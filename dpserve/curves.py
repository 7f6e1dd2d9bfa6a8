"""The curves of an additive model, read from a service's `/explain`: one record for each bin of each feature.

What a feature adds does not depend on the others, so the rest of a record is left out. Terms of two features together
are not among the curves; `Explanation` has them, record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import floor
from typing import Any

from dpserve import drawings
from dpserve.types import Explanation, Json, Record

SHOWN = 12  # features of a drawing; `columns` and `importance` have all
MISSING, OTHER = "missing", "other"
RECORDS_A_REQUEST = 500  # records of a request
CALENDAR = ("date", "datetime", "time")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Bin:
    """One bin of a feature.

    Attributes:
        value: The last number of the bin, the value itself, or None where it is missing.
        said: The same in words.
        adds: What it adds, a number for each score.
    """

    value: float | str | None
    said: str
    adds: tuple[float, ...]


@dataclass(frozen=True)
class Curves:
    """What each feature of a model adds to its score, by the feature's value. In a notebook it is a drawing.

    Attributes:
        model: The model's name.
        unit: The unit of what is added.
        classes: The classes, where each has a score of its own; empty where there is one score.
        bins: The bins of each feature.
    """

    model: str
    unit: str
    classes: Sequence[Any]
    bins: Mapping[str, Sequence[Bin]]

    def importance(self) -> dict[str, float]:
        """Return how far apart the ends of each curve are, in `unit`, the largest first. Of several classes, the widest
        curve counts.
        """
        sizes = {name: max(high - low for low, high in _ends(bins)) for name, bins in self.bins.items()}
        return dict(sorted(sizes.items(), key=lambda each: -each[1]))

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns `feature`, `value` and `adds`, or `adds_<class>` for each class. pandas, polars and
        pyarrow make a frame of them.
        """
        lines = [(name, bin) for name, bins in self.bins.items() for bin in bins]
        names = [f"adds_{label}" for label in self.classes] or ["adds"]
        added = {head: [bin.adds[at] for _, bin in lines] for at, head in enumerate(names)}
        return {"feature": [name for name, _ in lines], "value": [bin.said for _, bin in lines], **added}

    def svg(self) -> str:
        """Draw importance as bars, then what weighs most: the curves of numbers on one scale, two beside each other,
        and the values of other features as bars, of several classes those of the last.
        """
        heavy = dict(list(self.importance().items())[:SHOWN])
        drawn, y = drawings.bars(f"{self.model}: how far apart each curve's ends are ({self.unit})", heavy)
        parts, numbers = [drawn], [name for name in heavy if isinstance(self.bins[name][0].value, float)]
        ends = [end for name in numbers for end in _ends(self.bins[name])]
        for count, name in enumerate(numbers):
            points = [(float(each.value or 0), each.adds) for each in self.bins[name] if each.value is not None]
            lines = [[(x, adds[at]) for x, adds in points] for at in range(len(points[0][1]))]
            scale = min(low for low, _ in ends), max(high for _, high in ends)
            at = (count % 2) * (drawings.WIDE + 20), y + count // 2 * drawings.HIGH
            parts.append(drawings.steps(name, lines, *scale, at))
        y += (len(numbers) + 1) // 2 * drawings.HIGH
        for name in (each for each in heavy if each not in numbers):
            sizes = sorted(((each.said, each.adds[-1]) for each in self.bins[name]), key=lambda each: -abs(each[1]))
            drawn, tall = drawings.bars(f"{name}: {self.classes[-1]}" if self.classes else name, dict(sizes[:SHOWN]), y)
            parts.append(drawn)
            y += tall
        return drawings.svg(parts, 2 * drawings.WIDE + 20, y, f"what each feature of {self.model} adds")

    def _repr_html_(self) -> str:
        return self.svg()


def _ends(bins: Sequence[Bin]) -> list[tuple[float, float]]:
    """Return the least and the most that any value adds, for each score."""
    return [(min(score), max(score)) for score in zip(*(bin.adds for bin in bins), strict=True)]


def curves_of(model: Json, explain: Callable[[Sequence[Record]], Explanation]) -> Curves:
    """Ask `explain` for the curves of a `model`, as a service describes it. Raises as `explain` does: `not_additive`
    for trees.
    """
    blank: dict[str, float | str | bool | None] = dict.fromkeys(feature["name"] for feature in model["features"])
    probes = [(feature["name"], *bin) for feature in model["features"] for bin in _bins(feature)]
    bins: dict[str, list[Bin]] = {}
    for start in range(0, len(probes), RECORDS_A_REQUEST):
        part = probes[start : start + RECORDS_A_REQUEST]
        explanation = explain([{**blank, name: sent} for name, sent, _, _ in part])
        for (name, _, value, words), line in zip(part, explanation.contributions, strict=True):
            adds = line[list(explanation.features).index(name)]
            bins.setdefault(name, []).append(Bin(value, words, tuple(adds) if isinstance(adds, list) else (adds,)))
    several = isinstance(next(iter(bins.values()))[0].adds, tuple) and len(next(iter(bins.values()))[0].adds) > 1
    return Curves(explanation.model, explanation.unit, model["classes"] if several else (), bins)


def _bins(feature: Json) -> list[tuple[float | str | bool | None, float | str | None, str]]:
    """Return, for each bin of a feature, a value to send, its place on a line, and words."""
    kind, none = feature["type"], (None, None, MISSING)
    if kind == "categorical":
        listed = feature["values"]
        unlisted = next(text for text in (OTHER + "_" * n for n in range(len(listed) + 1)) if text not in listed)
        return [*((value, value, value) for value in listed), (unlisted, unlisted, unlisted), none]
    if kind == "boolean":
        return [(False, "no", "no"), (True, "yes", "yes"), none]
    edges = feature["edges"] or [0.0]
    ends = [*edges, edges[-1] + (edges[-1] - edges[0] or 1.0) / max(1, len(edges) - 1)]
    texts = [_calendar(kind, end) if kind in CALENDAR else drawings.short_number(end) for end in ends]
    words = [*(f"to {edge}" for edge in texts[:-1]), f"above {texts[-2]}"]
    sent = texts if kind in CALENDAR else ends
    return [*((value, float(end), word) for value, end, word in zip(sent, ends, words, strict=True)), none]


def _calendar(kind: str, at: float) -> str:
    """Return the last day or second up to `at`, in ISO 8601."""
    if kind == "date":
        return (EPOCH + timedelta(days=floor(at))).date().isoformat()
    moment = EPOCH + timedelta(seconds=floor(at))
    return f"{moment:%H:%M:%S}" if kind == "time" else f"{moment:%Y-%m-%dT%H:%M:%S}"

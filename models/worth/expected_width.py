"""How wide the intervals of an evaluation will be, said before it is paid: a simulation from public numbers alone.

Records are made up, of models from poor to good, counted in the cells that the evaluation will have, given noise of its
variance, and measured by the code that measures. Nothing here reads rows; the same numbers give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import shake_256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.parts.answers import Scores
from models.parts.forecast import Forecast, next_rung
from models.worth.cover import CoverLayout, cover_metrics
from models.worth.groups import GroupedLayout
from models.worth.intervals import Noise
from models.worth.layout import Layout
from models.worth.metrics import Metric, each_metric
from models.worth.paired import PairedLayout, paired_metrics
from models.worth.scored import ScoredLayout, scored_metrics

Floats = NDArray[np.float64]
UngroupedLayout = Layout | PairedLayout | ScoredLayout | CoverLayout
AnyLayout = UngroupedLayout | GroupedLayout
RECORDS = 1500  # that are made up of each model
DRAWS = 3  # of the noise, for each model
SHARES = (0.5, 0.3, 0.15)  # of the class that is looked for, where the schema declares none
APART = (1.0, 1.6, 2.2, 3.0)  # of two classes' scores, in their deviations: AUROC .76, .87, .94, .98
RIGHT = (0.5, 1.5, 3.0)  # of several classes, how far the true one's score stands out
SPREADS = ((0.08, 0.08), (0.16, 0.12), (0.16, 0.06), (0.25, 0.08))  # of answers and of errors, in the target's range
HEADLINES = {
    "binary": ("auroc", "brier", "log_loss_of_bins"),
    "classes": ("accuracy",),
    "classes-scores": ("auroc", "accuracy", "log_loss"),
    "number": ("rmse",),
    "cover-classes": ("least_chance_90",),
    "cover-number": ("half_width_90",),
    "paired-classes": ("accuracy_difference",),
    "paired-number": ("rmse_difference",),
}
NAMES = {"auroc": "AUROC", "rmse": "RMSE", "brier": "Brier", "log_loss_of_bins": "log loss", "log_loss": "log loss"}
MOST = 0.45  # half of an interval of the AUROC that leaves something to be told
NARROW = 0.1  # half of an interval of a share that tells much; of an error, a fifth of it in widths of the range


@dataclass(frozen=True)
class Width:
    """Half of an interval: of the made-up models half have less than `middle`, nine of ten lie between the others.
    `is_drowned`: most intervals are the whole scale, or nearly.
    """

    metric: str
    low: float
    middle: float
    high: float
    is_drowned: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; `half_width` None where no result is to be expected."""
        figures = {"low": _rounded(self.low), "high": _rounded(self.high)}
        return {"metric": self.metric, "half_width": None if self.is_drowned else _rounded(self.middle), **figures}


@dataclass(frozen=True)
class Measurement:
    """What is public of an evaluation. `records`: about how many are measured, or, where a column names people, of whom
    no more than `contributions` each are, perhaps half as many; `prevalence`: declared shares of the
    classes, () where none are; `variance_at`: of the noise in each count at an epsilon.
    """

    layout: AnyLayout
    records: int
    contributions: int
    epsilon: float
    variance_at: Callable[[float], float]
    prevalence: tuple[float, ...] = ()
    names_people: bool = False

    def widths(self, epsilon: float, draws: int = DRAWS, names: tuple[str, ...] = ()) -> tuple[Width, ...]:
        """Return how wide the figures of these names will be, all headlines when left out."""
        noise = Noise(self.variance_at(epsilon), grouped=self.contributions)
        layout = self.layout
        if isinstance(layout, GroupedLayout):  # of all records: every group's noise is in them
            noise, layout = replace(noise, variance=noise.variance * len(layout.names)), layout.own
        sizes = (self.records, self.records / 2) if self.names_people else (self.records,)
        return _widths(_plain(layout), sizes, noise, self.prevalence, draws, names or HEADLINES[layout.kind])

    def forecast(self) -> Forecast:
        """Return how wide the intervals will be, and the epsilon that is `enough` where this one is not."""
        widths = self.widths(self.epsilon)
        name = HEADLINES[self.layout.kind][:1]
        ladder = dict[float, Width]()

        def is_enough(rung: float) -> bool:
            (ladder[rung],) = self.widths(rung, 1, name)
            return self._is_narrow(ladder[rung])

        first, drowned = widths[0], widths[0].is_drowned
        least = None if self._is_narrow(first) else next_rung(self.epsilon, is_enough)
        half = 0.0 if least is None else ladder[least].middle
        enough = None if least is None else {"epsilon": f"{least:g}", "half_width": _rounded(half)}
        texts = [f"{_name(width)} ± {short_width(width.middle)}" for width in widths]
        texts[0] += f" ({short_width(first.low)} to {short_width(first.high)}, by how good the model is)"
        there = f"{f'{_name(first)} ' if drowned else ''}± {short_width(half)}"
        figures = {"figures": [width.to_json() for width in widths], "enough": enough}
        why = "too few rows for this epsilon" if drowned else ""
        return Forecast(", ".join(texts), "", why, least, there, figures)

    def _is_narrow(self, width: Width) -> bool:
        layout = self.layout.own if isinstance(self.layout, PairedLayout | ScoredLayout) else self.layout
        ends = layout.target_range
        scale = 1.0 if ends is None else (ends[1] - ends[0]) / 5
        return not width.is_drowned and width.middle <= NARROW * scale


def short_width(value: float) -> str:
    """Return half of an interval for people: two digits that count."""
    text = f"{value:,.0f}" if value >= 10 else f"{float(f'{value:.2g}'):.10f}".rstrip("0").rstrip(".")
    return text.removeprefix("0") if text.startswith("0.") else text


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")


def _name(width: Width) -> str:
    return NAMES.get(width.metric, width.metric.replace("_", " "))


@lru_cache(maxsize=256)
def _widths(
    layout: UngroupedLayout,
    sizes: tuple[float, ...],
    noise: Noise,
    prevalence: tuple[float, ...],
    draws: int,
    names: tuple[str, ...],
) -> tuple[Width, ...]:
    halves: dict[str, list[float]] = {name: [] for name in names}
    drowned = dict.fromkeys(names, 0)
    models = [(records * shares) for shares in _counts_of_models(layout, prevalence) for records in sizes]
    for place, counts in enumerate(models):
        for draw in range(draws):
            tails = uniform(f"noise {place} {draw}", layout.size) - 0.5
            added = -np.sign(tails) * np.log1p(-2 * np.abs(tails)) * (noise.variance / 2) ** 0.5
            for metric in _named(layout, counts + added, noise, names):
                halves[metric.name].append((metric.found.high - metric.found.low) / 2)
                drowned[metric.name] += metric.found.is_whole
    ends = {name: [float(each) for each in np.quantile(halves[name], (0.05, 0.5, 0.95))] for name in names}
    return tuple(
        Width(
            name, low, middle, high, bool(drowned[name] > len(halves[name]) / 2) or (name == "auroc" and middle > MOST)
        )
        for name, (low, middle, high) in ends.items()
    )


def _named(layout: UngroupedLayout, counts: Floats, noise: Noise, names: tuple[str, ...]) -> Iterator[Metric]:
    """Yield the figures of these names, and make no more than these need."""
    metrics: Iterable[Metric]
    if isinstance(layout, PairedLayout):
        metrics = paired_metrics(layout, counts.tolist(), noise)
    elif isinstance(layout, ScoredLayout):
        metrics = scored_metrics(layout, counts.tolist(), noise)
    elif isinstance(layout, CoverLayout):
        metrics = cover_metrics(layout, counts, noise)
    else:
        metrics = each_metric(layout, counts.tolist(), noise)
    missing = set(names)
    for metric in metrics:
        if metric.name in missing and metric.of is None:
            missing.remove(metric.name)
            yield metric
        if not missing:
            return


def _plain(layout: UngroupedLayout) -> UngroupedLayout:
    """Return the same cells, of a model whose scores mean what made-up ones mean."""
    if isinstance(layout, Layout):
        return replace(layout, link=1e-3, bends=())
    own = replace(layout.own, link=1e-3, bends=())
    return PairedLayout(own, own) if isinstance(layout, PairedLayout) else type(layout)(own)


def _counts_of_models(layout: UngroupedLayout, prevalence: tuple[float, ...]) -> Iterator[Floats]:
    """Yield, for each made-up model, what a record adds to each cell on average."""
    own = layout if isinstance(layout, Layout) else layout.own
    for model in _models(own, prevalence):
        answers, scores = model("")
        if isinstance(layout, PairedLayout):
            same = uniform("same", RECORDS)[:, None] < 0.7
            other = np.where(same, scores, model("other")[1])
            yield layout.count((scores, other), answers) / RECORDS
        elif isinstance(layout, ScoredLayout):
            yield layout.count(scores, answers) / RECORDS
        else:
            yield np.bincount(layout.cells(scores, answers).ravel(), minlength=layout.size) / RECORDS


Model = Callable[[str], tuple[NDArray[Any], Scores]]  # errors of this name -> answers and scores


def _models(layout: Layout, prevalence: tuple[float, ...]) -> Iterator[Model]:
    if layout.target_range is not None:
        width = layout.target_range[1] - layout.target_range[0]
        for spread, error in SPREADS:
            yield partial(numbers, spread, error, width / layout.link)
        return
    classes = len(layout.classes)
    even = tuple(np.full(classes, 1 / classes))
    skew = tuple(2.0 ** -np.arange(classes) / (2.0 ** -np.arange(classes)).sum())
    if classes > 2:
        for shares in (prevalence,) if prevalence else (even, skew):
            for apart in RIGHT:
                yield partial(several_classes, shares, apart, layout.link)
        return
    for share in prevalence[1:] or SHARES:
        for apart in APART:
            yield partial(two_classes, share, apart, layout.link)


def two_classes(share: float, apart: float, link: float, name: str) -> tuple[NDArray[Any], Scores]:
    """Return answers and scores of two classes, normal and as calibrated as such can be."""
    truth = np.arange(RECORDS) < share * RECORDS
    margin = apart * (normal(f"margin {name}", RECORDS) + apart * (truth - 0.5)) + np.log(share / (1 - share))
    return truth.astype(np.intp), np.rint(margin / link).astype(np.int64)[:, None]


def several_classes(shares: tuple[float, ...], apart: float, link: float, name: str) -> tuple[NDArray[Any], Scores]:
    """Return answers and scores of several classes, of which the true one's stands out."""
    truth = np.searchsorted(np.cumsum(shares)[:-1], uniform("truth", RECORDS))
    margins = normal(f"margins {name}", RECORDS * len(shares)).reshape(RECORDS, len(shares)) + np.log(shares)
    margins[np.arange(RECORDS), truth] += apart
    return truth.astype(np.intp), np.rint(margins / link).astype(np.int64)


def numbers(spread: float, error: float, per_score: float, name: str) -> tuple[NDArray[Any], Scores]:
    """Return answers, places in the target's range, and scores that miss them by normal errors."""
    answers = np.clip(0.5 + spread * normal("answers", RECORDS), 0.0, 1.0)
    places = answers + error * normal(f"errors {name}", RECORDS)
    return answers, np.rint((places - 0.5) * per_score).astype(np.int64)[:, None]


def uniform(name: str, size: int) -> Floats:
    """Return numbers above 0 and below 1 that look drawn and follow from the name: of made-up records alone."""
    words = np.frombuffer(shake_256(name.encode()).digest(8 * size), ">u8")
    return np.asarray(((words >> np.uint64(12)) + 0.5) / 2.0**52, np.float64)


def normal(name: str, size: int) -> Floats:
    """Return standard normal numbers (size,) that follow from the name as those of `uniform` do."""
    radius, angle = uniform(name, 2 * size).reshape(2, size)
    return np.asarray(np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle), np.float64)

"""Statements of worth: their figures from released counts, and whether stated figures follow from stated counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accountant.certificates.worth import Worth, WorthPredicate, figure, method_of
from dpserve_verify.certificates.certificate import plan_of
from dpserve_verify.certificates.sentences import draws_of
from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.privacy.events import Gaussian, Plan
from dpserve_verify.privacy.weights import parts_of
from models.features.features import Feature
from models.forms.ensemble import Ensemble
from models.profile.figures import Noise as CountNoise
from models.worth.cover import COVER_BINS, CoverLayout, cover_metrics
from models.worth.groups import GroupedLayout, group_names, grouped_metrics
from models.worth.intervals import Noise
from models.worth.judging import BETTER, covers, judge
from models.worth.layout import BIN_CHOICES, BINS, Layout
from models.worth.metrics import metrics
from models.worth.paired import PairedLayout, paired_metrics
from models.worth.report import Curve, Report, curves_of
from models.worth.scored import ScoredLayout, scored_metrics
from models.worth.thresholds import thresholds
from models.worth.words import verdict

LEVEL = "0.95"
AT_ONCE_SAID = (
    "Those of one figure hold in all groups of {} at once; a gap is the largest less the smallest figure of the groups "
    "that are shown to have records."
)
GRID, ROUNDED = 64, 1 / 12  # parts of a record where noise is Gaussian, and the variance of rounding to whole ones
NEARLY = 1e-6  # by which a variance may be off: others add floats in another order
AnyLayout = Layout | PairedLayout | GroupedLayout | ScoredLayout | CoverLayout


def layout_of(ensemble: Ensemble, bins: int = BINS) -> Layout:
    """Return the cells in which records are counted for a model."""
    return Layout(tuple(ensemble.classes), ensemble.link, ensemble.target_range, ensemble.bends, bins)


def paired_layout_of(ensemble: Ensemble, other: Ensemble) -> PairedLayout:
    """Return the cells in which records are counted for a model and another one."""
    return PairedLayout(layout_of(ensemble), layout_of(other))


def by_group(layout: Layout | CoverLayout, group: Feature) -> GroupedLayout:
    """Return the cells in which records are counted, group by group."""
    return GroupedLayout(layout, group.name, group_names(group))


def model_form(ensemble: Ensemble, name: str, certificate: int) -> dict[str, Any]:
    """Return what a statement says of the model; `certificate`: the entry that certifies it."""
    ends = ensemble.target_range
    return {
        "name": name,
        "certificate": certificate,
        "target": ensemble.target,
        "classes": [str(label) for label in ensemble.classes] or None,
        **({} if ends is None else {"range": [repr(float(end)) for end in ends]}),
    }


def histogram_form(layout: AnyLayout, counts: Sequence[int], variance: float) -> dict[str, Any]:
    """Return what was released, as a statement has it. `variance`: of the noise in each count."""
    rows, columns = layout.shape
    groups = {"column": layout.column, "names": [*layout.names]} if isinstance(layout, GroupedLayout) else None
    return {
        "kind": layout.kind,
        "rows": rows,
        "columns": columns,
        "link": repr(layout.link),
        "counts": [int(count) for count in counts],
        "variance": figure(variance),
        **({} if groups is None else {"groups": groups}),
    }


def figures(layout: AnyLayout, counts: Sequence[int], variance: float, contributions: int) -> list[dict[str, Any]]:
    """Return every metric of these counts with its interval at LEVEL, as a statement has it."""
    noise = Noise(variance, float(LEVEL), contributions)
    if isinstance(layout, PairedLayout):
        metrics_of_counts = paired_metrics(layout, counts, noise)
    elif isinstance(layout, ScoredLayout):
        metrics_of_counts = scored_metrics(layout, counts, noise)
    elif isinstance(layout, CoverLayout):
        metrics_of_counts = [*cover_metrics(layout, counts, noise)]
    elif isinstance(layout, GroupedLayout):
        metrics_of_counts = grouped_metrics(layout, counts, noise)
    else:
        metrics_of_counts = metrics(layout, counts, noise)
    return [metric.to_json() for metric in metrics_of_counts]


def variance_of(plan: Plan, draws: int = 1, parts: int = 1) -> float:
    """Return the variance of the noise in the counts of the one release of this plan, which is there `draws` times
    where it is Gaussian; `parts`: in which a record is counted, by its weight. CertificateInvalid for any other plan.
    """
    if len(plan) != 1:
        raise CertificateInvalid("mechanisms: an evaluation has one release")
    release = plan[0]
    is_gaussian = isinstance(release.event, Gaussian)
    grid = parts * (GRID if is_gaussian else 1)
    return CountNoise.of_release(release, grid, draws).variance + ROUNDED * (grid > 1)


def check(worth: Worth) -> None:
    """Raise CertificateInvalid where what a verified statement says of the model does not follow from its counts: a
    metric, an interval, or that it is better than a constant answer.
    """
    form = worth.form
    if form.method != method_of(form.histogram.to_json()):
        raise CertificateInvalid("method: this version knows another one, and cannot make its figures again")
    declared = [metric.to_json() for metric in form.metrics]
    try:
        counts, variance = form.histogram.counts, float(form.histogram.variance)
        own_variance = variance_of(
            plan_of(form.mechanisms), draws_of(form.claim.trust_model), parts_of(form.rows.weight)
        )
        derived = figures(_layout(form), counts, variance, form.claim.unit.contributions)
    except (ValueError, ArithmeticError, IndexError) as error:
        raise CertificateInvalid(f"histogram: is not of its kind's form ({type(error).__name__})") from None
    if abs(variance - own_variance) > NEARLY * own_variance:
        raise CertificateInvalid(
            f"histogram: the noise of the mechanism has a variance of {own_variance:.9g}, and it says {variance:.9g}"
        )
    if (
        form.level != LEVEL
        or not _same(declared, derived)
        or form.better != (judge(form.histogram.kind, derived) == BETTER)
    ):
        raise CertificateInvalid("metrics: do not follow from the counts that are stated")


def _layout(form: WorthPredicate) -> AnyLayout:
    link, ends = float(form.histogram.link), form.model.range
    span = None if ends is None else (float(ends[0]), float(ends[1]))
    layout_of_model = _with_bins(Layout(() if span else tuple(form.model.classes or ()), link, span), form)
    plain: Layout | CoverLayout = CoverLayout(layout_of_model) if covers(form.histogram.kind) else layout_of_model
    layout: AnyLayout = (
        plain if form.against is None else PairedLayout(layout_of_model, layout_of_model)
    )  # of the other's scores none is asked
    if form.histogram.kind == "classes-scores" and layout_of_model.kind == "classes":
        layout = ScoredLayout(layout_of_model)
    if form.histogram.groups is not None:
        layout = GroupedLayout(plain, form.histogram.groups.column, tuple(form.histogram.groups.names))
    if layout.kind != form.histogram.kind or layout.size != len(form.histogram.counts):
        raise CertificateInvalid(f"histogram: must be of kind {layout.kind}, with {layout.size} counts")
    return layout


def _with_bins(layout: Layout, form: WorthPredicate) -> Layout:
    """Return the layout in the bins that the statement's columns show. CertificateInvalid where there are no such."""
    kind, columns, classes = form.histogram.kind, form.histogram.columns, len(layout.classes)
    choices = COVER_BINS if covers(kind) else BIN_CHOICES
    options = [replace(layout, bins=bins) for bins in choices]
    if covers(kind):
        options = [option for option in options if CoverLayout(option).size == columns]
    elif kind == "binary" and classes == 2:
        options = [option for option in options if option.bins == columns]
    elif kind == "classes-scores" and classes > 2:
        options = [option for option in options if ScoredLayout(option).size == columns]
    else:
        return layout
    if not options:
        raise CertificateInvalid(f"histogram: columns must be for {choices} bins of the score or probability")
    return options[0]


def _same(declared: Sequence[dict[str, Any]], derived: Sequence[dict[str, Any]]) -> bool:
    """Compare all but a last digit: other machines round sums of floats otherwise."""
    heads = [
        [
            {key: value for key, value in figure.items() if key not in ("value", "low", "high")}
            for figure in figures_of_side
        ]
        for figures_of_side in (declared, derived)
    ]
    if heads[0] != heads[1]:
        return False
    pairs = [(a[key], b[key]) for a, b in zip(declared, derived, strict=True) for key in ("value", "low", "high")]
    return all(
        a == b or (None not in (a, b) and abs(float(a) - float(b)) <= 1e-3 * max(1.0, abs(float(b)))) for a, b in pairs
    )


def report_of(body: dict[str, Any], contributions: int, classes: Sequence[Any] | None) -> Report:
    """Return a statement, as programs have it, as a report with its pictures and what holds at every threshold.
    `classes`: those of the model; None: it predicts a number.
    """
    histogram, second = body["histogram"], ""
    curves: tuple[Curve, ...] = ()
    at_each: list[dict[str, Any]] = []
    if histogram["kind"] == "binary" and classes:
        layout = Layout(tuple(map(str, classes)), float(histogram["link"]), bins=histogram["columns"])
        second = str(classes[1])
        groups = len(histogram.get("groups", {"names": [""]})["names"])  # of all together: each brings its noise
        counts = np.array(histogram["counts"]).reshape(groups, layout.size).sum(axis=0)
        curves = curves_of(layout.table(counts), layout.middles, classes)
        at_each = thresholds(
            layout, counts.tolist(), Noise(groups * float(histogram["variance"]), float(LEVEL), contributions)
        )
    learnt = "The model's bins follow from a profile of" if "seen_by_bins" in body else "The model learnt from"
    seen_words = f" {learnt} these rows: it looks better than it is." if body["seen"] else ""
    shows = verdict(body)
    better = f" {shows[0].upper()}{shows[1:]}."
    by = "" if "groups" not in histogram else f" {AT_ONCE_SAID.format(histogram['groups']['column'])}"
    facts = (
        f"Measured privately on {body['part']} rows of {body['dataset']}, for epsilon {body['epsilon']} at delta "
        f"{body['delta']}; signed, and entered in the ledger as entry {body['entry']}.{seen_words}{better}",
        f"Intervals of level {body['level']} count how the rows were drawn and the noise that was added.{by}",
    )
    title = f"What {body['model']} is worth on {body['dataset']}"
    return Report(title, facts, body["metrics"], curves, body | {"thresholds": at_each}, at_each, second)

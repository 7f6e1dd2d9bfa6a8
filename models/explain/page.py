"""What an ensemble says, as one drawing or one page: an additive model's shapes with the noise's own error, and of any
ensemble whose scores are sums, one record's account."""

from __future__ import annotations

from collections.abc import Sequence

from models.explain.explain import PairShape, Shape, pair_shapes, shapes, unit, unused_of
from models.explain.heat import heat_panels_of
from models.explain.html import KEYS, figure, foldable, grid, page, paragraph, table
from models.explain.record import record_panels
from models.explain.shapes import BAND, shape_panels
from models.explain.vega import to_svg
from models.explain.vega_panels import LIGHT, PAGE, gallery
from models.explain.vega_parts import amount
from models.features.features import RawColumns
from models.parts.released import FeatureSum, Released

MEANING = (
    "The model adds up one number per feature, and these drawings are the whole of it: there is nothing else inside. "
    "Each curve or bar is what a value adds, on average 0 over the released counts. The shaded band is what the "
    "privacy noise alone does to it: one and two standard errors, worked out from public numbers. Where the band "
    "covers zero or spans a step, the step may be noise. The band says nothing else: not how well the data told it, "
    "how far it was shrunk towards zero, or how it would turn out on other people. Neighbouring values share noise, so "
    "a hill or a valley of several steps may be one draw of it; and no curve is a cause."
)
TOGETHER = (
    "Some pairs of features add a number of their own, beside what each of the two adds by itself: a cell for each "
    "group of values of the one and of the other. Blue adds, orange takes away, and the stronger the colour the more; "
    "pale where it is within two standard errors of the privacy noise."
)
WITHOUT_ERRORS = "This model was released without the standard errors of its noise, so no bands are drawn. "
EDITED = "Edited after its release, which costs no privacy; the band of an edited value says nothing of the edit."


def record_svg(ensemble: Released, claim: str, record: RawColumns) -> str:
    """Return one record's account, as an SVG file."""
    panels = record_panels(ensemble, record, LIGHT)
    return to_svg(gallery(f"What one record's values add up to: {ensemble.target}", [claim], panels))


def title(ensemble: Released) -> str:
    """Return the title of a drawing of what features add."""
    return f"What adds up to {ensemble.target}" + (f" “{ensemble.classes[1]}”" if len(ensemble.classes) == 2 else "")


def record_page(ensemble: Released, claim: str, record: RawColumns, sections: Sequence[str]) -> str:
    """Return one record's account as a page; `sections`: HTML below it."""
    account = grid(figure(panel) for panel in record_panels(ensemble, record, PAGE))
    return _page(ensemble, claim, ["<h2>This record</h2>", account, *sections])


def shapes_page(ensemble: FeatureSum, claim: str) -> str:
    """Return what every feature adds, as a page."""
    return _page(ensemble, claim, shape_sections(ensemble))


def _page(ensemble: Released, claim: str, sections: Sequence[str]) -> str:
    return page(title(ensemble), "\n".join([paragraph(claim, "quiet"), KEYS, *sections]))


def shape_sections(ensemble: FeatureSum) -> list[str]:
    """Return what every feature adds, in HTML."""
    drawn = shapes(ensemble)
    marks = [f"f{at}" for at in range(len(drawn))]
    rows = [(s.feature, s.kind, amount(s.importance, "-")) for s in drawn]
    pairs = pair_shapes(ensemble)
    head = ("feature", "kind", f"importance ({unit(ensemble)})")
    figures = [
        figure(panel, mark, foldable("numbers", _numbers(shape, unit(ensemble))))
        for panel, mark, shape in zip(shape_panels(ensemble, PAGE), marks, drawn, strict=True)
    ]
    unused = unused_of(ensemble)
    edits = [(edit.feature, edit.at, edit.by, edit.why, edit.what) for edit in ensemble.edits]
    return [
        "<h2>What the drawings mean</h2>",
        paragraph(
            (MEANING if ensemble.errors else WITHOUT_ERRORS + MEANING) + (" " + EDITED if ensemble.edits else "")
        ),
        *(["<h2>Edits</h2>", table(("feature", "when", "who", "why", "what"), edits)] if edits else []),
        "<h2>What each feature adds</h2>",
        paragraph(BAND, "quiet"),
        grid(figures),
        "<h2>How much each feature matters</h2>",
        table(head, rows, marks),
        *(_pair_sections(pairs, unit(ensemble)) if pairs else []),
        *([paragraph(f"Adds nothing: {', '.join(unused)}.", "quiet")] if unused else []),
    ]


def _pair_sections(pairs: Sequence[PairShape], of: str) -> list[str]:
    """Return what pairs of features add, in HTML."""
    marks = [f"p{at}" for at in range(len(pairs))]
    rows = [(pair.title, amount(pair.importance, "-")) for pair in pairs]
    figures = [
        figure(panel, mark, foldable("numbers", _numbers(pair, of)))
        for panel, mark, pair in zip(heat_panels_of(pairs, of, PAGE), marks, pairs, strict=True)
    ]
    return [
        "<h2>What two features add together</h2>",
        paragraph(TOGETHER, "quiet"),
        grid(figures),
        table(("pair", f"importance ({of})"), rows, marks),
    ]


def _numbers(shape: Shape | PairShape, of: str) -> str:
    rows = [
        (
            bin.label,
            amount(bin.votes),
            "" if bin.error is None else amount(bin.error, "-"),
            "" if bin.count is None else f"{bin.count:,}",
        )
        for bin in shape.bins
    ]
    return table(("value", of, "standard error", "released count"), rows)

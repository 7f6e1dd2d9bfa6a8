"""An ensemble as a picture: one small panel per feature, the most important first, with the feature's shape or, for K
classes, one curve per class; of trees, one panel of the features' importances.

Drawn by Vega-Lite inside vl-convert: no browser, no address outside. PNG, SVG, or one HTML file that holds the same
drawing with the vote table below, and no script. Additive models have drawings of their own (`models.explain.page`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from textwrap import fill

import vl_convert

from models.additive import AdditiveEnsemble
from models.ensemble import Ensemble
from models.explain.explain import Bin, Shape, importances, shapes, tree_text, vote_table
from models.explain.page import explain_page, explain_svg
from models.explain.vega_classes import class_panels
from models.explain.vega_files import check_ending, write, write_drawing
from models.explain.vega_parts import BAR, CONFIG, HEIGHT, LINE, SHOWN, WIDTH, Spec, axis, ends, heading, signed
from models.features import Columns, NumericFeature
from models.trees import TreeEnsemble

FOR, AGAINST = "#0072B2", "#D55E00"  # Okabe and Ito: apart for every kind of sight
COLUMNS = 3
LINE_LENGTH = 150  # characters of a subtitle
VEGA_LITE = "5.21"
TREES = "How far a feature's splits move the score, if every other answer were a fair coin."
NOTHING = ("Without a vote", "Of no importance")  # votes, trees
CLASSES = "A curve above zero votes for its class, one below against it. Same scale in every panel."


def picture(ensemble: Ensemble, certificate_line: str, path: Path, record: Columns | None = None) -> None:
    """Write `path`, a .png, .svg or self-contained .html; any other ending raises InputError. `record`: columns of one
    record, whose account is drawn instead, or on an additive model's page above all else; InputError for trees."""
    check_ending(path)
    if isinstance(ensemble, AdditiveEnsemble) or record is not None:
        asked = ensemble, certificate_line, record
        return write_drawing(path, lambda: explain_svg(*asked), lambda: explain_page(*asked))
    spec = drawing(ensemble, certificate_line)
    if path.suffix == ".png":
        return write(path, vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=2))
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
    write(path, (svg if path.suffix == ".svg" else _page(ensemble, svg)).encode())


def drawing(ensemble: Ensemble, certificate_line: str) -> Spec:
    """The Vega-Lite specification, data included."""
    title, legend, panels = _content(ensemble)
    unused = [feature.name for feature in ensemble.features if feature.name not in importances(ensemble)]
    without = (
        fill(f"{NOTHING[isinstance(ensemble, TreeEnsemble)]}: {', '.join(unused)}.", width=LINE_LENGTH).split("\n")
        if unused
        else []
    )
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",  # a name; nothing is fetched
        "title": {"text": title, "subtitle": [certificate_line, legend, *without]},
        "columns": COLUMNS,
        "concat": panels or [_nothing()],
        "config": CONFIG,
    }


def _content(ensemble: Ensemble) -> tuple[str, str, list[Spec]]:
    """Title, legend and panels."""
    second = ensemble.classes[1]
    if isinstance(ensemble, TreeEnsemble):
        return f"What the trees for {ensemble.target} “{second}” ask", TREES, _asked(ensemble)
    if ensemble.outputs > 1:
        return f"What votes for which {ensemble.target}", CLASSES, class_panels(ensemble)
    found = shapes(ensemble)
    most = max((shape.importance for shape in found), default=1.0)
    legend = (
        f"Blue, above zero: votes for “{second}”. Orange, below zero: votes for “{ensemble.classes[0]}”. "
        "Same scale in every panel."
    )
    return _title(ensemble), legend, [_panel(ensemble, shape, 1.25 * most) for shape in found]


def _title(ensemble: Ensemble) -> str:
    return f"What votes for {ensemble.target} “{ensemble.classes[1]}”"


def _asked(ensemble: TreeEnsemble) -> list[Spec]:
    """One panel: features by importance."""
    found = [Bin(name, size) for name, size in importances(ensemble).items()]
    hidden = len(found) - SHOWN
    note = f"{hidden} more found no room" if hidden > 0 else " "
    bars = _bar_chart(found[:SHOWN], 1.4 * max((each.votes for each in found), default=1.0), "{:.3g}".format)
    return [{"title": heading("all trees", note), "width": WIDTH, **bars}] if found else []


def _panel(ensemble: Ensemble, shape: Shape, most: float) -> Spec:
    feature = next(each for each in ensemble.features if each.name == shape.feature)
    if isinstance(feature, NumericFeature):
        note, body = f"missing: {signed(shape.bins[-1].votes)}", _stairs(feature, shape, most)
    else:
        bars, hidden = _bars(shape)
        note, body = (f"{hidden} more found no room" if hidden else " "), _bar_chart(bars, most)
    return {"title": heading(shape.feature, note), "width": WIDTH, **body}


def _bars(shape: Shape) -> tuple[list[Bin], int]:
    """The values that stand apart, by votes; one bar for all that vote alike; and how many found no room."""
    if shape.kind == "boolean":
        return list(shape.bins), 0
    usual = Counter(each.votes for each in reversed(shape.bins)).most_common(1)[0][0]
    apart = sorted((each for each in shape.bins if each.votes != usual), key=lambda each: -abs(each.votes - usual))
    kept = sorted(apart[:SHOWN], key=lambda each: -each.votes)
    return [*kept, Bin("all others", usual)], len(apart) - len(kept)


def _bar_chart(bars: Sequence[Bin], most: float, written: Callable[[float], str] = signed) -> Spec:
    """Names stand on the free side of the zero line, numbers at the ends of their bars."""
    rows = [{"value": each.label, "votes": each.votes, "text": written(each.votes)} for each in bars]
    votes = {"field": "votes", "type": "quantitative", "scale": {"domain": [-most, most]}, "axis": None}
    zero = {"datum": 0, "type": "quantitative"}
    return {
        "height": {"step": BAR},
        "data": {"values": rows},
        "encoding": {"y": {"field": "value", "type": "nominal", "sort": None, "axis": None}, "x": votes},
        "layer": [
            {"mark": {"type": "bar", "height": {"band": 0.7}}, "encoding": {"color": _colour()}},
            _text("datum.votes >= 0", "left", "text", {}),
            _text("datum.votes < 0", "right", "text", {}),
            _text("datum.votes >= 0", "right", "value", {"x": zero}),
            _text("datum.votes < 0", "left", "value", {"x": zero}),
            {"mark": {"type": "rule", "color": "#888888"}, "encoding": {"x": zero, "y": None}},
        ],
    }


def _text(test: str, align: str, field: str, where: Spec) -> Spec:
    gap = 5 if align == "left" else -5
    mark = {"type": "text", "align": align, "dx": gap, "fontSize": 11.5, "color": LINE, "limit": WIDTH / 2 - 8}
    return {"transform": [{"filter": test}], "mark": mark, "encoding": {"text": {"field": field}, **where}}


def _stairs(feature: NumericFeature, shape: Shape, most: float) -> Spec:
    low, high = ends(feature)
    rows = [
        {"low": max(low, each.low), "high": min(high, each.high), "votes": each.votes}
        for each in shape.bins
        if each.low is not None and each.high is not None
    ]
    number = {"type": "quantitative", "scale": {"domain": [low, high], "nice": False, "zero": False}}
    votes = {"type": "quantitative", "scale": {"domain": [-most, most]}}
    line = [{"at": row[end], "votes": row["votes"]} for row in rows for end in ("low", "high")]
    across = {"title": None, "tickCount": 5, "grid": False, "labelOverlap": True, "labelFlush": True}
    return {
        "height": HEIGHT,
        "data": {"values": rows},
        "encoding": {"y": {"field": "votes", **votes, "axis": axis()}},
        "layer": [
            {
                "mark": {"type": "rect", "opacity": 0.45},
                "encoding": {
                    "x": {"field": "low", **number, "axis": across},
                    "x2": {"field": "high"},
                    "y2": {"datum": 0},
                    "color": _colour(),
                },
            },
            {"mark": {"type": "rule", "color": "#888888"}, "encoding": {"y": {"datum": 0}}},
            {
                "data": {"values": line},
                "mark": {"type": "line", "color": LINE, "strokeWidth": 1.6},
                "encoding": {"x": {"field": "at", **number}, "order": None},
            },
        ],
    }


def _colour() -> Spec:
    return {"condition": {"test": "datum.votes >= 0", "value": FOR}, "value": AGAINST}


def _nothing() -> Spec:
    return {"data": {"values": [{}]}, "mark": {"type": "text", "text": "No feature has a vote.", "fontSize": 13}}


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222; margin: 1.5rem auto; max-width: 1080px; padding: 0 1rem }}
svg {{ max-width: 100%; height: auto }}
table {{ border-collapse: collapse }}
th, td {{ text-align: left; padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid #ddd }}
td:first-child {{ text-align: right; font-variant-numeric: tabular-nums }}
</style>
<main>
{svg}
{account}
</main>
</html>
"""


_VOTES = """<h2>The votes</h2>
<p>{rule}</p>
<table>
<tr>{head}</tr>
{rows}
</table>"""

_TWO = """Each line votes for {second} where its test holds, and as much against where it does not.
Above zero in all, the answer is {second}, otherwise {first}."""

_MANY = """Each line votes for its class where its test holds, and as much against where it does not.
The answer is the class with the most votes."""

_TREE_PAGE = """<h2>The trees</h2>
<p>Each tree adds a number to the score, which starts at {constant}. Above zero, the answer is {second}, otherwise
{first}.</p>
<pre>
{trees}
</pre>"""


def _page(ensemble: Ensemble, svg: str) -> str:
    title = _content(ensemble)[0]
    return _PAGE.format(title=escape(title), svg=svg, account=_account(ensemble))


def _account(ensemble: Ensemble) -> str:
    first, second = (escape(str(each)) for each in ensemble.classes[:2])
    if isinstance(ensemble, TreeEnsemble):
        trees = "\n\n".join("\n".join(tree_text(tree, ensemble.features)) for tree in ensemble.trees)
        return _TREE_PAGE.format(constant=ensemble.constant, first=first, second=second, trees=escape(trees))
    rows, named = vote_table(ensemble), ensemble.outputs > 1
    head = ("votes", "class", "test") if named else ("votes", "test")
    lines = [(signed(row.votes), *([str(row.label)] if named else []), row.test) for row in rows]
    rule = _MANY if named else _TWO.format(first=first, second=second)
    return _VOTES.format(
        rule=rule, head=_cells("th", head), rows="\n".join(f"<tr>{_cells('td', x)}</tr>" for x in lines)
    )


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)

"""What two features add together, as a map: blue adds, orange takes away, pale is within the noise."""

from __future__ import annotations

from collections.abc import Sequence

from models.explain.explain import Bin, PairShape, pair_shapes, unit
from models.explain.vega_panels import (
    LEFT,
    WIDTH,
    Colours,
    Panel,
    frame_panel,
    hits,
    layer,
    mark,
    pixel,
    text_field,
    words_of,
)
from models.explain.vega_parts import amount
from models.parts.released import FeatureSum

NAMES, CELL, LOW = 118, 24, 58  # pixels: for names of rows, of the tallest cell, for names of columns
SHOWN = 8  # names along the columns
LETTERS = 16  # of a name
FAINT = 0.06  # of the colour, for what adds nothing


def heat_panels(ensemble: FeatureSum, colours: Colours) -> list[Panel]:
    """Draw a panel for each pair of features that moves a score."""
    return heat_panels_of(pair_shapes(ensemble), unit(ensemble), colours)


def heat_panels_of(pairs: Sequence[PairShape], of: str, colours: Colours) -> list[Panel]:
    """Draw a panel for each of `pairs`, on one scale of colour."""
    most = max((_clear(bin) for pair in pairs for bin in pair.bins), default=0.0)
    most = most or max((abs(bin.votes) for pair in pairs for bin in pair.bins), default=1.0) or 1.0
    return [_panel(pair, most, of, colours) for pair in pairs]


def _clear(each: Bin) -> float:
    """Return how much it adds or takes away, where that is beyond two standard errors of its noise."""
    return abs(each.votes) if abs(each.votes) > 2 * (each.error or 0) else 0.0


def _panel(pair: PairShape, most: float, of: str, colours: Colours) -> Panel:
    rows, columns = len(pair.rows), len(pair.columns)
    start, wide = NAMES - LEFT, (WIDTH - NAMES) / columns
    tall = CELL if rows <= 8 else 16
    cells = [
        {
            "left": start + wide * (at % columns),
            "right": start + wide * (at % columns + 1),
            "top": tall * (at // columns),
            "foot": tall * (at // columns + 1),
            "colour": colours["first" if bin.votes >= 0 else "second"],
            "opacity": FAINT + (1 - FAINT) * min(abs(bin.votes) / most, 1.0) * (1.0 if _clear(bin) else 0.35),
            "says": words_of(bin, of),
        }
        for at, bin in enumerate(pair.bins)
    ]
    where = {"x": pixel("left"), "x2": {"field": "right"}, "y": pixel("top"), "y2": {"field": "foot"}}
    colour = {"fill": {"field": "colour", "type": "nominal", "scale": None}, "fillOpacity": pixel("opacity")}
    step = -(-columns // SHOWN)
    below = [{"at": start + wide * (at + 0.5), "name": _short(pair.columns[at])} for at in range(0, columns, step)]
    row_names = [{"at": tall * (at + 0.5), "name": _short(name)} for at, name in enumerate(pair.rows)]
    text, name_field = {"fontSize": 10, "color": colours["quiet"]}, {"text": text_field("name")}
    layers = [
        layer(cells, mark("rect", stroke=colours["faint"], strokeWidth=0.5), {**where, **colour}),
        layer(
            row_names,
            mark("text", align="right", baseline="middle", limit=NAMES - 8, **text),
            {"x": {"value": start - 5}, "y": pixel("at"), **name_field},
        ),
        layer(
            below,
            mark("text", align="right", baseline="middle", angle=-50, limit=LOW, **text),
            {"x": pixel("at"), "y": {"value": rows * tall + 6}, **name_field},
        ),
        hits(cells, where, colours),
    ]
    size = "mean" if any((bin.count or 0) > 0 for bin in pair.bins) else "largest"
    note = f"{pair.features[0]} down, {pair.features[1]} across; {size} size {amount(pair.importance, '-')} ({of})"
    return frame_panel(pair.title, note, rows * tall, layers, colours, LOW)


def _short(label: str) -> str:
    """Return the lower end alone of a group of numbers: groups stand in their order."""
    if label.startswith("above "):
        label = "> " + label.removeprefix("above ").partition(",")[0]
    label = label.replace("up to ", "≤ ", 1) if label.startswith("up to ") else label
    return label if len(label) <= LETTERS else label[: LETTERS - 1] + "…"

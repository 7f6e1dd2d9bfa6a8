"""What two features add together, as a map: blue adds, orange takes away, pale is within the noise."""

from __future__ import annotations

from collections.abc import Sequence

from models.explain.explain import Bin, PairShape, pair_shapes, unit
from models.explain.vega_panels import LEFT, WIDTH, Colours, Panel, framed, hits, layer, mark, pixel, said, words_of
from models.explain.vega_parts import amount
from models.parts.released import FeatureSum

NAMES, CELL, LOW = 118, 24, 58  # pixels: for names of rows, of the tallest cell, for names of columns
SHOWN = 8  # names along the columns
LETTERS = 16  # of a name
FAINT = 0.06  # of the colour, for what adds nothing


def heat_panels(ensemble: FeatureSum, colours: Colours) -> list[Panel]:
    """One per pair of features that moves a score."""
    return heat_panels_of(pair_shapes(ensemble), unit(ensemble), colours)


def heat_panels_of(pairs: Sequence[PairShape], of: str, colours: Colours) -> list[Panel]:
    """The same on one scale of colour."""
    most = max((_clear(each) for pair in pairs for each in pair.bins), default=0.0)
    most = most or max((abs(each.votes) for pair in pairs for each in pair.bins), default=1.0) or 1.0
    return [_panel(pair, most, of, colours) for pair in pairs]


def _clear(each: Bin) -> float:
    """How much it adds or takes away, where that is beyond two standard errors of its noise."""
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
            "colour": colours["first" if each.votes >= 0 else "second"],
            "opacity": FAINT + (1 - FAINT) * min(abs(each.votes) / most, 1.0) * (1.0 if _clear(each) else 0.35),
            "says": words_of(each, of),
        }
        for at, each in enumerate(pair.bins)
    ]
    where = {"x": pixel("left"), "x2": {"field": "right"}, "y": pixel("top"), "y2": {"field": "foot"}}
    colour = {"fill": {"field": "colour", "type": "nominal", "scale": None}, "fillOpacity": pixel("opacity")}
    step = -(-columns // SHOWN)
    below = [{"at": start + wide * (at + 0.5), "name": _short(pair.columns[at])} for at in range(0, columns, step)]
    beside = [{"at": tall * (at + 0.5), "name": _short(name)} for at, name in enumerate(pair.rows)]
    text, named = {"fontSize": 10, "color": colours["quiet"]}, {"text": said("name")}
    layers = [
        layer(cells, mark("rect", stroke=colours["faint"], strokeWidth=0.5), {**where, **colour}),
        layer(
            beside,
            mark("text", align="right", baseline="middle", limit=NAMES - 8, **text),
            {"x": {"value": start - 5}, "y": pixel("at"), **named},
        ),
        layer(
            below,
            mark("text", align="right", baseline="middle", angle=-50, limit=LOW, **text),
            {"x": pixel("at"), "y": {"value": rows * tall + 6}, **named},
        ),
        hits(cells, where, colours),
    ]
    note = f"{pair.features[0]} down, {pair.features[1]} across; mean size {amount(pair.importance, '-')} ({of})"
    return framed(pair.feature, note, rows * tall, layers, colours, LOW)


def _short(label: str) -> str:
    """The lower end alone of a group of numbers: groups stand in their order."""
    if label.startswith("above "):
        label = "> " + label.removeprefix("above ").partition(",")[0]
    label = label.replace("up to ", "≤ ", 1) if label.startswith("up to ") else label
    return label if len(label) <= LETTERS else label[: LETTERS - 1] + "…"

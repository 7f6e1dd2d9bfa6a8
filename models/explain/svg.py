"""Drawings written as SVG: in a file the colours are named, in a page the page's own style gives them, so that one
drawing is right in light, in dark and on paper. No script, nothing fetched; drawn to PNG by vl-convert.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, GAP, COLUMNS, MARGIN = 340, 30, 3, 24  # pixels: of a panel, between panels; panels of a line; around all
FONT = "'Liberation Sans', Arial, Helvetica, sans-serif"
LIGHT = {  # Okabe and Ito: apart for every kind of sight
    "paper": "#ffffff",
    "ink": "#222222",
    "quiet": "#5f6368",
    "faint": "#e4e6e8",
    "zero": "#8a8f94",
    "first": "#0072b2",
    "second": "#d55e00",
    "count": "#9aa0a6",
}
DARK = {
    "paper": "#15181b",
    "ink": "#e8eaed",
    "quiet": "#a8adb3",
    "faint": "#2c3237",
    "zero": "#7d848a",
    "first": "#56b4e9",
    "second": "#f0a35e",
    "count": "#6f767c",
}
RULES = """
text {{ font: 11px {font}; fill: {quiet} }}
text.name {{ font-size: 14px; font-weight: bold; fill: {ink} }}
text.head {{ font-size: 19px; font-weight: bold; fill: {ink} }}
text.note {{ font-size: 12.5px }}
text.ink {{ fill: {ink} }}
.right {{ text-anchor: end }} .middle {{ text-anchor: middle }}
.paper {{ fill: {paper} }}
.faint {{ stroke: {faint}; stroke-width: 1; fill: none }}
.zero {{ stroke: {zero}; stroke-width: 1; fill: none }}
.a {{ fill: {first} }} .b {{ fill: {second} }}
.wide {{ opacity: .18 }} .close {{ opacity: .28 }} .bar {{ opacity: .75 }}
.line {{ stroke-width: 1.8; stroke-linejoin: round }}
.line.a {{ stroke: {first}; fill: none }} .line.b {{ stroke: {second}; fill: none }}
.whisker {{ stroke: {ink}; stroke-width: 1.2; fill: none }}
.count {{ fill: {count}; opacity: .7 }}
.hit {{ fill: {first}; fill-opacity: 0 }}
"""


@dataclass(frozen=True)
class Panel:
    """A drawing of WIDTH by `height`, and what it is called."""

    name: str
    height: float
    body: str


@dataclass(frozen=True)
class Scale:
    """Numbers low..high on pixels start..end, held inside."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, number: float) -> float:
        share = (min(max(number, self.low), self.high) - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self, most: int = 5) -> list[float]:
        """Round numbers inside."""
        raw = (self.high - self.low) / most or 1.0
        unit = 10.0 ** floor(log10(raw))
        step = next(unit * each for each in (1, 2, 5, 10) if unit * each >= raw * 0.999)
        return [round(i * step, 12) for i in range(ceil(self.low / step), floor(self.high / step) + 1)]


def styles(colours: Mapping[str, str]) -> str:
    """The rules of every drawing, with these colours."""
    return RULES.format(font=FONT, **colours)


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{_class(kind)}>{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, kind: str, says: str = "") -> str:
    """`says` is what a pointer on it is told."""
    title = f"<title>{escape(says)}</title>" if says else ""
    place = f'x="{x:g}" y="{y:g}" width="{max(width, 0):g}" height="{max(height, 0):g}"'
    return f"<rect {place}{_class(kind)}>{title}</rect>" if title else f"<rect {place}{_class(kind)}/>"


def path(points: Iterable[tuple[float, float]], kind: str, closed: bool = False) -> str:
    places = "L".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path d="M{places}{"Z" if closed else ""}"{_class(kind)}/>'


def segment(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return path([(x, y), (to_x, to_y)], kind)


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def inline(panel: Panel) -> str:
    """A panel for a page, whose style gives the colours."""
    size = f'viewBox="0 0 {WIDTH} {panel.height:g}" width="{WIDTH}" height="{panel.height:g}"'
    return f'<svg {size} role="img" aria-label="{escape(panel.name)}">{panel.body}</svg>'


def document(title: str, notes: Sequence[str], panels: Sequence[Panel]) -> str:
    """Panels in COLUMNS below a title, each where there is most room, as a file of its own, light."""
    width = 2 * MARGIN + COLUMNS * WIDTH + (COLUMNS - 1) * GAP
    parts = [text(MARGIN, MARGIN + 18, title, "head")]
    parts += [text(MARGIN, MARGIN + 18 * (2 + at), note, "note") for at, note in enumerate(notes)]
    ends = [MARGIN + 18.0 * (len(notes) + 2) + 10] * COLUMNS
    for panel in panels:
        column = ends.index(min(ends))
        x = MARGIN + column * (WIDTH + GAP)
        parts.append(f'<g transform="translate({x:g} {ends[column]:g})">{panel.body}</g>')
        ends[column] += panel.height + GAP
    tall = max(ends)
    size = f'width="{width}" height="{tall:g}" viewBox="0 0 {width} {tall:g}"'
    inside = "".join([f"<style>{styles(LIGHT)}</style>", rect(0, 0, width, tall, "paper"), *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{inside}</svg>\n'


def shortened(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"


def amount(number: float, sign: str = "+") -> str:
    """Three digits that count, and all of a whole part."""
    form = f"{number:{sign},.0f}" if abs(number) >= 1000 else f"{number:{sign}.3g}"
    return form.replace("-", "−") if number else "0"


def plain_amount(number: float) -> str:
    return amount(number, "-")

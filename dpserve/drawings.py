"""Small drawings as SVG, for notebooks: lines over a range, bars of a name each, and what is used of a whole. They load
nothing and ask for nothing outside; text is escaped, and takes the colour of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import TypeAlias

Points: TypeAlias = Sequence[tuple[float, float]]

LINES = ("#0f766e", "#c2410c", "#4338ca", "#a16207", "#be185d", "#15803d", "#0369a1", "#7c3aed")
WIDE, HIGH, EDGE = 300, 150, 34  # of a panel
BAR, NAMES = 18, 170  # the height of a bar, and the width of what is written before it


def short_number(value: float) -> str:
    """Write a number in at most four digits."""
    return f"{value:.4g}"


def svg(parts: Sequence[str], width: float, height: float, says: str) -> str:
    """Return a drawing as SVG; `says` is its text for a screen reader."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img"'
    style = 'font-family="system-ui, sans-serif" font-size="11" fill="currentColor"'
    return f'{head} aria-label="{escape(says)}" {style}>{"".join(parts)}</svg>'


def text(x: float, y: float, said: str, more: str = "") -> str:
    """Draw a line of text that begins at (x, y)."""
    return f'<text x="{x:g}" y="{y:g}" {more}>{escape(said)}</text>'


def steps(title: str, lines: Sequence[Points], low: float, high: float, at: tuple[float, float]) -> str:
    """Draw a panel of lines that hold each value up to the next point, between `low` and `high`, its corner at `at`."""
    first, last = min(line[0][0] for line in lines), max(line[-1][0] for line in lines)
    wide, tall = WIDE - 2 * EDGE, HIGH - 2 * EDGE

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = (x - first) / ((last - first) or 1), (y - low) / ((high - low) or 1)
        return at[0] + EDGE + across * wide, at[1] + EDGE + (1 - up) * tall

    parts = [text(at[0] + EDGE, at[1] + EDGE - 10, title, 'font-weight="600"')]
    for which, line in enumerate(lines):
        corners = [place(*line[0])]
        for (x, before), (_, value) in pairwise(line):
            corners += [place(x, before), place(x, value)]
        corners.append(place(*line[-1]))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{LINES[which % len(LINES)]}" stroke-width="1.5"/>')
    bottom = at[1] + HIGH - EDGE
    parts += [text(at[0] + 2, at[1] + EDGE + 8, short_number(high)), text(at[0] + 2, bottom, short_number(low))]
    parts += [text(at[0] + EDGE, bottom + 13, short_number(first))]
    return "".join([*parts, text(at[0] + WIDE - EDGE, bottom + 13, short_number(last), 'text-anchor="end"')])


def bars(title: str, sizes: Mapping[str, float], top: float = 0) -> tuple[str, float]:
    """Draw a bar for each name, to the right of zero or to its left. Return the drawing and its height."""
    low, high = min(0.0, *sizes.values()), max(0.0, *sizes.values())
    scale = (WIDE - 60) / ((high - low) or 1)
    zero, parts = NAMES - low * scale, [text(0, top + 13, title, 'font-weight="600"')]
    for line, (name, size) in enumerate(sizes.items(), 1):
        y, colour = top + line * BAR + 4, LINES[size < 0]
        shown = name if len(name) <= 28 else name[:27] + "…"
        parts.append(text(0, y + 11, shown))
        parts.append(
            f'<rect x="{min(zero, zero + size * scale):.1f}" y="{y:g}" width="{abs(size) * scale:.1f}" '
            f'height="{BAR - 5}" fill="{colour}"/>'
        )
        parts.append(text(NAMES + WIDE - 55, y + 11, short_number(size)))
    return "".join(parts), BAR * (len(sizes) + 1) + 8


def gauge(title: str, share: float, said: str) -> str:
    """Draw which share of a total is used."""
    filled = max(0.0, min(1.0, share)) * WIDE
    parts = [text(0, 13, title, 'font-weight="600"')]
    parts.append(f'<rect x="0" y="20" width="{WIDE}" height="14" fill="currentColor" opacity=".15"/>')
    parts.append(f'<rect x="0" y="20" width="{filled:.1f}" height="14" fill="{LINES[0]}"/>')
    return svg([*parts, text(0, 50, said)], WIDE + 160, 56, f"{title}: {said}")

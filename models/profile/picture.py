"""Pictures of a profile: a bar for each bin, its interval, and the words that say the same. Plain SVG, no script; what
is drawn how is for the page's style to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from models.profile.columns import labels

WIDTH, HEIGHT, FOOT = 320, 110, 16
MOST_NAMED, MOST_LETTERS = 32, 16  # rows or columns of a picture of cells that are named, and letters of a name
MOST_BARS = 64  # neighbouring bins of a column with more are drawn as one
STYLE = """
.bars rect { fill: var(--first, #0072B2) } .bars rect.last { fill: var(--faint, #bbb) }
.bars path { stroke: currentColor; stroke-width: 1; fill: none; opacity: .55 }
.bars text { font-size: 11px; fill: currentColor; opacity: .75 } .bars { overflow: visible; max-width: 100% }
.cells rect { fill: var(--first, #0072B2) }
"""


def bars(column: Mapping[str, Any], width: float) -> str:
    """Return the counts of one column, as `profile_to_json` has it; `width`: of a count's interval, on either side."""
    counts, names = np.array(column["counts"], float), labels(column)
    merged = -(-(len(counts) - 1) // MOST_BARS)  # bins to a bar; those missing have one of their own
    starts = [*range(0, len(counts) - 1, merged), len(counts) - 1]
    heights = np.add.reduceat(counts, starts)
    whiskers = width * np.sqrt(np.diff([*starts, len(counts)]))
    top = max(float((heights + whiskers).max()), 1.0)
    step = WIDTH / len(heights)
    drawn = []
    for at, (height, whisker, start) in enumerate(zip(heights, whiskers, starts, strict=True)):
        x, tall = at * step, HEIGHT * max(float(height), 0.0) / top
        low, high = (HEIGHT * (1 - min(max(float(height + side), 0.0) / top, 1.0)) for side in (-whisker, whisker))
        until = names[min(start + merged, len(counts) - 1) - 1] if merged > 1 and at < len(heights) - 1 else ""
        name = names[start] + (f" .. {until}" if until else "")
        kind = ' class="last"' if at == len(heights) - 1 else ""
        drawn.append(
            f'<g><title>{escape(name)}: {height:,.0f} ± {whisker:,.0f}</title><rect{kind} x="{x:.2f}" '
            f'y="{HEIGHT - tall:.2f}" width="{max(step - 1, 0.5):.2f}" height="{tall:.2f}"/>'
            f'<path d="M{x + step / 2:.2f},{low:.2f}V{high:.2f}"/></g>'
        )
    ends = f'<text x="0" y="{HEIGHT + 13}">{escape(_end(names, 0))}</text>'
    ends += f'<text x="{WIDTH}" y="{HEIGHT + 13}" text-anchor="end">{escape(_end(names, -2))} | missing</text>'
    label = escape(f"{column['name']}: rows by bin")
    return (
        f'<svg class="bars" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT + FOOT}" width="{WIDTH}">'
        f"{''.join(drawn)}{ends}</svg>"
    )


def cells(pair: Mapping[str, Any], names: Mapping[str, Sequence[str]], width: float) -> str:
    """Return the counts of two columns together: darker where there are more. What the noise may have made is left
    white. `names`: what each row and column of such a table is of, by the column's name.
    """
    first, second = (names[name] for name in pair["columns"])
    table = np.array(pair["counts"], float).reshape(len(first), len(second))
    top, rows, across = max(float(table.max()), 1.0), *table.shape
    is_named = max(rows, across) <= MOST_NAMED
    left, over = (_room(first, 0.9), _room(second, 0.87)) if is_named else (0.0, 0.0)
    tall = 16.0 if is_named else 320 / rows
    beyond = _room(second[-1:], 0.5) if is_named else 0.0  # for the last name, which leans outwards
    wide, drawn = (WIDTH - left - beyond) / across, []
    for i, j in zip(*np.nonzero(table > width), strict=True):
        words = f"{first[i]}, {second[j]}: {table[i, j]:,.0f} ± {width:,.0f}"
        drawn.append(
            f'<rect x="{left + j * wide:.2f}" y="{over + i * tall:.2f}" width="{wide:.2f}" height="{tall:.2f}" '
            f'opacity="{max(table[i, j] / top, 0.03) ** 0.5:.2f}"><title>{escape(words)}</title></rect>'
        )
    if is_named:
        places = [(left - 4, over + (i + 0.72) * tall, "end", "", name) for i, name in enumerate(first)]
        places += [(left + (j + 0.5) * wide, over - 5, "start", "rotate(-60 {} {})", n) for j, n in enumerate(second)]
        drawn += [
            f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"'
            + (f' transform="{turned.format(round(x, 2), round(y, 2))}"' if turned else "")
            + f">{escape(_short(name, MOST_LETTERS))}</text>"
            for x, y, anchor, turned, name in places
        ]
    label = escape(f"{pair['columns'][0]} downwards by {pair['columns'][1]} across")
    return (
        f'<svg class="bars cells" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {over + rows * tall:.0f}" '
        f'width="{WIDTH}">{"".join(drawn)}</svg>'
    )


def _room(names: Sequence[str], share: float) -> float:
    """Return how much room the longest of these names needs, of which this share lies in that direction."""
    return 12 + share * 6.2 * max(min(len(name), MOST_LETTERS) for name in names)


def _end(names: Sequence[str], at: int) -> str:
    return _short(names[at], 24)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"

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
    tall = min(16.0, 320 / rows)
    wide, drawn = WIDTH / across, []
    for i, j in zip(*np.nonzero(table > width), strict=True):
        said = f"{first[i]}, {second[j]}: {table[i, j]:,.0f} ± {width:,.0f}"
        drawn.append(
            f'<rect x="{j * wide:.2f}" y="{i * tall:.2f}" width="{wide:.2f}" height="{tall:.2f}" '
            f'opacity="{max(table[i, j] / top, 0.03) ** 0.5:.2f}"><title>{escape(said)}</title></rect>'
        )
    label = escape(f"{pair['columns'][0]} downwards by {pair['columns'][1]} across")
    return (
        f'<svg class="bars cells" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {rows * tall:.0f}" '
        f'width="{WIDTH}">{"".join(drawn)}</svg>'
    )


def _end(names: Sequence[str], at: int) -> str:
    text = names[at]
    return text if len(text) <= 24 else f"{text[:23]}…"

"""What a model of two classes is worth at every threshold that its bins tell apart: free, from the same counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from models.worth.intervals import Interval, Noise, ratio
from models.worth.layout import Layout

HEAD = ("told from", "share told", "precision", "recall", "f1", "lift")


def thresholds(layout: Layout, counts: Sequence[int], noise: Noise) -> list[dict[str, Any]]:
    """Return a row for each edge between bins: class 1 is answered from this probability on. Figures have their
    intervals; each interval of a row holds by itself, not all at once.
    """
    return [at_edge(layout, counts, noise, edge) for edge in range(1, layout.bins)]


def at_edge(layout: Layout, counts: Sequence[int], noise: Noise, edge: int) -> dict[str, Any]:
    """Return one row. `lift`, how much more frequent class 1 is among those told, rests on two intervals that each miss
    half as often.
    """
    flat = np.array(counts, np.float64)
    one, true = np.ones(2 * layout.bins), np.repeat([0.0, 1.0], layout.bins)
    said = np.tile(np.arange(layout.bins) >= edge, 2).astype(float)
    half = replace(noise, level=(1 + noise.level) / 2)
    told, rare = ratio(flat, said * true, said, half), ratio(flat, true, one, half)
    value = None if told.value is None or not rare.value else told.value / rare.value
    figures = {
        "share": ratio(flat, said, one, noise),
        "precision": ratio(flat, said * true, said, noise),
        "recall": ratio(flat, said * true, true, noise),
        "f1": ratio(flat, 2 * said * true, said + true, noise),
        "lift": Interval(value, told.low / rare.high, told.high / rare.low if rare.low > 0 else np.inf),
    }
    return {"threshold": f"{layout.edges[edge - 1]:.4f}", **{key: _json(each) for key, each in figures.items()}}


def _json(found: Interval) -> dict[str, str | None]:
    high = None if np.isinf(found.high) else f"{found.high:.4f}"
    return {"value": None if found.value is None else f"{found.value:.4f}", "low": f"{found.low:.4f}", "high": high}


def table_rows(found: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the rows as people read them: value and interval in one cell."""
    rows = []
    for row in found:
        cells = [row[key] for key in ("share", "precision", "recall", "f1", "lift")]
        texts = [f"{each['value'] or '?'} ({each['low']} to {each['high'] or 'any'})" for each in cells]
        rows.append((row["threshold"], *texts))
    return rows

"""What a model is worth, in a few words for people."""

from __future__ import annotations

from typing import Any


def short_worth(body: dict[str, Any]) -> str:
    """Return a statement of worth in a few words: its first figure with the interval, and what is to be known of it."""
    first = body["metrics"][0]
    learnt = ", on rows that its bins were made from" if "seen_by_bins" in body else ", on rows it learnt from"
    seen = learnt if body["seen"] else ""
    than = f"entry {body['against']['certificate']}" if "against" in body else "a constant answer"
    better = "" if body["better"] else f", not shown to be better than {than}"
    if "against" in body:
        better = f" against {body['against']['model']} of {than}" if body["better"] else better
    return f"{first['metric']} {short_figure(first['low'])} to {short_figure(first['high'])}{seen}{better}"


def short_figure(text: str) -> str:
    """Return a figure for people: four decimals, or none where it is large."""
    return f"{float(text):.4f}" if abs(float(text)) < 10 else f"{float(text):,.0f}"

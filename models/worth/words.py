"""What a model is worth, in a few words for people."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Any

from models.worth.judging import BETTER, NOT_BETTER, covers


def short_worth(body: dict[str, Any]) -> str:
    """Return a statement of worth in a few words: its first figure with the interval, and what is to be known of it."""
    cover = covers(body.get("histogram", {}).get("kind", ""))
    first = next(each for each in body["metrics"] if not cover or each["metric"].endswith("_90"))
    learnt = ", on rows that its bins were made from" if "seen_by_bins" in body else ", on rows it learnt from"
    seen = learnt if body["seen"] else ""
    if first["value"] is None:
        return f"{first['metric']}: no result, too few rows for this epsilon{seen}"
    shown = "" if body["outcome"] == BETTER and "against" not in body else f", {verdict(body)}"
    return f"{first['metric']} {', '.join(short_figures(first))}{seen}{shown}"


def verdict(body: dict[str, Any]) -> str:
    """Return what a statement of worth shows: of one model against a constant answer, of two against the other one."""
    kind = body.get("histogram", {}).get("kind", "")
    if covers(kind):
        what = "each class from least_chance_90 on" if kind == "cover-classes" else "half_width_90 to either side"
        return f"an answer of {what} holds the truth in 90 of 100 cases"
    against = body.get("against")
    than = "a constant answer" if against is None else f"{against['model']} of entry {against['certificate']}"
    if body["outcome"] == BETTER:
        return f"better than {than}"
    if body["outcome"] == NOT_BETTER:
        return f"no better than {than}"
    why = ": too few rows for this epsilon" if body["metrics"][0]["value"] is None else ""
    return f"could not tell whether it is better than {than}{why}"


def short_figure(text: str) -> str:
    """Write an exact figure for people: three decimals, or none where it is large."""
    return f"{float(text):.3f}" if abs(float(text)) < 10 else f"{float(text):,.0f}"


def short_figures(metric: Mapping[str, Any]) -> tuple[str, str]:
    """Write a figure and its interval with as many digits as it carries: "0.85", "0.78 to 0.93". The ends are rounded
    outward; "no result" where there is no value.
    """
    low, high = Decimal(str(metric["low"])), Decimal(str(metric["high"]))
    width = max(high - low, Decimal("1e-4"))
    unit = Decimal(1).scaleb(min(0, max(-4, width.adjusted() - 1)))
    ends = f"{low.quantize(unit, ROUND_FLOOR):,f} to {high.quantize(unit, ROUND_CEILING):,f}"
    value = metric["value"]
    return "no result" if value is None else f"{Decimal(str(value)).quantize(unit, ROUND_HALF_EVEN):,f}", ends

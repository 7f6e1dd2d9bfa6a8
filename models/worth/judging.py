"""What a measurement shows, by its intervals: better, not better, or that it could not tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BETTER, NOT_BETTER, UNCLEAR = OUTCOMES = "better", "not better", "could not tell"
SLIGHT = 0.05  # of the scale: a model that is at most so much above a constant answer is no better


def covers(kind: str) -> bool:
    """Return whether such counts say how often answers hold the truth, and not what the model is worth."""
    return kind.startswith("cover-")


def judge(kind: str, figures: Sequence[dict[str, Any]]) -> str:
    """Return one of OUTCOMES.

    Of one model, against always giving the same answer: of two classes the AUROC against a half, of more the accuracy
    against the share of the most frequent class, of a number R2 against 0. It is better where the whole interval lies
    above, and not better where all of it lies below that and SLIGHT. Of two models, against the other one: better where
    the whole interval lies on the model's side, not better where none of it does. How answers cover
    tells nothing of that.
    """
    if covers(kind):
        return UNCLEAR
    if kind.startswith("paired-"):
        low, high = float(figures[0]["low"]), float(figures[0]["high"])
        low, high = (-high, -low) if kind == "paired-number" else (low, high)  # of errors less is better
        return BETTER if low > 0 else NOT_BETTER if high <= 0 else UNCLEAR
    name, constant = {"binary": ("auroc", 0.5), "number": ("r2", 0.0)}.get(kind, ("advantage", 0.0))
    of_all = (figure for figure in figures if not {"class", "group", "groups"} & figure.keys())
    figure = next(figure for figure in of_all if figure["metric"] == name)
    if float(figure["low"]) > constant:
        return BETTER
    return NOT_BETTER if float(figure["high"]) < constant + SLIGHT else UNCLEAR

"""What edits are about, as JSON: every bin of a curve, and what changed of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from models.edit.curves import Curves, curves_of
from models.edit.editing import bin_texts, counts_of, errors_of, values_of
from models.forms.additive import AdditiveEnsemble
from models.parts.pairs import term_names


def bins_of(model: AdditiveEnsemble, feature: str) -> list[dict[str, Any]]:
    """Return every bin of a feature, or cell of a pair, in the model's unit. InputError where there is no such
    feature.
    """
    values, errors = values_of(model, feature), errors_of(model, feature)
    bins = zip(bin_texts(model, feature), values, errors, counts_of(model, feature), strict=True)
    return [
        {"bin": code, "values": text, "adds": float(value), "error": error, "count": count}
        for code, (text, value, error, count) in enumerate(bins)
    ]


def changes(before: Curves, after: Curves) -> Iterator[dict[str, Any]]:
    """Yield every bin that adds something else than it did; of several classes, with its class."""
    if isinstance(before, AdditiveEnsemble):
        yield from _changes(before, curves_of(after, None))
        return
    for label in before.classes:
        for row in _changes(curves_of(before, label), curves_of(after, label)):
            yield {"class": label, **row}


def _changes(before: AdditiveEnsemble, after: AdditiveEnsemble) -> Iterator[dict[str, Any]]:
    for feature in term_names(before.features, before.pairs):
        old, new = values_of(before, feature).tolist(), values_of(after, feature).tolist()
        if old != new:
            for code, (text, was, now) in enumerate(zip(bin_texts(before, feature), old, new, strict=True)):
                if was != now:
                    yield {"feature": feature, "bin": code, "values": text, "before": was, "after": now}

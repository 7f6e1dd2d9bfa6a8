"""Columns whose values stand on, and beside, every border that a model can have."""

from __future__ import annotations

from math import inf, nan, nextafter

from models.features.features import BooleanFeature, NumericFeature


def borders(features, count, rng):
    """`count` random records of them, by feature."""
    columns = {}
    for feature in features:
        match feature:
            case NumericFeature():
                near = [x for e in feature.edges for x in (e, nextafter(e, -inf), nextafter(e, inf))]
                values = [*near, 0.0, 1e300, -1e300, inf, -inf, nan]
            case BooleanFeature():
                values = [0.0, 1.0, nan]
            case _:
                values = [*feature.values, "", None, "elsewhere", "other", "missing", "日本"]
        columns[feature.name] = [values[i] for i in rng.integers(0, len(values), count)]
    return columns

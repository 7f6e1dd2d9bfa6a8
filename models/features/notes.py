"""What became of a record's values on their way into a model: clipped, unknown or missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from models.features.features import CategoricalFeature, Feature, NumericFeature, RawColumns

CLIPPED, UNKNOWN, MISSING = KINDS = "clipped", "unknown", "missing"
Note: TypeAlias = dict[str, Any]  # field, note, and of a clipped value `to`, the end of the range that it counts as


def notes_of(
    features: Sequence[Feature], ends: Mapping[str, tuple[float, float]], columns: RawColumns
) -> list[list[Note]]:
    """Return the notes of each record, in the order of the features. `columns`: raw values (n,), categories as texts.
    `ends`: of each number the range that its schema declares, or its outer cut points.

    Missing is what has no value; unknown a category that the schema does not list; clipped a number, date or time
    outside of its range, which counts as the range's nearer end.
    """
    records: list[list[Note]] = [[] for _ in range(len(np.asarray(columns[features[0].name])))]
    for feature in features:
        codes = feature.encode(columns[feature.name])
        found = {MISSING: codes == feature.missing}
        if isinstance(feature, CategoricalFeature):
            found[UNKNOWN] = codes == feature.other
        for kind, marked in found.items():
            for at in np.flatnonzero(marked):
                records[at].append({"field": feature.name, "note": kind})
        if isinstance(feature, NumericFeature):
            numbers, (low, high) = np.asarray(columns[feature.name], np.float64), ends[feature.name]
            for end, marked in ((low, numbers < low), (high, numbers > high)):
                note = {"field": feature.name, "note": CLIPPED, "to": feature.text(end)}
                for at in np.flatnonzero(marked):
                    records[at].append(dict(note))
    return records


def note_text(notes: Sequence[Note]) -> str:
    """Return the notes of one record for people, and for a cell of a file."""
    return "; ".join(
        f"{note['field']} {note['note']}" + (f" to {note['to']}" if "to" in note else "") for note in notes
    )

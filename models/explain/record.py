"""One record's account as bars: what each of its values adds, the largest first, up to the answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.explain.explain import Bin, Contributions, errors, logits, spoken_for, unit
from models.explain.vega_panels import Colours, Panel, bar_panel, reach
from models.explain.vega_parts import amount
from models.features.features import CalendarFeature, NumericFeature, RawColumns, encode_columns
from models.parts.answers import ClassLabel
from models.parts.pairs import JOINED
from models.parts.released import Released

NAMES, SHOWN = 190, 30  # pixels for names with their values; most bars


def record_panels(ensemble: Released, columns: RawColumns, colours: Colours) -> list[Panel]:
    """Draw the first record: one panel per score."""
    parts = logits(ensemble, columns)
    bars = record_bars(ensemble, columns, parts)
    scale, of = reach(bars), unit(ensemble)
    heads = (_headline(ensemble, columns, parts, at, label) for at, label in enumerate(spoken_for(ensemble)))
    return [
        bar_panel(head, note, sorted(bars_of_score, key=lambda bar: -abs(bar.votes))[:SHOWN], scale, of, colours, NAMES)
        for (head, note), bars_of_score in zip(heads, bars, strict=True)
    ]


def record_bars(ensemble: Released, columns: RawColumns, found: Contributions) -> list[list[Bin]]:
    """Return what each value of the first record adds to each score, in the order of the features, and then each
    pair.
    """
    noise = errors(ensemble)
    codes = [int(code[0]) for code in encode_columns(ensemble.features, columns)]
    names = [f"{f.name} = {_value(f, columns, code)}" for f, code in zip(ensemble.features, codes, strict=True)]
    errors_of_parts = [None if noise is None else float(noise[at][code]) for at, code in enumerate(codes)]
    for pair in ensemble.as_sum().pairs:
        names.append(JOINED.join(names[at] for at in pair.features))
        row, column = (groups[codes[at]] for at, groups in zip(pair.features, pair.groups, strict=True))
        errors_of_parts.append(pair.errors[row][column] * ensemble.link if pair.errors else None)
    return [
        [Bin(name, float(adds), error=e) for name, adds, e in zip(names, score, errors_of_parts, strict=True)]
        for score in found.votes[0].T
    ]


def _value(feature: Any, columns: RawColumns, code: int) -> str:
    """Return the value as the model reads it: a number as it is, anything else by the name of its code."""
    if isinstance(feature, NumericFeature) and code != feature.missing:
        value = float(np.asarray(columns[feature.name])[0])
        return feature.text(value) if isinstance(feature, CalendarFeature) else f"{value:g}"
    return str(feature.label(code))


def _headline(
    ensemble: Released, columns: RawColumns, found: Contributions, at: int, label: ClassLabel
) -> tuple[str, str]:
    total = float(found.base[at] + found.votes[0, :, at].sum())
    sums = f"{amount(float(found.base[at]))} at first, {amount(total)} in all"
    if not ensemble.classes:
        return f"{ensemble.target}: {amount(float(ensemble.predict(columns)[0]), '-')}", sums
    share = float(ensemble.probabilities(columns)[0, ensemble.classes.index(label)])
    return f"{ensemble.target} {label}: {share:.1%}", f"{unit(ensemble)}: {sums}"

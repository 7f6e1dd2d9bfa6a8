"""Editing a released additive model: set, smooth, clip, zero, and monotone shapes. It is arithmetic on released numbers
and costs no privacy; every edit stands in the model permanently (`Edit`).

Values are what a bin adds to the score, in log odds of classes[1], or in the target's units where that is a number; the
model holds them as integers, so a value is rounded to a multiple of `link`. Nothing is centred anew: what one bin adds
changes, and no other bin. Each function gives a new model and leaves the old one alone.

What becomes of `errors`, the standard error that the noise alone gives a term: a value that somebody chose has none, so
it is 0 where a bin was set, zeroed or clipped. Where terms are averaged (`smooth`, `monotone`) it is the same average
of their errors: no less than the true one, however the noises of the bins hang together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby
from math import ceil, isfinite, log2
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.formats import canonical
from models.edit.edit_parts import ALL, Part, bin_text, ordered_codes, part_of, ranges, runs_of
from models.features.features import Feature
from models.forms.additive import AdditiveEnsemble
from models.forms.ensemble import Ensemble
from models.parts.edits import MAX_EDIT, Edit
from models.parts.pairs import JOINED, MAX_INTEGER, PairTerm, term_names

FINEST = 1 / 65536  # a converted vote's unit is at most this: so closely can a value be set
WIDEST = 999  # bins that a mean is over
Floats: TypeAlias = NDArray[np.float64]
Weights: TypeAlias = Literal["equal", "counts"]
Direction: TypeAlias = Literal["increasing", "decreasing"]


@dataclass(frozen=True)
class EditNote:
    """Who edits, when and why: each is part of the edit."""

    by: str
    why: str
    at: str = ""

    def __post_init__(self) -> None:
        for name in ("by", "why"):
            text = getattr(self, name)
            if not text.strip() or not text.isprintable() or len(text) > 500:
                raise InputError(f"{name}: must be one line of 1 to 500 characters")
        object.__setattr__(self, "at", self.at or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


def to_additive(ensemble: Ensemble) -> AdditiveEnsemble:
    """Return the model itself, or a voting one of two classes in additive form: the same scores on a finer scale, what
    each feature adds centred between its extremes. InputError for what is no sum over features, or has several classes.
    """
    if isinstance(ensemble, AdditiveEnsemble):
        return ensemble
    if not ensemble.adds_up or ensemble.outputs > 1:
        raise InputError("model: only a sum over features, of two classes or a number, can be edited; this one is not")
    scale = 1 << max(1, ceil(log2(ensemble.link / FINEST)))
    tables, constant = ensemble.as_sum().tables()
    scaled = [table[:, 0] * scale for table in tables]
    middles = [(int(table.max()) + int(table.min())) // 2 for table in scaled]  # even, so exact
    terms = tuple(tuple(map(int, table - middle)) for table, middle in zip(scaled, middles, strict=True))
    start = int(constant[0]) * scale + sum(middles)
    return AdditiveEnsemble(
        ensemble.features, ensemble.target, ensemble.classes, None, ensemble.link / scale, start, terms
    )


def values_of(model: AdditiveEnsemble, feature: str) -> Floats:
    """Return what every bin of a feature, or cell of a pair, adds, (bins,), in the model's unit."""
    return _copies(model, _place(model, feature))[0].astype(np.float64) * model.link


def errors_of(model: AdditiveEnsemble, feature: str) -> list[float | None]:
    """Return the standard error that the noise gives each bin, (bins,), in the model's unit; None where none were
    released.
    """
    terms, errors = _copies(model, _place(model, feature))
    return [error * model.link for error in errors.tolist()] if model.errors else [None] * len(terms)


def counts_of(model: AdditiveEnsemble, feature: str) -> Sequence[int | None]:
    """Return the released, noisy records in each bin, (bins,); None where none were released."""
    place = _place(model, feature)
    if place < len(model.features):
        return model.counts[place] if model.counts else [None] * len(model.terms[place])
    pair = model.pairs[place - len(model.features)]
    return [count for row in pair.counts for count in row] or [None] * pair.table.size


def bin_texts(model: AdditiveEnsemble, feature: str) -> list[str]:
    """Return the bins as `part_of` reads them; of a pair its cells in words."""
    place = _place(model, feature)
    if place < len(model.features):
        owner = model.features[place]
        return [bin_text(owner, code) for code in range(owner.bins)]
    pair = model.pairs[place - len(model.features)]
    rows, columns = (pair.labels(model.features, side) for side in (0, 1))
    return [JOINED.join((row, column)) for row in rows for column in columns]


def set_value(model: AdditiveEnsemble, feature: str, part: Part, value: float, note: EditNote) -> AdditiveEnsemble:
    """Let every bin of `part` add `value`."""
    place, codes = _codes(model, feature, part)
    terms, errors = _copies(model, place)
    terms[codes] = _unit(model, "value", value)
    errors[codes] = 0
    return _with_edit(model, place, terms, errors, note, {"do": "set", "bins": ranges(codes), "value": _text(value)})


def zero(model: AdditiveEnsemble, feature: str, note: EditNote, part: Part = ALL) -> AdditiveEnsemble:
    """Let the bins of `part` add nothing; with "all", the model does not look at the feature any more."""
    place, codes = _codes(model, feature, part)
    terms, errors = _copies(model, place)
    terms[codes], errors[codes] = 0, 0
    return _with_edit(model, place, terms, errors, note, {"do": "zero", "bins": ranges(codes)})


def clip(
    model: AdditiveEnsemble, feature: str, low: float, high: float, note: EditNote, part: Part = ALL
) -> AdditiveEnsemble:
    """Keep what each bin of `part` adds between `low` and `high`."""
    least, most = _unit(model, "low", low), _unit(model, "high", high)
    if low > high:
        raise InputError(f"low={low}: must not be above high={high}")
    place, codes = _codes(model, feature, part)
    before, errors = _copies(model, place)
    terms = before.copy()
    terms[codes] = np.clip(before[codes], least, most)
    errors[terms != before] = 0
    change = {"do": "clip", "bins": ranges(codes), "low": _text(low), "high": _text(high)}
    return _with_edit(model, place, terms, errors, note, change)


def smooth(
    model: AdditiveEnsemble, feature: str, note: EditNote, part: Part = ALL, window: int = 3, weights: Weights = "equal"
) -> AdditiveEnsemble:
    """Let every bin of `part` add the mean of the `window` bins around it, as far as they are in the part; with weights
    "counts", each weighs as many records as were released for it (at least 1). For ordered bins; missing stays.
    """
    if type(window) is not int or not 3 <= window <= WIDEST or window % 2 == 0:
        raise InputError(f"window={window!r:.40}: must be an odd whole number from 3 to {WIDEST}")
    place, codes = _ordered_codes(model, feature, part)
    weight = _weights(model, place, weights)[codes]
    terms, errors = _copies(model, place)
    terms[codes] = np.rint(_moving_mean(terms[codes], weight, window))
    errors[codes] = _moving_mean(errors[codes], weight, window)
    change: canonical.Encodable = {"do": "smooth", "bins": ranges(codes), "window": window, "weights": weights}
    return _with_edit(model, place, terms, errors, note, change)


def monotone(
    model: AdditiveEnsemble, feature: str, direction: Direction, note: EditNote, part: Part = ALL
) -> AdditiveEnsemble:
    """Let the bins of `part` never fall ("increasing") or never rise: the nearest such shape in squares (PAV), each bin
    weighing its released count (at least 1; all alike where none were released). Ordered bins; missing stays.
    """
    if direction not in ("increasing", "decreasing"):
        raise InputError(f"monotone={direction!r:.40}: must be increasing or decreasing")
    place, codes = _ordered_codes(model, feature, part)
    weight = _weights(model, place, "counts" if model.counts else "equal")[codes]
    terms, errors = _copies(model, place)
    terms[codes], errors[codes] = _isotonic(terms[codes], errors[codes], weight, direction == "increasing")
    change = {"do": "monotone", "bins": ranges(codes), "direction": direction}
    return _with_edit(model, place, terms, errors, note, change)


def _moving_mean(values: NDArray[Any], weight: Floats, window: int) -> Floats:
    """Return the weighted mean of the `window` values around each, as far as there are any."""

    def around(change: Floats) -> Floats:
        found: Floats = sliding_window_view(np.pad(change, window // 2), window).sum(axis=-1)
        return found

    return around(values * weight) / around(weight)


def _isotonic(terms: NDArray[np.int64], errors: Floats, weight: Floats, rising: bool) -> tuple[Floats, Floats]:
    """Fit monotone terms, and return them with the errors, which in a pooled block are its mean error. Rounding keeps
    what is monotone monotone.
    """
    fitted = _pooled(terms.astype(np.float64), weight) if rising else -_pooled(-terms.astype(np.float64), weight)
    means, at = errors.copy(), 0
    for _, block in groupby(fitted):
        end = at + len(list(block))
        if end - at > 1:
            means[at:end] = np.average(errors[at:end], weights=weight[at:end])
        at = end
    return np.rint(fitted), means


def _pooled(values: Floats, weight: Floats) -> Floats:
    """Return the nearest values that never fall, by weighted squares: neighbours that do are pooled into their mean."""
    blocks: list[tuple[float, float, int]] = []  # sum, weight, length
    for value, each in zip(values.tolist(), weight.tolist(), strict=True):
        block = (value * each, each, 1)
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            block = tuple(map(sum, zip(blocks.pop(), block, strict=True)))  # type: ignore[assignment]
        blocks.append(block)
    return np.repeat([total / each for total, each, _ in blocks], [length for *_, length in blocks])


def _place(model: AdditiveEnsemble, feature: str) -> int:
    """Return where a feature stands, or a pair of them behind the features."""
    names = term_names(model.features, model.pairs)
    if feature not in names:
        choices = (*names[: min(20, len(model.features))], *names[len(model.features) :][:20])
        raise InputError(f"feature={feature!r:.80}: the model has {', '.join(choices)}")
    return names.index(feature)


def _codes(model: AdditiveEnsemble, feature: str, part: Part) -> tuple[int, list[int]]:
    place = _place(model, feature)
    if not isinstance(part, str):
        return place, runs_of(feature, part, len(_copies(model, place)[0]))
    if place < len(model.features):
        return place, part_of(model.features[place], part)
    return place, _cells(model, model.pairs[place - len(model.features)], part)


def _cells(model: AdditiveEnsemble, pair: PairTerm, part: str) -> list[int]:
    """Return every cell of `all`, or of bins of the first & bins of the second."""
    if part.strip() == ALL:
        return list(range(pair.table.size))
    first, joined, second = part.partition(JOINED)
    if not joined:
        raise InputError(
            f"bins={part:.80}: of a pair say bins of the one & bins of the other, for instance 30..40 & all"
        )
    sides = []
    for at, groups, text in zip(pair.features, pair.groups, (first, second), strict=True):
        sides.append(sorted({groups[code] for code in part_of(model.features[at], text)}))
    return [row * pair.shape[1] + column for row in sides[0] for column in sides[1]]


def _ordered_codes(model: AdditiveEnsemble, feature: str, part: Part) -> tuple[int, list[int]]:
    """Return the bins of `part` that stand in an order. InputError where the feature has none, or fewer than two are
    left.
    """
    place = _place(model, feature)
    if place >= len(model.features):
        raise InputError(f"feature={feature}: a pair's cells can be set, clipped or zeroed; they stand in no one order")
    owner: Feature = model.features[place]
    among = ordered_codes(owner)
    codes = [code for code in _codes(model, feature, part)[1] if code in among]
    if len(codes) < 2:
        raise InputError(f"bins={part}: {feature} has fewer than two bins there that stand in an order")
    return place, codes


def _weights(model: AdditiveEnsemble, place: int, weights: Weights) -> Floats:
    if weights not in ("equal", "counts"):
        raise InputError(f"weights={weights!r:.40}: must be equal or counts")
    if weights == "equal":
        return np.ones(len(model.terms[place]))
    if not model.counts:
        raise InputError("weights=counts: this model released no counts")
    return np.maximum(1, np.array(model.counts[place], np.float64))


def _copies(model: AdditiveEnsemble, place: int) -> tuple[NDArray[np.int64], Floats]:
    """Copy the terms and errors of a feature, or of the cells of a pair, so that they can be changed."""
    if place >= len(model.features):
        pair = model.pairs[place - len(model.features)]
        return pair.table[:, 0].copy(), np.array(pair.errors or np.zeros(pair.shape), np.float64).ravel()
    errors = model.errors[place] if model.errors else np.zeros(len(model.terms[place]))
    return np.array(model.terms[place], np.int64), np.array(errors, np.float64)


def _unit(model: AdditiveEnsemble, name: str, value: float) -> int:
    """Return a value in units of the score."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InputError(f"{name}={value!r:.40}: must be a finite number")
    units = value / model.link
    if not abs(units) <= MAX_INTEGER:
        raise InputError(f"{name}={value!r:.40}: must be at most {MAX_INTEGER * model.link:.6g} in size")
    return round(units)


def _text(value: float) -> str:
    return canonical.decimal_string(Decimal(repr(value)))


def _with_edit(
    model: AdditiveEnsemble,
    place: int,
    terms: NDArray[np.int64],
    errors: Floats,
    note: EditNote,
    change: canonical.Encodable,
) -> AdditiveEnsemble:
    """Return the new model. InputError where nothing changes, or where its scores would not be held exactly."""
    feature, row = term_names(model.features, model.pairs)[place], tuple(map(int, terms))
    if row == tuple(map(int, _copies(model, place)[0])):
        raise InputError(f"feature={feature}: nothing would change")
    edit = Edit(note.at, note.by, note.why, feature, canonical.encode(change, MAX_EDIT).decode())
    new_errors, edits = tuple(map(float, errors)), (*model.edits, edit)
    try:
        if place >= len(model.features):
            at = place - len(model.features)
            pair = model.pairs[at].with_terms(row, new_errors)
            return replace(model, pairs=(*model.pairs[:at], pair, *model.pairs[at + 1 :]), edits=edits)
        return replace(
            model,
            terms=(*model.terms[:place], row, *model.terms[place + 1 :]),
            errors=(*model.errors[:place], new_errors, *model.errors[place + 1 :]) if model.errors else (),
            edits=edits,
        )
    except ModelInvalid as error:
        raise InputError(f"feature={feature}: {error.message}") from error

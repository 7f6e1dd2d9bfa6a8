"""The curves that people edit: one for each feature; of three classes or more one for each feature and class.

Every edit is one of `models.edit.editing`, of the curves of one class as a model of their own (`curves_of`), which are
put back (`put_back`): other classes' curves stay as they are. The edit says its class in `what`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil, log2
from typing import TypeAlias

from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.formats import canonical
from models.edit.editing import FINEST, to_additive
from models.forms.additive import AdditiveEnsemble
from models.forms.classes import HELD, ClassesEnsemble
from models.forms.ensemble import Ensemble
from models.parts.answers import ClassLabel
from models.parts.edits import MAX_EDIT
from models.parts.pairs import PairTerm

Curves: TypeAlias = AdditiveEnsemble | ClassesEnsemble
OTHERS = "every other class"  # of the curves of one class, as a model of its own


def editable(ensemble: Ensemble) -> bool:
    """Return whether `to_curves` gives it."""
    return ensemble.adds_up


def to_curves(ensemble: Ensemble) -> Curves:
    """Return the model itself, or a voting one with the same answers on a finer scale, what each feature adds centred
    between its extremes. InputError for what is no sum over features.
    """
    if isinstance(ensemble, AdditiveEnsemble | ClassesEnsemble):
        return ensemble
    if not editable(ensemble):
        raise InputError("model: only a sum over features can be edited; this one is not")
    if ensemble.outputs == 1:
        return to_additive(ensemble)
    tables, constant = ensemble.as_sum().tables()
    middles = [table.max(axis=0) + table.min(axis=0) for table in tables]  # in halves
    terms = [2 * table - middle for table, middle in zip(tables, middles, strict=True)]
    start = 2 * constant + sum(middles)
    most = int((abs(start) + sum(abs(term).max(axis=0) for term in terms)).max())
    wanted = max(0, ceil(log2(ensemble.link / 2 / FINEST)))
    scale = 1 << max(0, min(wanted, int(log2(HELD / 2 / max(1, most)))))  # as fine as leaves room for edits
    rows = tuple(tuple(tuple(map(int, row)) for row in term * scale) for term in terms)
    begin = tuple(map(int, start * scale))
    return ClassesEnsemble(ensemble.features, ensemble.target, ensemble.classes, ensemble.link / 2 / scale, begin, rows)


def class_of(model: Curves, answer: object) -> ClassLabel | None:
    """Return the class that was said, itself or as text; None of a model whose features have one curve each. InputError
    where the model has no such class, or none was said and it has several.
    """
    if isinstance(model, AdditiveEnsemble):
        if answer is not None:
            raise InputError(f"class={answer!r:.80}: every feature of this model has one curve; leave the class out")
        return None
    labels = [label for label in model.classes if type(answer) in (str, int) and str(label) == str(answer)]
    if not labels:
        choices = ", ".join(map(str, model.classes[:20]))
        raise InputError(f"class={answer!r:.80}: must be said, the model has a curve for each of {choices}")
    return labels[0]


def curves_of(model: Curves, label: ClassLabel | None) -> AdditiveEnsemble:
    """Return what each feature adds to the score of the class `label`, as a model of its own without edits yet; or
    `model`, where that has no several classes.
    """
    if isinstance(model, AdditiveEnsemble):
        return model
    at = model.classes.index(label)
    terms = tuple(tuple(numbers[at] for numbers in term) for term in model.terms)
    classes = (OTHERS, f"class {label}")
    pairs = tuple(pair.with_terms(pair.table[:, at].tolist(), ()) for pair in model.pairs)
    start = model.constant[at]
    head = model.features, model.target, classes, None, model.link, start
    return AdditiveEnsemble(*head, terms, model.counts, pairs=pairs)


def put_back(model: Curves, label: ClassLabel | None, edited: AdditiveEnsemble) -> Curves:
    """Return `model` with the edited curves of `label`. InputError where a score would not be held exactly."""
    if isinstance(model, AdditiveEnsemble):
        return edited
    at = model.classes.index(label)
    terms = tuple(
        tuple((*numbers[:at], number, *numbers[at + 1 :]) for numbers, number in zip(term, owns, strict=True))
        for term, owns in zip(model.terms, edited.terms, strict=True)
    )
    pairs = []
    for pair, own in zip(model.pairs, edited.pairs, strict=True):
        table = pair.table.copy()
        table[:, at] = own.table[:, 0]
        pairs.append(pair.with_terms([*map(tuple, table.tolist())], ()))
    changes: list[dict[str, canonical.Encodable]] = [{**json.loads(edit.what), "class": label} for edit in edited.edits]
    texts = [canonical.encode(change, MAX_EDIT).decode() for change in changes]
    edits = tuple(replace(edit, what=text) for edit, text in zip(edited.edits, texts, strict=True))
    try:
        return replace(model, terms=terms, pairs=tuple(pairs), edits=(*model.edits, *edits))
    except ModelInvalid:
        limit = HELD * model.link
        raise InputError(
            f"class={label}: a score could come to {edited.largest * model.link:.4g}, and this model holds up to "
            f"{limit:.4g}; choose values nearer to 0"
        ) from None


def same_but_for_terms(before: Curves, after: Curves) -> bool:
    """Return whether nothing has changed but what bins add, and the list of edits."""
    if isinstance(before, ClassesEnsemble):
        if not isinstance(after, ClassesEnsemble) or _without_terms(after) != _without_terms(before):
            return False
        return replace(after, terms=before.terms, edits=before.edits, pairs=before.pairs) == before
    if isinstance(after, ClassesEnsemble):
        return False
    same = replace(after, terms=before.terms, errors=before.errors, edits=before.edits, pairs=before.pairs)
    return same == before and _without_terms(before) == _without_terms(after)


def _without_terms(model: Curves) -> list[PairTerm]:
    return [replace(pair, terms=(), errors=()) for pair in model.pairs]

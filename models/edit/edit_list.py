"""Several edits at once, as a list: from a file in YAML or JSON, or from a command line. Each is one object:

{feature: age, set: {bins: "..25", to: -0.4}}        {feature: age, smooth: {bins: 30..60, window: 5, weights: counts}}
{feature: age, clip: {low: -2, high: 2}}             {feature: age, zero: {bins: missing}}, or zero: all
{feature: age, monotone: increasing}                 and `why`, where one edit has a reason of its own
{feature: age, class: setosa, zero: all}             of three classes or more, which of them

`bins` is a text, or runs of bins by number (`models.edit.edit_parts`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from dpserve_verify.errors import InputError
from models.edit import editing
from models.edit.changes import changes
from models.edit.curves import Curves, class_of, curves_of, put_back, to_curves
from models.edit.edit_parts import ALL
from models.edit.editing import EditNote
from models.forms.additive import AdditiveEnsemble
from models.forms.registry import ensemble_bytes, ensemble_from_bytes

KINDS = {  # kind -> what it must say, what it may say
    "set": (("bins", "to"), ()),
    "smooth": ((), ("bins", "window", "weights")),
    "clip": (("low", "high"), ("bins",)),
    "zero": ((), ("bins",)),
    "monotone": (("direction",), ("bins",)),
}
SHORT = {"zero": "bins", "smooth": "bins", "monotone": "direction"}  # what a bare text stands for
MOST_BYTES = 1 << 20
Changes = list[dict[str, Any]]
MAX_EDITS = 1000  # of one request, and what they cost together:
MAX_CELLS = 1 << 24  # edits times what the model adds, for each edit makes and checks the model anew


def read_edits(path: Path) -> list[Any]:
    """Return the list of a file. InputError where it is none."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        edits = yaml.safe_load(raw) if len(raw) <= MOST_BYTES and not _repeats(raw) else None  # YAML holds JSON
    except OSError as error:
        raise InputError(f"file={path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise InputError(f"file={path}: must be YAML or JSON") from None
    if not isinstance(edits, list):
        raise InputError(f"file={path}: must be a list of edits, of at most {MOST_BYTES} bytes, without aliases")
    return edits


def _repeats(raw: bytes) -> bool:
    """Return whether a part of YAML is repeated by an alias: a few bytes would stand for any number."""
    return b"*" in raw and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(raw, yaml.SafeLoader))


def check_edits(edits: Sequence[Any]) -> None:
    """Raise InputError where there are none or more than MAX_EDITS, or for the first that has not the form of one."""
    if not edits:
        raise InputError("edits: say at least one")
    if len(edits) > MAX_EDITS:
        raise InputError(f"edits: {len(edits)}; at most {MAX_EDITS} at once", limit=MAX_EDITS)
    for number, edit in enumerate(edits, 1):
        try:
            _read_edit(edit)
        except InputError as error:
            raise InputError(f"edit {number}: {error.message}") from error


def edit_all(model: Curves, edits: Sequence[Any], note: EditNote) -> Curves:
    """Make one edit after the other: all of them, or InputError that names the first wrong one."""
    check_edits(edits)
    cells = sum(map(len, model.terms)) * model.outputs + sum(pair.table.size for pair in model.pairs)
    most = min(MAX_EDITS, max(1, MAX_CELLS // max(1, cells)))
    if len(edits) > most:
        raise InputError(f"edits: {len(edits)} of a model of {cells} values; at most {most} at once", limit=most)
    for number, edit in enumerate(edits, 1):
        try:
            kind, feature, options = _read_edit(edit)
            label = class_of(model, edit.get("class"))
            note_of_edit = replace(note, why=_text(edit, "why", note.why))
            model = put_back(model, label, _edit(curves_of(model, label), kind, feature, options, note_of_edit))
        except InputError as error:
            raise InputError(f"edit {number}: {error.message}") from error
    return model


def edit_text(ensemble: str, edits: str, note: EditNote) -> tuple[str, list[dict[str, str]], Changes]:
    """Edit the model of an ensemble.json; return that of the edited one, its new edits, and every bin that adds
    something else. `edits`: a list in JSON.
    """
    before = to_curves(ensemble_from_bytes(ensemble.encode()))
    after = edit_all(before, json.loads(edits), note)
    made = [edit.to_json() for edit in after.edits[len(before.edits) :]]
    return ensemble_bytes(after).decode(), made, list(changes(before, after))


def _edit(
    model: AdditiveEnsemble, kind: str, feature: str, said: Mapping[str, Any], note: EditNote
) -> AdditiveEnsemble:
    part = said.get("bins", ALL)
    if not isinstance(part, list):
        part = str(part).lower() if isinstance(part, bool) else str(part)  # YAML's own true and false
    match kind:
        case "set":
            return editing.set_value(model, feature, part, said["to"], note)
        case "smooth":
            window, weights = said.get("window", 3), said.get("weights", "equal")
            return editing.smooth(model, feature, note, part, window, weights)
        case "clip":
            return editing.clip(model, feature, said["low"], said["high"], note, part)
        case "zero":
            return editing.zero(model, feature, note, part)
        case _:
            return editing.monotone(model, feature, said["direction"], note, part)


def _read_edit(edit: Any) -> tuple[str, str, Mapping[str, Any]]:
    kinds = [kind for kind in KINDS if kind in edit] if isinstance(edit, Mapping) else []
    if len(kinds) != 1 or set(edit) - {"feature", "class", "why", *kinds}:
        raise InputError(f"must say feature, one of {', '.join(KINDS)}, and maybe why; of several classes also class")
    kind, options = kinds[0], edit[kinds[0]]
    if isinstance(options, str) and kind in SHORT:
        options = {SHORT[kind]: options}
    needed, allowed = KINDS[kind]
    if not isinstance(options, Mapping) or set(options) - {*needed, *allowed} or set(needed) - set(options):
        words = [*needed, *(f"maybe {name}" for name in allowed)]
        raise InputError(f"{kind}: must say {', '.join(words)}")
    return kind, _text(edit, "feature", ""), options


def _text(edit: Mapping[str, Any], name: str, otherwise: str) -> str:
    text = edit.get(name, otherwise)
    if not isinstance(text, str) or not text:
        raise InputError(f"{name}={text!r:.40}: must be a text")
    return text

"""Every kind of entry and its form; and the JSON Schema of an entry, which is made from these.

Made anew by `python -m dpserve_verify.entries.kinds > docs/ledger.schema.json`.
"""

from __future__ import annotations

import json
from typing import Any, get_args, get_type_hints

from dpserve_verify.entries import (
    access,
    attacks,
    budgets,
    campaigns,
    datasets,
    jobs,
    keys,
    learners,
    models,
    schedules,
    statements,
)
from dpserve_verify.entries.entry import EntryForm
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats.forms import NotOfTheForm, tagged_schema

_ROOMS = (keys, datasets, budgets, jobs, statements, models, access, schedules, campaigns, learners, attacks)
_CLASSES = [
    each
    for room in _ROOMS
    for each in vars(room).values()
    if isinstance(each, type) and issubclass(each, EntryForm) and "type" in each.__annotations__
]
FORMS: dict[str, type[EntryForm]] = {kind: form for form in _CLASSES for kind in get_args(get_type_hints(form)["type"])}

NEWEST = max(form.generation for form in _CLASSES)


def read_form(kind: str, value: dict[str, Any]) -> EntryForm:
    """Read an entry of this kind. InputError names the first field that cannot be so, LedgerInvalid says which fields
    there must be.
    """
    form = FORMS.get(kind)
    if form is None:
        raise LedgerInvalid(f"type={kind!r:.60}: not a type of entry that this reader knows", unknown=kind[:60])
    if not form.required() <= value.keys() <= form.keys():
        raise LedgerInvalid(f"{kind}: must have exactly the fields {sorted(form.required())}")
    try:
        return form.read(value)
    except NotOfTheForm as error:
        wrong = value.get(str(error.place[0])) if len(error.place) == 1 else None
        shown = f"={wrong!r:.80}" if isinstance(wrong, str) else ""
        raise InputError(f"{'.'.join(map(str, error.place))}{shown}: {error.message}") from None


def json_schema() -> dict[str, Any]:
    """Make the JSON Schema, draft 2020-12, of an entry."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An entry of a dpserve ledger",
        "description": "One leaf of the log. What must hold besides, given the entries before it, an audit judges.",
    }
    return {**head, **tagged_schema(_CLASSES, "type")}


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))

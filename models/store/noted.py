"""Notes and tags of the datasets and models that a home has: `accountant.home.notes` by their names."""

from __future__ import annotations

from collections.abc import Sequence

from accountant.home import Home
from accountant.home.notes import Note, note_of, write_note
from models.store.bundle import ModelStore


def read_note(home: Home, kind: str, name: str) -> Note:
    """Return the note of a dataset or of a model, all versions together. UnknownName where there is no such one."""
    _require(home, kind, name)
    return note_of(home.path, kind, name)


def change_note(home: Home, kind: str, name: str, text: str | None, tags: Sequence[str] | None) -> Note:
    """Put another text, or other tags, in the place of those of a dataset or a model; None leaves what is there. Return
    the note. UnknownName where there is no such one, InputError for what no note may hold.
    """
    _require(home, kind, name)
    before = note_of(home.path, kind, name)
    note = Note.of(before.text if text is None else text, before.tags if tags is None else tags)
    write_note(home.path, kind, name, note)
    return note


def _require(home: Home, kind: str, name: str) -> None:
    if kind == "dataset":
        home.ledger.dataset(name)
    else:
        ModelStore(home.models).versions(name)

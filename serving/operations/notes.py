"""Notes and tags of datasets and models: who may see a thing reads its note, and a steward, or who may promote, writes
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StrictStr
from pydantic.dataclasses import dataclass

from accountant.access.tokens import SCOPES
from accountant.home.notes import MAX_TAGS, MAX_TEXT
from models.store.noted import change_note, read_note
from serving.http.rights import READS
from serving.operations import Caller, Operation, operation
from serving.operations.answers import Answer
from training.requests.base import CLOSED, Checked

Tag = Annotated[StrictStr, Field(min_length=1, max_length=40)]
Tags = Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS, fail_fast=True)]


@dataclass(frozen=True, config=CLOSED)
class NoteRequest(Checked):
    """A text or tags in the place of those that are there."""

    text: Annotated[StrictStr | None, Field(max_length=MAX_TEXT, description="left out: as it is")] = None
    tags: Annotated[Tags | None, Field(description="left out: as they are")] = None


@dataclass(frozen=True)
class DatasetNote(Answer):
    """What people wrote of a dataset."""

    dataset: str
    text: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class ModelNote(Answer):
    """What people wrote of a model, of all its versions together."""

    model: str
    text: str
    tags: tuple[str, ...]


DATASET, MODEL = "/v1/datasets/{name}/note", "/v1/models/{name}/note"


@operation("GET", DATASET, *READS)
def show_dataset_note(caller: Caller, name: str) -> DatasetNote:
    """Show the note and the tags of a dataset; an empty one where nobody wrote any."""
    note = read_note(caller.home, "dataset", name)
    return DatasetNote(name, note.text, note.tags)


@operation("PUT", DATASET, "steward")
def write_dataset_note(caller: Caller, name: str, body: NoteRequest) -> DatasetNote:
    """Write a dataset's note or tags."""
    note = change_note(caller.home, "dataset", name, body.text, body.tags)
    return DatasetNote(name, note.text, note.tags)


@operation("GET", MODEL, *SCOPES)
def show_model_note(caller: Caller, name: str) -> ModelNote:
    """Show the note and the tags of a model; an empty one where nobody wrote any."""
    note = read_note(caller.home, "model", name)
    return ModelNote(name, note.text, note.tags)


@operation("PUT", MODEL, "promote")
def write_model_note(caller: Caller, name: str, body: NoteRequest) -> ModelNote:
    """Write a model's note or tags."""
    note = change_note(caller.home, "model", name, body.text, body.tags)
    return ModelNote(name, note.text, note.tags)


Both = tuple[Operation[..., Answer], Operation[..., Answer]]  # that shows a note, that writes it
NOTES: Mapping[str, Both] = {
    "dataset": (show_dataset_note, write_dataset_note),
    "model": (show_model_note, write_model_note),
}
OPERATIONS = (*NOTES["dataset"], *NOTES["model"])

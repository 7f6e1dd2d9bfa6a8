"""`dpserve dataset note` and `dpserve model note`: words for people, which no certificate holds and no entry."""

from __future__ import annotations

from typing import Annotated

import typer

from serving.cli.backend import backend
from serving.cli.complete import Model, Name
from serving.cli.terminal import Json, show
from serving.operations.notes import NOTES, NoteRequest

Text = Annotated[str | None, typer.Option(help='The note, in place of the one before; "" removes it.')]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", help='A tag, once for each, in place of those before; "" removes them.')
]


def note_dataset(name: Name, text: Text = None, tags: Tags = None, json: Json = False) -> None:
    """Show a dataset's note and tags, or write them.

    \b
    dpserve dataset note adult
    dpserve dataset note adult --text "the census of 1994" --tag census --tag public
    """
    _note("dataset", name, text, tags, json)


def note_model(name: Model, text: Text = None, tags: Tags = None, json: Json = False) -> None:
    """Show a model's note and tags, or write them; all versions of its name have one.

    \b
    dpserve model note adult --tag production
    """
    _note("model", name, text, tags, json)


def _note(kind: str, name: str, text: str | None, tags: list[str] | None, json: bool) -> None:
    (read, write), name = NOTES[kind], name.partition("@")[0]
    if text is None and not tags:
        note = backend().ask(read, name=name)
    else:
        body = NoteRequest(text, tuple(filter(None, tags)) if tags else None)
        note = backend().ask(write, name=name, body=body)
    shown = note.to_json()
    words = [shown["text"], f"tags: {', '.join(shown['tags'])}" if shown["tags"] else ""]
    show(json, shown, "\n".join(filter(None, words)) or f"{kind} {name} has no note")

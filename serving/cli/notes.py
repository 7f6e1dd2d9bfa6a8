"""`dpserve dataset note` and `dpserve model note`: words for people, which no certificate holds and no entry."""

from __future__ import annotations

from typing import Annotated

import typer

from serving.cli.backend import backend
from serving.cli.complete import Model, Name
from serving.cli.terminal import Json, show

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
    notes = backend().notes
    reads = text is None and not tags
    body = notes.show(kind, name) if reads else notes.change(kind, name, text, tags or None)
    words = [body["text"], *([f"tags: {', '.join(body['tags'])}"] if body["tags"] else [])]
    show(json, body, "\n".join(filter(None, words)) or f"{kind} {body[kind]} has no note")

"""What the command line says, and where: one JSON document or a text on stdout; progress and all else on stderr."""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def show(as_json: bool, body: Any, text: str) -> None:
    """`body` as JSON, or `text` for people."""
    print(json.dumps(body, indent=2, ensure_ascii=False) if as_json else text)


def note(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr)


def aligned(rows: list[tuple[Any, ...]]) -> str:
    """Rows of cells as columns."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in texts)
    return "\n".join(line.rstrip() for line in lines)


def fields(body: Mapping[str, Any]) -> str:
    return aligned([(name, value) for name, value in body.items()]) if body else ""


@contextmanager
def rounds(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; gives the function to call with (done, total)."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def this_user() -> str:
    """Who the ledger says asked for a job on this command line."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container whose user has no name
        return f"cli:uid-{os.getuid()}"

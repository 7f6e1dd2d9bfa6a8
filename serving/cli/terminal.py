"""What the command line says, and where: one JSON document or a text on stdout; progress and all else on stderr.

Colours stand only on a terminal, and not with NO_COLOR (no-color.org); FORCE_COLOR puts them anywhere. They repeat what
the words say, and never say more.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO, TypeVar

import typer

from accountant.system.outputs import writing
from dpserve_verify.errors import InputError
from dpserve_verify.system.printable import printable_json, printable_lines
from models.explain.reports import SUFFIXES

PATIENCE = 0.5  # seconds that a person waits without asking whether anything happens
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Every detail.")]
Contains = Annotated[str, typer.Option(help="Only lines whose name holds this text.")]
Limit = Annotated[int | None, typer.Option(help="At most so many lines; all when left out.", min=1)]
After = Annotated[str | None, typer.Option(help="Go on behind the line of this name.")]
Every = Annotated[bool, typer.Option("--all", help="Also what is archived.")]
T = TypeVar("T")
Style = Literal["bold", "good", "bad", "dim"]
CODES: Mapping[Style, str] = {"bold": "1", "good": "32", "bad": "1;31", "dim": "2"}
_PAINT = re.compile(rf"(\x1b\[(?:0|{'|'.join(CODES.values())})m)")


def show(as_json: bool, body: Any, text: str) -> None:
    """Print `body` as JSON, or `text` for people. No character of either can move the terminal's cursor."""
    print(printable_json(json.dumps(body, indent=2, ensure_ascii=False)) if as_json else _printable(text))


def show_stream(name: str, lines: Iterable[Any], rest: Callable[[], Mapping[str, Any]]) -> None:
    """Print one JSON document, `lines` under `name` and what `rest` returns after the last of them, as it comes: no
    more than one line is held. Nothing is printed where the first line cannot be had.
    """
    empty = True
    for line in lines:
        text = printable_json(json.dumps(line, indent=2, ensure_ascii=False)).replace("\n", "\n    ")
        print(f'{{\n  "{name}": [' if empty else ",", end="\n    ")
        print(text, end="")
        empty = False
    print(f'{{\n  "{name}": []' if empty else "\n  ]", end="")
    for key, value in rest().items():
        print(f",\n  {json.dumps(key)}: {printable_json(json.dumps(value, ensure_ascii=False))}", end="")
    print("\n}")


def note(text: str) -> None:
    """Print lines for people on stderr; as with `show`, no character can move the terminal's cursor."""
    print(_printable(text), file=sys.stderr)


def note_more(following: str | int | None, option: str = "--after") -> None:
    """Say how a list goes on, where there is more of it."""
    if following is not None:
        note(f"There are more: {option} {following}")


def _printable(text: str) -> str:
    """Return `printable_lines`, with the colours of `paint` as they are."""
    return "".join(part if at % 2 else printable_lines(part) for at, part in enumerate(_PAINT.split(text)))


def has_colours(stream: TextIO | None = None) -> bool:
    """Return whether to print colours to `stream`; to stdout when left out."""
    stream = stream or sys.stdout
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def paint(text: str, style: Style, stream: TextIO | None = None) -> str:
    """Return `text` in a style where colours are printed, and as it is elsewhere."""
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if text and has_colours(stream) else text


def align_columns(rows: list[tuple[Any, ...]]) -> str:
    """Lay rows of cells out in columns; a first row in capitals is their heading."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    joined = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in texts)
    lines = [line.rstrip() for line in joined]
    if len(lines) > 1 and lines[0].isupper():
        lines[0] = paint(lines[0], "bold")
    return "\n".join(lines)


@contextmanager
def show_progress(label: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar on stderr. Gives the function to call with (done, total); total is None where it is not
    known.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console  # both load slowly, and most commands draw nothing
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def show_busy(label: str) -> Iterator[None]:
    """Show a spinner on stderr after half a second of work whose steps cannot be counted."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()

    def turn() -> None:
        if not over.wait(PATIENCE):
            from rich.console import Console  # loads slowly

            with Console(stderr=True).status(label):
                over.wait()

    spinner = threading.Thread(target=turn, daemon=True)
    spinner.start()
    try:
        yield
    finally:
        over.set()
        spinner.join()


def check_out(out: Path | None, suffixes: Sequence[str] = SUFFIXES) -> None:
    """Raise InputError unless a report can be written to `out`. Called before anything is charged."""
    if out is None:
        return
    if out.suffix not in suffixes:
        raise InputError(f"out={out.name}: must end in {', '.join(suffixes)}")
    if out.is_dir() or not os.access(out if out.exists() else out.parent, os.W_OK):
        raise InputError(f"out={out}: cannot be written; name a file in a folder that is there and that you may write")


def write_out(out: Path, content: str | bytes) -> None:
    """Write a file that the user named. InputError where it cannot be written."""
    with writing(out):
        out.write_bytes(content.encode() if isinstance(content, str) else content)


def show_or_write(out: Path | None, text: str, body: dict[str, Any], as_json: bool) -> None:
    """Show a text, or write it into a file and say where. InputError where it cannot be written."""
    if out is None:
        return show(as_json, body, text.rstrip("\n"))
    write_out(out, text)
    return show(as_json, {**body, "out": str(out)}, f"written to {out}")


def require_end(once: bool, json: bool) -> None:
    """Raise InputError for --json with output that never ends, and so is no document."""
    if json and not once:
        raise InputError(
            "--json: goes with --once; what runs until it is told to stop writes a log (DPSERVE_LOG_FORMAT)"
        )


def ask(question: str, default: str | None, read: Callable[[str], T]) -> T:
    """Ask until `read` accepts the answer, and return what it makes of it. An empty answer is the default."""
    while True:
        try:
            answer = input(f"{question}{'' if default is None else f' [{default}]'}: ").strip() or default
        except EOFError:
            raise typer.Abort from None
        try:
            if answer is None:
                raise InputError("an answer is needed")
            return read(answer)
        except InputError as error:
            print(f"  {error}")


def read_yes(answer: str) -> bool:
    """Return whether the answer is yes. InputError where it is neither yes nor no."""
    if answer not in ("yes", "no"):
        raise InputError("yes or no")
    return answer == "yes"

"""Notes and tags of datasets and models: words for people, kept in the home. No certificate holds them, no entry of the
ledger, and nothing is decided by them. Whoever may see a dataset or a model reads its notes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpserve_verify.errors import InputError
from dpserve_verify.system.files import PRIVATE, locked, replace_file

FILE = "notes.json"
KINDS = ("dataset", "model")
MAX_TEXT, MAX_TAGS = 2000, 12  # characters; tags
TAG = re.compile(r"[\w][\w .:/+-]{0,39}")
SAMPLE = "sample"  # the tag of sample data


@dataclass(frozen=True)
class Note:
    """What people wrote of a dataset or a model."""

    text: str = ""
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, tags: Iterable[str]) -> Note:
        """Check a note that a person wrote. InputError says what is wrong."""
        words = tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
        if len(text) > MAX_TEXT or any(ord(mark) < 32 and mark not in "\n\t" for mark in text):
            raise InputError(f"note: must have at most {MAX_TEXT} characters, and no control characters")
        if len(words) > MAX_TAGS or not all(TAG.fullmatch(word) for word in words):
            raise InputError(
                f"tags: at most {MAX_TAGS} with commas between them, each of 1 to 40 letters, digits, blanks, .:/+-"
            )
        return cls(text.strip(), words)


def notes(home: Path, kind: str) -> dict[str, Note]:
    """Return the notes of all datasets or models by name; none where the file cannot be read."""
    return {name: Note(note["text"], tuple(note["tags"])) for name, note in _read(home).get(kind, {}).items()}


def note_of(home: Path, kind: str, name: str) -> Note:
    """Return the note of a dataset or a model; an empty one where nobody wrote any."""
    return notes(home, kind).get(name, Note())


def write_note(home: Path, kind: str, name: str, note: Note) -> None:
    """Put a note in the place of the one before; an empty one removes it."""
    with locked(home / f"{FILE}.lock"):
        body = _read(home)
        named = {**body.get(kind, {}), name: asdict(note)}
        if note == Note():
            named.pop(name)
        replace_file(home / FILE, f"{json.dumps({**body, kind: named}, indent=2)}\n".encode(), PRIVATE)


def _read(home: Path) -> Mapping[str, Any]:
    try:
        body: Mapping[str, Any] = json.loads((home / FILE).read_bytes())
        return body
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise InputError(f"{FILE}: cannot be read; move it away, or mend it: it holds notes and tags alone") from None

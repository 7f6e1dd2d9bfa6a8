"""Drafts: files that a steward brought to be registered, until they are. Each in a folder of the home that nobody else
may enter; its rows are deleted when they are registered, given up, or not touched for a day.

`drafts/<id>/` holds `draft.json`, `schema.yaml` once there is one, and the file itself, in parts as they came. What
reads rows is done by a process of its own (`training.datasets.drafts.steps`); a door only writes down what is to be
done.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from accountant.errors import UnknownName, WrongState
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import PRIVATE, locked, replace_unsynced
from training.datasets.drafts import sample
from training.datasets.drafts.named_rows import check_rows, hold_rows

RECEIVING, LOOKING, COLUMNS, CHECKING, PROBLEMS, READY, REGISTERING, REGISTERED, UNREADABLE = (
    "receiving", "looking", "columns", "checking", "problems", "ready", "registering", "registered", "unreadable",
)  # fmt: skip
AT_WORK = (LOOKING, CHECKING, REGISTERING)  # of a process
STATES = (RECEIVING, LOOKING, COLUMNS, CHECKING, PROBLEMS, READY, REGISTERING, REGISTERED, UNREADABLE)
KEPT_SECONDS = 24 * 3600.0
MOST_OF_ONE = 5  # drafts of one principal that are not registered yet
SPARE_BYTES = 1 << 28  # of the disk, which an upload leaves
FILE, SCHEMA = "draft.json", "schema.yaml"
_ID = re.compile(r"[0-9a-f]{32}")
Json = dict[str, Any]
TOLD: Json = {"cells": {}, "questions": {}, "people_words": []}  # of the rows, by a proposal: forgotten with them
# What a check says of the rows: of a draft that was not checked.
UNCHECKED: Json = {"problems": (), "cells": (), "rows": 0, "questions": ()}


@dataclass(frozen=True)
class Draft:
    """One file on its way. `by`: whose it is. `path`: where it lies, where it was not uploaded. `proposal`: what is
    proposed of its columns; `answers`: what was said of them; `problems` and `cells`, what
    becomes of those of each column: of the last check; `asked`: the registration;
    `refusal`: why the last step was refused, as errors are told. `is_sample`: the sample data of `sample`.
    `form`: how the file is written, as far as a person said it; `first_rows`: how it seems to be, and its first rows.
    `into`: the dataset that its rows are to be appended to; empty where they are to be registered.
    """

    id: str
    by: str
    name: str
    state: str
    size: int = 0
    received: int = 0
    path: str | None = None
    proposal: Json | None = None
    answers: Sequence[Json] = ()
    problems: Sequence[Json] = ()
    cells: Sequence[Json] = ()
    rows: int = 0
    questions: Sequence[str] = ()
    asked: Json | None = None
    refusal: Json | None = None
    is_sample: bool = False
    form: Json | None = None
    first_rows: Json | None = None
    into: str = ""


class Drafts:
    """Those of a home."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "drafts"

    def begin(self, by: str, name: str, size: int, most: int, into: str = "") -> Draft:
        """Begin a draft for a file of `size` bytes, at most `most`, which is to be uploaded. InputError where it cannot
        be taken.
        """
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", name.rpartition("/")[2])[-100:].lstrip(".-") or "file"
        if not 1 <= size <= most:
            raise InputError(f"bytes={size}: a file has 1 to {most} bytes here; a larger one is registered by path, or "
                             "with dpserve dataset register")  # fmt: skip
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if shutil.disk_usage(self.folder).free < size + SPARE_BYTES:
            raise InputError("file: the server has no room for it; ask its operator")
        return self._add(Draft(uuid.uuid4().hex, by, name, RECEIVING, size, into=into))

    def begin_at(self, by: str, path: str, allowed: Sequence[Path]) -> Draft:
        """Begin a draft for a file or folder on the server, below one of the folders that its operator `allowed`. Each
        step opens it anew, without following a link: `named_rows.hold_rows`.
        """
        try:
            real = Path(path).resolve()
            fine = Path(path).is_absolute() and any(real.is_relative_to(folder.resolve()) for folder in allowed)
        except (OSError, ValueError, RuntimeError):  # a name that none can be, or links in a circle
            fine = False
        if not fine:
            raise InputError("path: must lie below a folder that the operator allowed (DPSERVE_DATA_FOLDERS)")
        check_rows(real)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        draft = self._add(Draft(uuid.uuid4().hex, by, real.name, LOOKING, path=str(real)))
        self.ask()
        return draft

    def begin_sample(self, by: str) -> Draft:
        """Begin a draft of the sample data that is registered at once: all that a person says of it is known."""
        folder = sample.sample_folder()
        if folder is None:
            raise InputError("sample: its rows are not installed here; upload a file")
        self.folder.mkdir(mode=0o700, exist_ok=True)
        rows, schema = (folder / sample.ROWS).resolve(), (folder / sample.SCHEMA).read_bytes()
        draft = Draft(uuid.uuid4().hex, by, rows.name, READY, path=str(rows), is_sample=True)
        replace_unsynced(self.schema(self._add(draft)), schema, PRIVATE)
        return self.register(draft, sample.ASKED)

    def _add(self, draft: Draft) -> Draft:
        with locked(self.folder / "lock"):
            if sum(stored.by == draft.by and stored.state != REGISTERED for stored in self.all()) >= MOST_OF_ONE:
                raise WrongState(f"drafts: {draft.by} has {MOST_OF_ONE}; register or delete one of them first")
            (self.folder / draft.id / "file").mkdir(parents=True, mode=0o700)
            self._write(draft)
        return draft

    def append(self, draft: Draft, at: int, part: bytes) -> Draft:
        """Append the bytes from `at` on. WrongState, which says what place is awaited, where it is another; a part that
        came already is taken again.
        """
        with self._alone(draft):
            draft = self._read(draft.id)
            if draft.state != RECEIVING or at > draft.received:
                raise WrongState(f"at={at}: byte {draft.received} is awaited", received=draft.received, draft=draft.id)
            if at + len(part) > draft.size:
                raise InputError(f"file: {draft.size} bytes were announced, and there are more")
            try:
                with open(os.open(self.rows(draft), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, PRIVATE), "wb") as file:
                    file.seek(at)
                    file.write(part)
            except OSError as error:
                raise InputError(f"file: the server cannot keep it ({error.strerror}); ask its operator") from None
            received = max(draft.received, at + len(part))
            draft = replace(draft, received=received, state=LOOKING if received == draft.size else RECEIVING)
            self._write(draft)
        if draft.state == LOOKING:
            self.ask()
        return draft

    def set_schema(self, draft: Draft, schema: bytes) -> Path:
        """Put a schema in the draft's place for it; return that."""
        replace_unsynced(self.schema(draft), schema, PRIVATE)
        return self.schema(draft)

    def seen(self, draft: Draft) -> str:
        """Return the sha256, in hex, of what was said of its columns and of how it is read. Who changes or registers a
        draft may give the one that he saw: WrongState where another window changed it meanwhile.
        """
        said = [[*draft.answers], draft.form, self.schema_text(draft)]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def check(self, draft: Draft, schema: str, answers: Sequence[Json], seen: str = "") -> Draft:
        """Request a check of every row against a schema."""
        with self._alone(draft):
            self._from(draft.id, COLUMNS, PROBLEMS, READY, UNREADABLE, seen=seen)  # a schema may say how it is read
            replace_unsynced(self.folder / draft.id / SCHEMA, schema.encode(), PRIVATE)
            return self._ask(replace(self._read(draft.id), state=CHECKING, answers=answers, refusal=None, **UNCHECKED))

    def look_again(self, draft: Draft, form: Json, seen: str = "") -> Draft:
        """Request another look at the file, which is written as far as that is in `form`."""
        with self._alone(draft):
            self._from(draft.id, COLUMNS, PROBLEMS, READY, UNREADABLE, seen=seen)
            again = replace(self._read(draft.id), answers=(), refusal=None, **UNCHECKED)
            return self._ask(replace(again, state=LOOKING, form=form))

    def register(self, draft: Draft, asked: Json, seen: str = "") -> Draft:
        """Request the registration of the draft."""
        with self._alone(draft):
            self._from(draft.id, READY, seen=seen)
            return self._ask(replace(self._read(draft.id), state=REGISTERING, asked=asked, refusal=None))

    @contextmanager
    def _alone(self, draft: Draft) -> Iterator[None]:
        """Raise UnknownName where it was deleted this moment."""
        if not self._place(draft.id).exists():
            raise UnknownName(f"draft={draft.id!r}: no such draft")
        with locked(self.folder / draft.id / "lock"):
            yield

    def _from(self, identity: str, *states: str, seen: str = "") -> None:
        draft = self._read(identity)
        if draft.state not in states:
            raise WrongState(f"draft: is {draft.state}; for this it must be {' or '.join(states)}", state=draft.state)
        if seen and seen != self.seen(draft):
            raise WrongState("draft: what its columns are was changed in another window since you saw it. Nothing was "
                             "done; look at it, and send it once more", state=draft.state)  # fmt: skip

    def _ask(self, draft: Draft) -> Draft:
        self._write(draft)
        self.ask()
        return draft

    def change(self, draft: Draft, **fields: Any) -> Draft:
        """Change a draft, by the process that works on it."""
        with self._alone(draft):
            changed = replace(self._read(draft.id), **fields)
            self._write(changed)
        return changed

    def delete(self, draft: Draft) -> None:
        """Delete a draft, its rows and its schema. WrongState while it is being registered, which cannot be taken
        back.
        """
        with self._alone(draft):  # or its registration could be asked for between the look and the end
            if self._read(draft.id).state == REGISTERING:
                raise WrongState("draft: is being registered", state=REGISTERING)
            shutil.rmtree(self.folder / draft.id, ignore_errors=True)

    def forget_rows(self, draft: Draft) -> None:
        """Delete the uploaded rows of a draft that is registered, and all that was told of them."""
        shutil.rmtree(self.folder / draft.id / "file", ignore_errors=True)
        proposal = None if draft.proposal is None else {**draft.proposal, **TOLD}
        self.change(draft, proposal=proposal, first_rows=None, **UNCHECKED)

    def get(self, identity: str, by: str) -> Draft:
        """Raise UnknownName where there is none of theirs."""
        draft = self._read(identity) if _ID.fullmatch(identity) and self._place(identity).exists() else None
        if draft is None or draft.by != by:
            raise UnknownName(f"draft={identity[:40]!r}: no such draft")
        return draft

    def all(self) -> list[Draft]:
        """Return all drafts, the newest last."""
        places = [place for place in self.folder.glob(f"*/{FILE}") if _ID.fullmatch(place.parent.name)]
        drafts = []
        for place in sorted(places, key=_change_time):
            try:
                drafts.append(self._read(place.parent.name))
            except UnknownName:  # deleted this moment
                continue
        return drafts

    def rows(self, draft: Draft) -> Path:
        """Return where its rows lie."""
        return self.folder / draft.id / "file" / draft.name if draft.path is None else Path(draft.path)

    @contextmanager
    def opened_rows(self, draft: Draft) -> Iterator[Path]:
        """Yield where its rows are read, while the body runs: those of a path are held open. InputError where a link
        has come into it, or it is gone.
        """
        if draft.path is None:
            yield self.rows(draft)
        else:
            with hold_rows(Path(draft.path), self.folder / draft.id) as rows:
                yield rows

    def schema(self, draft: Draft) -> Path:
        """Return where its schema lies."""
        return self.folder / draft.id / SCHEMA

    def schema_text(self, draft: Draft) -> str:
        """Return what was said last; empty where nothing was."""
        place = self.schema(draft)
        return place.read_text("utf-8") if place.exists() else ""

    def ask(self) -> None:
        """Announce to any worker that there is work to do."""
        replace_unsynced(self._asked, b"", PRIVATE)

    @property
    def _asked(self) -> Path:
        return self.folder / "asked"

    def is_asked(self) -> bool:
        """Return whether there is something to do that nobody has begun."""
        return self._asked.exists()

    def begun(self) -> None:
        """Clear the signal before the drafts are looked at, so that later requests are heard."""
        self._asked.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete what nobody touched for KEPT_SECONDS."""
        for place in self.folder.glob(f"*/{FILE}"):
            if _change_time(place) < time.time() - KEPT_SECONDS:
                shutil.rmtree(place.parent, ignore_errors=True)

    def _place(self, identity: str) -> Path:
        return self.folder / identity / FILE

    def _read(self, identity: str) -> Draft:
        try:
            body: Mapping[str, Any] = json.loads(self._place(identity).read_bytes())
            return Draft(**body)
        except (OSError, ValueError, TypeError):
            raise UnknownName(f"draft={identity!r}: no such draft") from None

    def _write(self, draft: Draft) -> None:
        replace_unsynced(self._place(draft.id), json.dumps(asdict(draft)).encode(), PRIVATE)


def _change_time(place: Path) -> float:
    try:
        return place.stat().st_mtime
    except OSError:
        return 0.0

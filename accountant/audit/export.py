"""The ledger as files that an auditor reads with any tool, and the audit of such files.

`entries.jsonl`: one entry a line, exactly the bytes that were hashed, without the newline. `checkpoints.jsonl`: every
signed checkpoint, `{"note", "size"}` a line. `checkpoint`: the newest note as it is. `witnessed`: the newest that
witnesses cosigned, where there is one. `trust.json`: the keys; an auditor compares them with a copy that came by
another way, for who forges a ledger can forge the file beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from accountant.audit.audit import Filed, Leaf, Progress, audit
from accountant.audit.judge_models import Bundle
from accountant.audit.tree_of_entries import Report
from accountant.errors import InputError, LedgerInvalid
from accountant.formats import canonical
from accountant.formats.canonical import ENTRY_LIMIT, exact_integer, exact_object, exact_text
from accountant.home import TRUST, Home
from accountant.keys.trust import PublicKeys
from accountant.log.collect import WITNESSED, kept, newest
from accountant.log.entries import read_entry
from accountant.log.notes import NOTE_LIMIT, parse_checkpoint
from accountant.log.seen_checkpoints import read_note
from accountant.log.tiles import CHECKPOINT
from accountant.store.store import checkpoints, leaves
from accountant.system.files import PUBLIC, sync_directory, write_chunks, write_new

ENTRIES, CHECKPOINTS = "entries.jsonl", "checkpoints.jsonl"


def export(home: Home, directory: Path) -> int:
    """Write the ledger, as it stands at this moment, into a new `directory`; the number of entries."""
    with home.ledger.log.database.reading() as connection:
        heads = newest(home.path, connection), kept(home.path)
        return write_export(directory, leaves(connection), checkpoints(connection), home.trust, *heads)


def write_export(
    directory: Path,
    entries: Iterable[Leaf],
    signed: Iterable[Filed],
    trust: PublicKeys,
    note: str,
    cosigned: str | None = None,
) -> int:
    """Such a folder, of a ledger wherever it came from. InputError where `directory` is no new folder."""
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"out={directory}: must be a new folder ({error.strerror})") from error
    # An entry that is canonical has no newline in it.
    lines = (read_entry(seq, body).body + b"\n" for seq, body in entries)
    count = write_chunks(directory / ENTRIES, lines, PUBLIC)
    notes = (canonical.encode({"note": text, "size": size}, 2 * NOTE_LIMIT) for size, text in signed)
    write_chunks(directory / CHECKPOINTS, (line + b"\n" for line in notes), PUBLIC)
    write_new(directory / TRUST, trust.to_json(), PUBLIC)
    if cosigned is not None:
        write_new(directory / WITNESSED, cosigned.encode(), PUBLIC)
    write_new(directory / CHECKPOINT, note.encode(), PUBLIC)
    sync_directory(directory)
    return count


def audit_export(
    directory: Path,
    trust: PublicKeys,
    bundles: Iterable[Bundle] = (),
    seen: Iterable[str] = (),
    progress: Progress | None = None,
) -> Report:
    """Audit an export against `trust`, which must not come from the export itself. Reads it line by line."""
    notes = vouching(directory)
    try:
        with (directory / ENTRIES).open("rb") as entries, (directory / CHECKPOINTS).open("rb") as signed:
            filed = (_filed(number, line) for number, line in _lines(signed, NOTE_LIMIT))
            return audit(
                _lines(entries, ENTRY_LIMIT),
                filed,
                trust,
                bundles=bundles,
                seen=(*notes, *seen),
                progress=progress,
                total=parse_checkpoint(notes[0]).size,
            )
    except OSError as error:
        raise InputError(f"{directory}: is not an export ({error})") from error


def vouching(directory: Path) -> list[str]:
    """The newest checkpoint of an export or of a folder of tiles, and the newest cosigned one where there is one."""
    cosigned = kept(directory)
    return [read_note(directory / CHECKPOINT), *([] if cosigned is None else [cosigned])]


def _lines(file: IO[bytes], limit: int) -> Iterator[Leaf]:
    """Numbered lines without their newline; a line too long, or a last one cut short, is LedgerInvalid."""
    number = 0
    while line := file.readline(2 * limit + 2):
        if not line.endswith(b"\n"):
            raise LedgerInvalid(f"{Path(file.name).name}, line {number + 1}: is cut short or too long")
        yield number, line[:-1]
        number += 1


def _filed(number: int, line: bytes) -> Filed:
    try:
        item = exact_object(canonical.decode(line, 2 * NOTE_LIMIT), ("note", "size"), "checkpoint")
        return exact_integer(item["size"], "size"), exact_text(item["note"], "note")
    except canonical.CanonicalError as error:
        raise LedgerInvalid(f"{CHECKPOINTS}, line {number + 1}: {error.message}") from error

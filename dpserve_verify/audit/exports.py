"""The audit of a ledger's export, a folder of files that any tool reads.

`entries.jsonl`: one entry a line, exactly the bytes that were hashed, without the newline. `checkpoints.jsonl`: every
signed checkpoint, `{"note", "size"}` a line. `checkpoint`: the newest note as it is. `witnessed`: the newest that
witnesses cosigned, where there is one. `trust.json`: the keys; an auditor compares them with a copy that came by
another way, for who forges a ledger can forge the file beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from dpserve_verify.audit.audit import Filed, Leaf, Progress, audit
from dpserve_verify.audit.judge_models import Bundle
from dpserve_verify.audit.tree_of_entries import Report
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.formats.canonical import ENTRY_LIMIT, exact_integer, exact_object, exact_text
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.notes import NOTE_LIMIT, parse_checkpoint
from dpserve_verify.log.seen_checkpoints import read_note
from dpserve_verify.log.tiles import CHECKPOINT
from dpserve_verify.log.witnessed import read_witnessed

ENTRIES, CHECKPOINTS = "entries.jsonl", "checkpoints.jsonl"


def audit_export(
    directory: Path,
    trust: PublicKeys,
    bundles: Iterable[Bundle] = (),
    seen: Iterable[str] = (),
    progress: Progress | None = None,
) -> Report:
    """Audit an export against `trust`, which must not come from the export itself. Reads it line by line. A note says
    where its list of checkpoints ends before the newest one: that vouches for every entry by itself.
    """
    notes = vouching(directory)
    newest, last = parse_checkpoint(notes[0]).size, 0

    def filed(signed: IO[bytes]) -> Iterator[Filed]:
        nonlocal last
        for number, line in _lines(signed, NOTE_LIMIT):
            last, note = _read_checkpoint_line(number, line)
            yield last, note

    try:
        with (directory / ENTRIES).open("rb") as entries, (directory / CHECKPOINTS).open("rb") as signed:
            report = audit(
                _lines(entries, ENTRY_LIMIT),
                filed(signed),
                trust,
                bundles=bundles,
                seen=(*notes, *seen),
                progress=progress,
                total=newest,
            )
    except OSError as error:
        raise InputError(f"{directory}: is not an export ({error})") from error
    if last == newest:
        return report
    note = f"{CHECKPOINTS}: ends at size {last}, and the newest checkpoint is of {newest}: earlier ones were left out"
    return replace(report, notes=(*report.notes, note))


def vouching(directory: Path) -> list[str]:
    """Return the newest checkpoint of an export or of a folder of tiles, and the newest cosigned one where there is
    one.
    """
    cosigned = read_witnessed(directory)
    return [read_note(directory / CHECKPOINT), *([] if cosigned is None else [cosigned])]


def entries_of(directory: Path) -> Iterator[Leaf]:
    """Yield the entries of an export (index, exact bytes). InputError where it is none, LedgerInvalid as it is cut."""
    try:
        with (directory / ENTRIES).open("rb") as file:
            yield from _lines(file, ENTRY_LIMIT)
    except OSError as error:
        raise InputError(f"{directory}: is not an export ({error})") from error


def _lines(file: IO[bytes], limit: int) -> Iterator[Leaf]:
    """Yield numbered lines without their newline. LedgerInvalid for one that is too long, or a last one cut short."""
    number = 0
    while line := file.readline(2 * limit + 2):
        if not line.endswith(b"\n"):
            raise LedgerInvalid(f"{Path(file.name).name}, line {number + 1}: is cut short or too long")
        yield number, line[:-1]
        number += 1


def _read_checkpoint_line(number: int, line: bytes) -> Filed:
    try:
        item = exact_object(canonical.decode(line, 2 * NOTE_LIMIT), ("note", "size"), "checkpoint")
        return exact_integer(item["size"], "size"), exact_text(item["note"], "note")
    except canonical.CanonicalError as error:
        raise LedgerInvalid(f"{CHECKPOINTS}, line {number + 1}: {error.message}") from error

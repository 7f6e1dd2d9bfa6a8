"""The ledger as files that an auditor reads with any tool, and the audit of such files.

`entries.jsonl`: one entry a line, exactly the bytes that were hashed, without the newline. `checkpoints.jsonl`: every
signed checkpoint, `{"note", "size"}` a line. `checkpoint`: the newest note as it is. `witnessed`: the newest that
witnesses cosigned, where there is one. `trust.json`: the keys; an auditor compares them with a copy that came by
another way, for who forges a ledger can forge the file beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from accountant.home import TRUST, Home
from accountant.log.collect import standing
from accountant.store.store import checkpoints, leaves
from dpserve_verify.audit.audit import Filed, Leaf
from dpserve_verify.audit.exports import CHECKPOINTS, ENTRIES
from dpserve_verify.errors import InputError
from dpserve_verify.formats import canonical
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.entry import read_entry
from dpserve_verify.log.notes import NOTE_LIMIT
from dpserve_verify.log.tiles import CHECKPOINT
from dpserve_verify.log.witnessed import WITNESSED
from dpserve_verify.system.files import PUBLIC, sync_directory, write_chunks, write_new


def export(home: Home, directory: Path) -> int:
    """Write the ledger, as it stands at this moment, into a new `directory`; the number of entries."""
    with standing(home.path, home.ledger.log.database) as (connection, note, cosigned):
        return write_export(directory, leaves(connection), checkpoints(connection), home.trust, note, cosigned)


def write_export(
    directory: Path,
    entries: Iterable[Leaf],
    signed: Iterable[Filed],
    trust: PublicKeys,
    note: str,
    cosigned: str | None = None,
) -> int:
    """Write an export of any ledger; return the number of entries. InputError where `directory` is no new folder."""
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

"""The audit of a folder that an operator hands over: an export or tiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpserve_verify.audit.audit import Progress
from dpserve_verify.audit.exports import ENTRIES, audit_export, vouching
from dpserve_verify.audit.tile_check import audit_tiles
from dpserve_verify.audit.tree_of_entries import Report
from dpserve_verify.errors import InputError
from dpserve_verify.keys.trust import PublicKeys


def audit_folder(
    folder: Path, trust: PublicKeys, seen: Sequence[str] = (), progress: Progress | None = None
) -> tuple[Report, list[str]]:
    """Audit an export or tiles, whichever the folder holds: the report, and the checkpoints that were looked at.

    InputError where it holds neither.
    """
    if (folder / ENTRIES).is_file():
        read = audit_export
    elif (folder / "tile").is_dir():
        read = audit_tiles
    else:
        raise InputError(f"{folder}: holds neither an export ({ENTRIES}) nor tiles (tile/)")
    return read(folder, trust, seen=seen, progress=progress), [*vouching(folder), *seen]

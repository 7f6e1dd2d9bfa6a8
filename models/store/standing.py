"""How a version of a model stands: candidate, champion, retired or revoked; and the way out where a name answers
nothing.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.log.proofs import parse_proof

PROOF = "model.onnx.tlog-proof"


class Standing(StrEnum):
    """`CANDIDATE` answers who names it, `CHAMPION` the name alone as well; the others answer nobody."""

    CANDIDATE = "candidate"
    CHAMPION = "champion"
    RETIRED = "retired"
    REVOKED = "revoked"


def standing(version: int, champion: object, retired: bool, revoked: bool) -> Standing:
    """Return how a version stands. `champion`: what its name alone means. A revoked version is that, whatever else it
    is.
    """
    if revoked or retired:
        return Standing.REVOKED if revoked else Standing.RETIRED
    return Standing.CHAMPION if version == champion else Standing.CANDIDATE


def way_out(name: str, offer: int | None) -> dict[str, Any]:
    """Return the details of an error: what could answer in its place, and the command that makes it so."""
    reference = None if offer is None else f"{name}@{offer}"
    return {"name": name, "offer": reference, "command": reference and f"dpserve model promote {reference}"}


def entry_of(folder: Path) -> int | None:
    """Return the entry that issued the certificate in a version's folder, as its proof says, unverified; None where it
    cannot be read.
    """
    try:
        status = (folder / PROOF).stat()
        return _KEPT(str(folder), status.st_ino, status.st_mtime_ns)
    except (OSError, UnicodeDecodeError, LedgerInvalid):
        return None


_KEPT = lru_cache(maxsize=4096)(
    lambda folder, inode, changed: parse_proof((Path(folder) / PROOF).read_text("utf-8")).index
)

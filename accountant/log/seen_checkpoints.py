"""Checkpoints of other people's ledgers, kept by who relies on them: the next one must continue the last.

A folder has one signed note (C2SP) for each ledger, `<origin>.checkpoint`, with its size and its root. A checkpoint
that does not continue it is refused, and put beside it as `<origin>.refused`: the two, both signed, convict who signed.
The first checkpoint of a ledger is taken as it comes (trust on first use), unless witnesses are named.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from accountant import merkle
from accountant.canonical import CanonicalError, decode_base64, encode_base64, exact_integer, exact_object, exact_text
from accountant.errors import DpserveError, LedgerInvalid, LedgerUnavailable, OtherHistory
from accountant.files import PRIVATE, locked, read_beginning, replace_file
from accountant.keys.trust import PublicKeys
from accountant.log import notes
from accountant.log.cosignature import require_quorum
from accountant.log.notes import NOTE_LIMIT, Checkpoint
from accountant.log.witness_policy import WitnessPolicy

MOST_HASHES = 63
MOST_NAME = 200  # characters of a file's name, of the 255 that it may have


@dataclass(frozen=True)
class Growth:
    """A consistency proof as it came, nothing verified: that a tree begins with the tree of `earlier` entries."""

    earlier: int
    hashes: tuple[bytes, ...]


@dataclass(frozen=True)
class SeenCheckpoint:
    """The last checkpoint of a ledger that was believed here. `when`: in UTC, to the second."""

    note: str
    head: Checkpoint
    path: Path
    when: str


def read_growth(value: Any) -> Growth | None:
    """What `Consistency.to_json` wrote; None stays None. LedgerInvalid for anything else. Its roots are not looked at:
    they stand in the checkpoints.
    """
    if value is None:
        return None
    try:
        body = exact_object(value, ("from", "to", "hashes", "from_root", "to_root"), "consistency")
        hashes = body["hashes"]
        if not isinstance(hashes, list) or len(hashes) > MOST_HASHES:
            raise LedgerInvalid(f"consistency: must have a list of at most {MOST_HASHES} hashes")
        found = tuple(decode_base64(exact_text(each, "hash"), "hash") for each in hashes)
        return Growth(exact_integer(body["from"], "from"), found)
    except CanonicalError as error:
        raise LedgerInvalid(f"consistency: {error.message}") from error


def verify_head(note: str, trust: PublicKeys) -> Checkpoint:
    """The checkpoint, once it is signed by the key that the log has at its size. LedgerInvalid, KeyInvalid else."""
    return notes.verify_checkpoint(note, trust.origin, trust.log_key_at(notes.parse_checkpoint(note).size))


@dataclass(frozen=True)
class SeenCheckpoints:
    """What was seen of each ledger, in `folder`. Safe to use from any number of processes.

    `witnesses`: a checkpoint without their quorum is refused, the first one too.
    """

    folder: Path
    witnesses: WitnessPolicy | None = None

    def path(self, origin: str) -> Path:
        """The file of one ledger's checkpoint."""
        name = quote(origin, safe="")
        if len(name) > MOST_NAME:
            name = hashlib.sha256(origin.encode()).hexdigest()
        return self.folder / f"{name}.checkpoint"

    def read(self, trust: PublicKeys) -> SeenCheckpoint | None:
        """The last checkpoint; None before the first. LedgerInvalid where the file holds anything else than a note that
        the log's key has signed; LedgerUnavailable where it cannot be read.
        """
        path = self.path(trust.origin)
        try:
            when = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            raw = read_beginning(path, NOTE_LIMIT)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerUnavailable(f"{path}: the checkpoint kept here cannot be read ({error.strerror})") from error
        try:
            note = raw.decode("utf-8")
            size = notes.parse_checkpoint(note).size
            head = notes.verify_checkpoint(note, trust.origin, trust.log_signer_at(size))  # compromised later or not
        except (DpserveError, UnicodeDecodeError) as error:
            raise LedgerInvalid(
                f"{path}: is not the checkpoint that was kept here, for no key of {trust.origin} has signed it; put "
                "back a copy of it"
            ) from error
        return SeenCheckpoint(note, head, path, f"{when:%Y-%m-%d %H:%M:%S} UTC")

    def advance(self, note: str, trust: PublicKeys, growth: Growth | None = None, least: int = 0) -> Checkpoint:
        """Believe the checkpoint `note`, and keep it. `growth`: the proof that it continues the one kept here; `least`:
        the size that is known where no checkpoint was kept yet.

        Raises:
            LedgerInvalid, KeyInvalid: it is not signed by the log's key, or the witnesses' quorum is not met.
            OtherHistory: it is smaller than the one kept here, has another root, or comes without the proof.
        """
        head = verify_head(note, trust)
        if self.witnesses is not None:
            self.witnesses.check_log(trust.origin, trust.log_key_at(head.size))
            require_quorum(note, self.witnesses)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.path(trust.origin)
            with locked(path.with_suffix(".lock")):
                seen = self.read(trust)
                try:
                    _compare(seen, head, growth, least)
                except OtherHistory:
                    replace_file(path.with_suffix(".refused"), note.encode(), PRIVATE)
                    raise
                if seen is None or seen.head.size < head.size:
                    replace_file(path, note.encode(), PRIVATE)
        except OSError as error:
            raise LedgerUnavailable(
                f"{self.folder}: checkpoints cannot be kept there ({error.strerror}); nothing was believed"
            ) from error
        return head


def _compare(seen: SeenCheckpoint | None, head: Checkpoint, growth: Growth | None, least: int) -> None:
    if head.size < least:
        raise OtherHistory(
            f"ledger {head.origin}: has {head.size} entries, and had {least} when it was seen here last: it was rolled "
            f"back, or you are shown another one than before. {_TELL}"
        )
    if seen is None:
        return
    if head.size < seen.head.size:
        raise _refusal(seen, head, "it was rolled back, or you are shown another one than before")
    if head.size == seen.head.size:
        if head.root != seen.head.root:
            raise _refusal(seen, head, "of as many entries there are two different ledgers")
        return
    if growth is None or growth.earlier != seen.head.size:
        raise _refusal(seen, head, f"it came without the proof that it continues the first {seen.head.size} entries")
    try:
        merkle.verify_consistency(seen.head.size, head.size, growth.hashes, seen.head.root, head.root)
    except LedgerInvalid as error:
        raise _refusal(seen, head, f"it does not continue what was seen ({error.message})") from error


_TELL = "Nothing of it was believed. Tell the others who use it, and who audits it"


def _refusal(seen: SeenCheckpoint, head: Checkpoint, why: str) -> OtherHistory:
    before, now = (f"{each.size} entries, root {encode_base64(each.root)}" for each in (seen.head, head))
    refused = seen.path.with_suffix(".refused")
    return OtherHistory(
        f"ledger {head.origin}: {why}. Seen here on {seen.when}: {before}. Shown now: {now}. {_TELL}: both checkpoints "
        f"are signed, and are kept as {seen.path} and {refused.name}",
        seen={"size": seen.head.size, "root": encode_base64(seen.head.root), "when": seen.when},
        shown={"size": head.size, "root": encode_base64(head.root)},
    )

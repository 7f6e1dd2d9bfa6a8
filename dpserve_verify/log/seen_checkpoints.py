"""Checkpoints of other people's ledgers, kept by who relies on them: the next one must continue the last.

A folder has one signed note (C2SP) for each ledger, `<origin>.checkpoint`, with its size and its root. A checkpoint
that does not continue it is refused, and put beside it as `<origin>.refused`: the two, both signed, convict who signed.
The first checkpoint of a ledger is taken as it comes (trust on first use), unless witnesses are named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dpserve_verify.errors import DpserveError, InputError, LedgerInvalid, LedgerUnavailable, OtherHistory
from dpserve_verify.formats import merkle
from dpserve_verify.formats.canonical import (
    CanonicalError,
    decode_base64,
    encode_base64,
    exact_integer,
    exact_object,
    exact_text,
)
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log import notes
from dpserve_verify.log.cosignature import require_quorum
from dpserve_verify.log.notes import NOTE_LIMIT, Checkpoint
from dpserve_verify.log.witness_policy import WitnessPolicy
from dpserve_verify.system.files import PRIVATE, locked, read_beginning, replace_file

MOST_HASHES = 63
MOST_UNPROVED = 256  # checkpoints of one ledger
MOST_NAME = 200  # characters of a file's name, of the 255 that it may have


@dataclass(frozen=True)
class Growth:
    """A consistency proof as it came, nothing verified: that the tree of `later` entries, where that is said, begins
    with the tree of `earlier` ones.
    """

    earlier: int
    hashes: tuple[bytes, ...]
    later: int | None = None


Prover = Callable[[int, int], Growth | None]
"""The consistency proof between two sizes, the smaller one first; None where there is none at hand."""


@dataclass(frozen=True)
class SeenCheckpoint:
    """The last checkpoint of a ledger that was believed here. `when`: in UTC, to the second."""

    note: str
    head: Checkpoint
    path: Path
    when: str


def read_growth(value: Any) -> Growth | None:
    """Read what `Consistency.to_json` wrote; None stays None. LedgerInvalid for anything else. Its roots are not looked
    at: they stand in the checkpoints.
    """
    if value is None:
        return None
    try:
        body = exact_object(value, ("from", "to", "hashes", "from_root", "to_root"), "consistency")
        hashes = body["hashes"]
        if not isinstance(hashes, list) or len(hashes) > MOST_HASHES:
            raise LedgerInvalid(f"consistency: must have a list of at most {MOST_HASHES} hashes")
        decoded = tuple(decode_base64(exact_text(digest, "hash"), "hash") for digest in hashes)
        return Growth(exact_integer(body["from"], "from"), decoded, exact_integer(body["to"], "to"))
    except CanonicalError as error:
        raise LedgerInvalid(f"consistency: {error.message}") from error


def read_note(file: Path) -> str:
    """Read a note's text. InputError where the file cannot be read, LedgerInvalid where it is too long or no text."""
    try:
        raw = read_beginning(file, NOTE_LIMIT)
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from error
    if len(raw) > NOTE_LIMIT:
        raise LedgerInvalid(f"{file.name}: must be at most {NOTE_LIMIT} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LedgerInvalid(f"{file.name}: must be text in UTF-8") from error


def verify_head(note: str, trust: PublicKeys) -> Checkpoint:
    """Return the checkpoint. LedgerInvalid or KeyInvalid unless it is signed by the key that the log has at its
    size.
    """
    return notes.verify_checkpoint(note, trust.origin, trust.log_key_at(notes.parse_checkpoint(note).size))


@dataclass(frozen=True)
class SeenCheckpoints:
    """What was seen of each ledger, in `folder`. Safe to use from any number of processes.

    `witnesses`: a checkpoint without their quorum is refused, the first one too.
    """

    folder: Path
    witnesses: WitnessPolicy | None = None

    def path(self, origin: str) -> Path:
        """Return the file of one ledger's checkpoint."""
        name = quote(origin, safe="")
        if len(name) > MOST_NAME:
            name = hashlib.sha256(origin.encode()).hexdigest()
        return self.folder / f"{name}.checkpoint"

    def read(self, trust: PublicKeys) -> SeenCheckpoint | None:
        """Read the last checkpoint; None before the first. LedgerInvalid where the file holds anything else than a note
        that the log's key has signed; LedgerUnavailable where it cannot be read.
        """
        path = self.path(trust.origin)
        try:
            when = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerUnavailable(f"{path}: the checkpoint kept here cannot be read ({error.strerror})") from error
        try:
            note = read_note(path)
            size = notes.parse_checkpoint(note).size
            head = notes.verify_checkpoint(note, trust.origin, trust.log_signer_at(size))  # compromised later or not
        except DpserveError as error:
            raise LedgerInvalid(
                f"{path}: is not the checkpoint that was kept here, for no key of {trust.origin} has signed it; put "
                "back a copy of it"
            ) from error
        return SeenCheckpoint(note, head, path, f"{when:%Y-%m-%d %H:%M:%S} UTC")

    def compare(self, note: str, trust: PublicKeys, prove: Prover | None = None) -> tuple[Checkpoint, Standing, int]:
        """Hold the checkpoint of something that was handed over against what was seen: the checkpoint, how it stands,
        and how many entries the one kept here has. Nobody is asked but `prove`, for a proof between two sizes.

        What cannot be proved is no fault: it may honestly be older or newer. It is remembered, and two roots for one
        size are found whenever they come. Raises as `advance`; InputError where `prove` has a proof of other sizes.
        """
        head = self._verify_note(note, trust)
        path, before = self.path(trust.origin), self.read(trust)
        growth: Growth | None = None
        if before is not None and before.head.size != head.size and prove is not None:
            sizes = min(head.size, before.head.size), max(head.size, before.head.size)
            growth = prove(*sizes)
            if growth is not None and (growth.earlier, growth.later) != sizes:
                raise InputError(
                    f"consistency: is between {growth.earlier} and {growth.later} entries; must be between {sizes[0]} "
                    f"and {sizes[1]}"
                )
        with self._lock(path):
            stored = self.read(trust)
            if stored != before:
                growth = None  # another process has seen more meanwhile: it is not proved
            if stored is None:
                replace_file(path, note.encode(), PRIVATE)
                return head, Standing.FIRST, head.size
            if head.size == stored.head.size:
                self._hold(path, note, lambda: _compare(stored, head, None))
                return head, Standing.SAME, head.size
            larger = head.size > stored.head.size
            if growth is None:
                self._remember(path, note, stored, head, trust)
                return head, Standing.NEWER if larger else Standing.OLDER, stored.head.size
            self._hold(path, note, lambda: _verify(stored, head, growth))
            if larger:
                replace_file(path, note.encode(), PRIVATE)
            return head, Standing.CONTINUES if larger else Standing.BEGINNING, stored.head.size

    def unproved(self, trust: PublicKeys) -> list[str]:
        """Read the checkpoints that were handed over and not proved: an audit has to hold the ledger against each."""
        files = sorted(self.path(trust.origin).with_suffix(".unproved").glob("*"))
        return [read_note(file) for file in files if file.name.isdecimal()]

    def forget_unproved(self, trust: PublicKeys) -> None:
        """Forget the checkpoints that were not proved, after an audit that was sound."""
        for file in self.path(trust.origin).with_suffix(".unproved").glob("*"):
            file.unlink(missing_ok=True)

    def _remember(self, path: Path, note: str, seen: SeenCheckpoint, head: Checkpoint, trust: PublicKeys) -> None:
        folder = path.with_suffix(".unproved")
        folder.mkdir(mode=0o700, exist_ok=True)
        file = folder / str(head.size)
        if file.exists():
            before = verify_head(read_note(file), trust)
            self._hold(path, note, lambda: _compare(SeenCheckpoint("", before, file, seen.when), head, None))
        elif len([*folder.iterdir()]) < MOST_UNPROVED:
            replace_file(file, note.encode(), PRIVATE)

    def _hold(self, path: Path, note: str, check: Callable[[], None]) -> None:
        """Check, and keep the checkpoint that is refused beside the other."""
        try:
            check()
        except OtherHistory:
            replace_file(path.with_suffix(".refused"), note.encode(), PRIVATE)
            raise

    def _verify_note(self, note: str, trust: PublicKeys) -> Checkpoint:
        """Verify a checkpoint by the log's key, and the witnesses' quorum."""
        head = verify_head(note, trust)
        if self.witnesses is not None:
            self.witnesses.check_log(trust.origin, trust.log_key_at(head.size))
            require_quorum(note, self.witnesses)
        return head

    @contextmanager
    def _lock(self, path: Path) -> Iterator[None]:
        try:
            for folder in [parent for parent in (*self.folder.parents[::-1], self.folder) if not parent.exists()]:
                folder.mkdir(mode=0o700, exist_ok=True)
            with locked(path.with_suffix(".lock")):
                yield
        except OSError as error:
            raise LedgerUnavailable(
                f"{self.folder}: checkpoints cannot be kept there ({error.strerror}); nothing was believed"
            ) from error

    def advance(self, note: str, trust: PublicKeys, growth: Growth | None = None) -> Checkpoint:
        """Accept the checkpoint `note`, and keep it. `growth`: the proof that it continues the one kept here. Where
        witnesses are named, it may prove the other way round that a smaller one is the beginning of what was seen,
        which stays kept.

        Raises:
            LedgerInvalid, KeyInvalid: it is not signed by the log's key, or the witnesses' quorum is not met.
            OtherHistory: it is smaller than the one kept here, has another root, or comes without the proof.
        """
        head = self._verify_note(note, trust)
        path = self.path(trust.origin)
        with self._lock(path):
            stored = self.read(trust)
            if not (self.witnesses and _is_beginning(stored, head, growth)):
                self._hold(path, note, lambda: _compare(stored, head, growth))
            if stored is None or stored.head.size < head.size:
                replace_file(path, note.encode(), PRIVATE)
        return head


class Standing(Enum):
    """How a checkpoint that was handed over stands to the one kept here."""

    FIRST = "first"  # none was kept: now it is
    SAME = "same"
    CONTINUES = "continues"  # proved, and kept from now on
    BEGINNING = "beginning"  # proved: of what is kept
    NEWER = "newer"  # not proved
    OLDER = "older"  # not proved


def _is_beginning(seen: SeenCheckpoint | None, head: Checkpoint, growth: Growth | None) -> bool:
    """Return whether a checkpoint of fewer entries is proved to be the beginning of the one kept here: witnesses may
    not have cosigned that one yet. OtherHistory where the proof does not hold.
    """
    if seen is None or growth is None or not growth.earlier == head.size < seen.head.size:
        return False
    _verify(seen, head, growth)
    return True


def _verify(seen: SeenCheckpoint, head: Checkpoint, growth: Growth) -> None:
    """Raise OtherHistory unless the larger of the two trees begins with the smaller one."""
    smaller, larger = sorted((seen.head, head), key=lambda each: each.size)
    try:
        merkle.verify_consistency(smaller.size, larger.size, growth.hashes, smaller.root, larger.root)
    except LedgerInvalid as error:
        raise _refusal(seen, head, f"it does not continue what was seen ({error.message})") from error


def _compare(seen: SeenCheckpoint | None, head: Checkpoint, growth: Growth | None) -> None:
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
    _verify(seen, head, growth)


_TELL = "Nothing of it was believed. Tell the others who use it, and who audits it"


def _refusal(seen: SeenCheckpoint, head: Checkpoint, why: str) -> OtherHistory:
    before, now = (
        f"{checkpoint.size} entries, root {encode_base64(checkpoint.root)}" for checkpoint in (seen.head, head)
    )
    refused = seen.path.with_suffix(".refused")
    return OtherHistory(
        f"ledger {head.origin}: {why}. Seen here on {seen.when}: {before}. Shown now: {now}. {_TELL}: both checkpoints "
        f"are signed, and are kept as {seen.path} and {refused.name}",
        seen={"size": seen.head.size, "root": encode_base64(seen.head.root), "when": seen.when},
        shown={"size": head.size, "root": encode_base64(head.root)},
    )

"""Cosignatures: that others saw this checkpoint, and that it continues all they saw before (c2sp.org/tlog-cosignature).

Only Ed25519 cosignatures (`cosignature/v1`, type 0x04) are read; lines of other kinds and of unknown keys are ignored,
as the specification demands. What a witness says: as of that time, this is the largest tree of this log that it has
seen, and it has seen no other history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography.exceptions import InvalidSignature

from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.keys.verifier_keys import COSIGNATURE, key_id
from dpserve_verify.log.notes import Note, NoteSignature, parse_note, verify_checkpoint
from dpserve_verify.log.witness_policy import Witness, WitnessPolicy, printable_name

_TIME_SIZE, _SIGNATURE_SIZE = 8, 64
_LATEST = 2**63 - 1
_YEAR_10000 = 253_402_300_800  # seconds since 1970: no date of Python is so late


@dataclass(frozen=True)
class Cosignature:
    """Verified: the policy's name of the witness, and its clock's word in seconds since 1970."""

    witness: str
    time: int

    @property
    def when(self) -> str:
        """Return its time in UTC, to the second."""
        if self.time >= _YEAR_10000:
            return f"{self.time} s after 1970"
        return f"{datetime.fromtimestamp(self.time, UTC):%Y-%m-%dT%H:%M:%SZ}"

    @property
    def words(self) -> str:
        """Return who saw the checkpoint, and when by their own clock."""
        return f"{printable_name(self.witness)} at {self.when}"

    def to_json(self) -> dict[str, str]:
        """Return the same, by name."""
        return {"witness": self.witness, "time": self.when}


def signed_message(text: str, time: int) -> bytes:
    """Return the message that a witness signs: two lines before the note's text."""
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def is_by(signature: NoteSignature, witness: Witness) -> bool:
    """Return whether the line claims to be this witness's."""
    ours = witness.key_name, key_id(witness.key_name, witness.public_key, COSIGNATURE)
    return (signature.name, signature.key_id) == ours


def verify_cosignature(signature: NoteSignature, witness: Witness, text: str) -> Cosignature:
    """Return the cosignature over a note's text. LedgerInvalid unless this witness made it."""
    raw = signature.signature
    time = int.from_bytes(raw[:_TIME_SIZE], "big")
    if len(raw) != _TIME_SIZE + _SIGNATURE_SIZE or not 0 < time <= _LATEST:
        raise LedgerInvalid(f"witness {printable_name(witness.name)}: its cosignature must be a time and 64 bytes")
    try:
        witness.public_key.verify(raw[_TIME_SIZE:], signed_message(text, time))
    except InvalidSignature as error:
        raise LedgerInvalid(f"witness {printable_name(witness.name)}: its cosignature does not verify") from error
    return Cosignature(witness.name, time)


def cosignatures(note: Note, policy: WitnessPolicy) -> tuple[Cosignature, ...]:
    """Return the newest of each witness. Every line in a witness's name must verify, else LedgerInvalid."""
    newest: dict[str, Cosignature] = {}
    for witness in policy.witnesses:
        verified = (verify_cosignature(line, witness, note.text) for line in note.signatures if is_by(line, witness))
        for latest in sorted(verified, key=lambda cosignature: cosignature.time):
            newest[witness.name] = latest
    return tuple(newest.values())


def require_quorum(note: str, policy: WitnessPolicy) -> tuple[Cosignature, ...]:
    """Return the cosignatures of a checkpoint that meets the policy; LedgerInvalid says who is missing.

    Where the policy names logs, one of them must have signed the checkpoint. Where it names none, the caller has to
    verify the log's signature.
    """
    parsed = parse_note(note)
    if policy.logs:
        _signed_by_a_log(note, policy)
    verified = cosignatures(parsed, policy)
    names = [cosignature.witness for cosignature in verified]
    if not policy.met_by(names):
        missing = ", ".join(printable_name(witness.name) for witness in policy.witnesses if witness.name not in names)
        by = ", ".join(map(printable_name, names)) or "nobody"
        raise LedgerInvalid(f"quorum={printable_name(policy.quorum)}: not met; cosigned by {by}, not by {missing}")
    return verified


def with_cosignatures(note: str, lines: Iterable[NoteSignature]) -> str:
    """Return the note with these lines, in place of any older ones of the same keys."""
    parsed, added = parse_note(note), list(lines)
    keys = {(line.name, line.key_id) for line in added}
    remaining = [line for line in parsed.signatures if (line.name, line.key_id) not in keys]
    combined = f"{parsed.text}\n{''.join(line.line() for line in [*remaining, *added])}"
    parse_note(combined)  # what cannot be read is not written
    return combined


def _signed_by_a_log(note: str, policy: WitnessPolicy) -> None:
    problems = []
    for log in policy.logs:
        try:
            verify_checkpoint(note, log.origin, log.public_key)
        except LedgerInvalid as error:
            problems.append(error.message)
        else:
            return
    raise LedgerInvalid(f"checkpoint: signed by no log of the policy ({'; '.join(problems)})")

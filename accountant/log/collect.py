"""The newest checkpoint of this ledger that others cosigned: asked for, kept in the home, judged in audits.

It is kept beside the ledger as `witnessed`, a C2SP note like any checkpoint, with a line for each witness.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from accountant.log.entries import latest_checkpoint
from accountant.log.witness import SECONDS, address, ask
from accountant.store import store
from accountant.store.store import Store
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats import merkle
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log import notes
from dpserve_verify.log.cosignature import cosignatures, require_quorum, with_cosignatures
from dpserve_verify.log.notes import Checkpoint, NoteSignature
from dpserve_verify.log.seen_checkpoints import verify_head
from dpserve_verify.log.witness_policy import Witness, WitnessPolicy, printable_name
from dpserve_verify.log.witnessed import WITNESSED, read_witnessed
from dpserve_verify.system.files import PUBLIC, replace_file

MAX_REQUESTS = 8


@dataclass(frozen=True)
class Answer:
    """What came of asking one witness: lines to add to the note, or why there are none."""

    witness: str
    lines: tuple[NoteSignature, ...]
    problem: str

    @property
    def said(self) -> str:
        """Return one line for people."""
        return self.problem or f"witness {self.witness}: cosigned"


@dataclass(frozen=True)
class Witnessed:
    """A checkpoint with enough cosignatures, and what each witness answered."""

    note: str
    size: int
    answers: tuple[Answer, ...]


def cosign(
    database: Store, trust: PublicKeys, policy: WitnessPolicy, kept: str | None = None, seconds: float = SECONDS
) -> Witnessed:
    """Ask every witness of the policy to cosign the newest checkpoint. `kept`: the one that they cosigned before.

    LedgerInvalid where fewer than the quorum do; it says what each answered."""
    with database.reading() as connection:
        note = latest_checkpoint(connection)
    head = verify_head(note, trust)
    policy.check_log(trust.origin, trust.log_key_at(head.size))
    for witness in policy.witnesses:
        address(witness)  # a policy that cannot be used is said before anybody is asked
    last_signed = _last_signed(kept, policy)
    ask_witness = partial(_ask, note=note, head=head, database=database, known=last_signed, seconds=seconds)
    with ThreadPoolExecutor(MAX_REQUESTS) as pool:
        answers = tuple(pool.map(ask_witness, policy.witnesses))
    cosigned_note = with_cosignatures(note, [line for answer in answers for line in answer.lines])
    try:
        require_quorum(cosigned_note, policy)
    except LedgerInvalid as error:
        refusals = "; ".join(answer.said for answer in answers)
        raise LedgerInvalid(f"{error.message} [{refusals}]", answers=[answer.said for answer in answers]) from error
    return Witnessed(cosigned_note, head.size, answers)


def _ask(
    witness: Witness, note: str, head: Checkpoint, database: Store, known: dict[str, int], seconds: float
) -> Answer:
    def prove(old: int) -> list[bytes]:
        with database.reading() as connection:
            return merkle.consistency_proof(old, head.size, store.node_reader(connection))

    try:
        lines = ask(witness, note, prove, min(known.get(witness.name, 0), head.size), seconds)
    except LedgerInvalid as error:
        return Answer(printable_name(witness.name), (), error.message)
    return Answer(printable_name(witness.name), lines, "")


def _last_signed(kept: str | None, policy: WitnessPolicy) -> dict[str, int]:
    """Return the size that each witness is thought to have signed last: a first guess that saves a request."""
    if kept is None:
        return {}
    try:
        size = notes.parse_checkpoint(kept).size
        return {cosignature.witness: size for cosignature in cosignatures(notes.parse_note(kept), policy)}
    except LedgerInvalid:  # of another policy's witnesses, or damaged: each will say what it knows
        return {}


def keep(home: Path, note: str) -> None:
    """Make this the home's cosigned checkpoint, unless it holds one of a larger tree."""
    before = read_witnessed(home)
    if before is None or notes.parse_checkpoint(before).size <= notes.parse_checkpoint(note).size:
        replace_file(home / WITNESSED, note.encode(), PUBLIC)


@contextmanager
def standing(home: Path, database: Store) -> Iterator[tuple[Connection, str, str | None]]:
    """Open the ledger of a home as it stands at this moment: a snapshot, its newest checkpoint, and the newest that
    witnesses cosigned. Files are read before it, so that none of them signs an entry that the snapshot lacks.
    """
    cosigned = read_witnessed(home)
    with database.reading() as connection:
        yield connection, newest(home, connection), cosigned


def newest(home: Path, connection: Connection) -> str:
    """Return the newest checkpoint, with its cosignatures where it is the one that was cosigned."""
    note, cosigned = latest_checkpoint(connection), read_witnessed(home)
    if cosigned is not None and notes.parse_note(cosigned).text == notes.parse_note(note).text:
        return cosigned
    return note
